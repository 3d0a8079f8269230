"""Repair of a commit log: lengths, missing files, damaged parts, the torn end.

Damaged parts become records that a 4.9.3 broker passes over. Where a queue names a record in them,
a dummy of the same size, topic, queue and queue offset takes its place, so that the queue stays
as it is: a broker that reads a unit without a record passes over messages behind it.

Source: ``store/CommitLog.java checkMessageAndReturnSize``, ``recoverNormally``,
``store/DefaultMessageStore.java getMessage``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmqstore import _core
from rmqstore.base import layout
from rmqstore.base.syncing import sync_file
from rmqstore.errors import MessagesRemovedError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.start_files import relative
from rmqstore.toolbox.repairs.journal import Journal
from rmqstore.toolbox.repairs.repair_blank import behind_blank
from rmqstore.toolbox.repairs.repair_lost import (
    LOST_PROPERTY,
    Lost,
    LostRecords,
    is_own,
    lost_records,
)
from rmqstore.toolbox.repairs.repair_places import LogPlaces
from rmqstore.toolbox.repairs.repair_plan import (
    UNREACHED,
    Action,
    Change,
    foreign_changes,
    move,
    nothing,
)

__all__ = [
    "FileWalk",
    "LogState",
    "blank_changes",
    "log_changes",
    "log_file_changes",
    "misnamed_changes",
    "single_file_change",
    "unreached_changes",
    "walk_file",
]

_RECORD_MOST = 4 << 20  # as a broker's maxMessageSize, about
_FILLER_MOST = 4 << 20  # as the core's: readers allocate it
_COUNT_MOST = 1000  # missing files between two that are made anew


class FileWalk(NamedTuple):
    """Result of a walk through a file of the log."""

    start: int
    records: int
    damages: list[tuple[int, int, str]]  # begin and end, and the reason; the last may be the end
    blanks: list[int]  # before the end of its records


@dataclass(frozen=True)
class LogState:
    """The log as its files show it."""

    places: LogPlaces
    file_size: int
    closed: bool  # no ``abort``
    starts: Sequence[int]  # of the files, in order
    walks: Sequence[FileWalk]
    lost: LostRecords

    @property
    def stop(self) -> int:
        """End of the last file."""
        return self.starts[-1] + self.file_size if self.starts else 0

    @property
    def end(self) -> int:
        """End of the last record, or the log's first byte."""
        with_records = [one for one in self.walks if one.records]
        if not with_records:
            return self.walks[0].start if self.walks else 0
        last = with_records[-1]
        stop = last.start + self.file_size
        tail = [start for start, end, _ in last.damages if end == stop]
        return tail[-1] if tail else stop

    @property
    def damaged(self) -> list[tuple[int, int, str]]:
        """Damaged parts with a record behind them, split by file, as (start, stop, reason)."""
        end = self.end
        return [
            (start, stop, reason)
            for walk in self.walks
            for start, stop, reason in walk.damages
            if start < end
        ]


def walk_file(plan: LogPlan, number: int) -> FileWalk:
    """Walk through a file of the log; ``plan`` has a range for each."""
    start, _ = plan.bounds(number)
    stop = start + plan.file_size
    walk = plan.walk(number)
    last = start
    with contextlib.suppress(MessagesRemovedError):  # the next file is missing
        for found in walk.slices():
            for run in found.runs:
                last = max(last, run.log_stop)
    damages = [
        (one.physical_offset, one.resumed if one.resumed >= 0 else stop, one.reason)
        for one in walk.damages
        if one.physical_offset < stop
    ]
    last = max([last, *(resumed for _, resumed, _ in damages)])
    hidden = behind_blank(plan, last, stop)
    records = walk.totals.records + hidden.records
    return FileWalk(start, records, damages + hidden.damaged, hidden.blanks)


# ---- files


def unreached_changes(places: LogPlaces) -> Iterator[Change]:
    """Yield the log's files that cannot be examined: without them the queues cannot be compared."""
    for one in places.listed():
        start = paths.parse_offset_file_name(one.name)
        if one.size < 0 and start is not None:
            yield nothing(relative(places.root, one.path), start, UNREACHED)


def misnamed_changes(places: LogPlaces) -> Iterator[Change]:
    """Yield the moves of files whose names are no multiples of a file's length.

    That is the length of which most names are multiples: several files may be cut, or longer.
    """
    files = [
        (start, one)
        for one in places.listed()
        if (start := paths.parse_offset_file_name(one.name)) is not None
        and stat.S_ISREG(one.mode)
        and one.size > 0
    ]
    if not files:
        return
    lengths = Counter(one.size for _, one in files if one.size >= layout.LOG_FILE_LEAST)
    named = {size: sum(start % size == 0 for start, _ in files) for size in lengths}
    size = max(lengths, key=lambda one: (named[one], lengths[one]), default=0)
    if lengths[size] < 2 or 2 * named[size] <= len(files):
        return
    for start, one in files:
        if start % size:
            message = f"the name is that of no file of {size:,} bytes"
            yield move("move-foreign", relative(places.root, one.path), one.size, message)


def single_file_change(places: LogPlaces, configured: int | None) -> Change | None:
    """Return the change of a log's only file where it was cut, whose length shows no size.

    ``configured``: the size that a broker.conf sets.
    """
    files = [
        (start, one)
        for one in places.listed()
        if (start := paths.parse_offset_file_name(one.name)) is not None and stat.S_ISREG(one.mode)
    ]
    if len(files) != 1:
        return None
    [(start, only)] = files
    file = relative(places.root, only.path)
    if configured is not None:
        short = only.size < configured
        return _resized(file, start, only.size, configured) if short else None
    stop = start + only.size
    near = lost_records(places.root, max(start, stop - _RECORD_MOST), stop + _RECORD_MOST)
    if not any(one.offset < stop < one.stop for one in near):
        return None
    return nothing(
        file,
        start + only.size,
        f"{only.size:,} bytes, and queues name a record across its end: the file was cut, and no "
        "other one shows its size: give the broker.conf with -c or config=",
    )


def log_file_changes(places: LogPlaces, lost: LostRecords) -> Iterator[Change]:
    """Yield the changes that make every file of the log one that a broker loads."""
    size = lost.plan.file_size
    for directory in places.paths:
        yield from foreign_changes(places.root, directory, size, name=paths.parse_offset_file_name)
    names = []
    for one in places.listed():
        start = paths.parse_offset_file_name(one.name)
        if start is None or start % size or not stat.S_ISREG(one.mode):
            continue
        names.append(start)
        if one.size != size:
            yield _resized(relative(places.root, one.path), start, one.size, size)
    for before, after in itertools.pairwise(sorted(names)):
        yield from _missing(places, lost, range(before + size, after, size))


def _resized(file: str, start: int, now: int, size: int) -> Change:
    action = "extend-file" if now < size else "cut-file"
    message = f"{now:,} bytes, not {size:,}"
    made = Action(action, file, start + min(now, size), abs(size - now), message)
    return Change(made, lambda journal: journal.resize(file, size))


def _missing(places: LogPlaces, lost: LostRecords, starts: range) -> Iterator[Change]:
    if len(starts) > _COUNT_MOST:
        file = places.file(starts[0], starts.step)
        message = f"{len(starts):,} files are missing: put them back"
        yield Change(Action("none", file, starts[0], 0, message))
        return
    for start in starts:
        records = start, start + starts.step
        yield _made_file(places, lost, starts.step, records, "missing")


def _made_file(
    places: LogPlaces, lost: LostRecords, size: int, records: tuple[int, int], message: str
) -> Change:
    """Return the making of a file of the log that is lost, with records in a part of it."""
    start, stop = records[0] - records[0] % size, records[1]
    file = places.file(start, size)
    named, dummies = _counted(start, stop, start + size, lost)
    action = Action(
        "make-log-file", file, start, size, message, lost=named, dummies=dummies
    )  # fmt: skip

    def make(journal: Journal) -> None:
        records = lost.within(start, stop)
        new = journal.saved_name(file)
        time = _time_near(places, start, size)
        with (journal.root / new).open("xb") as made:
            for at, data in _pieces(start, stop, start + size, records, time):
                made.seek(at - start)
                made.write(data)
            made.truncate(size)
            made.flush()
            sync_file(made.fileno(), made.name)
        journal.place(file, new)

    return Change(action, make)


# ---- damaged parts


def blank_changes(state: LogState) -> Iterator[Change]:
    """Yield the removal of early blanks: what is missing is known only with what they hide."""
    for at in (blank for walk in state.walks for blank in walk.blanks):
        file, place, size = _file(state, at), at % state.file_size, layout.RECORD_BLANK_BYTES
        action = Action("zero-blank", file, at, size, "records that queues name follow it")
        save = partial(Journal.overwrite, name=file, start=place, stop=place + size)
        yield Change(action, save)


def log_changes(state: LogState) -> Iterator[Change]:
    """Yield the changes of the log's bytes: damaged parts filled, the end zeroed."""
    for start, stop, reason in state.damaged:
        yield _filled(state, start, stop, reason)
    end = state.end
    file_stop = state.stop
    named = _lost_end(state, end, file_stop)
    lost = named if state.closed else end
    if lost > end:
        yield from _lost_tail(state, end, lost, file_stop)
    for start in state.starts:
        at, stop = max(start, lost, end), start + state.file_size
        if at < stop and (used := _used(state, at, stop)):
            yield _zeroed(state, at, stop, used)
        elif at < min(stop, named):
            yield from _zeros(state, at, stop)
    if not state.closed:
        yield from _zeros(state, max(end, file_stop), named)


def _file(state: LogState, at: int) -> str:
    return state.places.file(at - at % state.file_size, state.file_size)


def _used(state: LogState, start: int, stop: int) -> int:
    """Return how many bytes of a part of a file are before its trailing zeros."""
    used = 0
    path = state.places.root / _file(state, start)
    with contextlib.suppress(FileNotFoundError), open_regular(path) as f:
        at = start % state.file_size
        size = stop - start
        done = 0
        while done < size:
            try:
                done = max(done, os.lseek(f.fileno(), at + done, os.SEEK_DATA) - at)
            except OSError:
                break
            data = os.pread(f.fileno(), min(1 << 20, size - done), at + done)
            if not data:
                break
            if kept := len(data.rstrip(b"\0")):
                used = done + kept
            done += len(data)
    return min(used, stop - start)


def _zeroed(state: LogState, start: int, stop: int, used: int) -> Change:
    file = _file(state, start)
    lost = sum(1 for _ in lost_records(state.places.root, start, stop, own=True))
    message = "no whole record follows: a torn end"
    action = Action("zero-tail", file, start, used, message, lost=lost)
    low, high = start % state.file_size, stop - start + start % state.file_size
    return Change(action, lambda journal: journal.overwrite(file, low, high))


def _zeros(state: LogState, start: int, stop: int) -> Iterator[Change]:
    """Yield the entry for records in zeros, or behind the last file, that queues name."""
    if lost := sum(1 for _ in lost_records(state.places.root, start, stop, own=True)):
        message = "queues name records behind the log's end, where there are none"
        action = Action("zero-tail", _file(state, start), start, 0, message, lost=lost)
        yield Change(action, lambda _: None)


def _filled(state: LogState, start: int, stop: int, reason: str) -> Change:
    """Return the replacement of a damaged part of a file."""
    file = _file(state, start)
    file_start = start - start % state.file_size
    file_stop = file_start + state.file_size
    if not _fits(start, stop, file_stop):
        message = f"{stop - start} bytes are damaged ({reason}), too few for a filler"
        return Change(Action("none", file, start, 0, message))
    named, dummies = _counted(start, stop, file_stop, state.lost)
    action = Action(
        "fill", file, start, stop - start, f"damaged ({reason})", lost=named, dummies=dummies
    )  # fmt: skip

    def make(journal: Journal) -> str:
        lost = state.lost.within(start, stop)
        behind = stop - stop % state.file_size
        time = _time_of(state.places.path(behind, state.file_size), stop - behind)
        time = time or _time_near(state.places, file_start, state.file_size)
        pieces = _pieces(start, stop, file_stop, lost, time)
        shifted = ((at - file_start, data) for at, data in pieces)
        return journal.overwrite(file, start - file_start, stop - file_start, shifted)

    return Change(action, make)


def _lost_end(state: LogState, end: int, file_stop: int) -> int:
    """Return the end of the records that queues name beyond the log's end."""
    lost_end = end
    for one in lost_records(state.places.root, end, file_stop + _COUNT_MOST * state.file_size):
        if one.offset >= max(file_stop, lost_end) + state.file_size:
            break  # no file between would have a record: rather a damaged unit
        lost_end = max(lost_end, one.offset + one.size)
    return lost_end


def _lost_tail(state: LogState, end: int, lost: int, file_stop: int) -> Iterator[Change]:
    """Yield the making of the lost end of a closed store's log."""
    message = "queues name records beyond the log's end: their queue offsets are kept"
    at = end
    while at < lost:
        stop = min(lost, at - at % state.file_size + state.file_size)
        if at >= file_stop:
            yield _made_file(state.places, state.lost, state.file_size, (at, stop), message)
        else:
            yield _filled(state, at, stop, message)
        at = stop


def _chosen(start: int, stop: int, file_stop: int, lost: Iterable[Lost]) -> Iterator[Lost]:
    """Yield the lost records that dummies replace: fillers have room between them."""
    at = start
    last = None  # is left out if no filler fits behind it; then one does before it
    for one in lost:
        if one.offset < at or one.stop > stop or _dummy_properties(one) is None:
            continue
        if _fits(at, one.offset, file_stop):
            if last is not None:
                yield last
            at, last = one.stop, one
    if last is not None and _fits(at, stop, file_stop):
        yield last


def _counted(start: int, stop: int, file_stop: int, lost: LostRecords) -> tuple[int, int]:
    """Return the number of lost records in a part of a file, and of their dummies."""
    count = 0

    def each() -> Iterator[Lost]:
        nonlocal count
        for one in lost.within(start, stop):
            count += 1
            yield one

    dummies = sum(1 for _ in _chosen(start, stop, file_stop, each()))
    return count, dummies


def _pieces(
    start: int, stop: int, file_stop: int, lost: Iterable[Lost], time: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the records that fill a part of a file; trailing zeros are left out."""
    at = start
    for one in _chosen(start, stop, file_stop, lost):
        yield from _fillers(at, one.offset, file_stop)
        yield one.offset, _dummy(one, time).rstrip(b"\0")
        at = one.stop
    yield from _fillers(at, stop, file_stop)


def _fits(start: int, stop: int, file_stop: int) -> bool:
    """Whether a part is empty or has room for a filler, or for the blank that ends a file."""
    least = layout.RECORD_BLANK_BYTES if stop == file_stop else layout.RECORD_FIXED_BYTES
    return start == stop or stop - start >= least


def _fillers(start: int, stop: int, file_stop: int) -> Iterator[tuple[int, bytes]]:
    if start < stop == file_stop:
        yield start, layout.RECORD_START.pack(stop - start, layout.MAGIC_BLANK)
        return
    while start < stop:
        size = min(stop - start, _FILLER_MOST)
        if 0 < stop - start - size < layout.RECORD_FIXED_BYTES:
            size = stop - start
        yield start, _core.filler_record(start, size).rstrip(b"\0")
        start += size


def _dummy_properties(one: Lost) -> bytes | None:
    """Return the properties of the dummy for a lost record; None if there is to be none."""
    if is_own(one.topic):
        return None
    room = one.size - layout.RECORD_FIXED_BYTES - len(one.topic.encode())
    return next((found for found in (LOST_PROPERTY, b"") if len(found) <= room), None)


def _dummy(one: Lost, time: int) -> bytes:
    """Return the record in the place of a lost one."""
    properties = _dummy_properties(one) or b""
    least = layout.RECORD_FIXED_BYTES + len(one.topic.encode()) + len(properties)
    return _core.encode_record(
        one.topic,
        bytes(one.size - least),
        queue_id=one.queue_id,
        queue_offset=one.queue_offset,
        physical_offset=one.offset,
        born_timestamp=time,
        store_timestamp=time,
        properties=properties,
    )


# ---- times


def _time_of(path: Path, place: int) -> int:
    """Return the store time of the record at a place in a file, 0 if there is none."""
    with contextlib.suppress(OSError):
        with open_regular(path) as file:
            head = os.pread(file.fileno(), 128, place).ljust(128, b"\0")
        if layout.RECORD_START.unpack_from(head)[1] != layout.MAGIC_MESSAGE:
            return 0
        (flag,) = layout.INT32.unpack_from(head, layout.RECORD_SYS_FLAG)
        extra = layout.HOST_V6_EXTRA if flag & layout.SYS_BORN_HOST_V6 else 0
        (time,) = layout.INT64.unpack_from(head, layout.RECORD_STORE_TIMESTAMP + extra)
        return max(0, int(time))
    return 0


def _time_near(places: LogPlaces, start: int, size: int) -> int:
    """Return the store time at the begin of the nearest file that has one, 0 if unknown."""
    nearest = sorted(places.starts(), key=lambda one: abs(one - start))
    times = (_time_of(places.path(one, size), 0) for one in nearest)
    return next((one for one in times if one), 0)
