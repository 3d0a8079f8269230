"""A store as large as one likes on little disk: files of full length, mostly holes.

Each log file but the last begins with a few records and ends with a blank of all that is left;
each record has its unit and its keys in the index, and an index file counts as full. All of it is
valid, so that the store opens as one that was closed in good order.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import rmqstore
from rmqstore.offline.log_writer import seal_store
from support import oracle, oracle_index

FIRST_TIME = 1_790_000_000_000  # ms


@dataclass(frozen=True)
class SparseStore:
    """Contents of a store.

    Attributes
    ----------
    log_files, file_bytes : int
    topics, queues : int
        Queues of a topic.
    records : int
        Of a log file; record n of all is in queue n modulo all queues.
    indexed : int
        Log files that an index file covers.
    slots, entries : int
        Of an index file.
    units : int
        Of a file of a queue.
    """

    log_files: int
    file_bytes: int
    topics: int
    queues: int
    records: int
    indexed: int
    slots: int = 5_000_000
    entries: int = 20_000_000
    units: int = 300_000

    @property
    def all_records(self) -> int:
        """How many there are."""
        return self.log_files * self.records

    def queue_of(self, number: int) -> tuple[str, int]:
        """Topic and queue id of a record."""
        at = number % (self.topics * self.queues)
        return f"topic-{at // self.queues}", at % self.queues

    def key_of(self, number: int) -> str:
        """The key that this record has alone."""
        return f"order-{number}"

    def time_of(self, number: int) -> int:
        """Store time in ms: a log file a minute."""
        return FIRST_TIME + number * 60_000 // self.records

    def write(self, root: Path) -> None:
        """Make the store."""
        for name in ("commitlog", "consumequeue", "index", "config"):
            (root / name).mkdir(parents=True)
        self._write_topics(root)
        units: dict[int, bytearray] = {}
        index = _IndexFile(root / "index", self, self.time_of(0))
        last = -1
        for file in range(self.log_files):
            at = file * self.file_bytes
            data = bytearray()
            first = file * self.records
            for number in range(first, first + self.records):
                # Between two records of a file, as nothing then lies between two index files.
                if file and file % self.indexed == 0 and number == first + self.records // 2:
                    index.close(is_full=True)
                    index = _IndexFile(root / "index", self, self.time_of(number))
                last = at + len(data)
                record = self._record(number, last)
                data += record
                queue = number % (self.topics * self.queues)
                units.setdefault(queue, bytearray()).extend(
                    oracle.pack_unit(last, len(record), oracle.tags_code("paid"))
                )
                index.put(self.queue_of(number)[0], self._keys(number), last, self.time_of(number))
            if file < self.log_files - 1:
                data += struct.pack(">ii", self.file_bytes - len(data), oracle.MAGIC_BLANK)
            _write_sparse(root / "commitlog" / f"{at:020}", [(0, bytes(data))], self.file_bytes)
        index.close(is_full=False)
        for queue in range(self.topics * self.queues):
            topic, queue_id = self.queue_of(queue)
            directory = root / "consumequeue" / topic / str(queue_id)
            directory.mkdir(parents=True)
            parts = [(0, bytes(units.get(queue, b"")))]
            _write_sparse(directory / f"{0:020}", parts, self.units * oracle.UNIT_SIZE)
        with rmqstore.open(root) as store:
            seal_store(store, last, self.time_of(self.all_records - 1))

    def _write_topics(self, root: Path) -> None:
        table = {
            f"topic-{n}": {
                "topicName": f"topic-{n}",
                "readQueueNums": self.queues,
                "writeQueueNums": self.queues,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            }
            for n in range(self.topics)
        }
        text = json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": table})
        (root / "config" / "topics.json").write_text(text)

    def _keys(self, number: int) -> tuple[str, str]:
        return f"{number:032X}", self.key_of(number)

    def _record(self, number: int, physical_offset: int) -> bytes:
        topic, queue_id = self.queue_of(number)
        unique, key = self._keys(number)
        properties = {"KEYS": key, "UNIQ_KEY": unique, "WAIT": "true", "TAGS": "paid"}
        return oracle.encode_record(
            topic,
            b"body of %d" % number,
            queue_id=queue_id,
            queue_offset=number // (self.topics * self.queues),
            physical_offset=physical_offset,
            store_timestamp=self.time_of(number),
            born_timestamp=self.time_of(number),
            properties=oracle.encode_properties(properties, last=True),
        )


class _IndexFile:
    """One index file; that it has room between its last two entries makes it full."""

    def __init__(self, directory: Path, store: SparseStore, time: int) -> None:
        self._store = store
        self._path = directory / _time_name(time)
        self._slots: dict[int, int] = {}
        self._entries: list[tuple[int, int, int, int]] = []
        self._times: list[int] = []

    def put(self, topic: str, keys: tuple[str, ...], physical_offset: int, time: int) -> None:
        for key in keys:
            hashed = oracle_index.key_hash(f"{topic}#{key}")
            slot = hashed % self._store.slots
            self._times.append(time)
            seconds = (time - self._times[0]) // 1000
            before = self._slots.get(slot, 0)
            self._entries.append((hashed, physical_offset, seconds, before))
            self._slots[slot] = len(self._entries)

    def close(self, *, is_full: bool) -> None:
        count = self._store.entries if is_full else len(self._entries) + 1
        last = len(self._entries)
        if is_full:  # the last entry is the last one of the file
            hashed = self._entries[-1][0]
            self._slots[hashed % self._store.slots] = count - 1
        head = struct.pack(
            ">qqqqii",
            self._times[0],
            self._times[-1],
            self._entries[0][1],
            self._entries[-1][1],
            len(self._slots),
            count,
        )
        parts = [(0, head)]
        for slot, number in self._slots.items():
            parts.append((oracle_index.HEADER_SIZE + 4 * slot, struct.pack(">i", number)))
        base = oracle_index.HEADER_SIZE + 4 * self._store.slots
        packed = [struct.pack(">iqii", *entry) for entry in self._entries]
        parts.append((base + 20, b"".join(packed[: last - 1])))
        parts.append((base + 20 * (count - 1), packed[-1]))
        size = oracle_index.file_size(self._store.slots, self._store.entries)
        _write_sparse(self._path, parts, size)


def _time_name(time: int) -> str:
    return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y%m%d%H%M%S") + f"{time % 1000:03}"


def _write_sparse(path: Path, parts: list[tuple[int, bytes]], size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.ftruncate(descriptor, size)
        for at, data in parts:
            os.pwrite(descriptor, data, at)
    finally:
        os.close(descriptor)
