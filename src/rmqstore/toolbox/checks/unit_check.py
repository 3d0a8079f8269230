"""Comparison of the units of a log range with the queues' files, and its result."""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rmqstore.base.layout import UNIT_BYTES
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.offline.ext_units import without_ext_unit
from rmqstore.offline.findings import Finding
from rmqstore.offline.queues import (
    OffsetSpan,
    QueueFiles,
    UnitDifference,
    add_run,
    differing_units,
    used_units,
)
from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.start_files import relative
from rmqstore.offline.walk import LogWalk, UnitRun
from rmqstore.types import RecoveredRange

__all__ = ["LISTED", "BadBytes", "FullCheck", "RangeCheck", "UnitsOfRange", "unreadable"]

LISTED = 1000  # problems kept of a range, or of an index file; others are counted
_OTHER_KINDS = (errno.EINVAL, errno.ELOOP, errno.ENOENT, errno.ENOTDIR)

BadBytes = tuple[int, int, str, bool]

_Queue = tuple[str, int]


@dataclass
class FullCheck:
    """Records and units read, and the problems found.

    Attributes
    ----------
    records, units : int
        Records of the log, and units compared with theirs.
    problems : list of Finding
    damage : list of RecoveredRange
        All of the log's.
    more : Counter of str
        Problems that were not kept, by kind.
    """

    records: int = 0
    units: int = 0
    problems: list[Finding] = field(default_factory=list)
    damage: list[RecoveredRange] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)

    def add(self, one: Finding) -> None:
        """Keep a problem, or count it."""
        if len(self.problems) < LISTED:
            self.problems.append(one)
        else:
            self.more[one.kind] += 1


@dataclass
class RangeCheck(FullCheck):
    """Result of a range of the log, for the ranges around it."""

    first_record: int = -1
    # Bad bytes: start, resumed record or -1, reason, and whether they are zeros.
    bad: list[BadBytes] = field(default_factory=list)
    spans: dict[_Queue, list[OffsetSpan]] = field(default_factory=dict)  # queue offsets compared


def unreadable(plan: LogPlan, error: StoreError | OSError) -> Finding | None:
    """Return the problem for what cannot be read; ``None`` if its kind says so already."""
    if isinstance(error, OSError) and error.errno in _OTHER_KINDS:
        return None
    path = getattr(error, "filename", None) or getattr(error, "path", None) or plan.path
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    kind = "permission" if isinstance(error, PermissionError) else "unreadable"
    return Finding("stop", kind, relative(Path(plan.path), os.fsdecode(path)), None, reason)


class UnitsOfRange:
    """Comparison of the units of a log range with the queues' files."""

    def __init__(self, plan: LogPlan, walk: LogWalk, result: RangeCheck) -> None:
        self._plan = plan
        self._walk = walk
        self._result = result
        self._files: dict[_Queue, QueueFiles] = {}

    def _queue(self, queue: _Queue) -> QueueFiles:
        if (known := self._files.get(queue)) is None:
            known = self._files[queue] = QueueFiles(self._plan.path, *queue, self._plan.config)
        return known

    def compare(self, run: UnitRun) -> None:
        """Compare the units of consecutive records of a queue."""
        queue = run.topic, run.queue_id
        spans = self._result.spans.setdefault(queue, [])
        add_run(spans, run)
        self._result.units += run.stop - run.first
        try:
            self._compare(queue, run)
        except OSError as error:
            if (closed := unreadable(self._plan, error)) is not None:
                self._result.add(closed)

    def _compare(self, queue: _Queue, run: UnitRun) -> None:
        files = self._queue(queue)
        has_file = bool(files.starts)
        # A recovery makes the queue, or leaves it out.
        if not has_file and (self._plan.unclean or self._plan.is_gone(queue[0], run.log_stop)):
            return
        at = 0
        for path, start, data in files.read(run.first, run.stop):
            wanted = run.units[at : at + len(data)]
            at += len(data)
            if data == bytes(wanted):  # a memoryview is compared item by item
                continue
            file = relative(Path(self._plan.path), path)
            wrong: dict[str, list[tuple[int, UnitDifference]]] = {}
            for one in differing_units(run.topic, wanted, data):
                kind = self._kind(queue, start + one.number, one, has_file=has_file)
                if kind is not None:
                    wrong.setdefault(kind, []).append((start + one.number, one))
            for kind, found in wrong.items():
                last = found[-1][0]
                if kind == "unit-missing" and self._plan.unclean and self._ends(files, last + 1):
                    continue  # a recovery enters them
                place = file.rpartition("/")[0] if kind == "queue-missing" else file
                self._result.add(_unit_finding(kind, place, found))
            if not wrong:
                self._compare_ext(queue, file, start, wanted, data)

    def _compare_ext(
        self, queue: _Queue, file: str, start: int, wanted: memoryview, data: bytes
    ) -> None:
        wrong = without_ext_unit(self._plan.path, *queue, wanted, data)
        if not wrong:
            return
        number, offset = wrong[0]
        text = (
            f"{len(wrong):,} units lead to no ext unit with their record's tags code, the first at "
            f"queue offset {start + number}: rebuild the queue"
        )
        if Path(self._plan.path, paths.CONSUME_QUEUE_EXT).is_dir():
            file = f"{paths.CONSUME_QUEUE_EXT}/{queue[0]}/{queue[1]}"
            self._result.add(Finding("warn", "ext-mismatch", file, offset, text))
        else:
            at = (start + number) * UNIT_BYTES
            self._result.add(Finding("warn", "unit-mismatch", file, at, text))

    @staticmethod
    def _ends(files: QueueFiles, at: int) -> bool:
        """Whether there is no unit at a queue offset."""
        return not any(used_units(data) for _, _, data in files.read(at, at + 1))

    def _kind(self, queue: _Queue, at: int, one: UnitDifference, *, has_file: bool) -> str | None:
        """Return the kind of a difference; ``None`` if another record has the queue offset."""
        if one.found is None:
            return "unit-missing" if has_file else "queue-missing"
        found = one.found
        # Of two records for a queue offset, dispatch enters the first, and a recovery that cut the
        # queue in between the second.
        if found.physical_offset != one.expected.physical_offset and self._walk.has_unit(
            *queue, at, found.physical_offset, found.size
        ):
            return None
        for near in (at - 1, at + 1):
            if near >= 0 and self._walk.has_unit(*queue, near, found.physical_offset, found.size):
                return "unit-duplicate"
        return "unit-mismatch"


def _unit_finding(kind: str, file: str, found: list[tuple[int, UnitDifference]]) -> Finding:
    """Return the problem for units of a file."""
    at, one = found[0]
    count = f"{len(found):,} unit{'' if len(found) == 1 else 's'}"
    place = f"the first at queue offset {at}, for the record at {one.expected.physical_offset}"
    # The others differ in the tags code alone.
    lost = sum(each.found is not None and each.found[:2] != each.expected[:2] for _, each in found)
    if one.found is None:
        text = f"{count} missing, {place}"
    elif kind == "unit-duplicate":
        text = f"{count} that another queue offset has too, {place}"
    else:
        there, wanted = one.found, one.expected
        text = (
            f"{count} other than the log's, {place}: {there.physical_offset}, {there.size} bytes, "
            f"tags code {there.tags_code}; the record has {wanted.size} bytes, tags code "
            f"{wanted.tags_code}"
        )
    severity: Literal["lost", "warn"] = "lost" if lost else "warn"
    text += ": rebuild the queue"
    offset = None if kind == "queue-missing" else at * UNIT_BYTES
    return Finding(severity, kind, file, offset, text, messages=lost, by_start=lost > 0)
