"""Queues and index of a store against its log: which files are right, and the others made anew.

Source: ``store/DefaultMessageStore.java ReputMessageService``, ``store/ConsumeQueue.java``,
``store/index/IndexService.java``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqstore.base import layout
from rmqstore.base.syncing import sync_file
from rmqstore.errors import MessagesRemovedError, StoreError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.ext_units import without_ext_unit
from rmqstore.offline.index import IndexFileReader, IndexMatch
from rmqstore.offline.queues import OffsetSpan, add_run, differing_units, dispatched
from rmqstore.offline.ranges import LogPlan, RangeReport, RangesOverlapError
from rmqstore.offline.start_files import listed
from rmqstore.offline.thread_build import ThreadBuild
from rmqstore.offline.walk import LogWalk, Unit, UnitRun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Derived",
    "QueueState",
    "build_into",
    "check_derived",
    "file_numbers",
    "in_threads",
    "keep_old_units",
    "missing_derived",
    "without_unclean",
]

_T = TypeVar("_T")
_R = TypeVar("_R")

_LOOSE = 1000  # units of no record, of a file

QueueKey = tuple[str, int]


@dataclass
class QueueState:
    """A queue as the log and its files show it; queue offsets."""

    spans: list[OffsetSpan] = field(default_factory=list)  # of the log's records, in its order
    bad: set[int] = field(default_factory=set)  # byte offsets of files that differ
    units: dict[int, int] = field(default_factory=dict)  # by file
    surplus: set[int] = field(default_factory=set)  # files that the log does not have
    # Units of no record that names the queue, with their queue offsets.
    loose: list[tuple[int, Unit]] = field(default_factory=list)

    @property
    def first(self) -> int:
        """Queue offset of the log's first record of the queue."""
        return min(one.first for one in self.spans)

    @property
    def stop(self) -> int:
        """Queue offset after its last record."""
        return max(one.stop for one in self.spans)

    @property
    def log_stop(self) -> int:
        """Physical offset after its last record."""
        return max(one.log_stop for one in self.spans)


@dataclass
class Derived:
    """Queues and index against the log."""

    queues: dict[QueueKey, QueueState]
    index: dict[str, int]  # entries by name of the file
    index_same: bool
    keys: int  # index entries that the log gives


@dataclass
class _Checked:
    """Result of a range of the log."""

    queues: dict[QueueKey, QueueState]
    index_same: bool
    keys: int


def in_threads(jobs: int, task: Callable[[_T], _R], work: Sequence[_T]) -> list[_R]:
    """Return the results of a task, by threads: the core works without Python's lock."""
    if jobs == 1 or len(work) < 2:
        return [task(one) for one in work]
    pool = ThreadPoolExecutor(min(jobs, len(work)))
    try:
        return list(pool.map(task, work))
    finally:
        pool.shutdown(cancel_futures=True)


def file_numbers(plan: LogPlan) -> list[int]:
    """Return the numbers of the ranges whose files exist; ``plan`` has a range for each file."""
    starts = [
        paths.parse_offset_file_name(one.name)
        for directory in plan.directories
        for one in listed(directory) or []
        if stat.S_ISREG(one.mode)
    ]
    numbers = {
        (start - plan.first) // plan.file_size
        for start in starts
        if start is not None and plan.first <= start < plan.end
    }
    return sorted(numbers)


# ---- checks


def check_derived(plan: LogPlan, jobs: int, *, index: bool = True) -> Derived:
    """Compare queues and index with the log; ``plan`` has a range for each file.

    Nothing is written. Parts of the log without a record are passed over.
    """
    files = _index_files(plan) if index else []
    found = in_threads(jobs, partial(_check_range, plan, files), file_numbers(plan))
    queues: dict[QueueKey, QueueState] = {}
    for one in found:
        for key, state in one.queues.items():
            known = queues.setdefault(key, QueueState())
            known.spans += state.spans
    spans = {key: one.spans for key, one in queues.items()}
    for key, runs in dispatched(plan, spans).items():
        queues[key].spans = _compared(plan, runs)
    for state in queues.values():
        state.bad = {start for one in state.spans for start in one.bad}
    queues = _kept(plan, queues)
    for key in _queue_directories(plan):
        queues.setdefault(key, QueueState())
    for key, state in queues.items():
        _check_rest(plan, key, state)
    keys = sum(one.keys for one in found)
    same = all(one.index_same for one in found) and (keys == 0 or bool(files))
    entries = {}
    for path in files:
        count, sound = _check_index_file(path, plan)
        entries[Path(path).name] = count
        same = same and sound
    if index and plan.config.message_index_enable and not plan.count:
        same = not files
    return Derived(queues, entries, same or not plan.config.message_index_enable, keys)


def missing_derived(plan: LogPlan, reports: Iterable[RangeReport]) -> Derived:
    """Return as :func:`check_derived`, where no file is there, by the reports of a build."""
    queues: dict[QueueKey, QueueState] = {}
    keys = 0
    for report in reports:
        keys += report.totals.keys
        for key, one in report.queues.items():
            span = OffsetSpan(one.first, one.stop, one.log_start, one.log_stop)
            queues.setdefault(key, QueueState()).spans.append(span)
    queues = _kept(plan, queues)
    for key, state in queues.items():
        _check_rest(plan, key, state)
    return Derived(queues, {}, keys == 0 or not plan.config.message_index_enable, keys)


def _check_range(plan: LogPlan, index_files: Sequence[str], number: int) -> _Checked:
    """Compare the units and entries of a range with the files."""
    walk = plan.walk(number)
    start, stop = plan.bounds(number)
    checked = _Checked({}, True, 0)
    indexed = bool(plan.config.message_index_enable)
    same = True
    with contextlib.ExitStack() as opened:
        files = opened.enter_context(contextlib.closing(_UnitFiles(plan)))
        behind = stop if number + 1 < plan.count else layout.INT64_MAX
        entries = IndexMatch(plan.config, index_files if indexed else [], start, behind)
        opened.callback(entries.close)
        with contextlib.suppress(MessagesRemovedError):
            for found in walk.slices():
                for run in found.runs:
                    state = checked.queues.setdefault((run.topic, run.queue_id), QueueState())
                    span = add_run(state.spans, run)
                    if not files.same(run, walk):
                        span.bad.add(files.file_start(run))
                same = not entries.rest(found.entries) and same
        entries.end()
    checked.keys = walk.totals.keys
    checked.index_same = not indexed or (same and not entries.parts and not entries.other_times)
    return checked


def _compared(plan: LogPlan, runs: Iterable[UnitRun]) -> list[OffsetSpan]:
    """Compare the units of a queue with its files; return their spans."""
    spans: list[OffsetSpan] = []
    walk = plan.walk(0)
    with contextlib.closing(_UnitFiles(plan)) as files:
        for run in runs:
            span = add_run(spans, run)
            if not files.same(run, walk):
                span.bad.add(files.file_start(run))
    return spans


class _UnitFiles:
    """Queue files, open while a range of the log is compared with them."""

    def __init__(self, plan: LogPlan) -> None:
        self._plan = plan
        self._size = plan.config.mapped_file_size_consume_queue
        self._open: dict[str, Any] = {}

    def file_start(self, run: UnitRun) -> int:
        """Return the byte offset of the file with a run; a run lies in one file."""
        at = run.first * layout.UNIT_BYTES
        return at - at % self._size

    def same(self, run: UnitRun, walk: LogWalk) -> bool:
        """Whether a file has the units of a run, or of other records for the same offsets."""
        start = self.file_start(run)
        at = run.first * layout.UNIT_BYTES - start
        data = self._read(_queue_file(self._plan, run.topic, run.queue_id, start), at, run.units)
        if data == run.units:
            return True
        if len(data) != len(run.units):
            return False
        for number, wanted, other in differing_units(run.topic, run.units, data):
            offset = run.first + number
            if other is None or other.physical_offset == wanted.physical_offset:
                return False
            place = run.topic, run.queue_id, offset, other.physical_offset, other.size
            if not walk.has_unit(*place):
                return False
        return not without_ext_unit(self._plan.path, run.topic, run.queue_id, run.units, data)

    def _read(self, path: str, at: int, units: memoryview) -> bytes:
        if path not in self._open:
            if len(self._open) == 200:
                self.close()
            try:
                self._open[path] = open_regular(path)
            except OSError:
                return b""
        return os.pread(self._open[path].fileno(), len(units), at)

    def close(self) -> None:
        """Close the files."""
        for one in self._open.values():
            one.close()
        self._open.clear()


def _check_index_file(path: str, plan: LogPlan) -> tuple[int, bool]:
    """Return the entries of an index file, and whether it is sound by itself."""
    config = plan.config
    size = layout.index_file_bytes(config.max_hash_slot_num, config.max_index_num)
    try:
        sound = Path(path).stat().st_size == size
        with contextlib.closing(IndexFileReader(path, config)) as reader:
            count = reader.first_at(layout.INT64_MAX) - 1
            _, wrong, used = reader.check_chains(1)
            ends = [one for at in (1, count) for one in reader.entries(at, at + 1)] if count else []
        with open_regular(path) as file:
            head = file.read(layout.INDEX_HEADER_BYTES)
        _, _, *bounds, slots, following = layout.INDEX_HEADER.unpack(head)
        sound = sound and wrong == 0 and used == slots and count == max(0, following - 1)
        return count, sound and (not ends or bounds == [one.physical_offset for one in ends])
    except (StoreError, OSError):
        return 0, False


def _index_files(plan: LogPlan) -> list[str]:
    return [
        one.path
        for one in listed(Path(plan.path, paths.INDEX)) or []
        if paths.parse_index_file_name(one.name) is not None and stat.S_ISREG(one.mode)
    ]


def _kept(plan: LogPlan, queues: Mapping[QueueKey, QueueState]) -> dict[QueueKey, QueueState]:
    """Return the queues of topics that were not deleted."""
    return {key: one for key, one in queues.items() if not plan.is_gone(key[0], one.log_stop)}


def _queue_directories(plan: LogPlan) -> Iterator[QueueKey]:
    for topic in listed(Path(plan.path, paths.CONSUME_QUEUE)) or []:
        for queue in listed(topic.path) or []:
            queue_id = paths.parse_queue_id(queue.name)
            if queue_id is not None and stat.S_ISDIR(queue.mode):
                yield topic.name, queue_id


def _queue_file(plan: LogPlan, topic: str, queue_id: int, start: int) -> str:
    name = paths.offset_file_name(start)
    return f"{plan.path}/{paths.CONSUME_QUEUE}/{topic}/{queue_id}/{name}"


def _check_rest(plan: LogPlan, key: QueueKey, state: QueueState) -> None:
    """Check what the log's units do not cover: lengths, gaps, and units of no record."""
    size = plan.config.mapped_file_size_consume_queue
    directory = f"{plan.path}/{paths.CONSUME_QUEUE}/{key[0]}/{key[1]}"
    found = {
        start: one.size
        for one in listed(directory) or []
        if (start := paths.parse_offset_file_name(one.name)) is not None
        and stat.S_ISREG(one.mode) and start % size == 0
    }  # fmt: skip
    wanted: set[int] = set()
    for one in state.spans:
        low, high = one.first * layout.UNIT_BYTES, one.stop * layout.UNIT_BYTES
        wanted.update(range(low - low % size, high, size))
    if state.spans:  # also files of gaps
        wanted.update(range(min(wanted), max(wanted) + 1, size))
    for start in wanted:
        low, high = start // layout.UNIT_BYTES, (start + size) // layout.UNIT_BYTES
        state.units[start] = min(high, state.stop) - max(low, state.first)
        if found.get(start) != size:
            state.bad.add(start)
    for start, length in sorted(found.items()):
        right = length == size and _rest_is_right(plan, directory, start, state)
        if start in state.bad:
            continue
        if not right:
            (state.bad if start in wanted else state.surplus).add(start)
        else:
            state.units.setdefault(start, 0)


def _units_of(path: str, size: int) -> NDArray[np.void]:
    import numpy as np

    with open_regular(path) as file:
        return np.fromfile(file, dtype=layout.UNIT_FIELDS, count=size // layout.UNIT_BYTES)


def _rest_is_right(plan: LogPlan, directory: str, start: int, state: QueueState) -> bool:
    """Whether units outside of the log's spans are blank, of removed records, or zeros."""
    size = plan.config.mapped_file_size_consume_queue
    units = _units_of(f"{directory}/{paths.offset_file_name(start)}", size)
    first = start // layout.UNIT_BYTES
    covered = _covered(state, first, len(units))
    old = _is_old(units, plan.first)
    none = (units["physical_offset"] == 0) & (units["size"] == 0) & (units["tags_code"] == 0)
    for number in (~(covered | old | none)).nonzero()[0][:_LOOSE].tolist():
        state.loose.append((first + number, Unit(*units[number].tolist())))
    if not state.spans:  # the units of removed records, then nothing
        used = len(units) - int(none[::-1].argmin()) if not none.all() else 0
        return bool(old[:used].all())
    stop = max(0, min(len(units), state.stop - first))
    low = max(0, min(stop, state.first - first))
    inner = covered[low:stop] | old[low:stop]
    return bool(old[:low].all() and inner.all() and none[stop:].all())


def _covered(state: QueueState, first: int, count: int) -> NDArray[np.bool_]:
    import numpy as np

    covered = np.zeros(count, dtype=bool)
    for one in state.spans:
        covered[max(0, one.first - first) : max(0, one.stop - first)] = True
    return covered


def _is_old(units: NDArray[np.void], log_first: int) -> NDArray[np.bool_]:
    """Whether units name removed records, or are blank."""
    offsets, sizes = units["physical_offset"], units["size"]
    old: NDArray[np.bool_] = (offsets >= 0) & (offsets < log_first) & (sizes > 0)
    old |= (offsets == 0) & (sizes == layout.UNIT_BLANK_SIZE)
    return old


# ---- made anew


def build_into(plan: LogPlan, directory: Path, jobs: int) -> list[RangeReport]:
    """Build queues and index of a log into a directory; return the reports of its ranges."""
    there = file_numbers(plan.by_files())
    for before, after in itertools.pairwise(there):
        if after != before + 1:
            at = plan.first + (before + 1) * plan.file_size
            raise plan.corrupt(at, f"{after - before - 1:,} files of the log are missing")
    try:
        return _built(plan, directory, jobs)
    except RangesOverlapError:
        return _built(plan.by_files(), directory, jobs)


def _built(plan: LogPlan, directory: Path, jobs: int) -> list[RangeReport]:
    build = ThreadBuild(plan, str(directory))
    build.create()
    reports = in_threads(jobs, build.scan, range(plan.count))
    done = in_threads(jobs, build.run, build.steps(reports))
    build.finish(reports, done)
    return reports


def keep_old_units(plan: LogPlan, key: QueueKey, state: QueueState, start: int, made: Path) -> None:
    """Keep the units of removed records before a queue's first one, as retention leaves them."""
    size = plan.config.mapped_file_size_consume_queue
    count = min(size, state.first * layout.UNIT_BYTES - start) // layout.UNIT_BYTES
    if count <= 0:
        return
    path = _queue_file(plan, *key, start)
    try:
        units = _units_of(path, size)[:count]
    except OSError:
        return
    old = _is_old(units, plan.first)
    with open_regular(made, write=True) as file:
        for at in old.nonzero()[0].tolist():
            file.seek(at * layout.UNIT_BYTES)
            file.write(units[at].tobytes())
        file.flush()
        sync_file(file.fileno(), file.name)


def without_unclean(plan: LogPlan) -> LogPlan:
    """Return the plan for a log whose end was examined: every whole record counts."""
    return replace(plan, unclean=False)
