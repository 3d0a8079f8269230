"""Check of every record, unit and index entry of a store, in threads over ranges of its log."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rmqstore.base.layout import (
    INDEX_RANGE,
    INT64_MAX,
    UNIT_BYTES,
)
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.offline.findings import Finding
from rmqstore.offline.queues import (
    OffsetSpan,
    QueueFiles,
    dispatched,
    used_units,
)
from rmqstore.offline.ranges import LogPlan, plan_log
from rmqstore.offline.start_files import listed, numbers_of, relative
from rmqstore.offline.walk import LogWalk, Unit
from rmqstore.toolbox.checks.blanks import blank_of
from rmqstore.toolbox.checks.index_check import EntryCheck, file_faults, lies_within
from rmqstore.toolbox.checks.record_headers import HeaderCheck
from rmqstore.toolbox.checks.unit_check import (
    LISTED,
    BadBytes,
    FullCheck,
    RangeCheck,
    UnitsOfRange,
    unreadable,
)
from rmqstore.types import RecoveredRange

__all__ = ["FullCheck", "full_check"]

_RANGE_BYTES = 64 << 20  # of the log, for a thread at a time
_INDEX_TASKS = 4  # each holds the slots of one file, 20 MB
_DAMAGES = 10_000  # ranges of the log kept, in all

_UNIT_KINDS = ("unit-duplicate", "unit-mismatch", "unit-missing")

_Queue = tuple[str, int]


def full_check(
    root: str, config: StoreConfig, jobs: int, done: Callable[[int], object] | None = None
) -> FullCheck:
    """Read all of a store; ``done`` gets the bytes of log and index read so far, in threads."""
    plan = plan_log(root, config, range_bytes=_RANGE_BYTES, any_version=True)
    index = tuple(
        one.path
        for one in listed(Path(root, paths.INDEX)) or []
        if paths.parse_index_file_name(one.name) is not None and one.size == config.index_file_bytes
    )
    stopped = threading.Event()
    lock = threading.Lock()
    read = 0

    def count(size: int) -> None:
        nonlocal read
        with lock:
            read += size
            if done is not None:
                done(read)

    check = _WholeCheck(plan, index, count, stopped)
    ranges: list[RangeCheck] = []
    whole = FullCheck()
    pool = ThreadPoolExecutor(jobs)  # nearly all of the time is spent in the core, without the GIL
    try:
        chains = pool.map(check.index_files, range(_INDEX_TASKS))  # first: long tasks
        for found in pool.map(check.range, range(plan.count)):
            ranges.append(found)
            _join(whole, found)
        checked = list(chains)
        for number in range(len(index)):
            _join(whole, checked[number % _INDEX_TASKS][number // _INDEX_TASKS])
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
    damage = list(_damage(plan, ranges))
    if len(damage) > _DAMAGES:
        last, rest = damage[-1], len(damage) - _DAMAGES
        first = damage[_DAMAGES]
        reason = f"{first.reason}; and {rest:,} more places"
        damage[_DAMAGES:] = [RecoveredRange(first.kind, first.start, last.stop, None, reason, None)]
    spans: dict[_Queue, list[OffsetSpan]] = {}
    for part in ranges:
        for queue, runs in part.spans.items():
            spans.setdefault(queue, []).extend(runs)
    _compare_again(plan, spans, whole)
    _join(whole, check.extra(spans, sorted((one.start, one.stop) for one in damage)))
    # A missing file is a gap, not damage.
    whole.damage = [one for one in damage if Path(plan.file_of(one.start)).exists()]
    return whole


def _compare_again(plan: LogPlan, spans: dict[_Queue, list[OffsetSpan]], whole: FullCheck) -> None:
    """Compare queues of whose records dispatch passes over some with what it makes of them."""
    found = dispatched(plan, spans)
    places = {f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}" for topic, queue_id in found}
    whole.problems = [
        one
        for one in whole.problems
        if one.kind not in _UNIT_KINDS or one.file.rpartition("/")[0] not in places
    ]
    result = RangeCheck()
    units = UnitsOfRange(plan, plan.walk(0), result)
    for queue, runs in found.items():
        for run in runs:
            units.compare(run)
        spans[queue] = result.spans.pop(queue, [])
    result.units = 0
    _join(whole, result)


def _fewer(bad: list[BadBytes]) -> list[BadBytes]:
    """Return bad bytes of a range, the later ones as one if they are many."""
    if len(bad) <= LISTED:
        return bad
    offset, _, reason, _ = bad[LISTED]
    more = f"{reason}; and {len(bad) - LISTED:,} more places"
    return [*bad[:LISTED], (offset, bad[-1][1], more, False)]


def _join(whole: FullCheck, part: FullCheck) -> None:
    whole.records += part.records
    whole.units += part.units
    for one in part.problems:
        whole.add(one)
    whole.more.update(part.more)
    part.problems = []


@dataclass(frozen=True)
class _WholeCheck:
    """Tasks of a check."""

    plan: LogPlan
    index: tuple[str, ...]  # paths
    count: Callable[[int], None]  # of bytes read
    stopped: threading.Event  # nobody waits for more results

    @property
    def index_end(self) -> int:
        """Physical offset of the last record whose keys have to be in the index."""
        if not self.plan.unclean:
            return INT64_MAX
        return max((numbers_of(one, INDEX_RANGE)[3] for one in self.index), default=-1)

    def _file(self, path: str | Path) -> str:
        return relative(Path(self.plan.path), path)

    def range(self, number: int) -> RangeCheck:
        """Compare a range of the log with the queues and the index."""
        result = RangeCheck()
        walk = self.plan.walk(number)
        start, stop = self.plan.bounds(number)
        behind = stop if number + 1 < self.plan.count else INT64_MAX  # also later records
        units = UnitsOfRange(self.plan, walk, result)
        config, files = self.plan.config, self.index
        with closing(EntryCheck(config, files, start, behind, self.index_end)) as entries:
            for found in walk.slices():
                for run in found.runs:
                    units.compare(run)
                entries.compare(found.entries)
            for kind, path, text in entries.end(walk, self._unread(walk)):
                result.add(Finding("warn", kind, self._file(path), None, text))
        odd, count = walk.odd_fields
        for offset, name in odd:
            text = f"{name} has a value that nobody writes: no checksum covers it, nothing mends it"
            file = self._file(self.plan.file_of(offset))
            result.add(Finding("warn", "record-field", file, offset, text))
        if count > len(odd):
            result.more["record-field"] += count - len(odd)
        totals = walk.totals
        result.records = totals.records
        result.first_record = totals.first_record
        for offset, reason, resumed in walk.damages:
            if offset >= stop and stop % self.plan.file_size == 0:
                continue  # the range that begins there has it
            upto = resumed if resumed >= 0 else min(self.plan.end, max(stop, offset + 1))
            blank = offset >= self.plan.end or walk.is_blank(offset, upto)
            result.bad.append((offset, resumed, reason, blank))
        result.bad = _fewer(result.bad)
        self.count(stop - start)
        return result

    def _unread(self, walk: LogWalk) -> list[tuple[int, int]]:
        """Return the parts of the log without valid records, whose keys are not known."""
        found = [(bad, resumed if resumed >= 0 else INT64_MAX) for bad, _, resumed in walk.damages]
        return sorted([*found, (self.plan.end, INT64_MAX)] if self.plan.unclean else found)

    def index_files(self, task: int) -> list[FullCheck]:
        """Check some index files, each by itself."""
        found = []
        for path in self.index[task::_INDEX_TASKS]:
            if self.stopped.is_set():
                break
            found.append(self._index_file(path))
            self.count(self.plan.config.index_file_bytes)
        return found

    def _index_file(self, path: str) -> FullCheck:
        result = FullCheck()
        try:
            found = file_faults(path, self.plan.config, counted=not self.plan.unclean)
        except (StoreError, OSError) as error:
            found = [("index-header", f"cannot be read: {error}")]
        for kind, reason in found:
            text = f"{reason}; rebuild the index"
            result.add(Finding("warn", kind, self._file(path), None, text))
        return result

    def extra(
        self, spans: dict[_Queue, list[OffsetSpan]], damage: list[tuple[int, int]]
    ) -> FullCheck:
        """Search for units without a record, outside the spans compared."""
        result = FullCheck()
        hidden: dict[int, list[int]] = {}
        base = Path(self.plan.path, paths.CONSUME_QUEUE)
        for topic in listed(base) or []:
            for found_queue in listed(topic.path) or []:
                queue_id = paths.parse_queue_id(found_queue.name)
                if queue_id is None or not os.path.isdir(found_queue.path):  # noqa: PTH112
                    continue
                try:
                    found = spans.get((topic.name, queue_id), [])
                    compared = sorted([one.first, one.stop] for one in found)
                    unmet = self._extra_of((topic.name, queue_id), compared, damage, result)
                    for offset in unmet:
                        hidden.setdefault(offset // self.plan.file_size, []).append(offset)
                except UnicodeError:
                    continue  # the name of no topic
                except (StoreError, OSError) as error:
                    if (closed := unreadable(self.plan, error)) is not None:
                        result.add(closed)
        for offsets in hidden.values():
            self._add_blank(offsets, result)
        return result

    def _add_blank(self, offsets: list[int], result: FullCheck) -> None:
        """Add the problem of a log file's blank, if these records are behind one."""
        blank = blank_of(self.plan, offsets[0])
        behind = sum(offset > blank for offset in offsets) if blank is not None else 0
        if blank is not None and behind:
            text = (
                f"a blank at {blank} ends the file for those who read the log, and queues name "
                f"{behind:,} whole records behind it"
            )
            file = self._file(self.plan.file_of(blank))
            result.add(Finding("lost", "bad-record", file, blank, text))

    def _extra_of(
        self,
        queue: _Queue,
        spans: list[list[int]],
        damage: list[tuple[int, int]],
        result: FullCheck,
    ) -> list[int]:
        """Add units without a record; return the physical offsets of records that no walk met."""
        files = QueueFiles(self.plan.path, *queue, self.plan.config)
        headers = HeaderCheck(self.plan, queue)
        walk: LogWalk | None = None
        hidden: list[int] = []
        for start in files.starts:
            at, stop = start, start + files.units_a_file
            for low, high in [*spans, [stop, stop]]:
                if at < min(low, stop):
                    walk = walk or self.plan.walk(0)
                    for path, first, data in files.written(at, min(low, stop)):
                        wrong, unmet = self._without_record(queue, first, data, walk, damage)
                        hidden += unmet
                        result.units += len(wrong)
                        named = {}
                        for fault in headers.faults(wrong):
                            named[fault.queue_offset] = fault
                            file = self._file(self.plan.file_of(fault.offset))
                            text = f"{fault.message}: repair mends it"
                            result.add(Finding("warn", "record-header", file, fault.offset, text))
                        wrong = [one for one in wrong if one[0] not in named]
                        if wrong:
                            result.add(self._extra_finding(path, wrong))
                at = max(at, min(high, stop))
        return hidden

    def _without_record(
        self,
        queue: _Queue,
        first: int,
        data: bytes,
        walk: LogWalk,
        damage: list[tuple[int, int]],
    ) -> tuple[list[tuple[int, Unit]], list[int]]:
        """Return units without a record, by queue offset, and the others' physical offsets."""
        wrong, others = [], []
        for number, unit in used_units(data):
            offset = unit.physical_offset
            if 0 <= offset < self.plan.first or (self.plan.unclean and offset >= self.plan.end):
                continue  # removed by retention, or cut by recovery
            if lies_within(offset, damage):
                continue  # reported with the log
            if not walk.has_unit(*queue, first + number, offset, unit.size):
                wrong.append((first + number, unit))
            elif offset < self.plan.end:  # else written since
                others.append(offset)
        return wrong, others

    def _extra_finding(self, path: Path, wrong: list[tuple[int, Unit]]) -> Finding:
        at, unit = wrong[0]
        behind = unit.physical_offset >= self.plan.end
        text = (
            f"{len(wrong):,} units from queue offset {at} on lead to no record of the queue, the "
            f"first to {unit.physical_offset}"
        )
        if behind:
            text += f", and the log ends at {self.plan.end}"
        kind = "behind-log-end" if behind else "queue-extra"
        return Finding("lost", kind, self._file(path), at * UNIT_BYTES, text, messages=len(wrong))


def _damage(plan: LogPlan, ranges: list[RangeCheck]) -> Iterator[RecoveredRange]:
    """Yield the damage of the whole log: zeros behind the last record are its end."""
    last = max((one.first_record for one in ranges), default=-1)
    for number, one in enumerate(ranges):
        following = next((after.first_record for after in ranges[number + 1 :]
                          if after.first_record >= 0), -1)  # fmt: skip
        for offset, resumed, reason, blank in one.bad:
            if resumed < 0 and following < 0 and (blank or offset > last):
                if not blank:
                    yield RecoveredRange("torn", offset, plan.end, None, reason, None)
                continue
            stop = resumed if resumed >= 0 else following if following >= 0 else plan.end
            kind = "damaged" if stop < plan.end or resumed >= 0 or following >= 0 else "torn"
            yield RecoveredRange(kind, offset, stop, None, reason, None)
