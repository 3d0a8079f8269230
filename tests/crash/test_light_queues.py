"""A writer of light queues killed at named points: what it acknowledged is in each queue."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from crash.checks import PATIENCE, environment
from support import oracle_store
from support.light_model import LightModel

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

POINTS = [
    *("before-light-unit:1", "before-light-unit:2", "before-light-unit:77", "before-unit:30"),
    *("before-copy:50", "mid-copy:40", "mid-record:33", "after-append:60", "after-filler:1"),
    *("before-filler:2", "index-entry:21"),
]
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=8192,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=10,
    max_index_num=40,
    flush_interval_commit_log=5,
    flush_interval_consume_queue=5,
)
MESSAGES = 150
WRITER = """
import sys, rmqstore
from crash import test_light_queues as own
with rmqstore.open(sys.argv[1], "a", config=own.CONFIG) as store:
    for n in range(int(sys.argv[2]), own.MESSAGES):
        store.put("t", own.body(n), queue_id=n % 2, keys=f"k{n}", lite_topics=own.names(n))
        print(n, flush=True)
"""


def names(n: int) -> list[str]:
    return [["a"], ["b", "a"], [], ["c", "%LMQ%a", "b"]][n % 4]


def body(n: int) -> bytes:
    return b"%d " % n * (1 + n % 40)


def written(root: Path, first: int, plan: str) -> tuple[int, int]:
    """Run a writer from message ``first`` on: its exit status, and the end of what it said."""
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(root), str(first)],
        env=environment(RMQ_KILL_AT=plan),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode in (0, -9), done.stderr.decode()
    said = done.stdout.split()
    return done.returncode, int(said[-1]) + 1 if said else first


def holds(store: Any, acknowledged: int) -> int:
    """All that was acknowledged is there, and perhaps the next message; how many are."""
    count = sum(queue.max_offset for queue in store["t"].values()) if "t" in store.topics else 0
    assert acknowledged <= count <= acknowledged + 1
    model = LightModel()
    for n in range(count):
        model.put(body(n), names(n))
    model.assert_holds(store, begun=names(count))
    assert [m.body for m in store.scan("t")] == [body(n) for n in range(count)]
    return count


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    status, acknowledged = written(root, 0, point)
    assert status == -9, "the point was not passed"
    if not any((root / "commitlog").iterdir()):
        return
    before = oracle_store.snapshot(root)
    with rmqstore.open(root, "r") as store:
        count = holds(store, acknowledged)
    assert oracle_store.snapshot(root) == before
    # Killed again, in the recovery or soon after it.
    recovering = ["recover-after-log:1", "before-light-unit:1", "recover-after-queues:1"]
    status, again = written(root, count, recovering[len(point) % 3])
    assert status == -9
    with rmqstore.open(root, "r", config=CONFIG) as store:
        holds(store, max(count, again))
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        count = holds(store, max(count, again))
        store.put("t", body(count), queue_id=count % 2, keys=f"k{count}", lite_topics=names(count))
        holds(store, count + 1)
    oracle_store.check_store(root)


def test_a_full_disk(tmp_path: Path) -> None:
    """A put that finds no room for a unit of a light queue stores nothing, and uses no offset.

    Files are made by puts and, ahead of them, by a thread: calls are made to fail one after the
    other, until one was that of a put.
    """
    failed = 0
    for call in range(7, 17):
        root = tmp_path / str(call)
        failed = full_at(root, call)
        with rmqstore.open(root, "r") as store:
            assert holds(store, MESSAGES) == MESSAGES
        oracle_store.check_store(root)
        if failed:
            break
    assert failed > 0


def full_at(root: Path, call: int) -> int:
    """Write all messages, with a disk that is full at one call; return how many puts failed."""
    code = f"""
import os, sys, time
os.environ["RMQ_FAIL_AT"] = "fallocate:{call}:{errno.ENOSPC}"
sys.argv[1:] = [{str(root)!r}, "0"]
import rmqstore
from crash import test_light_queues as own
store = rmqstore.open(sys.argv[1], "a", config=own.CONFIG)
until = time.monotonic() + 30
n = failed = 0
while n < own.MESSAGES:
    try:
        store.put("t", own.body(n), queue_id=n % 2, keys=f"k{{n}}", lite_topics=own.names(n))
        n += 1
    except rmqstore.PutError as error:
        failed += 1
        assert error.status == rmqstore.PutStatus.DISK_FULL, error
        assert error.result is None
        assert time.monotonic() < until, error
        time.sleep(0.001)  # queues and index are written again when it is their turn
store.close()
print(failed)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stdout)
