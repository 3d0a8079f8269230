"""A whole store directory, read and checked with the slow codec."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from support.oracle import (
    FILLER_UNIT,
    LMQ_PREFIX,
    MAGIC_BLANK,
    RECORD_MIN_SIZE,
    UNIT_SIZE,
    OracleError,
    Record,
    decode_record,
    dispatched_queues,
    index_keys,
    unpack_unit,
)
from support.oracle_index import index_of, read_index

QueueName = tuple[str, int]
READ_AT_ONCE = 1 << 20  # bytes


class Units(list[tuple[int, int, int]]):
    """The units of one queue; ``min_offset`` is the queue offset of the first."""

    min_offset: int = 0

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self)

    def at(self, queue_offset: int) -> tuple[int, int, int] | None:
        if self.min_offset <= queue_offset < self.max_offset:
            return self[queue_offset - self.min_offset]
        return None


def log_files(directory: str | Path) -> list[tuple[int, Path]]:
    """The (first offset, path) of the files of a log or queue, in order and without a gap."""
    paths = [path for path in Path(directory).iterdir() if re.fullmatch(r"[0-9]{20}", path.name)]
    files = sorted((int(path.name), path) for path in paths)
    for (start, path), (following, _) in pairwise(files):
        if start + path.stat().st_size != following:
            raise OracleError(f"{path} of {path.stat().st_size} bytes, the next is {following}")
    return files


@dataclass(frozen=True)
class Filler:
    """The blank record that ends a file."""

    physical_offset: int
    store_size: int


def walk_entries(directory: str | Path) -> Iterator[Record | Filler]:
    """Yield the good records and fillers of a log, over its files, up to the first bad record."""
    for start, path in log_files(directory):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = 0
            while True:
                room = len(data) - at
                if room < 8:
                    raise OracleError(f"{path}: {room} bytes behind the last record")
                size, magic = struct.unpack_from(">ii", data, at)
                if magic == MAGIC_BLANK:
                    if size != room:
                        raise OracleError(f"{path}: filler of {size} at {at}, room {room}")
                    yield Filler(start + at, size)
                    break
                try:
                    record = decode_record(data, at)
                except OracleError:
                    return
                if record.physical_offset != start + at:
                    return
                yield record
                at += record.store_size


def walk_log(directory: str | Path) -> Iterator[Record]:
    for entry in walk_entries(directory):
        if isinstance(entry, Record):
            yield entry


def read_queue(directory: str | Path) -> Units:
    files = log_files(directory)
    data = b"".join(path.read_bytes() for _, path in files)
    units = Units()
    units.min_offset = files[0][0] // UNIT_SIZE if files else 0
    for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE):
        unit = unpack_unit(data, at)
        if unit[0] < 0 or unit[1] <= 0:
            break
        if unit == FILLER_UNIT and not units:
            units.min_offset += 1
        else:
            units.append(unit)
    return units


def read_queues(root: str | Path) -> dict[QueueName, Units]:
    folder = Path(root) / "consumequeue"
    paths = folder.glob("*/*") if folder.is_dir() else []
    return {
        (path.parent.name, int(path.name)): read_queue(path)
        for path in sorted(paths)
        if path.is_dir() and path.name.isdigit()
    }


def read_checkpoint(root: str | Path) -> tuple[int, int, int]:
    """The physic, logics and index timestamps."""
    data = (Path(root) / "checkpoint").read_bytes()
    if len(data) != 4096:
        raise OracleError(f"checkpoint of {len(data)} bytes")
    return struct.unpack_from(">qqq", data)


def is_clean(root: str | Path) -> bool:
    return not (Path(root) / "abort").exists()


def extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """The (start, stop) of a file's parts that are not holes."""
    at = 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        stop = os.lseek(descriptor, at, os.SEEK_HOLE)
        yield at, stop
        at = stop


def digest(path: str | Path) -> str:
    """A digest of a file's bytes other than zero and their places; holes cost nothing."""
    total = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        used = [(0, size)] if size <= READ_AT_ONCE else extents(descriptor, size)
        for start, stop in used:
            for part in range(start - start % 4096, stop, READ_AT_ONCE):
                data = os.pread(descriptor, min(READ_AT_ONCE, stop - part), part)
                for at in range(0, len(data), 4096):
                    page = data[at : at + 4096]
                    if page.strip(b"\0"):
                        total.update(b"%d:" % (part + at) + page)
    finally:
        os.close(descriptor)
    return total.hexdigest()


def snapshot(root: str | Path) -> dict[str, tuple[int, int, int, str]]:
    """Name, mode, size, modification time and bytes of all there is in a directory, itself too."""
    found = {}
    for path in (Path(root), *sorted(Path(root).rglob("*"))):
        info = path.stat()
        contents = (info.st_size, digest(path)) if path.is_file() else (0, "")
        name = str(path.relative_to(root))
        found[name] = (info.st_mode, contents[0], info.st_mtime_ns, contents[1])
    return found


def check_store(
    root: str | Path,
    *,
    slot_num: int | None = None,
    exact_index: bool = False,
    deleted: Container[str] = (),
    times_in_order: bool = True,
) -> dict[QueueName, list[Record]]:
    """Assert the invariants of every closed store; return the records of each queue in order.

    Records of topics that were ``deleted`` need not be in a queue.  Without ``times_in_order`` the
    log is a copy of one whose clock went back.  ``slot_num`` is needed where an
    index file has not four entries a slot.  ``exact_index`` asks for the very index files that one
    uninterrupted dispatch of this log leaves.
    """
    root = Path(root)
    records = {record.physical_offset: record for record in walk_log(root / "commitlog")}
    queues = read_queues(root)
    log_start = min((start for start, _ in log_files(root / "commitlog")), default=0)

    by_queue = _check_queues(records, queues, log_start)
    _check_records(records, queues, deleted)
    if times_in_order:
        times = [record.store_timestamp for record in records.values() if record.topic]
        assert times == sorted(times)
    index = read_index(root, slot_num)
    hits_of: dict[str, list[int]] = {}
    for record in records.values():
        for key in index_keys(record):
            name = f"{record.topic}#{key}"
            if name not in hits_of:
                hits_of[name] = index.select(name)
                assert hits_of[name] == sorted(hits_of[name], reverse=True), (name, hits_of[name])
            assert record.physical_offset in hits_of[name], (name, record.physical_offset)
    if exact_index:
        expected = index_of(records.values(), index.slot_num, index.index_num)
        assert len(index) == len(expected)
        for number, (file, model) in enumerate(zip(index, expected, strict=True)):
            assert file == model, f"index file {number}"
    physic, logics, indexed = read_checkpoint(root)
    newest = max((record.store_timestamp for record in records.values()), default=0)
    assert max(physic, logics, indexed) <= newest, (physic, logics, indexed, newest)
    return by_queue


def _check_queues(
    records: dict[int, Record], queues: dict[QueueName, Units], log_start: int
) -> dict[QueueName, list[Record]]:
    """Every unit that points into the log points at the record with its place."""
    by_queue: dict[QueueName, list[Record]] = {}
    for (topic, queue_id), units in queues.items():
        found = by_queue.setdefault((topic, queue_id), [])
        previous = -1
        for queue_offset, (physical_offset, size, code) in enumerate(units, units.min_offset):
            where = (topic, queue_id, queue_offset, physical_offset)
            if (physical_offset, size, code) == FILLER_UNIT:
                continue  # a record that was lost
            assert physical_offset > previous, where
            previous = physical_offset
            if physical_offset < log_start:
                continue
            record = records.get(physical_offset)
            assert record is not None, where
            assert record.store_size == size, where
            if (record.topic, record.queue_id) == (topic, queue_id):
                assert record.queue_offset == queue_offset, where
                assert record.is_queued, where
                assert record.tags_code == code, where
            else:
                assert (topic, queue_offset, code) in dispatched_queues(record), where
            found.append(record)
    return by_queue


def _check_records(
    records: dict[int, Record], queues: dict[QueueName, Units], deleted: Container[str]
) -> None:
    """Every record that has a place in a queue is in it."""
    for record in records.values():
        where = (record.topic, record.queue_id, record.queue_offset, record.physical_offset)
        assert record.store_size >= RECORD_MIN_SIZE, where
        if not record.topic:
            continue  # it fills what was lost
        if not record.is_queued:
            assert record.queue_offset == 0, where
            continue
        if record.topic in deleted:
            continue
        units = queues.get((record.topic, record.queue_id), Units())
        assert units.at(record.queue_offset) == record.unit, where
        for name, queue_offset, code in dispatched_queues(record):
            queue_id = 0 if name.startswith(LMQ_PREFIX) else record.queue_id
            unit = queues.get((name, queue_id), Units()).at(queue_offset)
            assert unit == (record.physical_offset, record.store_size, code), (name, where)
