"""Messages that the start of a 4.9.3 broker loses, though it loads every file.

Source: ``store/DefaultMessageStore.java recover``, ``start``; ``store/ConsumeQueue.java recover``;
``store/CommitLog.java recoverNormally``, ``recoverAbnormally``; ``store/StoreCheckpoint.java``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from rmqstore.base import layout
from rmqstore.base.times import format_millis
from rmqstore.errors import StoreCorruptError, StoreError
from rmqstore.files import paths
from rmqstore.files.newer import find_newer
from rmqstore.files.regular import open_regular
from rmqstore.offline.findings import Finding
from rmqstore.offline.start_files import FileSizes, listed, relative
from rmqstore.types import RecoveredRange

if TYPE_CHECKING:
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["loss_findings"]

_AHEAD_MS = 86_400_000  # checkpoint times further ahead are invalid: the core's TIMES_AHEAD_MS
_MARGIN_MS = 3000  # of StoreCheckpoint.getMinTimestamp
_RECOVERED_FILES = 3
_BEHIND_LINE = (
    "Try to finish doing reput the messages fall behind during the starting, reputOffset={} "
    "maxOffset={} behind={}"
)


def loss_findings(
    opened: MessageStore, root: Path, directories: Sequence[Path], sizes: FileSizes
) -> Iterator[Finding]:
    """Yield losses, by the start or before it, in a store whose files all load."""
    log = sorted(
        (start, one.path)
        for directory in directories
        for one in listed(directory) or []
        if (start := paths.parse_offset_file_name(one.name)) is not None
    )
    if not log:
        return
    killed = os.path.lexists(root / paths.ABORT)
    ends = _QueueEnds(opened, root, sizes)
    times = _checkpoint(root)
    from_file = _abnormal_start(log, times) if killed else log[-_RECOVERED_FILES:][0][0]
    yield from _gaps(root, log, sizes.log, None if killed else ends.dispatched)
    yield from _damage(opened, root, log, from_file, sizes.log, killed=killed)
    yield from ends.behind_log_end()
    yield from ends.gaps()
    yield from ends.findings(from_file if killed else ends.dispatched)
    if killed:
        yield from _index_files(root, times[2], from_file)
    else:
        yield from _newer_checkpoint(opened, root, *times[:2])
    for newer in find_newer(os.fspath(root)):
        yield Finding("warn", "newer-format", newer.place, None, str(newer))


def _gaps(
    root: Path, log: list[tuple[int, str]], size: int, dispatched: int | None
) -> Iterator[Finding]:
    """Yield the gaps between log files.

    A broker that has to dispatch over one waits for ever; ``dispatched`` is where it resumes, None
    if recovery has gone through the files before the gap.
    """
    for (before, _), (after, path) in itertools.pairwise(log):
        if after - before <= size:
            continue
        gap = before + size
        name = str(Path(path).with_name(paths.offset_file_name(gap)))
        loops = dispatched is not None and dispatched <= gap
        yield Finding(
            "lost",
            "gap",
            relative(root, name),
            gap,
            f"the log lacks {after - gap} bytes between two files: put the missing ones back",
            line=_BEHIND_LINE.format(gap, "...", "...") if loops else None,
            loops=loops,
        )


def _damage(
    opened: MessageStore,
    root: Path,
    log: list[tuple[int, str]],
    from_file: int,
    size: int,
    *,
    killed: bool,
) -> Iterator[Finding]:
    """Yield the damage that opening found; a recovery that meets it cuts the log there."""
    end = opened.recovery.log_end
    damaged = [one for one in opened.recovery.ranges if one.kind == "damaged" and one.start < end]
    damaged += _bad_start(opened, log, from_file, size, damaged)
    damaged.sort(key=lambda one: one.start)
    met = next((one for one in damaged if one.start >= from_file), None)
    for one in damaged:
        # A live owner may have removed the file since.
        path = next((path for start, path in reversed(log) if start <= one.start), log[0][1])
        lost = _behind(opened, one.stop) if one is met else 0
        message = f"bytes {one.start} to {one.stop} of the log are damaged ({one.reason})"
        line = None
        if one is met:
            message += "; a broker cuts the log there, with all whole records behind"
            line = f"recover physics file end, {path}"
            line += f" pos={one.start % size}" if killed else ""
        yield Finding(
            "lost", "bad-record", relative(root, path), one.start, message, line=line,
            messages=lost if one is met else one.records or 0, by_start=one is met and lost > 0,
        )  # fmt: skip


def _bad_start(
    opened: MessageStore,
    log: list[tuple[int, str]],
    from_file: int,
    size: int,
    known: Sequence[RecoveredRange],
) -> Iterator[RecoveredRange]:
    """Yield the damage at the first file of a broker's recovery that begins with a bad record.

    Opening checks only the last records, unless something else is wrong.
    """
    for start, _ in log:
        if not from_file <= start < opened.recovery.log_end:
            continue
        if any(one.start <= start < one.stop for one in known):
            return
        if (reason := _record_fault(opened, start)) is None:
            continue
        # Assume one run of damage, up to the next valid record that a queue names.
        named = _named_records(opened, start, start + size)
        low, high = 0, len(named)
        while low < high:
            middle = (low + high) // 2
            if _record_fault(opened, named[middle]) is None:
                high = middle
            else:
                low = middle + 1
        stop = named[low] if low < len(named) else min(start + size, opened.recovery.log_end)
        yield RecoveredRange("damaged", start, stop, None, reason, None)
        return


def _record_fault(opened: MessageStore, physical_offset: int) -> str | None:
    """Return the fault of a record, if any; a blank that ends a file has none."""
    try:
        opened.at(physical_offset)
    except StoreCorruptError as error:
        return error.reason
    except (StoreError, OSError):
        pass  # no record, or removed by a live owner
    return None


def _named_records(opened: MessageStore, start: int, stop: int) -> list[int]:
    """Return the sorted record offsets that queues name in a range of the log."""
    found: set[int] = set()
    for topic in opened.topics.values():
        for queue in topic.values():
            offsets = queue.units()["physical_offset"]
            first, last = offsets.searchsorted((start, stop))
            found.update(offsets[first:last].tolist())
    return sorted(found)


def _behind(opened: MessageStore, physical_offset: int) -> int:
    """Count the messages in queues whose record is at or after an offset."""
    count = 0
    for topic in opened.topics.values():
        for queue in topic.values():
            offsets = queue.units()["physical_offset"]
            count += len(offsets) - int(offsets.searchsorted(physical_offset))
    return count


class _QueueEnds:
    """Ends of the queues as a broker takes them from the files, against a reader's."""

    def __init__(self, opened: MessageStore, root: Path, sizes: FileSizes) -> None:
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
                end, physical, kept = _queue_end(files, sizes.queue)
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


def _queue_end(files: Sequence[tuple[int, str]], size: int) -> tuple[int, int, int]:
    """Return a broker's end of a queue, in units and in the log, and the units kept beyond it.

    A cut at the log's end takes the last file's first unit as valid: see ``_ShortQueue.kept``.
    """
    end = physical = kept = 0
    count = size // layout.UNIT_BYTES
    for start, path in files[-_RECOVERED_FILES:]:
        used, last = _used_units(path, count)
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
        if number < len(files) - _RECOVERED_FILES:  # recovery reads the others
            yield from _zeros(path, first, count, low)


def _zeros(path: str, first: int, count: int, low: int) -> Iterator[_UnitGap]:
    """Yield the zeros at or above ``low`` in a file with ``count`` units from ``first`` on.

    The file is read only if its first or last unit is missing.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return  # a live owner removed it
    import numpy as np

    with file:
        if _record_end(file, 0) and _record_end(file, count - 1):
            return
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


def _record_end(file: BinaryIO, number: int) -> int:
    """Return the end of the record of a queue file's unit, 0 if there is no unit."""
    offset, size, _ = _read(file.fileno(), layout.UNIT, number * layout.UNIT_BYTES)
    return offset + size if offset >= 0 and size > 0 else 0


def _read(fd: int, form: Struct, at: int) -> tuple[int, ...]:
    """Read numbers at an offset; zeros beyond the end."""
    return form.unpack(os.pread(fd, form.size, at).ljust(form.size, b"\0"))


def _read_path(path: str | Path, form: Struct, at: int = 0) -> tuple[int, ...]:
    """Read numbers of a file; zeros if it is unreadable."""
    try:
        with open_regular(path) as file:
            return _read(file.fileno(), form, at)
    except OSError:
        return form.unpack(bytes(form.size))


def _checkpoint(root: Path) -> tuple[int, ...]:
    return _read_path(root / paths.CHECKPOINT, layout.CHECKPOINT_TIMES)


def _newer_checkpoint(
    opened: MessageStore, root: Path, physic: int, logics: int
) -> Iterator[Finding]:
    """Yield a warning if a closed store's checkpoint has a later time than the log.

    Only a warning: after the clock was set back, retention may have removed the record. With a
    watermark, and no broker's write since, opening has compared the ends already.
    """
    end = opened.recovery.log_end
    noted = max(physic, logics)
    # The watermark is ours, zeros in a broker's checkpoint, and repeats the queues' time.
    magic, _, _, marked, _ = _read_path(
        root / paths.CHECKPOINT, layout.WATERMARK, layout.WATERMARK_AT
    )
    if (magic and marked == logics) or noted > time.time() * 1000 + _AHEAD_MS:
        return
    if any(one.kind == "damaged" and one.stop >= end for one in opened.recovery.ranges):
        return
    newest = 0
    for queue in (queue for topic in opened.topics.values() for queue in topic.values()):
        with contextlib.suppress(StoreError, OSError, LookupError):
            newest = max(newest, queue[-1].store_timestamp)
        if newest >= noted:
            return
    # After the clock was set back the newest may be anywhere: rare, so the whole log is read.
    found = opened.scan(on_corruption="skip", on_removed="skip")
    newest = max((one.store_timestamp for one in found), default=0)
    if 0 < newest < noted:
        message = (
            f"names a message stored at {format_millis(noted)}, and the newest in the log is of "
            f"{format_millis(newest)}: files may be missing at the log's end, with queues and "
            "index: compare with a copy; or the clock was set back since"
        )
        yield Finding("warn", "checkpoint", paths.CHECKPOINT, None, message)


def _abnormal_start(log: list[tuple[int, str]], times: tuple[int, ...]) -> int:
    """Return the start of the file with which recovery after a kill begins."""
    newest = max(0, min(times[:2]) - _MARGIN_MS)
    for start, path in reversed(log):
        _, magic = _read_path(path, layout.RECORD_START)
        (flag,) = _read_path(path, layout.INT32, layout.RECORD_SYS_FLAG)
        at = layout.RECORD_STORE_TIMESTAMP + (
            layout.HOST_V6_EXTRA if flag & layout.SYS_BORN_HOST_V6 else 0
        )
        (stored,) = _read_path(path, layout.INT64, at)
        if magic == layout.MAGIC_MESSAGE and 0 < stored <= newest:
            return start
    return log[0][0]


def _index_files(root: Path, noted: int, from_file: int) -> Iterator[Finding]:
    """Yield the index files that a broker destroys after a kill and does not refill."""
    for one in listed(root / paths.INDEX) or []:
        if paths.parse_index_file_name(one.name) is None:
            continue
        _, end_time, begin, _ = _read_path(one.path, layout.INDEX_RANGE)
        if end_time > noted and begin < from_file:
            message = (
                f"newer than the checkpoint: a broker deletes it, and enters only keys of records "
                f"from {from_file} on again; opening the store to write here keeps it"
            )
            line = f"unmap file[REF:...] {one.path} OK"
            yield Finding("warn", "index-behind", relative(root, one.path), None, message, line)
