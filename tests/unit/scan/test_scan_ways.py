"""Scans whose way is narrowed give what a scan of everything gives."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow.dataset as pd
import pytest

import rmqstore
from support import damaged_store

SMALL = rmqstore.StoreConfig.small()
HOUR, FIRST = 3_600_000, 1_700_000_000_000
FILE = 1 << 16
FILES = SMALL.replace(mapped_file_size_commit_log=FILE)


def store_of(root: Path, times: list[int]) -> None:
    """A log of one message a time, in files of 64 KiB."""
    log = rmqstore.CommitLog(root / "commitlog", file_size=FILE, mode="a")
    for n, time in enumerate(times):
        record = rmqstore.encode_record(
            "t", b"x" * 1000, queue_offset=n, store_timestamp=time, properties={"n": str(n)}
        )
        log.append([record])
    log.close()
    rmqstore.open(root, "r+", config=FILES).close()  # makes the queues


def numbers(scan: rmqstore.Scan) -> list[int]:
    return [int(message.properties["n"]) for message in scan]


def test_a_topic_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    """The log still has it, whatever an earlier filter found to be in queues."""
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        store.put_many("A", [b"%d" % n for n in range(10)], queue_id=0)
        store.put_many("B", [b"y" * 200] * 3000)
        dataset = store.scan().dataset()
        wanted = pd.field("topic") == "A"
        assert dataset.to_table(filter=wanted).num_rows == 10
        store.delete_topic("A")
        assert dataset.to_table(filter=wanted).num_rows == store.scan("A").count() == 10
        store.put("A", b"again", queue_id=0)
        again = wanted & (pd.field("queue_id") == 0)
        assert dataset.to_table(filter=again).num_rows == 11


def test_queues_that_are_made_meanwhile(tmp_path: Path) -> None:
    """They hide none of those that are there."""
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        store.put_many("small", [b"old"] * 3, queue_id=[0, 1, 2])
        store.put_many("big", [b"z" * 100] * 100_000)
        for number in range(10):
            stop = threading.Event()

            def write(first: int = 3 + 50 * number, stop: threading.Event = stop) -> None:
                for queue_id in range(first, first + 50):
                    store.put("small", b"new", queue_id=queue_id)
                    if stop.wait(0.0005):
                        return

            thread = threading.Thread(target=write)
            thread.start()
            found = [message.body for message in store.scan("small")]
            stop.set()
            thread.join()
            assert found.count(b"old") == 3


@pytest.mark.parametrize("wrong", [-30, -3, 3, 30])
@pytest.mark.parametrize("at", [0, 1, 170, 171, 340, 400])
def test_one_wrong_time_hides_nothing(tmp_path: Path, wrong: int, at: int) -> None:
    times = [FIRST + n * HOUR // 4 for n in range(500)]
    times[at] += wrong * HOUR
    store_of(tmp_path, times)
    with rmqstore.open(tmp_path, config=FILES) as store:
        for asked in ({}, {"topic": "t"}, {"topic": "t", "queue_id": 0}):
            for since, until in [(20, 30), (45, 60), (80, 300), (0, 1)]:
                low, high = FIRST + since * HOUR, FIRST + until * HOUR
                right = [n for n, time in enumerate(times) if low <= time < high and n != at]
                found = numbers(store.scan(**asked, since=low, until=high))
                assert [n for n in found if n != at] == right, (asked, since, until)
                assert all(low <= times[n] < high for n in found)


def test_what_is_bad_behind_the_start_is_told(tmp_path: Path) -> None:
    store_of(tmp_path, [FIRST] * 10)
    with rmqstore.open(tmp_path, config=FILES) as store:
        places = [message.physical_offset for message in store.scan()]
    log = tmp_path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        for bad in (4, 5):
            file.seek(places[bad] + 200)
            file.write(b"!")
    with rmqstore.open(tmp_path, config=FILES) as store:
        for first in (3, 4, 5):
            scan = store.scan(start=places[first])
            with pytest.raises(rmqstore.StoreCorruptError) as error:
                list(scan)
            assert error.value.offset == places[max(first, 4)]
            good = [n for n in range(first, 10) if n not in (4, 5)]
            assert numbers(scan.replace(on_corruption="skip")) == good
        assert numbers(store.scan(start=places[6])) == [6, 7, 8, 9]


def test_what_was_removed_as_a_whole_is_told(tmp_path: Path) -> None:
    store_of(tmp_path, [FIRST + n for n in range(500)])
    for path in sorted((tmp_path / "commitlog").iterdir())[:3]:
        path.unlink()
    with rmqstore.open(tmp_path, config=FILES) as store:
        least = store["t"][0].min_offset
        cases: list[tuple[dict[str, Any], int]] = [
            ({"start": 0, "stop": FILE}, 3 * FILE),
            ({"start": 0, "stop": 4 * FILE}, 3 * FILE),
            ({"topic": "t", "queue_id": 0, "start": 0, "stop": 10}, least),
            ({"topic": "t", "queue_id": 0, "start": 5}, least),
        ]
        for asked, first in cases:
            with pytest.raises(rmqstore.MessagesRemovedError) as removed:
                store.scan(**asked).count()
            assert removed.value.offset == asked["start"]
            assert removed.value.min_offset == first
            store.scan(**asked, on_removed="skip").count()
        assert store.scan(start=0, stop=0).count() == 0
        assert numbers(store.scan()) == list(range(least, 500))


def test_a_lost_queue_file_is_told_by_iteration(tmp_path: Path) -> None:
    """As a scan of the queue does, and not passed over: beside an owner, else it is derived."""
    config = FILES.replace(mapped_file_size_consume_queue=2000)
    store_of(tmp_path, [FIRST + n for n in range(500)])
    for path in (tmp_path / "consumequeue" / "t" / "0").iterdir():
        path.unlink()
    (tmp_path / "consumequeue" / "t" / "0").rmdir()
    rmqstore.open(tmp_path, "r+", config=config).close()
    (tmp_path / "consumequeue" / "t" / "0" / f"{4000:020d}").unlink()
    with rmqstore.open(tmp_path, config=config) as store:
        assert [message.queue_offset for message in store["t"][0]] == list(range(500))
        assert numbers(store.scan("t", 0)) == list(range(500))
    with damaged_store.owned(tmp_path), rmqstore.open(tmp_path, config=config) as store:
        messages = iter(store["t"][0])
        assert [next(messages).queue_offset for _ in range(200)] == list(range(200))
        with pytest.raises(rmqstore.StoreCorruptError, match=f"{4000:020d}.* is missing"):
            next(messages)
        with pytest.raises(rmqstore.StoreCorruptError, match="the file is missing"):
            store.scan("t", 0).count()
        found = numbers(store.scan("t", 0, on_corruption="skip"))
        assert found == [*range(200), *range(300, 500)]
        assert numbers(store.scan("t")) == list(range(500))
