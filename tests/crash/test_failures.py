"""Syncs that fail: the first is final, and whoever calls next is told."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from crash import checks, writer
from crash.checks import SHORT, Known
from faults import tiny
from rmqstore import _core
from support import oracle_store

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

# What opening, and a call on an open store, may raise by the manual.
OPENING = {"OSError", "PermissionError", "StoreLockedError", "StoreCorruptError"}
OPENING |= {"IncompatibleStoreError", "BlockingIOError"}
WRITING = {"PutError", "StoreFailedError", "OSError"}


@pytest.fixture(scope="module", autouse=True)
def _faults_build():
    if not _core.FAULTS:
        pytest.fail("no failure injection in this build: build it with RMQSTORE_BUILD=faults")


class Outcome:
    """What one case said, and what is on its disk."""

    def __init__(self, directory: Path, number: int, plan: str, before: Known) -> None:
        self.plan = plan
        self.root = directory / str(number)
        said = (directory / f"{number}.said").read_text()
        *lines, last = said.splitlines()
        assert last == "ended 0", (plan, lines[-3:], last)
        self.known = Known(dict(before.places), before.prefixes | {"f"})
        self.raised = []
        self.acked_after = {}  # number of what was raised -> acknowledged from then on
        acked = []
        for line in lines:
            if line.startswith("raised "):
                self.raised.append(line.split(" ", 4)[1:])
            else:
                acked.append(line)
                self.acked_after[len(self.raised)] = self.acked_after.get(len(self.raised), 0) + 1
        self.known.learn("".join(line + "\n" for line in acked).encode())

    def check_errors(self) -> None:
        for where, kind, number, text in self.raised:
            allowed = OPENING if where == "open" else WRITING
            assert kind in allowed, (self.plan, where, kind, number, text)
            assert text, (self.plan, where, kind)

    def check_disk(self, flush: str) -> None:
        try:
            checks.verify(self.root, self.known, flush)
        except BaseException as error:
            error.add_note(f"{self.plan}, {self.raised[:3]}, in {self.root}")
            raise


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A store that was killed: opening it has to recover, so that this can fail, too."""
    root = tmp_path_factory.mktemp("base") / "store"
    status, said = checks.run_writer(root, "base", "ASYNC_FLUSH", 5, RMQ_KILL_AT="after-append:150")
    assert status == -9
    known = Known(prefixes={"base"})
    known.learn(said)
    checks.tear(root)
    return root, known


def run_cases(directory: Path, base: tuple[Path, Known], flush: str, plans: list[str]):
    (directory / "base").symlink_to(base[0])
    command = [sys.executable, checks.HERE / "faults.py", directory, flush, *plans]
    done = subprocess.run(
        command,
        env=checks.environment(),
        capture_output=True,
        timeout=65 * len(plans),
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [Outcome(directory, number, plan, base[1]) for number, plan in enumerate(plans)]


@pytest.mark.parametrize("again", ["", "+"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_the_first_failed_sync_is_final(tmp_path, base, flush, again):
    """fsyncgate: the next sync may succeed without the bytes being on the disk."""
    step = 14 if SHORT else 7
    plans = [f"sync:{count}:{errno.EIO}{again}" for count in range(1, 60, step)]
    met = 0
    for outcome in run_cases(tmp_path, base, flush, plans):
        outcome.check_errors()
        assert outcome.raised or flush == "ASYNC_FLUSH", f"{outcome.plan} went unnoticed"
        failed = [
            place
            for place, (_, kind, *_) in enumerate(outcome.raised)
            if kind == "StoreFailedError"
        ]
        opened = all(where != "open" for where, *_ in outcome.raised)
        if opened and outcome.raised:
            met += 1
            assert failed, (outcome.plan, outcome.raised[:3])
            late = sum(n for place, n in outcome.acked_after.items() if place > failed[0])
            assert late == 0, f"{outcome.plan}: {late} acknowledged after {outcome.raised[0]}"
            where = [entry[0] for entry in outcome.raised]
            assert "close" in where, (outcome.plan, where)
            assert "close-again" not in where, (outcome.plan, where)
            puts = [entry for entry in outcome.raised if entry[0].startswith("put")]
            assert {entry[1] for entry in puts} <= {"StoreFailedError"}, (outcome.plan, puts[:3])
        if outcome.raised:
            assert not oracle_store.is_clean(outcome.root), outcome.plan
        outcome.check_disk(flush)
    assert met >= 3, "the workload's own syncs were not met"


def test_a_kill_leaves_abort_and_the_next_opening_says_so(base, tmp_path):
    root = Path(shutil.copytree(base[0], tmp_path / "store"))
    assert not oracle_store.is_clean(root)
    with rmqstore.open(root, "r+") as store:
        assert not store.recovery.clean
        assert store.stats()["dispatch_behind_bytes"] == 0
        checks.assert_holds(store, base[1])
    with rmqstore.open(root, "r+") as store:
        assert store.recovery.clean


def test_what_fails_in_the_background_is_seen_by_the_next_caller(tmp_path, monkeypatch):
    root = tmp_path / "store"
    monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1000000:{errno.EIO}")
    store = rmqstore.open(root, "a", config=writer.config("ASYNC_FLUSH"))
    store.put("Topic1", b"good", keys="good", queue_id=0)
    store.wait_durable()
    assert len(store.query("Topic1", "good")) == 1  # a store that failed waits for no dispatch
    monkeypatch.setenv("RMQ_FAIL_AT", f"sync:1:{errno.EIO}+")  # the count starts with the process
    with pytest.raises(rmqstore.StoreFailedError):  # noqa: PT012 - one of many
        for _ in range(1000):
            store.put("Topic1", b"?", queue_id=0)
            store.wait_durable(timeout=60)
    with pytest.raises(rmqstore.StoreFailedError):
        store.put("Topic1", b"?", queue_id=0)
    assert store.query("Topic1", "good")[0].body == b"good"  # reading goes on
    with pytest.raises((rmqstore.StoreFailedError, OSError)):
        store.close()
    assert store.closed
    store.close()
    monkeypatch.delenv("RMQ_FAIL_AT")
    assert (root / "abort").exists()
    with rmqstore.open(root, "r+") as store:
        assert store.get("Topic1", 0, 0).messages[0].body == b"good"
        store.put("Topic1", b"again", queue_id=0)


@pytest.mark.parametrize("call", ["open", "fstat", "mmap", "pread", "fallocate"])
def test_a_refused_opening_leaves_a_brokers_closed_store_as_it_was(tmp_path, monkeypatch, call):
    """Whichever call fails: without a watermark the last record is entered into the index again."""
    image = tiny.brokers(tmp_path, "closed")
    root = tmp_path / "store"
    refused = 0
    for number in range(1, 60):
        tiny.write_files(root, image.files, image.directories)
        count = _core.fault_counts()[0] + number
        monkeypatch.setenv("RMQ_FAIL_AT", f"{call}:{count}:{errno.EIO}")
        try:
            store = rmqstore.open(root, "a", config=tiny.config("SYNC_FLUSH"))
        except OSError:
            refused += 1
            files = tiny.read_files(root)
            files.pop("lock", None)
            assert files == {name: data for name, data in image.files.items() if name != "lock"}
        else:
            monkeypatch.delenv("RMQ_FAIL_AT")
            store.close()
        shutil.rmtree(root)
    assert refused
