"""Ranges of store times where clocks were set, in every way, against every record."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore.cli import main
from support import oracle
from support.scan_model import FIRST_TIME, HOUR, clock_steps, write_store

pytestmark = pytest.mark.property

TOPIC = "orders"
ASKED = 12  # ranges of a store
FILE_BYTES = 16_384  # about 90 records
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=FILE_BYTES,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=200,
)


def records_of(rng: random.Random, times: list[int]) -> list[bytes]:
    queues = rng.choice([1, 2])
    offsets = [0] * queues
    records = []
    for number, time in enumerate(times):
        queue_id = number % queues
        keys = b"KEYS\x01k%d" % (number % 5) if rng.random() < 0.9 else b""
        records.append(
            oracle.encode_record(
                TOPIC,
                b"b" * 50,
                queue_id=queue_id,
                queue_offset=offsets[queue_id],
                born_timestamp=time,
                store_timestamp=time,
                properties=keys,
            )
        )
        offsets[queue_id] += 1
    return records


def check_queue(queue: Any, messages: list[Any], time: int) -> None:
    """Nothing at or after the time lies before "lower", nothing until it behind "upper"."""
    times = [message.store_timestamp for message in messages]
    later = [n for n, one in enumerate(times) if one >= time]
    earlier = [n for n, one in enumerate(times) if one <= time]
    assert queue.offset_at(time) == (later[0] if later else len(times))
    assert queue.offset_at(time, "upper") == (earlier[-1] if earlier else -1)


def check_range(store: Any, log: list[Any], since: int, until: int) -> None:
    wanted = [message for message in log if since <= message.store_timestamp < until]
    offsets = [message.physical_offset for message in wanted]
    for arguments in ({}, {"topic": TOPIC}):
        scan = store.scan(**arguments, since=since, until=until)
        assert [message.physical_offset for message in scan] == offsets
    assert store.scan(since=since).count() == sum(one.store_timestamp >= since for one in log)
    assert store.scan(until=until).count() == sum(one.store_timestamp < until for one in log)
    start, stop = store.scan(since=since, until=until).narrowed(0, 1 << 62)
    assert all(start <= offset < stop for offset in offsets)
    for queue_id in store[TOPIC]:
        scan = store.scan(TOPIC, queue_id, since=since, until=until)
        assert list(scan) == [one for one in wanted if one.queue_id == queue_id]
    for key in ("k1", "k3"):
        hits = [one for one in reversed(wanted) if key in one.keys]
        assert store.query(TOPIC, key, begin=since, end=until - 1) == hits
        assert store.query_many(TOPIC, [key], begin=since, end=until - 1) == [hits]
        found, _ = store.locate_many(TOPIC, [key], begin=since, end=until - 1)
        assert found.tolist() == [one.physical_offset for one in hits]
        scan = store.scan(TOPIC, keys=key, since=since, until=until)
        assert list(scan) == hits[::-1]


def check_commands(root: Path, log: list[Any], since: int, until: int) -> None:
    wanted = [one for one in log if since <= one.store_timestamp < until]
    range_ = ("--from", f"@{since}", "--until", f"@{until}", "-f", r"%p\n")
    for extra in ((), ("-t", TOPIC), ("-t", TOPIC, "-q", "0")):
        shown = CliRunner().invoke(main, ["cat", str(root), *range_, *extra])
        assert shown.exit_code == 0, shown.output
        queue_id = 0 if "-q" in extra else None
        assert shown.stdout.split() == [
            str(one.physical_offset) for one in wanted if queue_id in (None, one.queue_id)
        ]
    hits = [str(one.physical_offset) for one in reversed(wanted) if "k1" in one.keys]
    found = CliRunner().invoke(main, ["find", str(root), "-k", "k1", *range_])
    assert (found.exit_code, found.stdout.split()) == ((0, hits) if hits else (1, []))


def consumed(store: Any, start: int) -> list[int]:
    with store.consumer(TOPIC, group="g", start=start) as consumer:
        return sorted(message.physical_offset for message in consumer)


@given(st.integers(0, 2**32), st.sampled_from(["r", "r+"]))
def test_every_range_of_times_is_what_each_record_says(seed: int, mode: str) -> None:
    rng = random.Random(seed)
    with TemporaryDirectory() as directory:
        root = Path(directory)
        gaps = rng.choice([[0], [0, 1, 7], [50, 100], [60_000]])
        times = clock_steps(rng, rng.choice([1, 60, 400, 700]), gaps)
        write_store(root, records_of(rng, times), CONFIG)
        with rmqstore.open(root, mode, config=rng.choice([CONFIG, None])) as store:
            log = list(store.scan())
            assert [message.store_timestamp for message in log] == times
            places = sorted({*times, *(time + 1 for time in times), times[0] - 1})
            for _ in range(ASKED):
                since, until = sorted(rng.choices(places, k=2))
                check_range(store, log, since, until)
                for queue_id, queue in store[TOPIC].items():
                    of_queue = [one for one in log if one.queue_id == queue_id]
                    check_queue(queue, of_queue, since)
            late = consumed(store, since)
            assert {one.physical_offset for one in log if one.store_timestamp >= since} <= {*late}
        check_commands(root, log, since, until)


def test_what_a_writer_appends_where_a_clock_was_ahead_goes_on_from_there(tmp_path: Path) -> None:
    """Our store times never go back, so order that was found once is not looked for again."""
    times = [FIRST_TIME + n for n in range(200)]
    write_store(tmp_path, records_of(random.Random(1), times), CONFIG)
    with rmqstore.open(tmp_path, "r+", config=CONFIG) as store, rmqstore.open(tmp_path) as reader:
        for _ in range(3):
            for one in (store, reader):
                queue = one[TOPIC][0]
                newest = queue[-1].store_timestamp
                assert queue.offset_at(newest) <= queue.max_offset - 1
                assert queue.offset_at(newest + 1) == queue.max_offset
            store.put(TOPIC, b"more", queue_id=0)
            assert store[TOPIC][0][-1].store_timestamp >= newest
            store.flush()


def test_a_leap_is_forgotten_with_its_file(tmp_path: Path) -> None:
    times = [FIRST_TIME + 1000 * n for n in range(400)]
    times[10:13] = [time + 24 * HOUR for time in times[10:13]]
    write_store(tmp_path, records_of(random.Random(7), times), CONFIG)
    with rmqstore.open(tmp_path, "r+", config=CONFIG) as store:
        queue = store[TOPIC][0]
        assert queue[queue.offset_at(times[10])].store_timestamp == times[10]
        assert store.scan(since=times[11], until=times[11] + 1).count() == 1
        assert store.delete_expired(before=times[12] + 1).files
        for offset in range(queue.min_offset, queue.max_offset, 7):
            assert queue.offset_at(queue[offset].store_timestamp) == offset
