"""Consume queue files, built from the units of a log's ranges, and read as they are.

All output goes into a directory of the job, and a task may run twice, even concurrently: it writes
the same bytes.  The directory is made before the tasks start, so that a late one does not bring it
back.

Source: ``store/ConsumeQueue.java``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqstore import _core
from rmqstore.base.layout import UNIT, UNIT_BYTES
from rmqstore.base.syncing import sync_path
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessagesRemovedError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.ranges import LogPlan, QueueRange, RangeReport
from rmqstore.offline.walk import Unit, UnitRun

__all__ = [
    "OffsetSpan",
    "QueueAppender",
    "QueueFiles",
    "QueueGap",
    "QueueWriter",
    "UnitDifference",
    "add_run",
    "differing_units",
    "dispatched",
    "join_queues",
    "sync_queues",
    "used_units",
]

_OPEN_FILES = 200
_BLANK_UNITS = 50_000  # written at a time
_DRAFT_UNITS = 16 << 20  # of a queue in memory
_PIECE_BYTES = 50_000 * UNIT_BYTES  # read at a time


@dataclass(frozen=True)
class QueueGap:
    """Queue offsets without a record, ``[start, stop)``; filled with blank units."""

    topic: str
    queue_id: int
    start: int
    stop: int


class QueueWriter:
    """Writer of units at their positions, in files shared by many tasks.

    Parameters
    ----------
    directory : path-like
        The new ``consumequeue``.
    file_size : int
        Bytes of a queue's file.

    Attributes
    ----------
    queues : dict of (str, int) to QueueRange
        Ranges written, by topic and queue id.

    Notes
    -----
    Source: ``store/ConsumeQueue.java putMessagePositionInfo``.
    """

    def __init__(self, directory: str | os.PathLike[str], file_size: int) -> None:
        self._directory = os.fspath(directory)
        self._file_size = file_size
        self._files: dict[tuple[str, int, int], int] = {}
        self.queues: dict[tuple[str, int], QueueRange] = {}

    def put(self, run: UnitRun) -> None:
        """Write a run of units, after the blank units of a plausible gap.

        A run that cannot follow the one before is not written but marks its queue out of order: the
        queue has to be rebuilt in log order.
        """
        known = self.queues.get((run.topic, run.queue_id))
        if known is None:
            self.queues[run.topic, run.queue_id] = QueueRange(
                run.first, run.stop, run.log_start, run.log_stop
            )
        elif run.first == known.stop or _may_follow(known, run.first, run.log_start):
            self.fill(QueueGap(run.topic, run.queue_id, known.stop, run.first))
            known.stop, known.log_stop = run.stop, run.log_stop
        else:
            known.in_order = False
            return
        self._write(run.topic, run.queue_id, run.first * UNIT_BYTES, run.units)

    def fill(self, gap: QueueGap) -> None:
        """Write the blank units of a gap."""
        at = gap.start
        while at < gap.stop:
            position = at * UNIT_BYTES
            room = (self._file_size - position % self._file_size) // UNIT_BYTES
            count = min(gap.stop - at, room, _BLANK_UNITS)
            self._write(gap.topic, gap.queue_id, position, memoryview(_core.blank_units(count)))
            at += count

    def _write(self, topic: str, queue_id: int, position: int, data: memoryview) -> None:
        at = position % self._file_size
        descriptor = self._file(topic, queue_id, position - at)
        while data:
            written = os.pwrite(descriptor, data, at)
            data, at = data[written:], at + written
        if at == self._file_size:  # the disk has work meanwhile
            _core.start_sync(descriptor)

    def _file(self, topic: str, queue_id: int, start: int) -> int:
        known = self._files.get((topic, queue_id, start))
        if known is not None:
            return known
        if len(self._files) == _OPEN_FILES:
            self.close()
        name = f"{self._directory}/{topic}/{queue_id}/{paths.offset_file_name(start)}"
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            for folder in (f"{self._directory}/{topic}", f"{self._directory}/{topic}/{queue_id}"):
                Path(folder).mkdir(exist_ok=True)
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(descriptor, self._file_size)
        self._files[topic, queue_id, start] = descriptor
        return descriptor

    def close(self, *, sync: bool = False) -> None:
        """Close the files; ``sync`` forces them to the disk first."""
        for descriptor in self._files.values():
            if sync:
                os.fdatasync(descriptor)
            os.close(descriptor)
        self._files.clear()


def _may_follow(known: QueueRange | OffsetSpan, first: int, log_start: int) -> bool:
    """Whether dispatch would accept the gap before a unit at that queue offset."""
    return first > known.stop and _core.gap_is_likely_between(
        first - known.stop, log_start - known.log_stop
    )


@dataclass
class OffsetSpan:
    """Queue offsets ``[first, stop)`` of consecutive records of a queue, and these in the log."""

    first: int
    stop: int
    log_start: int
    log_stop: int
    bad: set[int] = field(default_factory=set)  # byte offsets of files that differ


def add_run(spans: list[OffsetSpan], run: UnitRun) -> OffsetSpan:
    """Extend the last span of a queue by a run, or append one; return it."""
    if not spans or spans[-1].stop != run.first:
        spans.append(OffsetSpan(run.first, run.stop, run.log_start, run.log_stop))
    span = spans[-1]
    span.stop, span.log_stop = run.stop, run.log_stop
    return span


def dispatched(
    plan: LogPlan, queues: Mapping[tuple[str, int], Sequence[OffsetSpan]]
) -> dict[tuple[str, int], list[UnitRun]]:
    """Return the units of queues of whose records dispatch may pass over some.

    Spans are in log order, each within a range of it; runs within a file of the queue. A queue with
    too many units for the memory is left out.
    """
    drafts = {}
    numbers: set[int] = set()
    for queue, spans in queues.items():
        if any(map(_is_doubtful, spans, spans[1:])):
            drafts[queue] = _core.QueueDraft()
            for one in spans:
                first = (one.log_start - plan.first) // plan.file_size
                last = (one.log_stop - 1 - plan.first) // plan.file_size
                numbers.update(range(first, last + 1))
    plan = plan.by_files()
    for number in sorted(numbers):
        with contextlib.suppress(MessagesRemovedError):
            for found in plan.walk(number).slices():
                for run in found.runs:
                    draft = drafts.get((run.topic, run.queue_id))
                    if draft is not None and not _enter(draft, run):
                        del drafts[run.topic, run.queue_id]
    size = plan.config.mapped_file_size_consume_queue
    return {queue: list(_runs(*queue, *draft.units(), size)) for queue, draft in drafts.items()}


def _is_doubtful(before: OffsetSpan, after: OffsetSpan) -> bool:
    """Whether dispatch may pass over a record between two spans."""
    return after.first != before.stop and not _may_follow(before, after.first, after.log_start)


def _enter(draft: _core.QueueDraft, run: UnitRun) -> bool:
    """Enter a run, and return whether there is room for more."""
    return draft.put_run(run.first, run.units, run.topic.startswith(LIGHT_PREFIX)) <= _DRAFT_UNITS


def _runs(topic: str, queue_id: int, first: int, units: bytes, file_size: int) -> Iterator[UnitRun]:
    """Yield the runs of units that are not blank."""
    a_file = file_size // UNIT_BYTES
    at = 0
    while at < len(units) // UNIT_BYTES:
        room = a_file - (first + at) % a_file
        piece = memoryview(units)[at * UNIT_BYTES : (at + room) * UNIT_BYTES]
        numbers = [number for number, _ in _core.used_units(piece)]
        for _, some in itertools.groupby(enumerate(numbers), lambda one: one[1] - one[0]):
            found = [number for _, number in some]
            part = piece[found[0] * UNIT_BYTES : (found[-1] + 1) * UNIT_BYTES]
            begin = UNIT.unpack(part[:UNIT_BYTES])[0]
            offset, length, _ = UNIT.unpack(part[-UNIT_BYTES:])
            yield UnitRun(topic, queue_id, first + at + found[0], begin, offset + length, part)
        at += room


def sync_queues(directory: str | os.PathLike[str], queues: Iterable[tuple[str, int]]) -> None:
    """Force the files of queues and their names to the disk.

    Parameters
    ----------
    directory : path-like
        The new ``consumequeue``.
    queues : iterable of (str, int)

    Notes
    -----
    Source: ``store/ConsumeQueue.java flush``.
    """
    topics = set()
    for topic, queue_id in queues:
        folder = Path(directory, topic, str(queue_id))
        topics.add(folder.parent)
        for path in [*folder.iterdir(), folder]:
            sync_path(path)
    for folder in [*topics, Path(directory)]:
        sync_path(folder)


def join_queues(
    reports: Iterable[RangeReport], units_a_file: int
) -> tuple[set[tuple[str, int]], list[QueueGap], set[tuple[str, int]]]:
    """Join the queues of consecutive ranges, as :class:`QueueWriter` wrote them.

    Parameters
    ----------
    reports : iterable of RangeReport
        In log order.
    units_a_file : int

    Returns
    -------
    queues, gaps, disordered : set of (str, int), list of QueueGap, set of (str, int)
        All queues, the gaps of queues in order, and the queues out of order.

    Notes
    -----
    Source: ``store/ConsumeQueue.java putMessagePositionInfoWrapper``.
    """
    last: dict[tuple[str, int], QueueRange] = {}
    gaps = []
    disordered = set()
    for report in reports:
        for queue, found in report.queues.items():
            known = last.get(queue)
            start = found.first - found.first % units_a_file if known is None else known.stop
            if (
                known is not None
                and found.first != start
                and not _may_follow(known, found.first, found.log_start)
            ):
                disordered.add(queue)
            elif start < found.first:
                gaps.append(QueueGap(*queue, start, found.first))
            if not found.in_order:
                disordered.add(queue)
            last[queue] = found
    return (
        set(last),
        [gap for gap in gaps if (gap.topic, gap.queue_id) not in disordered],
        disordered,
    )


class QueueAppender:
    """Writer of queues in log order, as dispatch does it.

    Each queue has a temporary name until :meth:`finish`.

    Parameters
    ----------
    directory : path-like
        The new ``consumequeue``.
    file_size : int
        Bytes of a queue's file.

    Attributes
    ----------
    skipped : int
        Units passed over.

    Notes
    -----
    Source: ``store/ConsumeQueue.java putMessagePositionInfoWrapper``.
    """

    def __init__(self, directory: str | os.PathLike[str], file_size: int) -> None:
        self._directory = Path(directory)
        self._file_size = file_size
        self._parts: dict[tuple[str, int], tuple[Path, _core.QueuePart]] = {}
        self.skipped = 0

    def put(self, topic: str, queue_id: int, first: int, units: memoryview) -> None:
        """Append a run of units to its queue."""
        known = self._parts.get((topic, queue_id))
        if known is None:
            parent = self._directory / topic
            parent.mkdir(exist_ok=True)
            made = parent / f"{queue_id}.{uuid.uuid4().hex}"
            made.mkdir()
            part = _core.QueuePart(str(made), self._file_size)
            known = self._parts[topic, queue_id] = (made, part)
        self.skipped += known[1].put_run(first, units, topic.startswith(LIGHT_PREFIX))

    def finish(self) -> None:
        """Close the queues, and rename them."""
        for (_, queue_id), (made, part) in self._parts.items():
            part.close()
            try:
                made.rename(made.with_name(str(queue_id)))
            except OSError:
                if not made.with_name(str(queue_id)).is_dir():  # another attempt was faster
                    raise
                shutil.rmtree(made)
        self._parts.clear()

    def drop(self) -> None:
        """Remove unfinished queues."""
        for made, _ in self._parts.values():
            shutil.rmtree(made, ignore_errors=True)
        self._parts.clear()


class UnitDifference(NamedTuple):
    """A unit that differs from the log's.

    Attributes
    ----------
    number : int
        Index among the compared units, from 0.
    expected : Unit
    found : Unit or None
        None: blank or missing.
    """

    number: int
    expected: Unit
    found: Unit | None


def differing_units(topic: str, expected: memoryview, found: bytes) -> list[UnitDifference]:
    """Compare units with the log's; both byte strings have the same length.

    A delivery time or an ext address counts as equal to the record's tags code.
    """
    return [
        UnitDifference(number, Unit(*one), Unit(*other) if other is not None else None)
        for number, one, other in _core.differing_units(topic, expected, found)
    ]


def used_units(units: bytes) -> list[tuple[int, Unit]]:
    """Return the units that name a record, numbered from 0."""
    return [(number, Unit(*unit)) for number, unit in _core.used_units(units)]


class QueueFiles:
    """Reader of the files of one consume queue, as they are.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    topic : str
    queue_id : int
    config : StoreConfig
        Size of a file, if there is none to infer it from.

    Attributes
    ----------
    starts : list of int
        Queue offset of the first unit of each file.
    units_a_file : int
    """

    starts: list[int]
    units_a_file: int

    def __init__(
        self, path: str | os.PathLike[str], topic: str, queue_id: int, config: StoreConfig
    ) -> None:
        self._folder = Path(path, paths.CONSUME_QUEUE, topic, str(queue_id))
        names = self._folder.iterdir() if self._folder.is_dir() else ()
        offsets = (paths.parse_offset_file_name(file.name) for file in names)
        found = sorted(offset for offset in offsets if offset is not None)
        # As configured if a file has that size, else from the longest, as opening the store does.
        lengths = [self._file(offset).stat().st_size for offset in found]
        longest = max(lengths, default=0)
        configured = config.mapped_file_size_consume_queue
        self._file_size = longest - longest % UNIT_BYTES
        if configured in lengths or self._file_size == 0:
            self._file_size = configured
        self.starts = [offset // UNIT_BYTES for offset in found]
        self.units_a_file = self._file_size // UNIT_BYTES

    def _file(self, offset: int) -> Path:
        return self._folder / paths.offset_file_name(offset)

    def read(self, start: int, stop: int) -> Iterator[tuple[Path, int, bytes]]:
        """Read units, file by file.

        Parameters
        ----------
        start, stop : int
            Queue offsets.

        Yields
        ------
        (Path, int, bytes)
            The file, the queue offset of the first unit, and the units; zeros where none exist.
        """
        at, end = start * UNIT_BYTES, stop * UNIT_BYTES
        while at < end:
            first = at - at % self._file_size
            upto = min(end, first + self._file_size)
            path = self._file(first)
            try:
                with open_regular(path) as file:
                    data = os.pread(file.fileno(), upto - at, at - first)
            except FileNotFoundError:
                data = b""
            yield path, at // UNIT_BYTES, data.ljust(upto - at, b"\0")
            at = upto

    def written(self, start: int, stop: int) -> Iterator[tuple[Path, int, bytes]]:
        """Read as :meth:`read`, in pieces, without the parts of files that are holes."""
        at, end = start * UNIT_BYTES, stop * UNIT_BYTES
        while at < end:
            first = at - at % self._file_size
            upto = min(end, first + self._file_size)
            path = self._file(first)
            try:
                with open_regular(path) as file:
                    for offset, data in _pieces(file.fileno(), at - first, upto - first):
                        yield path, (first + offset) // UNIT_BYTES, data
            except FileNotFoundError:
                pass
            at = upto


def _pieces(fd: int, at: int, upto: int) -> Iterator[tuple[int, bytes]]:
    """Yield whole units of a part of a queue file, with their offsets in it, without holes."""
    while at < upto:
        try:
            data_at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the rest is a hole
                return
            raise
        at = max(at, data_at - data_at % UNIT_BYTES)
        data = os.pread(fd, min(upto - at, _PIECE_BYTES), at)
        data = data[: len(data) - len(data) % UNIT_BYTES]
        if not data:
            return
        yield at, data
        at += len(data)
