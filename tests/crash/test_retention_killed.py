"""Retention that is killed between any two of its steps, and what opening finds after it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from crash.checks import PATIENCE, environment
from rmqstore import _core

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

POINTS = [
    ("retention-before-unlink", 1),
    ("retention-before-unlink", 3),
    ("retention-after-unlink", 1),
    ("retention-after-unlink", 3),
    ("retention-after-log", 1),
    ("retention-queue-unlinked", 1),
    ("retention-queue-unlinked", 7),
    ("retention-after-queues", 1),
    ("retention-index-unlinked", 1),
    ("retention-index-unlinked", 2),
    ("retention-after-index", 1),
    ("retention-topic-removed", 1),
    ("before-checkpoint", 2),
]
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
KILLED = """
import sys
import rmqstore
store = rmqstore.open(sys.argv[1], "r+")
print(store.delete_expired(before=int(sys.argv[2])), flush=True)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of which half can go, and with it a topic that nothing names any more."""
    if not _core.FAULTS:
        pytest.fail("no kill points in this build: build it with RMQSTORE_BUILD=faults")
    root = tmp_path_factory.mktemp("base") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put("unused", b"alone", queue_id=0)
        for number in range(800):
            if number == 400:
                store.clock.advance(3600)
            store.put("t", b"%d" % number * 10, queue_id=number % 3, keys=f"k{number}")
    topics = root / "config/topics.json"
    topics.write_text(topics.read_text().replace('"unused"', '"other"'))
    return root


def link_files(root: Path, disk: Path) -> None:
    """Move every other file of log, queues and index to another directory, and link it."""
    for name in ("commitlog", "consumequeue", "index"):
        files = sorted(path for path in (root / name).rglob("*") if path.is_file())
        for path in files[::2]:
            target = disk / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            path.symlink_to(target)


def limit_of(root: Path) -> int:
    with rmqstore.open(root) as store:
        return store["t"][0][-1].store_timestamp


@pytest.mark.parametrize("linked", [False, True], ids=["", "linked"])
@pytest.mark.parametrize(("point", "count"), POINTS, ids=str)
def test_killed(base: Path, tmp_path: Path, point: str, count: int, linked: bool) -> None:
    root = tmp_path / "store"
    shutil.copytree(base, root)
    if linked:
        link_files(root, tmp_path / "disk")
    limit = limit_of(root)
    with rmqstore.open(root) as store:
        wanted = store.delete_expired(before=limit, dry_run=True)
        bodies = {m.physical_offset: m.body for m in store.scan()}
    assert wanted.files > 3
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), str(limit)],
        env=environment(RMQ_KILL_AT=f"{point}:{count}"),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with rmqstore.open(root) as reader:  # as it lies there
        first = reader.recovery.log_start
        assert {m.physical_offset: m.body for m in reader.scan()} == {
            at: body for at, body in bodies.items() if at >= first
        }
        check_queues(reader, first)
    with rmqstore.open(root, "r+") as store:
        assert not store.recovery.clean
        assert store.recovery.log_start == first
        assert store.recovery.bytes_cut == 0
        assert store.recovery.units_written == 0, store.recovery
        check_queues(store, first)
        for number in (0, 799):
            found = [m.physical_offset for m in store.query("t", f"k{number}")]
            assert found == [at for at in found if at >= first]
        assert store.query("t", "k799")
        put = store.put("t", b"more", queue_id=0)
        assert put.queue_offset == 267
        done_again = store.delete_expired(before=limit)
        assert done_again.until == wanted.until
        assert {m.physical_offset: m.body for m in store.scan()} == {
            at: body for at, body in bodies.items() if at >= wanted.until
        } | {put.physical_offset: b"more"}
    with rmqstore.open(root, "r+") as store:
        assert store.recovery.clean
        assert store["t"][0].max_offset == 268
    assert "unused" not in json.loads((root / "config/topics.json").read_text())


def check_queues(store: rmqstore.MessageStore, first: int) -> None:
    """Each queue has every message that the log has, and no other."""
    in_log: dict[tuple[str, int], list[int]] = {}
    for message in store.scan():
        place = message.topic, message.queue_id
        in_log.setdefault(place, []).append(message.queue_offset)
    assert store["t"]
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            offsets = list(range(queue.min_offset, queue.max_offset))
            assert offsets == in_log.get((name, queue_id), []), (name, queue_id, first)
            assert [m.queue_offset for m in queue] == offsets
