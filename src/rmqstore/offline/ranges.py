"""Ranges of a commit log, one a task, and the check that their results join up.

A record belongs to the range in which it begins. A range that starts within a file starts at the
first record found there; that is right if the previous range agrees, as each reports the record
that follows it.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rmqstore import _core
from rmqstore.base.arguments import wrong_value
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import log_directories, log_file, log_paths
from rmqstore.directory.registry import TopicRegistry, deleted_topics
from rmqstore.errors import StoreCorruptError
from rmqstore.files import paths
from rmqstore.files.links import absolute
from rmqstore.files.regular import open_regular
from rmqstore.offline.walk import SLICE_BYTES, Damage, LogSlice, LogWalk, WalkTotals
from rmqstore.services.stored import MAX_TIME_TOPIC, SCHEDULE_TOPIC

__all__ = [
    "LogExtent",
    "LogPlan",
    "QueueRange",
    "RangeReport",
    "RangesOverlapError",
    "check_contiguous",
    "log_extent",
    "plan_log",
]

# Begins of topics that brokers make themselves, possibly without an entry; as the core's.
_MADE_BY_BROKERS = ("%", "RMQ_SYS_", "rmq_sys_", SCHEDULE_TOPIC, MAX_TIME_TOPIC)
_RANGES = 32  # of a log, if each has _LEAST to _MOST bytes
_LEAST, _MOST = 8 << 20, 128 << 20


class RangesOverlapError(Exception):
    """Bytes inside a record look like one: ranges that begin within files cannot be used."""


class LogExtent(NamedTuple):
    """Extent of a store's log, by its files.

    Attributes
    ----------
    start, stop : int
        Physical offsets of the first file's first byte, and after the last file's last.
    file_size : int
        Bytes of a file.
    """

    start: int
    stop: int
    file_size: int


def log_extent(path: str | os.PathLike[str], config: StoreConfig | None = None) -> LogExtent:
    """Return the extent of a store's log, from names and sizes of its files.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    config : StoreConfig, optional
        Names the directories of a log outside ``path``, as for opening.

    Raises
    ------
    StoreNotFoundError
        No store, or no file of its log.
    """
    places = log_paths(absolute(path), config)
    return LogExtent(*_core.log_extent(os.fspath(path), places))


@dataclass(frozen=True)
class LogPlan:
    """Ranges of a store's log, with all that a task needs; plain data.

    Attributes
    ----------
    path : str
        Directory of the store.
    config : StoreConfig
        Sizes and delay levels in force.
    deleted : dict of str to int
        Deleted topics, each with the log's end at that time.
    unclean : bool
        Unclean exit: a torn last record counts as none.
    file_size : int
        Bytes of a log file.
    first, end : int
        Physical offsets of the first byte, and after the last one outside a hole.
    step : int
        Bytes of a range; one smaller than a file never extends into the next.
    any_version : bool
        Records of RocketMQ 5 are accepted.
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

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the bounds of a range, in physical offsets."""
        if self.step >= self.file_size:
            start = self.first + number * self.step
            stop = start + self.step
        else:
            file, piece = divmod(number, -(-self.file_size // self.step))
            start = self.first + file * self.file_size + piece * self.step
            stop = min(start + self.step, self.first + (file + 1) * self.file_size)
        return start, min(stop, self.end)

    @property
    def directories(self) -> list[Path]:
        """Directories of the log."""
        return log_directories(self.path, self.config)

    def by_files(self) -> LogPlan:
        """Return the plan with ranges that begin with files."""
        return replace(self, step=self.file_size)

    def walk(self, number: int) -> LogWalk:
        """Return the walk of a range."""
        return LogWalk(
            self.path,
            self.config,
            *self.bounds(number),
            deleted=self.deleted,
            unclean=self.unclean,
            any_version=self.any_version,
        )

    def is_gone(self, topic: str, log_stop: int) -> bool:
        """Whether a topic was deleted whose last record ends at ``log_stop``; as a recovery.

        A broker notes nothing: after a clean exit it leaves neither an entry in topics.json nor a
        queue.
        """
        if Path(self.path, paths.CONSUME_QUEUE, topic).exists():
            return False
        if log_stop <= self.deleted.get(topic, 0):
            return True
        return (
            not topic.startswith(_MADE_BY_BROKERS)
            and not os.path.lexists(Path(self.path, paths.ABORT))
            and self._listed_topics is not None
            and topic not in self._listed_topics
        )

    @cached_property
    def _listed_topics(self) -> frozenset[str] | None:
        known = TopicRegistry(self.path, lenient=True).listed()
        return None if known is None else frozenset(known)

    def file_of(self, physical_offset: int) -> str:
        """Return the path of the file with a byte of the log."""
        start = physical_offset - physical_offset % self.file_size
        return str(log_file(self.path, self.config, start))

    def corrupt(self, physical_offset: int, reason: str) -> StoreCorruptError:
        """Return the error for invalid bytes of the log."""
        return StoreCorruptError(self.file_of(physical_offset), physical_offset, reason)


def plan_log(
    path: str | os.PathLike[str],
    config: StoreConfig | None = None,
    *,
    range_bytes: int | None = None,
    any_version: bool = False,
) -> LogPlan:
    """Divide a store's log into ranges, without reading it.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    config : StoreConfig, optional
        Sizes of the files to build, delay levels, and the directories of a log outside ``path``;
        RocketMQ's by default.
    range_bytes : int, optional
        By default a 32nd of the log, within 8 to 128 MiB.
    any_version : bool, optional
        Accept records of RocketMQ 5.

    Raises
    ------
    StoreNotFoundError
        No store, or no file of its log.
    StoreCorruptError
        ``rmqstore-deleted.json`` is invalid.
    ValueError
        ``range_bytes`` is below 1.
    """
    path = absolute(path)
    first, stop, file_size = log_extent(path, config)
    end = _used_end(log_directories(path, config), first, stop, file_size)
    wanted = min(max((end - first) // _RANGES, _LEAST), _MOST)
    if range_bytes is not None:
        wanted = operator.index(range_bytes)
        if wanted < 1:
            raise wrong_value("range_bytes", "1 or more", range_bytes)
    if wanted >= file_size:
        step = wanted - wanted % file_size
    else:
        step = -(-file_size // -(-file_size // wanted))
    return LogPlan(
        path=path,
        config=config or StoreConfig(),
        deleted=deleted_topics(path),
        unclean=os.path.lexists(Path(path, paths.ABORT)),
        file_size=file_size,
        first=first,
        end=end,
        step=step,
        any_version=any_version,
    )


def _used_end(log: Iterable[Path], first: int, stop: int, file_size: int) -> int:
    """Return the start of the log's last hole, without reading."""
    there = {
        start: one
        for directory in log
        for one in directory.iterdir()
        if (start := paths.parse_offset_file_name(one.name)) is not None and first <= start < stop
    }
    for start in sorted(there, reverse=True):  # a gap may have room for 2**40 files
        try:
            with open_regular(there[start]) as file:
                if used := _used_bytes(file.fileno(), file_size):
                    return start + used
        except FileNotFoundError:
            pass  # removed meanwhile: reported by the tasks of the ranges around it
    return first


def _used_bytes(descriptor: int, file_size: int) -> int:
    """Return the start of a file's last hole, by bisection."""
    low, high = 0, min(file_size, os.fstat(descriptor).st_size)
    while low < high:
        middle = (low + high) // 2
        try:
            low = os.lseek(descriptor, middle, os.SEEK_DATA) + 1
        except OSError:
            high = middle
    return low


@dataclass
class QueueRange:
    """One queue in a range of the log.

    Attributes
    ----------
    first, stop : int
        First queue offset, and the one after the last.
    log_start, log_stop : int
        Begin of the first record and end of the last, in the log.
    in_order : bool
        Its queue offsets ascend along the log.
    """

    first: int
    stop: int
    log_start: int
    log_stop: int
    in_order: bool = True


@dataclass
class RangeReport:
    """Result of a range's task.

    Attributes
    ----------
    number : int
        Number of the range.
    process : int
        Id of the process that read it.
    totals : WalkTotals
    damages : list of Damage
    queues : dict of (str, int) to QueueRange
        By topic and queue id.
    """

    number: int
    process: int = field(default_factory=os.getpid)
    totals: WalkTotals = field(default_factory=WalkTotals)
    damages: list[Damage] = field(default_factory=list)
    queues: dict[tuple[str, int], QueueRange] = field(default_factory=dict)

    def slices(self, walk: LogWalk, most: int = SLICE_BYTES) -> Iterator[LogSlice]:
        """Iterate over a walk to its end, or to damage with a valid record after it.

        Then ``totals`` and ``damages`` are set to the walk's.
        """
        for found in walk.slices(most):
            yield found
            damages = walk.damages
            if damages and damages[-1].resumed >= 0:
                break
        self.totals = walk.totals
        self.damages = walk.damages


def check_contiguous(plan: LogPlan, reports: Iterable[RangeReport]) -> None:
    """Check that ranges join: each begins with the record that the previous one reports as next.

    Parameters
    ----------
    plan : LogPlan
    reports : iterable of RangeReport
        One for each range, in order.

    Raises
    ------
    StoreCorruptError
        Damage with a valid record after it; without one it is the log's torn end.
    RangesOverlapError
        A range begins within a record; ranges of :meth:`LogPlan.by_files` never do.
    """
    expected: int | None = None
    damage: Damage | None = None
    for report in reports:
        first, following = report.totals.first_record, report.totals.next_record
        if first >= 0:
            if damage is not None:
                raise plan.corrupt(damage.physical_offset, damage.reason)
            if expected is not None and first < expected:
                raise RangesOverlapError
            if expected is not None and first > expected:
                raise plan.corrupt(expected, "the record is gone since it was seen")
            expected = following if following >= 0 else None
        for found in report.damages:
            if found.resumed >= 0:
                raise plan.corrupt(found.physical_offset, found.reason)
            damage = damage or found
