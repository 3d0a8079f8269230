"""Queues and index of a store made from its log, a range and a step at a time.

Source: ``store/DefaultMessageStore.java ReputMessageService``, done by many processes at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BufferedWriter
from pathlib import Path
from typing import Literal, TypeVar

from rmqstore.base.arguments import wrong_value
from rmqstore.base.layout import UNIT_BYTES
from rmqstore.base.syncing import sync_path
from rmqstore.files import paths
from rmqstore.offline.index import (
    IndexPlan,
    create_index_file,
    fill_index_file,
    name_index_files,
    plan_index,
)
from rmqstore.offline.queues import (
    QueueAppender,
    QueueGap,
    QueueWriter,
    join_queues,
    sync_queues,
)
from rmqstore.offline.ranges import LogPlan, RangeReport, check_contiguous
from rmqstore.offline.walk import UnitRun

__all__ = ["Build", "BuildStep", "BuildTotals", "StepReport"]

_ENTRIES = "entries"  # temporary directory of a build
_T = TypeVar("_T")
_STEP_QUEUES, _STEPS_MOST = 200, 16


@dataclass(frozen=True)
class BuildStep:
    """A step after all scans, in any order; plain data.

    Attributes
    ----------
    kind : {"index", "gaps", "in_order", "sync"}
        Enter the keys of an index file; write blank units; make queues whose units are not in the
        order of the log; force queues to the disk.
    queues : tuple of (str, int)
        Queues of ``"in_order"`` and ``"sync"``.
    gaps : tuple of QueueGap
        Gaps of ``"gaps"``.
    index : IndexPlan or None
        Of ``"index"``.
    """

    kind: Literal["index", "gaps", "in_order", "sync"]
    queues: tuple[tuple[str, int], ...] = ()
    gaps: tuple[QueueGap, ...] = ()
    index: IndexPlan | None = None


@dataclass
class StepReport:
    """Result of a step.

    Attributes
    ----------
    queues : list of (str, int)
        Queues rebuilt whole.
    skipped : int
        Units passed over.
    begins : dict of int to int
        Store time of the first key, in ms since the epoch, by number of the index file.
    """

    queues: list[tuple[str, int]] = field(default_factory=list)
    skipped: int = 0
    begins: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildTotals:
    """Totals of a build.

    Attributes
    ----------
    messages : int
        Records in the log.
    units : int
        Records with a unit in a queue.
    queues : int
    index_entries, index_files : int
    skipped : int
        Records with an impossible topic or queue, or an implausible queue offset.
    bytes : int
        Size of the log.
    processes : int
        Processes that read the log.
    """

    messages: int
    units: int
    queues: int
    index_entries: int
    index_files: int
    skipped: int
    bytes: int
    processes: int


@dataclass(frozen=True)
class Build:
    """Consume queues and index files of a log, as opening the store would build them.

    Call :meth:`create`; :meth:`scan` for each range, in any number of processes; :meth:`steps`, and
    :meth:`run` for each step, likewise; :meth:`finish`.  A build pickles, and a task may run again,
    or twice at once: it writes the same bytes.

    Attributes
    ----------
    plan : LogPlan
    directory : str
        Parent of the new ``consumequeue`` and ``index``.
    """

    plan: LogPlan
    directory: str

    @property
    def queue_directory(self) -> str:
        """Directory of the queues."""
        return f"{self.directory}/{paths.CONSUME_QUEUE}"

    @property
    def index_directory(self) -> str:
        """Directory of the index files."""
        return f"{self.directory}/{paths.INDEX}"

    @property
    def queue_file_size(self) -> int:
        """Bytes of a consume queue file."""
        return self.plan.config.mapped_file_size_consume_queue

    @cached_property
    def _entry_files(self) -> list[str]:
        return [f"{self.directory}/{_ENTRIES}/{number}" for number in range(self.plan.count)]

    def create(self) -> None:
        """Make the directories, and remove the leftovers of an earlier build.

        Raises
        ------
        ValueError
            ``directory`` has queues or an index not left by an unfinished build.
        """
        made = (self.queue_directory, self.index_directory)
        if any(map(_has_entries, made)) and not Path(self.directory, _ENTRIES).is_dir():
            raise wrong_value("directory", "one without queues and index", self.directory)
        for name in (paths.CONSUME_QUEUE, paths.INDEX, _ENTRIES):
            folder = Path(self.directory, name)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

    def scan(self, number: int) -> RangeReport:
        """Read a range of the log, and write its units at their positions.

        Parameters
        ----------
        number : int
            Below ``plan.count``.

        Raises
        ------
        IncompatibleStoreError
            The log has a record of RocketMQ 5.
        OSError
            Reading or writing fails.
        """
        report = RangeReport(number)
        writer = QueueWriter(self.queue_directory, self.queue_file_size)
        try:
            for runs in self.runs(report):
                for run in runs:
                    writer.put(run)
        finally:
            writer.close()
        report.queues = writer.queues
        return report

    def runs(self, report: RangeReport) -> Iterator[list[UnitRun]]:
        """Iterate over the units of a range, and save its index entries.

        For callers that put the units elsewhere than :meth:`scan`.

        Parameters
        ----------
        report : RangeReport
            Of the range; complete once the iterator ends.

        Yields
        ------
        list of UnitRun
        """
        with _complete_file(self._entry_files[report.number]) as entries:
            for found in report.slices(self.plan.walk(report.number)):
                entries.write(found.entries)
                yield found.runs

    def index_plans(self, reports: Iterable[RangeReport]) -> list[IndexPlan]:
        """Return the plans of the index files, once all ranges are scanned."""
        return plan_index(reports, self._entry_files, self.plan.config.max_index_num)

    def steps(self, reports: Sequence[RangeReport]) -> list[BuildStep]:
        """Return the steps to run once all ranges are scanned.

        Parameters
        ----------
        reports : sequence of RangeReport
            From :meth:`scan`, in range order.

        Raises
        ------
        StoreCorruptError
            Damage, with a valid record after it.
        RangesOverlapError
            Bytes inside a record look like one: build again with ``plan.by_files()``.
        """
        check_contiguous(self.plan, reports)
        steps = self.index_steps(reports)
        queues, gaps, disordered = join_queues(reports, self.queue_file_size // UNIT_BYTES)
        for topic, queue_id in disordered:
            shutil.rmtree(Path(self.queue_directory, topic, str(queue_id)))
        if disordered:
            steps.append(BuildStep("in_order", tuple(sorted(disordered))))
        steps += [BuildStep("gaps", gaps=some) for some in _parts(gaps)]
        return steps + self.sync_steps(queues - disordered)

    def index_steps(self, reports: Iterable[RangeReport]) -> list[BuildStep]:
        """Create the index files without keys, and return the steps that enter the keys."""
        plans = self.index_plans(reports)
        for plan in plans:
            create_index_file(self.index_directory, self.plan.config, plan)
        return [BuildStep("index", index=plan) for plan in plans]

    def sync_steps(self, queues: Iterable[tuple[str, int]]) -> list[BuildStep]:
        """Return the steps that force queues to the disk."""
        return [BuildStep("sync", some) for some in _parts(sorted(queues))]

    def run(self, step: BuildStep) -> StepReport:
        """Do a step.

        Raises
        ------
        OSError
            Reading or writing fails.
        """
        report = StepReport()
        if step.kind == "index" and step.index is not None:
            report.begins[step.index.number] = fill_index_file(
                self.index_directory, self.plan.config, step.index
            )
        elif step.kind == "gaps":
            self._fill(step.gaps)
        elif step.kind == "in_order":
            self._append_in_order(frozenset(step.queues), report)
        elif step.kind == "sync":
            sync_queues(self.queue_directory, step.queues)
        return report

    def _fill(self, gaps: Iterable[QueueGap]) -> None:
        writer = QueueWriter(self.queue_directory, self.queue_file_size)
        try:
            for gap in gaps:
                writer.fill(gap)
        finally:
            writer.close(sync=True)

    def _append_in_order(self, queues: frozenset[tuple[str, int]], report: StepReport) -> None:
        """Build from the whole log the queues whose offsets do not ascend along it."""
        appender = QueueAppender(self.queue_directory, self.queue_file_size)
        try:
            for number in range(self.plan.count):
                for found in RangeReport(number).slices(self.plan.walk(number)):
                    for run in found.runs:
                        if (run.topic, run.queue_id) in queues:
                            appender.put(run.topic, run.queue_id, run.first, run.units)
            appender.finish()
        finally:
            appender.drop()
        report.skipped = appender.skipped

    def finish(self, reports: Sequence[RangeReport], done: Iterable[StepReport]) -> BuildTotals:
        """Name the index files, and remove temporary files.

        Parameters
        ----------
        reports : sequence of RangeReport
            From :meth:`scan`, in range order.
        done : iterable of StepReport
            From :meth:`run`, in any order.
        """
        done = list(done)
        begins = {number: time for one in done for number, time in one.begins.items()}
        name_index_files(self.index_directory, [begins[number] for number in sorted(begins)])
        sync_path(Path(self.index_directory))
        shutil.rmtree(Path(self.directory, _ENTRIES))
        totals = [one.totals for one in reports]
        passed_over = sum(one.skipped for one in done)
        queues = {queue for one in reports for queue in one.queues}
        queues.update(queue for one in done for queue in one.queues)
        return BuildTotals(
            messages=sum(one.records for one in totals),
            units=sum(one.units for one in totals) - passed_over,
            queues=len(queues),
            index_entries=sum(one.keys for one in totals),
            index_files=len(begins),
            skipped=sum(one.skipped for one in totals) + passed_over,
            bytes=sum(one.bytes for one in totals),
            processes=len({one.process for one in reports}),
        )


def _parts(work: Sequence[_T]) -> list[tuple[_T, ...]]:
    """Split work into steps large enough for a task each."""
    count = min(-(-len(work) // _STEP_QUEUES), _STEPS_MOST)
    return [tuple(work[at::count]) for at in range(count)]


@contextlib.contextmanager
def _complete_file(path: str | os.PathLike[str]) -> Iterator[BufferedWriter]:
    """Open a file under a temporary name; renamed when complete."""
    made = Path(f"{os.fspath(path)}.{uuid.uuid4().hex}")
    try:
        with made.open("wb") as file:
            yield file
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)


def _has_entries(folder: str) -> bool:
    try:
        return next(Path(folder).iterdir(), None) is not None
    except FileNotFoundError:
        return False
