"""A standard error whose reader is gone, or whose disk is full, changes no verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore

pytestmark = pytest.mark.pure

CONFIG = rmqstore.StoreConfig.small()
FIRST = "0" * 20


def run(error: str, *arguments: object, stdin: bytes = b"") -> tuple[int, bytes]:
    """Return a verb's exit code and its standard output."""
    read, gone = os.pipe()
    os.close(read)
    with Path(os.devnull).open("wb") as null, Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rmqstore", *map(str, arguments)],
            check=False,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr={"taken": null, "gone": gone, "full": full}[error],
            timeout=60,
        )
    os.close(gone)
    return done.returncode, done.stdout


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store with a damaged record."""
    root = tmp_path / "damaged"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        done = [store.put("orders", b"m%d" % n, queue_id=0, keys="k") for n in range(20)]
    with (root / "commitlog" / FIRST).open("r+b") as log:
        log.seek(done[5].physical_offset + 88)
        log.write(b"\xff")
    return root


@pytest.mark.parametrize("error", ["gone", "full"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["cat"],
        ["cat", "-q", "0", "-t", "orders", "-o", "csv"],
        ["find", "-k", "k"],
        ["get", "none"],
        ["info"],
        ["lag"],
        ["cat", "--nonsense"],
    ],
)
def test_reading_verbs(damaged: Path, error: str, arguments: list[str]) -> None:
    verb, *options = arguments
    wanted = run("taken", verb, damaged, *options)
    assert run(error, verb, damaged, *options) == wanted
    if verb == "cat" and "--nonsense" not in options:
        assert (wanted[0], wanted[1].count(b"m19")) == (4, 1)


@pytest.mark.parametrize("error", ["taken", "gone", "full"])
@pytest.mark.parametrize("killed", [False, True])
def test_put(tmp_path: Path, error: str, killed: bool) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        end = store.put("orders", b"first").physical_offset + 400
    if killed:
        (root / "abort").touch()
        (root / "checkpoint").unlink()
        with (root / "commitlog" / FIRST).open("r+b") as log:
            log.seek(end)
            log.write(b"torn tail")  # what is cut is named on standard error
    assert run(error, "put", root, "orders", stdin=b"one\ntwo\n") == (0, b"")
    with rmqstore.open(root) as store:
        assert store.scan().count() == 3


@pytest.mark.parametrize("error", ["taken", "gone", "full"])
def test_no_store(tmp_path: Path, error: str) -> None:
    assert run(error, "cat", tmp_path / "none") == (4, b"")
    assert run(error) == (2, b"")
