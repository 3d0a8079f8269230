"""A closed store whose checkpoint names a later time than its log has: all else may be gone."""

from __future__ import annotations

import shutil
import struct
import tempfile
import time
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import offline
from support import archives

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1024,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=10,
    max_index_num=40,
)
NOW = int(time.time() * 1000)
STORES = Path(__file__).resolve().parents[2] / "data" / "stores"


def store_of(root: Path, times: list[int], physic: int, logics: int) -> None:
    """Make a closed store as a broker leaves it, with records of these store times."""
    with rmqstore.CommitLog(root / "commitlog", file_size=1024, mode="a") as log:
        for number, at in enumerate(times):
            log.append(
                [rmqstore.encode_record("T", b"x" * 100, queue_offset=number, store_timestamp=at)]
            )
    (root / "checkpoint").write_bytes(struct.pack(">qqq", physic, logics, 0) + bytes(4072))


def found(root: Path) -> list[offline.Finding]:
    return [one for one in offline.broker_start(root).findings if one.kind == "checkpoint"]


def test_the_last_file_queues_and_index_are_gone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    times = [NOW + number for number in range(20)]
    store_of(root, times, 0, times[-1])
    assert found(root) == []
    max((root / "commitlog").iterdir()).unlink()
    [one] = found(root)
    assert (one.severity, one.file) == ("warn", "checkpoint")
    assert "compare with a copy" in one.message
    with rmqstore.open(root) as store:
        newest = max(one.store_timestamp for one in store.scan())
    assert rmqstore.base.times.format_millis(newest) in one.message
    (root / "abort").touch()  # of a killed store it says nothing
    assert found(root) == []


@pytest.mark.parametrize("archive", sorted(STORES.iterdir()), ids=lambda path: path.name)
def test_no_alarm_on_stores_of_brokers(tmp_path: Path, archive: Path) -> None:
    archives.unpack(archive, tmp_path)
    roots = [log.parent for log in tmp_path.rglob("commitlog")]
    assert roots
    for root in roots:
        assert found(root) == []
        shutil.rmtree(root / "index", ignore_errors=True)
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
        assert found(root) == []


@given(
    st.lists(st.integers(-7_200_000, 7_200_000), min_size=1, max_size=25),
    st.integers(0, 24),
    st.booleans(),
)
def test_no_alarm_where_the_clock_was_set(steps: list[int], flushed: int, never: bool) -> None:
    """The log's flush noted any of the records, or none; the queues' the last one."""
    times = [NOW - (100 << 20) + one for one in accumulate(steps)]
    physic = 0 if never else times[min(flushed, len(times) - 1)]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "store")
        store_of(root, times, physic, times[-1])
        assert found(root) == []


def test_no_alarm_on_our_own(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(30):
            store.put("T", b"%d" % number, queue_id=0)
    assert found(root) == []


@pytest.mark.parametrize("first", [1, 30])
def test_a_broker_has_written_behind_our_watermark(tmp_path: Path, first: int) -> None:
    """It keeps the watermark, which names nothing of what it has written."""
    root = tmp_path / "store"
    checkpoint = root / "checkpoint"
    for mode, count in (("a", first), ("r+", 30)):
        before = checkpoint.read_bytes() if checkpoint.exists() else b""
        with rmqstore.open(root, mode, config=CONFIG) as store:  # type: ignore[call-overload]
            for number in range(count):
                store.put("T", b"%d" % number, queue_id=0)
            store.clock.advance(10)
            store.put("T", b"last", queue_id=0)
    assert found(root) == []
    checkpoint.write_bytes(checkpoint.read_bytes()[:2048] + before[2048:])
    assert found(root) == []
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    assert found(root) == []
    max((root / "commitlog").iterdir()).unlink()
    [one] = found(root)
    assert (one.severity, one.file) == ("warn", "checkpoint")


def test_times_that_are_none(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store_of(root, [NOW], 1 << 62, NOW)
    assert found(root) == []
