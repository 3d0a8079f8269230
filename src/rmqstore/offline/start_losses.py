"""Messages that the start of a 4.9.3 broker loses, though it loads every file.

Source: ``store/DefaultMessageStore.java recover``, ``start``; ``store/ConsumeQueue.java recover``;
``store/CommitLog.java recoverNormally``, ``recoverAbnormally``; ``store/StoreCheckpoint.java``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.base import layout
from rmqstore.base.times import format_millis
from rmqstore.errors import StoreCorruptError, StoreError
from rmqstore.files import paths
from rmqstore.files.newer import find_newer
from rmqstore.offline.findings import Finding
from rmqstore.offline.start_files import FileSizes, listed, numbers_of, relative
from rmqstore.offline.start_queues import RECOVERED_FILES, QueueEnds
from rmqstore.offline.unit_search import count_from, first_from, first_unit, queues_of, records_in
from rmqstore.types import RecoveredRange

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["log_of", "loss_findings", "recovery_start"]

_AHEAD_MS = 86_400_000  # checkpoint times further ahead are invalid: the core's TIMES_AHEAD_MS
_MARGIN_MS = 3000  # of StoreCheckpoint.getMinTimestamp
_BEHIND_LINE = (
    "Try to finish doing reput the messages fall behind during the starting, reputOffset={} "
    "maxOffset={} behind={}"
)


def loss_findings(
    opened: MessageStore,
    root: Path,
    directories: Sequence[Path],
    sizes: FileSizes,
    examined: Sequence[RecoveredRange] | None = None,
) -> Iterator[Finding]:
    """Yield losses, by the start or before it, in a store whose files all load.

    ``examined`` has the log's damage if all of it was read, ``None`` else.
    """
    log = log_of(directories)
    if not log:
        return
    killed = os.path.lexists(root / paths.ABORT)
    ends = QueueEnds(opened, root, sizes, whole=examined is not None)
    times = _checkpoint(root)
    from_file = recovery_start(root, log)
    yield from _gaps(opened, root, log, sizes.log, None if killed else ends.dispatched)
    damaged = [
        one
        for one in (opened.recovery.ranges if examined is None else examined)
        if one.kind == "damaged" and one.start < opened.recovery.log_end
    ]
    if examined is None:
        damaged += _bad_start(opened, log, from_file, sizes.log, damaged)
    damaged += _newer_records(opened, from_file)
    yield from _damage(opened, root, log, damaged, from_file, killed=killed)
    yield from ends.behind_log_end()
    yield from ends.gaps()
    yield from ends.findings(from_file if killed else ends.dispatched)
    if killed:
        yield from _index_files(root, times[2], from_file)
    else:
        yield from _newer_checkpoint(opened, root, *times[:2])
    for newer in find_newer(os.fspath(root)):
        yield Finding("warn", "newer-format", newer.place, None, str(newer))


def log_of(directories: Iterable[Path]) -> list[tuple[int, str]]:
    """Return a log's files by name, each with its physical offset, in order."""
    return sorted(
        (start, one.path)
        for directory in directories
        for one in listed(directory) or []
        if (start := paths.parse_offset_file_name(one.name)) is not None
    )


def recovery_start(root: Path, log: Sequence[tuple[int, str]]) -> int:
    """Return the start of the log file with which a broker's recovery begins."""
    if os.path.lexists(root / paths.ABORT):
        return _abnormal_start(log, _checkpoint(root))
    return log[-RECOVERED_FILES:][0][0]


def _gaps(
    opened: MessageStore,
    root: Path,
    log: list[tuple[int, str]],
    size: int,
    dispatched: int | None,
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
            messages=_named(opened, gap, after),
            loops=loops,
        )


def _named(opened: MessageStore, start: int, stop: int) -> int:
    """Return the number of records that queues name in a part of the log, 0 if unknown."""
    try:
        return len(records_in(opened.core, start, stop))
    except (StoreError, OSError):
        return 0


def _damage(
    opened: MessageStore,
    root: Path,
    log: list[tuple[int, str]],
    damaged: list[RecoveredRange],
    from_file: int,
    *,
    killed: bool,
) -> Iterator[Finding]:
    """Yield the damage found; a recovery that meets it cuts the log there."""
    damaged.sort(key=lambda one: one.start)
    met = next((one for one in damaged if one.start >= from_file), None)
    for one in damaged:
        # A live owner may have removed the file since.
        begin, path = next((file for file in reversed(log) if file[0] <= one.start), log[0])
        newer = one.records == 0
        lost = count_from(opened.core, one.start if newer else one.stop) if one is met else 0
        message = f"bytes {one.start} to {one.stop} of the log are "
        message += one.reason if newer else f"damaged ({one.reason})"
        line = None
        if one is met:
            message += "; a broker cuts the log there, with all whole records behind"
            line = f"recover physics file end, {path}"
            line += f" pos={one.start - begin}" if killed else ""
        yield Finding(
            "lost", "newer-format" if newer else "bad-record", relative(root, path), one.start,
            message, line=line,
            messages=lost or one.records or 0, by_start=lost > 0,
        )  # fmt: skip


def _newer_records(opened: MessageStore, from_file: int) -> Iterator[RecoveredRange]:
    """Yield the first record of RocketMQ 5 that a broker's recovery meets: to 4.9.3 it is none.

    RocketMQ 5 writes them for topics with longer names.
    """
    first = None
    for topic, queue in queues_of(opened.core):
        if len(topic.encode()) > paths.TOPIC_MAX_LENGTH:
            at = first_from(opened.core, topic, queue, from_file)
            found = first_unit(opened.core, topic, queue.queue_id, at, queue.stop)
            if found is not None:
                first = min(first or found, found)
    if first is not None:
        reason = "a record of RocketMQ 5, which is none to 4.9.3"
        yield RecoveredRange("damaged", first[0], sum(first), 0, reason, None)


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
        named = records_in(opened.core, start, start + size).tolist()
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


def _checkpoint(root: Path) -> tuple[int, ...]:
    return numbers_of(root / paths.CHECKPOINT, layout.CHECKPOINT_TIMES)


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
    magic, _, _, marked, _ = numbers_of(
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


def _abnormal_start(log: Sequence[tuple[int, str]], times: tuple[int, ...]) -> int:
    """Return the start of the file with which recovery after a kill begins."""
    newest = max(0, min(times[:2]) - _MARGIN_MS)
    for start, path in reversed(log):
        _, magic = numbers_of(path, layout.RECORD_START)
        (flag,) = numbers_of(path, layout.INT32, layout.RECORD_SYS_FLAG)
        at = layout.RECORD_STORE_TIMESTAMP + (
            layout.HOST_V6_EXTRA if flag & layout.SYS_BORN_HOST_V6 else 0
        )
        (stored,) = numbers_of(path, layout.INT64, at)
        if magic == layout.MAGIC_MESSAGE and 0 < stored <= newest:
            return start
    return log[0][0]


def _index_files(root: Path, noted: int, from_file: int) -> Iterator[Finding]:
    """Yield the index files that a broker destroys after a kill and does not refill."""
    for one in listed(root / paths.INDEX) or []:
        if paths.parse_index_file_name(one.name) is None:
            continue
        _, end_time, begin, _ = numbers_of(one.path, layout.INDEX_RANGE)
        if end_time > noted and begin < from_file:
            message = (
                f"newer than the checkpoint: a broker deletes it, and enters only keys of records "
                f"from {from_file} on again; opening the store to write here keeps it"
            )
            line = f"unmap file[REF:...] {one.path} OK"
            yield Finding("warn", "index-behind", relative(root, one.path), None, message, line)
