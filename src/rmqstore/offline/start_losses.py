"""Messages that the start of a 4.9.3 broker loses, though it loads every file.

Source: ``store/DefaultMessageStore.java recover``, ``start``; ``store/ConsumeQueue.java recover``;
``store/CommitLog.java recoverNormally``, ``recoverAbnormally``; ``store/StoreCheckpoint.java``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore import paths
from rmqstore.errors import StoreError
from rmqstore.newer import find_newer
from rmqstore.offline.findings import Finding
from rmqstore.offline.start_files import FileSizes, listed, relative
from rmqstore.offline.walk import UNIT_BYTES
from rmqstore.regular import open_regular
from rmqstore.times import format_millis

if TYPE_CHECKING:
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["loss_findings"]

_UNIT = struct.Struct(">qiq")
_TIMES = struct.Struct(">qqq")  # of the checkpoint: log, queues, index
_INDEX_RANGE = struct.Struct(">qqqq")  # of an index file: times, offsets, first and last of each
_RECORD_START = struct.Struct(">ii")  # size, magic
_MAGIC = -626843481
_V6_FLAG = 1 << 4
_SYS_FLAG_AT, _STORE_TIME_AT, _V6_MORE = 36, 56, 12
# Ours, 0 in a broker's checkpoint: magic, and the time of the queues once more.
_WATERMARK_AT, _WATERMARK = 2048, struct.Struct(">i52xq")
_AHEAD_MS = 86_400_000  # beyond now, a time is none of a checkpoint: the core's TIMES_AHEAD_MS
_MARGIN_MS = 3000  # of StoreCheckpoint.getMinTimestamp
_RECOVERED_FILES = 3
_BEHIND_LINE = (
    "Try to finish doing reput the messages fall behind during the starting, reputOffset={} "
    "maxOffset={} behind={}"
)


def loss_findings(
    opened: MessageStore, root: Path, directories: Sequence[Path], sizes: FileSizes
) -> Iterator[Finding]:
    """Return losses, by a start or before it, of a store whose files all load."""
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
    """Return the gaps between files of the log.

    A broker that has to dispatch over one waits for ever; ``dispatched`` is where it goes on, None
    where its recovery has gone through the files before.
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
    """Return the damage that opening found: a recovery that meets it cuts the log there."""
    end = opened.recovery.log_end
    damaged = [one for one in opened.recovery.ranges if one.kind == "damaged" and one.start < end]
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


def _behind(opened: MessageStore, physical_offset: int) -> int:
    """Return the number of messages in queues whose record is at or behind an offset."""
    count = 0
    for topic in opened.topics.values():
        for queue in topic.values():
            offsets = queue.units()["physical_offset"]
            count += len(offsets) - int(offsets.searchsorted(physical_offset))
    return count


class _QueueEnds:
    """Ends of the queues for a broker, by their files, against a reader's."""

    def __init__(self, opened: MessageStore, root: Path, sizes: FileSizes) -> None:
        self.dispatched = 0  # a broker dispatches the log from here on
        self._opened = opened
        self._log_size = sizes.log
        self._cut = 0  # places in queues that a start gives to other messages
        self._short: list[tuple[Queue, int, bool]] = []
        for topic in opened.topics.values():
            for queue in topic.values():
                directory = root / paths.CONSUME_QUEUE / topic.name / str(queue.queue_id)
                end, physical, has_files = _queue_end(directory, sizes.queue)
                self.dispatched = max(self.dispatched, physical)
                self._cut += max(0, end - queue.max_offset)
                if end < queue.max_offset:
                    self._short.append((queue, end, has_files))

    def behind_log_end(self) -> Iterator[Finding]:
        """Return the end of a closed store's log that is named and not there."""
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

    def findings(self, dispatched: int) -> Iterator[Finding]:
        """Return the queues that lack units whose records a broker does not dispatch again."""
        for queue, end, has_files in self._short:
            low = max(end, queue.min_offset)
            lacking = queue.units(low)["physical_offset"]
            lost = int((lacking < dispatched).sum())
            if lost == 0:
                continue
            place = f"{paths.CONSUME_QUEUE}/{queue.topic}/{queue.queue_id}"
            text = f"lacks {lost} units from queue offset {low} on" if has_files else "has no file"
            yield Finding(
                "lost",
                "unit-missing" if has_files else "queue-missing",
                place,
                low * UNIT_BYTES if has_files else None,
                f"the queue {text}: a broker dispatches the log behind them, so that they stay "
                "lost; opening the store to write here completes the queue",
                line="[BUG]logic queue order maybe wrong, expectLogicOffset: {} "
                f"currentLogicOffset: {{}} Topic: {queue.topic} QID: {queue.queue_id} Diff: {{}}",
                messages=lost,
                by_start=True,
            )


def _queue_end(directory: Path, size: int) -> tuple[int, int, bool]:
    """Return where a broker ends a queue, in units and in the log, and whether it has files."""
    files = [
        (start, one.path)
        for one in listed(directory) or []
        if (start := paths.parse_offset_file_name(one.name)) is not None and one.size == size
    ]
    if not files:
        return 0, 0, False
    end, physical = files[-_RECOVERED_FILES:][0][0], 0
    for start, path in files[-_RECOVERED_FILES:]:
        used, last = _used_units(path, size // UNIT_BYTES)
        end = start + used * UNIT_BYTES
        physical = last or physical
        if used < size // UNIT_BYTES:
            break
    return end // UNIT_BYTES, physical, True


def _used_units(path: str, count: int) -> tuple[int, int]:
    """Return how many units a queue's file has, and where the last one's record ends."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return 0, 0  # a live owner removed it
    with file:
        low, high, physical = 0, count, 0
        while low < high:
            middle = (low + high) // 2
            offset, size, _ = _read(file.fileno(), _UNIT, middle * UNIT_BYTES)
            if offset >= 0 and size > 0:
                low, physical = middle + 1, offset + size
            else:
                high = middle
        return low, physical


def _read(fd: int, form: struct.Struct, at: int) -> tuple[int, ...]:
    """Return the numbers there; zeros behind the end."""
    return form.unpack(os.pread(fd, form.size, at).ljust(form.size, b"\0"))


def _read_path(path: str | Path, form: struct.Struct, at: int = 0) -> tuple[int, ...]:
    """Return the numbers of a file; zeros if it cannot be read."""
    try:
        with open_regular(path) as file:
            return _read(file.fileno(), form, at)
    except OSError:
        return form.unpack(bytes(form.size))


def _checkpoint(root: Path) -> tuple[int, ...]:
    return _read_path(root / paths.CHECKPOINT, _TIMES)


def _newer_checkpoint(
    opened: MessageStore, root: Path, physic: int, logics: int
) -> Iterator[Finding]:
    """Return the checkpoint of a closed store that names a later time than the log has.

    Only a warning: where the clock was set back, retention may have taken the record that it
    names. Where there is a watermark, and no broker has written since, opening has compared the
    ends by it.
    """
    end = opened.recovery.log_end
    noted = max(physic, logics)
    magic, marked = _read_path(root / paths.CHECKPOINT, _WATERMARK, _WATERMARK_AT)
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
    # The newest may be in front, where the clock was set back: seldom, so all of it is read.
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
    """Return the file that a recovery after a kill begins with."""
    newest = max(0, min(times[:2]) - _MARGIN_MS)
    for start, path in reversed(log):
        _, magic = _read_path(path, _RECORD_START)
        (flag,) = _read_path(path, struct.Struct(">i"), _SYS_FLAG_AT)
        at = _STORE_TIME_AT + (_V6_MORE if flag & _V6_FLAG else 0)
        (stored,) = _read_path(path, struct.Struct(">q"), at)
        if magic == _MAGIC and 0 < stored <= newest:
            return start
    return log[0][0]


def _index_files(root: Path, noted: int, from_file: int) -> Iterator[Finding]:
    """Return the index files that a broker destroys after a kill, and does not fill again."""
    for one in listed(root / paths.INDEX) or []:
        if paths.parse_index_file_name(one.name) is None:
            continue
        _, end_time, begin, _ = _read_path(one.path, _INDEX_RANGE)
        if end_time > noted and begin < from_file:
            message = (
                f"newer than the checkpoint: a broker deletes it, and enters only keys of records "
                f"from {from_file} on again; opening the store to write here keeps it"
            )
            line = f"unmap file[REF:...] {one.path} OK"
            yield Finding("warn", "index-behind", relative(root, one.path), None, message, line)
