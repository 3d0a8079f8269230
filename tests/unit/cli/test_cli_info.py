"""``info``: who has a store, what a crash left, and how much there is of everything."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore.cli import inspect, main
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.lock_owner import lock_owner
from support.unprivileged import run_unprivileged

pytestmark = pytest.mark.pure

WRITER = """
import sys, rmqstore
store = rmqstore.open(sys.argv[1], "a", config=rmqstore.StoreConfig.small())
store.create_topic("empty", 7)
for number in range(int(sys.argv[2])):
    store.put("orders", b"x" * 100, keys=f"k{number}")
print("ready", flush=True)
sys.stdin.read()
store.close()
"""
# As Java locks it: a lock of the process.
JAVA_LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)
print("ready", flush=True)
sys.stdin.read()
"""


def facts(root: Path, *options: str) -> dict[str, object]:
    result = CliRunner().invoke(main, ["info", str(root), "-o", "jsonl", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown(root: Path) -> str:
    result = CliRunner().invoke(main, ["info", str(root), "-o", "table"])
    assert result.exit_code == 0, result.output
    return result.stdout


@contextmanager
def running(code: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def counted(root: Path) -> int:
    with rmqstore.open(root) as store:
        return store.scan().count()


def test_in_use_closed_and_killed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with running(WRITER, root, 100) as owner:
        found = facts(root)
        assert (found["state"], found["clean"], found["tail_bytes"]) == ("in use", False, 0)
        assert found["owner"] == {
            "pid": owner.pid,
            "command": f"{Path(sys.executable).name} {' '.join(WRITER.split())[:80]}",
        }
        state = next(line for line in shown(root).splitlines() if line.startswith("state"))
        assert f"in use by process {owner.pid} (" in state
        assert len(state) < 130
        owner.communicate("")
    assert facts(root)["state"] == "closed"
    with running(WRITER, root, 100) as owner:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    found = facts(root)
    assert (found["state"], found["owner"], found["tail_bytes"]) == ("not closed", None, 0)
    assert "killed, or lost power" in shown(root)
    assert "none: the log ends with a whole record" in shown(root)
    assert found["messages"] == counted(root) == 200


@pytest.mark.parametrize("torn", [1, 57, 4096, 3_000_000])
def test_how_far_the_tail_goes_is_what_recovery_cuts(tmp_path: Path, torn: int) -> None:
    root = tmp_path / "store"
    with running(WRITER, root, 10) as owner:
        owner.kill()
        owner.wait()
    end = facts(root)["log_end"]
    assert isinstance(end, int)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(end + torn - 1)  # behind a hole, or whatever was reserved there
        file.write(b"x")
    found = facts(root)
    assert (found["log_end"], found["tail_bytes"]) == (end, torn)
    assert f"{torn:,} bytes behind the last whole record" in shown(root)
    with rmqstore.open(root, "r+") as store:
        assert store.recovery.log_end == end
        assert store.recovery.bytes_cut == torn
    assert facts(root)["tail_bytes"] == 0


def test_a_lock_as_java_takes_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with running(WRITER, root, 1) as owner:
        owner.kill()
        owner.wait()
    with running(JAVA_LOCK, root / "lock") as owner:
        assert facts(root)["owner"]["pid"] == owner.pid  # type: ignore[index]
        found = run_unprivileged("-m", "rmqstore", "info", root)
        assert json.loads(found.stdout)["owner"]["pid"] == owner.pid
        (root / "lock").chmod(0)
        found = run_unprivileged("-m", "rmqstore", "info", root)
        assert json.loads(found.stdout)["owner"]["pid"] == owner.pid
    (root / "lock").chmod(0o600)
    assert facts(root)["state"] == "not closed"


def test_a_lock_that_may_not_be_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with running(WRITER, root, 1) as owner:
        (root / "lock").chmod(0)
        done = run_unprivileged("-m", "rmqstore", "info", root)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["state"] == "in use"
        assert found["owner"]["pid"] in (None, owner.pid)
        owner.kill()
        owner.wait()
    found = json.loads(run_unprivileged("-m", "rmqstore", "info", root).stdout)
    assert (found["state"], found["owner"]) == ("not closed", None)


def test_a_lock_that_nothing_tells_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    with running(WRITER, root, 1) as owner:
        owner.kill()
        owner.wait()

    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("rmqstore.cli.state.lock_owner", refused)
    assert facts(root)["state"] == "unknown"
    assert "its lock cannot be read (Permission denied)" in shown(root)


def test_without_a_lock_file_nobody_has_it(tmp_path: Path) -> None:
    assert lock_owner(tmp_path) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["java", "-Xmx1g", "-cp", "/a:/b", "-Dx=y", "org.Broker", "-n", "h"], "java org.Broker"),
        (["/usr/bin/python3", "-u", "ingest.py", "--fast"], "python3 ingest.py"),
        (["rmqstore"], "rmqstore"),
    ],
)
def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes("\0".join(arguments).encode() + b"\0")
    monkeypatch.setattr("rmqstore.directory.lock_owner._PROCESSES", tmp_path)
    from rmqstore.directory import lock_owner as module

    assert module._command(7) == said
    assert module._command(8) is None


@pytest.mark.parametrize("name", ["broker-clean", "broker-killed", "quickstart"])
def test_messages_and_queues_of_a_broker(name: str, broker_store: Callable[[str], object]) -> None:
    root = broker_store(name).root  # type: ignore[attr-defined]
    found = facts(root)
    assert found["messages"] == counted(root)
    with_files = [
        path
        for path in (root / "consumequeue").glob("*/*")
        if any(one.stat().st_blocks for one in path.iterdir())
    ]
    assert found["queues"] == len(with_files)
    with rmqstore.open(root) as store:
        every = sum(len(topic) for topic in store.topics.values())
    assert found["queues_without_files"] == every - len(with_files)
    assert f"{every - len(with_files):,} more queues" in shown(root)


def test_messages_of_a_deleted_topic_count_as_in_a_scan(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        for topic in ("a", "b"):
            store.put_many(topic, [b"x"] * 100)
        store.delete_topic("a")
        assert facts(root)["messages"] == store.scan().count() == 200
    found = facts(root)
    assert (found["messages"], found["queue_entries"]) == (200, 100)
    assert found["queues"] == 4
    assert "200; 100 entries in 4 queues of 1 topic" in shown(root)


def test_a_large_log_is_counted_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        for topic in ("a", "b"):
            store.put_many(topic, [b"x"] * 100)
        store.delete_topic("a")
    monkeypatch.setattr(inspect, "_COUNTED_BYTES", 1000)
    found = facts(root)
    assert (found["messages"], found["messages_counted"]) == (100, False)
    assert "about 100" in shown(root)
    found = facts(root, "--count")
    assert (found["messages"], found["messages_counted"]) == (200, True)


def test_info_changes_nothing_of_what_was_killed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with running(WRITER, root, 10) as owner:
        owner.kill()
        owner.wait()
    before = {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}
    shown(root)
    assert {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]} == before
