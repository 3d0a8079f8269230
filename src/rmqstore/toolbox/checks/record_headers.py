"""Fields of records that no checksum covers, against the units that lead to the records.

A bit flipped in QUEUEID, QUEUEOFFSET, the topic or the transaction's part of SYSFLAG leaves the
record whole, but a queue made anew lacks it. The unit in the queue's file still has its place.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from rmqstore.base import layout
from rmqstore.files.regular import open_regular
from rmqstore.offline.queues import QueueFiles, used_units
from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.walk import LogWalk, Unit

__all__ = ["HeaderCheck", "HeaderFault"]

_LEAST = layout.RECORD_FIXED_BYTES
_EXAMINED = 1000  # units of a queue
_NEAR = 16  # queue offsets on both sides

_Queue = tuple[str, int]


class HeaderFault(NamedTuple):
    """A field of a record that contradicts the only unit that leads to it."""

    queue: _Queue  # the unit's
    queue_offset: int
    named: _Queue | None  # the record's, if it is the name of one
    offset: int  # of the record
    name: str
    value: str
    at: int  # of the field in the record
    data: bytes  # as it was

    @property
    def message(self) -> str:
        """The field, its value and the unit's place."""
        topic, queue_id = self.queue
        place = f"{topic}/{queue_id}@{self.queue_offset}"
        return f"{self.name} is {self.value}, but the queue that leads to the record is {place}"


class HeaderCheck:
    """Check of the records to which units of a queue lead, but that do not name it."""

    def __init__(self, plan: LogPlan, queue: _Queue) -> None:
        self._plan = plan
        self._queue = queue

    @cached_property
    def _files(self) -> QueueFiles:
        return QueueFiles(self._plan.path, *self._queue, self._plan.config)

    @cached_property
    def _walk(self) -> LogWalk:
        return self._plan.walk(0)

    def faults(self, units: Iterable[tuple[int, Unit]]) -> Iterator[HeaderFault]:
        """Yield the damaged fields of the records; ``units`` with their queue offsets."""
        for queue_offset, unit in islice(units, _EXAMINED):
            fault = self._fault(queue_offset, unit)
            if fault is not None:
                yield fault

    def _fault(self, queue_offset: int, unit: Unit) -> HeaderFault | None:
        record = self._record(unit)
        if record is None:
            return None
        _, _, _, queue_id, _, offset, _, sys_flag = layout.RECORD_HEAD.unpack_from(record)
        at, topic = _topic(record)
        wanted = self._queue[0].encode()
        data = layout.INT32.pack(sys_flag & ~layout.SYS_PREPARED)
        fields = [
            ("the topic", repr(topic)[1:], at, wanted, topic == wanted),
            ("QUEUEID", f"{queue_id}", layout.RECORD_QUEUE_ID,
             layout.INT32.pack(self._queue[1]), queue_id == self._queue[1]),
            ("QUEUEOFFSET", f"{offset}", layout.RECORD_QUEUE_OFFSET,
             layout.INT64.pack(queue_offset), offset == queue_offset),
            ("SYSFLAG", f"{sys_flag:#x}, of a transaction without an end", layout.RECORD_SYS_FLAG,
             data, not sys_flag & layout.SYS_PREPARED),
        ]  # fmt: skip
        wrong = [one for one in fields if not one[-1]]
        if len(wrong) != 1 or len(topic) != len(wanted):
            return None
        name, value, at, right, _ = wrong[0]
        named = _queue_of(topic, queue_id)
        if name != "SYSFLAG" and named is not None and self._has_own_unit(named, offset, unit):
            return None
        if not self._has_neighbour(queue_offset, unit):
            return None
        return HeaderFault(
            self._queue, queue_offset, named, unit.physical_offset, name, value, at, right
        )

    def _record(self, unit: Unit) -> bytes | None:
        """Return the bytes of a unit's record, if it is whole."""
        start, size = unit.physical_offset, unit.size
        room = self._plan.file_size - start % self._plan.file_size
        if not self._plan.first <= start < self._plan.end or not _LEAST <= size <= room:
            return None
        try:
            with open_regular(self._plan.file_of(start)) as file:
                data = os.pread(file.fileno(), size, start % self._plan.file_size)
        except OSError:
            return None
        return data if len(data) == size and _is_whole(data, start) else None

    def _has_own_unit(self, queue: _Queue, queue_offset: int, unit: Unit) -> bool:
        """Whether the queue that a record names leads to it."""
        if queue_offset < 0 or queue_offset > layout.INT64_MAX // layout.UNIT_BYTES - 1:
            return False
        files = QueueFiles(self._plan.path, *queue, self._plan.config)
        found = _units(files, queue_offset, queue_offset + 1)
        return any(one.physical_offset == unit.physical_offset for _, one in found)

    def _has_neighbour(self, queue_offset: int, unit: Unit) -> bool:
        """Whether the queue's next units whose records name it have theirs around the record."""
        low = max(0, queue_offset - _NEAR)
        near = [
            (at, one)
            for at, one in _units(self._files, low, queue_offset + 1 + _NEAR)
            if self._walk.has_unit(*self._queue, at, one.physical_offset, one.size)
        ]
        return bool(near) and all(
            (at < queue_offset) == (one.physical_offset < unit.physical_offset) for at, one in near
        )


def _units(files: QueueFiles, start: int, stop: int) -> Iterator[tuple[int, Unit]]:
    for _, first, data in files.read(start, stop):
        for number, unit in used_units(data):
            yield first + number, unit


def _is_whole(record: bytes, physical_offset: int) -> bool:
    size, magic, crc, *_, physical, _ = layout.RECORD_HEAD.unpack_from(record)
    if (size, magic, physical) != (len(record), layout.MAGIC_MESSAGE, physical_offset):
        return False
    begin, end = _body(record)
    return begin <= end < size and bool(zlib.crc32(record[begin:end]) & layout.INT32_MAX == crc)


def _body(record: bytes) -> tuple[int, int]:
    """Return the bounds of a record's body."""
    (sys_flag,) = layout.INT32.unpack_from(record, layout.RECORD_SYS_FLAG)
    hosts = (sys_flag & layout.SYS_BORN_HOST_V6 != 0) + (sys_flag & layout.SYS_STORE_HOST_V6 != 0)
    begin = layout.RECORD_HEAD_BYTES + layout.HOST_V6_EXTRA * hosts
    if begin >= len(record):
        return begin, -1
    (length,) = layout.INT32.unpack_from(record, begin - 4)
    return begin, begin + length


def _topic(record: bytes) -> tuple[int, bytes]:
    """Return the begin of the topic of a record, and the topic."""
    _, end = _body(record)
    return end + 1, record[end + 1 : end + 1 + record[end]]


def _queue_of(topic: bytes, queue_id: int) -> _Queue | None:
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return None
    return (name, queue_id) if queue_id >= 0 and not {"/", "\0"} & set(name) else None
