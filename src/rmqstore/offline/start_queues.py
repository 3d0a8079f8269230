"""Consume queues as a 4.9.3 broker's start takes them from their files, against a reader's.

Source: ``store/ConsumeQueue.java recover``, ``store/DefaultMessageStore.java start``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from rmqstore import _core
from rmqstore.base import layout
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.findings import Finding
from rmqstore.offline.start_files import FileSizes, listed, numbers_at

if TYPE_CHECKING:
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["RECOVERED_FILES", "QueueEnds"]

_PIECE_UNITS = 50_000  # read at a time

RECOVERED_FILES = 3
"""Files of a queue, and of a closed store's log, that a broker's recovery reads."""


class QueueEnds:
    """Ends of the queues as a broker takes them from the files, against a reader's."""

    def __init__(self, opened: MessageStore, root: Path, sizes: FileSizes, *, whole: bool) -> None:
        self.dispatched = 0  # offset where a broker resumes dispatch
        self._opened = opened
        self._log_size, self._queue_size = sizes.log, sizes.queue
        self._cut = 0  # queue offsets that a start gives to other messages
        self._short: list[_ShortQueue] = []
        self._gaps: list[tuple[Queue, _UnitGap]] = []
        for topic in opened.topics.values():
            for queue in topic.values():
                directory = root / paths.CONSUME_QUEUE / topic.name / str(queue.queue_id)
                files = _queue_files(directory, sizes.queue)
                end, physical, kept = _queue_end(files, sizes.queue, whole=whole)
                low, high = queue.min_offset, queue.max_offset
                self.dispatched = max(self.dispatched, physical)
                self._cut += max(0, end - high)
                if end < high:
                    self._short.append(_ShortQueue(queue, end, kept, bool(files), bool(physical)))
                found = _queue_gaps(files, sizes.queue, low, min(end, high))
                self._gaps += [(queue, gap) for gap in found]

    def behind_log_end(self) -> Iterator[Finding]:
        """Yield the missing end of a closed store's log, where something refers to it."""
        end = self._opened.recovery.log_end
        for one in self._opened.recovery.ranges:
            if one.kind == "damaged" and one.start == end:
                name = paths.offset_file_name(end - end % self._log_size)
                yield Finding(
                    "lost",
                    "behind-log-end",
                    f"{paths.COMMIT_LOG}/{name}",
                    end,
                    f"{one.reason}: put it back; a broker cuts the queues there, and gives their "
                    "offsets to other messages",
                    messages=self._cut,
                    by_start=True,
                )

    def gaps(self) -> Iterator[Finding]:
        """Yield the queue offsets before a broker's end of the queue that have no unit.

        Nothing restores them: dispatch enters no unit before a queue's end.
        """
        for queue, gap in self._gaps:
            lost = gap.zeros or _messages(queue, gap)
            if lost == 0:
                continue
            place = f"{paths.CONSUME_QUEUE}/{queue.topic}/{queue.queue_id}"
            start = gap.first * layout.UNIT_BYTES
            yield Finding(
                "lost",
                "unit-missing" if gap.zeros else "queue-file-missing",
                f"{place}/{paths.offset_file_name(start - start % self._queue_size)}",
                start,
                f"the queue has {'zeros for' if gap.zeros else 'no file of'} {_units(lost)} from "
                f"queue offset {gap.first} on: a broker starts, and shows none of their messages; "
                "opening the store to write here completes the queue",
                messages=lost,
                by_start=True,
            )

    def findings(self, dispatched: int) -> Iterator[Finding]:
        """Yield the queues that lack units whose records a broker does not dispatch again."""
        # Queues are cut at the log's end if one of them reaches it.
        cuts = dispatched >= self._opened.recovery.log_end
        for queue, end, kept, has_files, has_units in self._short:
            low = max(end, queue.min_offset)
            lacking = queue.units(low)["physical_offset"]
            lost = int((lacking < dispatched).sum()) - kept * cuts
            if lost == 0 and not has_units and queue.min_offset == 0 < end:
                # A queue's first message is entered whatever the queue's end, a later one is not.
                lost = int(queue.units(0, 1)["physical_offset"][0] >= dispatched)
            if lost <= 0:
                continue
            place = f"{paths.CONSUME_QUEUE}/{queue.topic}/{queue.queue_id}"
            text = (
                f"lacks {_units(lost)} from queue offset {low} on" if has_files else "has no file"
            )
            yield Finding(
                "lost",
                "unit-missing" if has_files else "queue-missing",
                place,
                low * layout.UNIT_BYTES if has_files else None,
                f"the queue {text}: a broker dispatches the log behind them, so that they stay "
                "lost; opening the store to write here completes the queue",
                line="[BUG]logic queue order maybe wrong, expectLogicOffset: {} "
                f"currentLogicOffset: {{}} Topic: {queue.topic} QID: {queue.queue_id} Diff: {{}}",
                messages=lost,
                by_start=True,
            )


class _ShortQueue(NamedTuple):
    """A queue that a broker ends too early."""

    queue: Queue
    end: int  # in units
    kept: int  # units after the one at the end, regained by a cut at the log's end
    has_files: bool
    has_units: bool  # in the files that recovery reads


class _UnitGap(NamedTuple):
    """Queue offsets [first, stop) in missing files, or of zeros in an existing one."""

    first: int
    stop: int
    zeros: int = 0  # units of an existing file


def _queue_files(directory: Path, size: int) -> list[tuple[int, str]]:
    """Return the queue files that a broker loads, each with its start in the queue."""
    return [
        (start, one.path)
        for one in listed(directory) or []
        if (start := paths.parse_offset_file_name(one.name)) is not None and one.size == size
    ]


def _queue_end(files: Sequence[tuple[int, str]], size: int, *, whole: bool) -> tuple[int, int, int]:
    """Return a broker's end of a queue, in units and in the log, and the units kept beyond it.

    A cut at the log's end takes the last file's first unit as valid: see ``_ShortQueue.kept``.
    ``whole``: files are read whole, so that zeros between units end the queue, as for a broker.
    """
    end = physical = kept = 0
    count = size // layout.UNIT_BYTES
    for start, path in files[-RECOVERED_FILES:]:
        used, last = (_read_units if whole else _used_units)(path, count)
        end = start // layout.UNIT_BYTES + used
        physical = last or physical
        if used < count:
            kept = _used_units(path, count, 1)[0] - 1 if used == 0 else 0
            break
    return end, physical, kept


def _queue_gaps(
    files: Sequence[tuple[int, str]], size: int, low: int, high: int
) -> Iterator[_UnitGap]:
    """Yield the gaps of a queue between two offsets; a broker's recovery does not check for any."""
    at, count = low, size // layout.UNIT_BYTES
    for number, (start, path) in enumerate(files):
        first = start // layout.UNIT_BYTES
        if at < min(first, high):
            yield _UnitGap(at, min(first, high))
        at = max(at, first + count)
        if number < len(files) - RECOVERED_FILES:  # recovery reads the others
            yield from _zeros(path, first, count, low)


def _zeros(path: str, first: int, count: int, low: int) -> Iterator[_UnitGap]:
    """Yield the zeros at or above ``low`` in a file with ``count`` units from ``first`` on.

    The file is read only if its first or last unit is missing.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return  # a live owner removed it
    with file:
        if _record_end(file, 0) and _record_end(file, count - 1):
            return
        import numpy as np

        data = file.read(count * layout.UNIT_BYTES)  # less where it is cut meanwhile
        whole = len(data) // layout.UNIT_BYTES
        units = np.frombuffer(data, dtype=layout.UNIT_FIELDS, count=whole)
    zeros = first + ((units["physical_offset"] < 0) | (units["size"] <= 0)).nonzero()[0]
    zeros = zeros[zeros >= low]
    if len(zeros):
        yield _UnitGap(int(zeros[0]), int(zeros[-1]) + 1, len(zeros))


def _messages(queue: Queue, gap: _UnitGap) -> int:
    """Count the messages in a gap; a reader has their units from the log."""
    try:
        sizes = queue.units(gap.first, gap.stop)["size"]
    except (StoreError, OSError, IndexError):
        return gap.stop - gap.first  # with a live owner none are derived
    return int((sizes != layout.UNIT_BLANK_SIZE).sum())


def _units(count: int) -> str:
    return f"{count:,} unit{'' if count == 1 else 's'}"


def _used_units(path: str, count: int, first: int = 0) -> tuple[int, int]:
    """Return the end of a queue file's units from ``first`` on, and of the last one's record.

    Reads the first, the last and those of a bisection; zeros in between go unnoticed.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return first, 0  # a live owner removed it
    with file:
        physical = _record_end(file, first)
        if not physical:
            return first, 0
        if end := _record_end(file, count - 1):
            return count, end
        low, high = first + 1, count - 1
        while low < high:
            middle = (low + high) // 2
            if end := _record_end(file, middle):
                low, physical = middle + 1, end
            else:
                high = middle
        return low, physical


def _read_units(path: str, count: int) -> tuple[int, int]:
    """Return what :func:`_used_units` does, of a file read whole."""
    used = physical = 0
    try:
        with open_regular(path) as file:
            while used < count:
                data = file.read(min(count - used, _PIECE_UNITS) * layout.UNIT_BYTES)
                found, end = _core.leading_units(data)
                used, physical = used + found, end or physical
                if found < _PIECE_UNITS:
                    break
    except FileNotFoundError:
        return 0, 0
    return used, physical


def _record_end(file: BinaryIO, number: int) -> int:
    """Return the end of the record of a queue file's unit, 0 if there is no unit."""
    offset, size, _ = numbers_at(file.fileno(), layout.UNIT, number * layout.UNIT_BYTES)
    return offset + size if offset >= 0 and size > 0 else 0
