"""What a reader maps beyond its first regions: what is read again and again."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import rmqstore
from support.sparse_store import SparseStore

REGION = 2 << 20
REGIONS_MOST = 512  # of the log, and as many of queues
FILE = 1 << 30
HEAD = 88  # bytes of a record before its body
BLANK = -875286124  # the magic number of what ends a file
QUEUES = SparseStore(
    log_files=70,
    file_bytes=1 << 20,
    topics=7,
    queues=100,
    records=10,
    indexed=10,
    slots=1000,
    entries=4000,
    units=1000,
)


def reads() -> int:
    """Return how often this thread has called read or pread."""
    for line in Path("/proc/thread-self/io").read_text().splitlines():
        if line.startswith("syscr:"):
            return int(line.split()[1])
    raise AssertionError("/proc/thread-self/io has no syscr")


def write_log(path: Path, count: int) -> None:
    """Write a log with a small record in each region, behind each a body that is a hole."""
    (path / "commitlog").mkdir(parents=True)
    body = bytes(REGION - 1000)
    start = at = 0
    for number in range(count):
        if at + REGION > FILE:
            write_at(path, start, at, struct.pack(">ii", FILE - at, BLANK))
            start, at = start + FILE, 0
        small = rmqstore.encode_record(
            "topic",
            b"small",
            queue_offset=2 * number,
            physical_offset=start + at,
            store_timestamp=1_700_000_000_000,
            properties={"KEYS": f"key-{number}"},
        )
        write_at(path, start, at, small)
        at += len(small)
        large = rmqstore.encode_record(
            "topic",
            body,
            queue_offset=2 * number + 1,
            physical_offset=start + at,
            store_timestamp=1_700_000_000_000,
        )
        write_at(path, start, at, large[:HEAD])
        write_at(path, start, at + HEAD + len(body), large[HEAD + len(body) :])
        at += len(large)


def write_at(path: Path, start: int, at: int, data: bytes) -> None:
    """Write into the file of the log that begins at ``start``."""
    descriptor = os.open(path / "commitlog" / f"{start:020d}", os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.ftruncate(descriptor, FILE)
        os.pwrite(descriptor, data, at)
    finally:
        os.close(descriptor)


def test_a_region_of_the_log_that_is_read_often_is_mapped(tmp_path: Path) -> None:
    """Whatever else the process has read before."""
    path = tmp_path / "store"
    count = REGIONS_MOST + 40
    write_log(path, count)
    with rmqstore.open(path, "r+"):  # makes queue and index
        pass
    keys = [f"key-{number}" for number in range(count)]
    with rmqstore.open(path, "r") as store:

        def query(key: str) -> int:
            before = reads()
            assert [found.body for found in store.query("topic", key)] == [b"small"]
            return reads() - before

        for key in keys:
            query(key)
        mapped = query(keys[0])  # what /proc itself takes
        for key in keys[-5:-1]:  # the last one's region is asked for the end of the log
            assert query(key) > mapped
            for _ in range(100):
                query(key)
            assert query(key) == mapped


def test_queues_that_are_read_often_are_mapped(tmp_path: Path) -> None:
    """More of them than there are descriptors for."""
    path = tmp_path / "store"
    QUEUES.write(path)
    rest = range(REGIONS_MOST, QUEUES.all_records)
    with rmqstore.open(path, "r") as store:

        def get(numbers: range) -> int:
            before = reads()
            for number in numbers:
                topic, queue_id = QUEUES.queue_of(number)
                (found,) = store.get(topic, queue_id, 0, 1).messages
                assert found.body == b"body of %d" % number
            return reads() - before

        get(range(QUEUES.all_records))
        unmapped = get(rest)
        assert unmapped >= len(rest) // 2
        for _ in range(8):
            get(rest)
        assert get(rest) < unmapped // 2  # some keep one of the descriptors
