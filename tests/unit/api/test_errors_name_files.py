"""What the system refuses is an error that names the file it is about, whoever meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from support.unprivileged import REMEDY, run_unprivileged

pytestmark = pytest.mark.pure

USE = """
import sys, logging, rmqstore
logging.disable()
root, mode = sys.argv[1:]

def attempt(job):
    try:
        job()
    except Exception as error:
        print(getattr(error, "filename", None) or "-", "|", error)

def all_of_it():
    with rmqstore.open(root, mode) as store:
        attempt(lambda: store.get("t", 0, 0))
        attempt(lambda: list(store["t"][0]))
        attempt(lambda: store.query("t", "k1"))
        attempt(lambda: store.scan().count())
        if mode != "r":
            attempt(lambda: store.put("t", b"y", queue_id=0))
            attempt(lambda: store.put("new", b"y"))
            attempt(lambda: store.create_topic("made"))
            attempt(store.flush)

attempt(all_of_it)
"""


def make(root: Path) -> Path:
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        for number in range(8):
            store.put("t", b"x", queue_id=number % 2, keys=f"k{number}")
    return root


def met(root: Path, mode: str) -> list[str]:
    done = run_unprivileged("-c", USE, root, mode)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


FILE = "0" * 20

REFUSED = [
    ("", "r", "commitlog"),
    ("", "r+", "commitlog"),
    ("commitlog", "r", "commitlog"),
    ("commitlog", "r+", "commitlog"),
    (f"commitlog/{FILE}", "r", f"commitlog/{FILE}"),
    (f"commitlog/{FILE}", "r+", f"commitlog/{FILE}"),
    ("consumequeue", "r", "consumequeue"),
    ("consumequeue/t", "r+", "consumequeue/t"),
    ("consumequeue/t/0", "r", "consumequeue/t/0"),
    ("consumequeue/t/0", "r+", "consumequeue/t/0"),
    (f"consumequeue/t/0/{FILE}", "r", f"consumequeue/t/0/{FILE}"),
    (f"consumequeue/t/0/{FILE}", "r+", f"consumequeue/t/0/{FILE}"),
    ("index", "r+", "index"),
    ("config", "r", "config/topics.json"),
    ("config/topics.json", "r+", "config/topics.json"),
    ("checkpoint", "r+", "checkpoint"),
    ("lock", "r+", "lock"),
]


@pytest.mark.long
@pytest.mark.parametrize(("what", "mode", "named"), REFUSED)
def test_what_may_not_be_read(tmp_path: Path, what: str, mode: str, named: str) -> None:
    root = make(tmp_path / "store")
    (root / what).chmod(0)
    try:
        lines = met(root, mode)
    finally:
        (root / what).chmod(0o700)
    assert lines
    for line in lines:
        name, _, text = line.partition(" | ")
        assert name == str(root / named), line
        assert str(root / named) in text
        assert text.count("Permission denied") == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("", "abort"),
        (f"commitlog/{FILE}", f"commitlog/{FILE}"),
        (f"consumequeue/t/0/{FILE}", f"consumequeue/t/0/{FILE}"),
        ("consumequeue", "consumequeue/new/0"),
        ("config", "config/topics.json"),
        ("checkpoint", "checkpoint"),
        ("lock", "lock"),
    ],
)
def test_what_may_not_be_written(tmp_path: Path, what: str, named: str) -> None:
    root = make(tmp_path / "store")
    path = root / what
    path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        lines = met(root, "r+")
    finally:
        path.chmod(0o700)
    assert lines
    for line in lines:
        assert str(root / named) in line
        assert line.count("Permission denied") == 1


@pytest.mark.parametrize(
    ("what", "mode", "named"),
    [
        ("commitlog", "a", "commitlog"),
        ("consumequeue", "r+", "consumequeue"),
        ("consumequeue/t", "r+", "consumequeue/t/0"),
        ("consumequeue/t/0", "r+", "consumequeue/t/0"),
        ("index", "r+", "index"),
        ("config", "r", "config/topics.json"),
        ("config/topics.json", "r+", "config/topics.json"),
        ("lock", "r+", "lock"),
        ("abort", "r+", "abort"),
    ],
)
def test_a_file_in_place_of_a_directory_and_the_reverse(
    tmp_path: Path, what: str, mode: str, named: str
) -> None:
    root = make(tmp_path / "store")
    path = root / what
    if path.is_dir():
        path.rename(tmp_path / "before")
        path.write_bytes(b"x")
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises((OSError, rmqstore.StoreError)) as raised:
        rmqstore.open(root, mode, config=StoreConfig.small())
    assert str(root / named) in str(raised.value)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


def cli(*args: object, **how: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "rmqstore", *map(str, args)],
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
        **how,  # type: ignore[call-overload]
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "args",
    [["cat"], ["cat", "-o", "csv"], ["cat", "-o", "table"], ["info"], ["find", "-k", "k1"], ["-h"]],
)
def test_output_that_cannot_be_written(tmp_path: Path, args: list[str]) -> None:
    verb, *options = args
    root = [] if verb == "-h" else [make(tmp_path / "store")]
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = cli(verb, *root, *options, stdout=full)
    assert done.stderr == b"rmqstore: standard output: No space left on device\n"
    assert done.returncode == 4


def test_closed_streams(tmp_path: Path) -> None:
    root = make(tmp_path / "store")
    for command, said in ((f"cat {root} >&-", "output"), (f"put {root} t <&-", "input")):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m rmqstore {command}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == f"rmqstore: standard {said} is closed\n"
        assert done.returncode in (2, 4)


def test_the_command_line_names_it_first(tmp_path: Path) -> None:
    root = make(tmp_path / "store")
    log = root / "commitlog" / FILE
    log.chmod(0)
    done = run_unprivileged("-m", "rmqstore", "cat", root)
    assert done.stderr == f"rmqstore: {log}: cannot be opened: Permission denied{REMEDY}\n"
    assert done.returncode == 4
    tmp_path.chmod(0o555)
    done = run_unprivileged("-m", "rmqstore", "put", tmp_path / "new", "t", input=b"x\n")
    tmp_path.chmod(0o755)
    assert done.stderr == f"rmqstore: {tmp_path / 'new'}: Permission denied{REMEDY}\n"
