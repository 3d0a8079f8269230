"""What planners ask: what a scan was asked for, how far the log goes, which queues are where."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore.columns.scan import ScanExtent

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=100,
    max_index_num=400,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(200):
            store.put("t", b"x", queue_id=number % 2, born_timestamp=number)
    return tmp_path / "store"


def test_what_a_scan_was_asked_for(root: Path) -> None:
    with rmqstore.open(root) as store:
        scan = store.scan()
        assert scan.store is store
        assert (scan.topics, scan.keys, scan.tags) == ((), (), None)
        assert (scan.queue_id, scan.start, scan.stop) == (None, None, None)
        assert (scan.since, scan.until, scan.batch_rows) == (None, None, 16384)
        assert not scan.is_along_queue
        assert not scan.is_empty
        scan = store.scan(
            "t", 1, start=0, stop=7, since=0, until="2026-01-01T00:00:00Z", tags="A", keys="a b",
            batch_rows=5,
        )  # fmt: skip
        assert (scan.topics, scan.keys, scan.tags) == (("t",), ("a", "b"), "A")
        assert (scan.queue_id, scan.start, scan.stop) == (1, 0, 7)
        assert (scan.since, scan.until, scan.batch_rows) == (0, 1_767_225_600_000, 5)
        assert scan.is_along_queue
        assert scan.replace(**{name: getattr(scan, name) for name in (
            "queue_id", "start", "stop", "since", "until", "tags", "keys", "batch_rows"
        )}).to_table() == scan.to_table()  # fmt: skip
        assert not store.scan(["t", "u"], 1).is_along_queue
        assert not store.scan(queue_id=1).is_along_queue
        assert store.scan(topic=[]).is_empty
        assert store.scan(keys=[]).is_empty
        with pytest.raises(AttributeError):
            scan.topics = ()  # type: ignore[misc]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_how_far_the_log_goes(root: Path, mode: rmqstore.store.Mode) -> None:
    with rmqstore.open(root, mode) as store:
        end = store.recovery.log_end
        assert store.scan().extent() == ScanExtent(0, end, end)
        assert store.scan("t", 1, start=3).extent() == ScanExtent(0, end, end)
        assert store.scan().extent(queued=False) == ScanExtent(0, 0, end)
        if mode == "r+":
            done = store.put("t", b"more", queue_id=0)
            assert store.scan().extent().stop > done.physical_offset == end
    with pytest.raises(rmqstore.StoreClosedError):
        store.scan()


def test_queues_and_their_bounds(root: Path) -> None:
    with rmqstore.open(root) as store:
        assert store.queue_ids() == {"t": [0, 1]}
        assert store.queue_bounds("t", 1) == (0, 100)
        assert store.queue_bounds("t", 7) == store.queue_bounds("no-such", 0) == (0, 0)
        queue = store["t"][1]
        assert list(queue.units(90, 95)) == list(queue.units(90, 95, bounds=(0, 100)))
        with pytest.raises(IndexError, match="max is 92"):
            queue.units(90, 95, bounds=(0, 92))
        time = queue[50].store_timestamp
        assert queue.offset_at(time) == queue.offset_at(time, bounds=(0, 100))
        assert queue.offset_at(0, bounds=(30, 100)) == 30
        assert queue.offset_at(1 << 60, bounds=(0, 60)) == 60
        assert queue.offset_at(1 << 60, "upper", bounds=(0, 60)) == 59


def test_deleted_topics(root: Path) -> None:
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.deleted_topics == {}
        end = store.recovery.log_end
        store.delete_topic("t")
        assert dict(store.deleted_topics) == {"t": end}
        with pytest.raises(TypeError):
            store.deleted_topics["t"] = 0  # type: ignore[index]
    with rmqstore.open(root) as store:
        assert dict(store.deleted_topics) == {"t": end}
        assert store.queue_ids() == {}
