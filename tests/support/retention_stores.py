"""Stores of small files for tests of retention, and deletions expected from a scan alone."""

from __future__ import annotations

from pathlib import Path

import rmqstore
from rmqstore import Deleted, StoreConfig

HOUR = 3600
FILE = 16 << 10
CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
ALL_HOURS = ";".join(f"{hour:02}" for hour in range(24))


def open_store(path: Path, mode: str = "a", **changes: object) -> rmqstore.MessageStore:
    return rmqstore.open(path, mode, config=CONFIG.replace(**changes))  # type: ignore[arg-type]


def put_hours(store: rmqstore.MessageStore, hours: int, each: int = 40) -> list[int]:
    """Put ``each`` messages an hour; return the store time of the first of each hour."""
    times = []
    for hour in range(hours):
        for number in range(each):
            put = store.put("t", b"x" * 100, queue_id=number % 3, keys=f"k{hour}.{number}")
            if number == 0:
                times.append(put.store_timestamp)
        store.clock.advance(HOUR)
    return times


def files(path: Path, directory: str = "commitlog") -> list[int]:
    return sorted(int(file.name) for file in (path / directory).iterdir())


def newest_of_files(store: rmqstore.MessageStore) -> dict[int, list[int]]:
    """The store times of the messages in each log file, by the log itself."""
    found: dict[int, list[int]] = {}
    for message in store.scan():
        found.setdefault(message.physical_offset // FILE * FILE, []).append(message.store_timestamp)
    return found


def deleted_by(store: rmqstore.MessageStore, before: int) -> Deleted:
    """Expected deletions, from a scan alone."""
    times = newest_of_files(store)
    starts = sorted(times)
    count = 0
    while count < len(starts) - 1 and max(times[starts[count]]) < before:
        count += 1
    until = starts[count]
    queues = [queue for topic in store.topics.values() for queue in topic.values()]
    emptied = 0
    for queue in queues:
        if len(queue) and queue[-1].physical_offset < until:
            emptied += 1
    messages = sum(len(times[start]) for start in starts[:count])
    return Deleted(count, count * FILE, messages, until, emptied)
