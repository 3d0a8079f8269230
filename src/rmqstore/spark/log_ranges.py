"""The ranges of a commit log that tasks take, and whether what they report fits together.

A record belongs to the range in which it begins. A range that begins within a file begins with
the first record found there, which is right if the range before it says the same: each one also
names the record that follows it.

Source: none.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqstore import _core, paths
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreCorruptError
from rmqstore.registry import TopicRegistry

__all__ = ["LogPlan", "RangeReport", "RangesOverlapError", "check_meeting", "plan_log"]

_RANGES = 32  # as many, if they are neither smaller nor larger than
_LEAST, _MOST = 8 << 20, 128 << 20
_AT_A_TIME_MOST, _TASK_BYTES = 8 << 30, 512 << 20


class RangesOverlapError(Exception):
    """Bytes within a record look like one: ranges that begin within files cannot be used."""


@dataclass(frozen=True)
class LogPlan:
    """What a task needs to know of a store's log.

    Attributes
    ----------
    path : str
        Directory of the store.
    config : StoreConfig
        Sizes and delay levels in force.
    deleted : dict of str to int
        Topics that were deleted, and the log's end as of then.
    unclean : bool
        The store was not closed: a torn last record counts as none.
    file_size : int
        Of the log's files.
    first, end : int
        Physical offsets: the first byte, and behind the last one that is not a hole.
    step : int
        Bytes of a range; one that would go into the next file ends with its own.
    any_version : bool
        Records of RocketMQ 5 are taken as well.
    """

    path: str
    config: StoreConfig
    deleted: dict[str, int]
    unclean: bool
    file_size: int
    first: int
    end: int
    step: int
    any_version: bool = False

    @property
    def count(self) -> int:
        """Number of ranges."""
        length = self.end - self.first
        if self.step >= self.file_size:
            return -(-length // self.step)
        pieces = -(-self.file_size // self.step)
        files, rest = divmod(length, self.file_size)
        return files * pieces + -(-rest // self.step)

    @property
    def tasks(self) -> int | None:
        """Number of tasks that the ranges are worth; None: as many as run at a time.

        A task costs Spark some 10 ms, and the ranges are of one size.
        """
        length = self.end - self.first
        return None if length <= _AT_A_TIME_MOST else length // _TASK_BYTES

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the physical offsets of a range's beginning and end."""
        if self.step >= self.file_size:
            start = self.first + number * self.step
            stop = start + self.step
        else:
            file, piece = divmod(number, -(-self.file_size // self.step))
            start = self.first + file * self.file_size + piece * self.step
            stop = min(start + self.step, self.first + (file + 1) * self.file_size)
        return start, min(stop, self.end)

    def by_files(self) -> LogPlan:
        """Return the plan with ranges that begin where files do."""
        return replace(self, step=self.file_size)

    def walk(self, number: int) -> _core.LogUnits:
        """Return the walk through one range."""
        return _core.LogUnits(
            self.path,
            self.config,
            self.deleted,
            *self.bounds(number),
            unclean=self.unclean,
            any_version=self.any_version,
        )

    def file_of(self, physical_offset: int) -> str:
        """Return the path of the file that has a byte of the log."""
        start = physical_offset - physical_offset % self.file_size
        return str(Path(self.path, paths.COMMIT_LOG, paths.offset_file_name(start)))

    def corrupt(self, physical_offset: int, reason: str) -> StoreCorruptError:
        """Return the error for bytes of the log that are no record."""
        return StoreCorruptError(self.file_of(physical_offset), physical_offset, reason)


def plan_log(
    path: str, config: StoreConfig, *, range_bytes: int | None = None, any_version: bool = False
) -> LogPlan:
    """Look at a store's log without reading it.

    Parameters
    ----------
    path : str
        Directory of the store, absolute.
    config : StoreConfig
    range_bytes : int, optional
        By default 8 to 128 MiB, a 32nd of the log.
    any_version : bool, optional
        Take records of RocketMQ 5 as well.

    Returns
    -------
    LogPlan

    Raises
    ------
    StoreNotFoundError
        There is no store, or no file of its log.
    StoreCorruptError
        ``rmqstore-deleted.json`` is not what it may be.
    ValueError
        ``range_bytes`` is not above 0.

    Notes
    -----
    Source: none.
    """
    first, stop, file_size = _core.log_extent(path)
    end = _used_end(path, first, stop, file_size)
    wanted = min(max((end - first) // _RANGES, _LEAST), _MOST)
    if range_bytes is not None:
        wanted = operator.index(range_bytes)
        if wanted < 1:
            raise ValueError(f"argument 'range_bytes' is {range_bytes!r}; it may be 1 or more")
    if wanted >= file_size:
        step = wanted - wanted % file_size
    else:
        step = -(-file_size // -(-file_size // wanted))
    return LogPlan(
        path=path,
        config=config,
        deleted=TopicRegistry(path, lenient=False).deleted,
        unclean=os.path.lexists(Path(path, paths.ABORT)),
        file_size=file_size,
        first=first,
        end=end,
        step=step,
        any_version=any_version,
    )


def _used_end(path: str, first: int, stop: int, file_size: int) -> int:
    """Return where the last hole of the log begins; nothing is read."""
    start = stop - file_size
    while start >= first:
        try:
            with Path(path, paths.COMMIT_LOG, paths.offset_file_name(start)).open("rb") as file:
                if used := _used_bytes(file.fileno(), file_size):
                    return start + used
        except FileNotFoundError:
            pass  # who reads the ranges around it says so
        start -= file_size
    return first


def _used_bytes(descriptor: int, file_size: int) -> int:
    """Return where the last hole of a file begins, by bisection."""
    low, high = 0, min(file_size, os.fstat(descriptor).st_size)
    while low < high:
        middle = (low + high) // 2
        try:
            low = os.lseek(descriptor, middle, os.SEEK_DATA) + 1
        except OSError:
            high = middle
    return low


@dataclass
class RangeReport:
    """What a task found in a range.

    Attributes
    ----------
    number : int
        Of the range.
    process : int
        That read it.
    bytes, records, units, keys, skipped, noted : int
    noted_last : bool
        A record without keys lies behind the last one that has some.
    first_record, next_record : int
        Where the first record of the range begins and the first one behind it; -1: none.
    damages : list of (int, str, int)
        Where a record should be, why it is none, and where the next good one of the range is; -1
        if there is none.
    queues : dict of (str, int) to object
        What was done for each queue.
    error : Exception or None
        What ended the task.
    """

    number: int
    process: int = 0
    bytes: int = 0
    records: int = 0
    units: int = 0
    keys: int = 0
    skipped: int = 0
    noted: int = 0
    noted_last: bool = False
    first_record: int = -1
    next_record: int = -1
    damages: list[tuple[int, str, int]] = field(default_factory=list)
    queues: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    error: Exception | None = None

    def take(self, walk: _core.LogUnits) -> None:
        """Take over the counts of a walk."""
        for name, value in walk.totals().items():
            setattr(self, name, value)
        self.damages = walk.damages

    def slices(
        self, walk: _core.LogUnits, most: int
    ) -> Iterator[tuple[list[tuple[str, int, int, int, int, _core.Memory]], _core.Memory]]:
        """Go through a walk until its end, or until damage with a good record behind it."""
        while (found := walk.next(most)) is not None:
            yield found
            if walk.damages and walk.damages[-1][2] >= 0:
                break
        self.take(walk)


def check_meeting(plan: LogPlan, reports: Iterable[RangeReport]) -> None:
    """Check that the ranges meet: what one ends on, the next one begins with.

    Parameters
    ----------
    plan : LogPlan
    reports : iterable of RangeReport
        One for each range, in their order.

    Raises
    ------
    StoreCorruptError
        There is damage with a good record behind it; without one it is the log's torn end.
    RangesOverlapError
        A range begins within a record: :meth:`LogPlan.by_files` never does.
    Exception
        What a task met.

    Notes
    -----
    Source: none.
    """
    expected: int | None = None
    damage: tuple[int, str, int] | None = None
    for report in reports:
        if report.error is not None:
            raise report.error
        if report.first_record >= 0:
            if damage is not None:
                raise plan.corrupt(damage[0], damage[1])
            if expected is not None and report.first_record < expected:
                raise RangesOverlapError
            if expected is not None and report.first_record > expected:
                raise plan.corrupt(expected, "the record is gone since it was seen")
            expected = report.next_record if report.next_record >= 0 else None
        for found in report.damages:
            if found[2] >= 0:
                raise plan.corrupt(found[0], found[1])
            damage = damage or found
