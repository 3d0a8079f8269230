"""The figures of a store: counters, times and rates, under RocketMQ's names and ours."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessageIllegalError
from rmqstore.services.figures import PUT_TIME_CLASSES, disk_used_ratio


def test_puts_and_gets_are_counted(store: rmqstore.MessageStore) -> None:
    sizes = 0
    for number in range(10):
        done = store.put("t", b"x" * number, queue_id=0)
        sizes += store.at(done.physical_offset).store_size
    many = store.put_many("t", [b"a", b"b"], queue_id=0)
    batch = store.put_batch("t", [b"a", b"b", b"c"], queue_id=0)
    sizes = store.stats()["wrote_position"]
    assert (many.count, batch.count) == (2, 3)
    assert len(store.get("t", 0, 0, 7)) == 7
    assert len(store.get("t", 0, 100)) == 0
    found = store.stats()
    assert found["putMessageTimesTotal"] == 15
    assert found["putMessageSizeTotal"] == sizes
    assert found["putMessageAverageSize"] == sizes / 15
    times = found["putMessageDistributeTime"]
    assert tuple(times) == PUT_TIME_CLASSES
    assert sum(times.values()) == found["put_calls"] == 12  # calls, however many messages
    assert found["putMessageFailedTimes"] == 0
    assert found["commitLogMinOffset"] == 0
    assert found["commitLogMaxOffset"] == found["wrote_position"] == sizes
    assert found["earliestMessageTimeStamp"] == store.at(0).store_timestamp
    counted = store.core.figures()
    assert (counted["get_found"], counted["get_missed"]) == (1, 1)
    assert counted["get_transferred"] == 7


def test_what_is_refused_before_the_log_counts_nowhere(store: rmqstore.MessageStore) -> None:
    with pytest.raises(MessageIllegalError):
        store.put("../t", b"")
    assert store.stats()["putMessageTimesTotal"] == 0
    assert store.stats()["earliestMessageTimeStamp"] == -1


def test_the_wait_for_the_disk_counts(tmp_path: Path) -> None:
    config = StoreConfig.small(flush_disk_type="SYNC_FLUSH")
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.put("t", b"x")
        found = store.stats()
        assert sum(found["putMessageDistributeTime"].values()) == 1
        assert found["flush_behind_bytes"] == found["remainHowManyDataToFlush"] == 0


@pytest.mark.long
def test_rates_are_of_the_time_that_there_is(tmp_path: Path) -> None:
    config = StoreConfig.small(flush_interval_consume_queue=20)
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        assert store.stats()["putTps"] == ()
        until = time.monotonic() + 60
        while not store.stats()["putTps"] and time.monotonic() < until:
            store.put("t", b"x")
            store.get("t", 0, 0)
            time.sleep(0.05)
        found = store.stats()
        assert len(found["putTps"]) == 1
        assert 0 < found["putTps"][0] < 100
        assert found["getTotalTps"][0] == pytest.approx(
            found["getFoundTps"][0] + found["getMissTps"][0]
        )


def test_many_threads_lose_no_count(store: rmqstore.MessageStore) -> None:
    def work() -> None:
        for _ in range(500):
            store.put("t", b"x" * 50)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.stats()
    assert found["putMessageTimesTotal"] == 2000
    assert sum(found["putMessageDistributeTime"].values()) == 2000
    assert found["putMessageSizeTotal"] == found["wrote_position"]


def test_a_reader_has_positions_and_no_puts(store: rmqstore.MessageStore) -> None:
    store.put("t", b"x", queue_id=0)
    assert len(store.get("t", 0, 0)) == 1  # which waits for the dispatch
    with rmqstore.open(store.path) as reader:
        assert len(reader.get("t", 0, 0)) == 1
        found = reader.stats()
        assert found["putMessageTimesTotal"] == 0
        assert found["putTps"] == ()
        assert found["commitLogMinOffset"] == 0
        assert found["commitLogMaxOffset"] == store.stats()["wrote_position"] > 0
        assert found["flush_behind_bytes"] == found["dispatch_behind_ms"] == 0


@pytest.mark.parametrize(
    ("blocks", "free", "available", "share"),
    [
        (100, 100, 100, 0.0),
        (100, 99, 99, 0.01),
        (100_000, 99_999, 99_999, 0.01),  # rounded up
        (100, 50, 50, 0.5),
        (1000, 250, 200, 0.79),  # 750 of the 950 that are not reserved for root
        (100, 5, 0, 1.0),
        (0, 0, 0, -1.0),
    ],
)
def test_the_used_share_of_a_disk(
    blocks: int, free: int, available: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = os.statvfs_result((4096, 4096, blocks, free, available, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    assert disk_used_ratio("anywhere") == share


def test_disk_use_is_what_the_system_says(tmp_path: Path, store: rmqstore.MessageStore) -> None:
    status = os.statvfs(tmp_path)
    assert 0 <= disk_used_ratio(tmp_path) <= 1
    assert disk_used_ratio(tmp_path / "nothing") == -1
    found = store.stats()
    assert found["commitLogDirCapacity"]["total"] == status.f_blocks * status.f_frsize
    assert found["runtime"].startswith("[ 0 days, 0 hours, ")
    store.clock.advance(86_400 + 3_600)
    assert store.stats()["runtime"].startswith("[ 1 days, 1 hours, ")
