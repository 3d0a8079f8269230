"""The tasks of a rebuild, and how they are run: numbers go in, rows come out.

Source: ``store/DefaultMessageStore.java ReputMessageService``, ``store/index/IndexService.java``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore import _core, paths
from rmqstore.errors import StoreError
from rmqstore.spark.log_ranges import LogPlan, RangeReport
from rmqstore.spark.mapping import batched, numbered
from rmqstore.spark.queue_files import (
    UNIT_BYTES,
    IndexJob,
    QueueFill,
    QueueParts,
    QueueWriter,
    enter_index_share,
    outline_index_file,
    sync_queues,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ENTRIES", "ROWS", "Row", "Task", "Work", "Written", "collect", "spread"]

Row = tuple[str, int, int, int, bytes | memoryview]

ROWS = "topic string, queue_id int, position long, first long, data binary"
ENTRIES = "entries"  # a directory of the job's
_SLICE_BYTES = 4 << 20


def spread(
    spark: SparkSession, count: int, task: Callable[[int], Iterator[Row]], tasks: int | None
) -> DataFrame:
    """Run ``task`` for each number below ``count``, in so many tasks of Spark's.

    None: as many as run at a time.
    """
    return numbered(spark, count, lambda number: batched(task(number), ROWS), ROWS, tasks)


def _report(found: object) -> Row:
    """Return what the driver shall see of a task, as a row."""
    return "", 0, 0, 0, pickle.dumps(found)


def collect(frame: DataFrame) -> Iterator[Any]:
    """Run the tasks, and go through what they report."""
    for row in frame.select("data").collect():
        yield pickle.loads(row[0])


# ---- the tasks


@dataclass(frozen=True)
class Task:
    """Something to be done behind the scan: which method of :class:`Work`, and for what."""

    name: str
    argument: Any


@dataclass
class Written:
    """What a task made that did not read the log first."""

    queues: list[tuple[str, int]] = field(default_factory=list)
    skipped: int = 0
    slots_used: dict[int, int] = field(default_factory=dict)  # by the number of the index file
    error: Exception | None = None


@dataclass(frozen=True)
class Work:
    """The tasks of a rebuild.

    Attributes
    ----------
    plan : LogPlan
    directory : str
        Of the job.

    Notes
    -----
    Source: ``store/DefaultMessageStore.java ReputMessageService``.
    """

    plan: LogPlan
    directory: str

    @property
    def file_size(self) -> int:
        """Of a consume queue file, bytes."""
        return self.plan.config.mapped_file_size_consume_queue

    @property
    def units_a_file(self) -> int:
        """Units of a consume queue file."""
        return self.file_size // UNIT_BYTES

    def folder(self, name: str) -> str:
        """Return the path of something below the job's directory."""
        return f"{self.directory}/{name}"

    def scan_direct(self, number: int) -> Iterator[Row]:
        """Read a range, and write its units at their places."""
        report = RangeReport(number, os.getpid())
        writer = QueueWriter(self.folder(paths.CONSUME_QUEUE), self.file_size)
        try:
            with _entry_file(self.entry_file(number)) as entries:
                for runs, some in report.slices(self.plan.walk(number), _SLICE_BYTES):
                    for run in runs:
                        writer.put(run)
                    entries.write(some)
        except (StoreError, OSError) as error:
            report.error = error
        finally:
            writer.close()
        report.queues = writer.queues
        yield _report(report)

    def scan_blobs(self, number: int) -> Iterator[Row]:
        """Read a range, and give its units as rows."""
        report = RangeReport(number, os.getpid())
        try:
            with _entry_file(self.entry_file(number)) as entries:
                for runs, some in report.slices(self.plan.walk(number), _SLICE_BYTES):
                    for topic, queue_id, first, begin, _, units in runs:
                        yield topic, queue_id, begin, first, memoryview(units)
                    entries.write(some)
        except (StoreError, OSError) as error:
            report.error = error
        yield _report(report)

    def write_blobs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write each queue of sorted rows; rows for the driver are passed on."""
        return batched(self._write_rows(batches), ROWS)

    def _write_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        parts = QueueParts(self.folder(paths.CONSUME_QUEUE), self.file_size)
        written = Written()
        last = None
        try:
            for batch in batches:
                topics, ids, _, firsts, blobs = (column for column in batch.columns)
                for at, queue in enumerate(zip(topics.to_pylist(), ids.to_pylist(), strict=True)):
                    if not queue[0]:
                        yield "", 0, 0, 0, blobs[at].as_py()
                        continue
                    if queue != last:
                        parts.finish()
                        written.queues.append(queue)
                        last = queue
                    parts.put(*queue, firsts[at].as_py(), memoryview(blobs[at].as_buffer()))
            parts.finish()
        except (StoreError, OSError) as error:
            written.error = error
        finally:
            parts.drop()
        written.skipped = parts.skipped
        yield _report(written)

    def entry_file(self, number: int) -> str:
        """Return where the index entries of a range are."""
        return self.folder(f"{ENTRIES}/{number}")

    def index_jobs(self, reports: Iterable[RangeReport]) -> list[IndexJob]:
        """Return the index files that the entries of all ranges fill, in log order."""
        entry_bytes = _core.LOOSE_ENTRY_BYTES
        capacity = self.plan.config.max_index_num - 1
        pieces: list[list[tuple[str, int, int]]] = []
        befores: list[tuple[str, int] | None] = []
        last: tuple[str, int] | None = None
        room = 0
        keyless = False  # a record without keys has a file made where there is no room
        for report in reports:
            at = 0
            while at < report.keys:
                if room == 0:
                    pieces.append([])
                    befores.append(last)
                    room = capacity
                count = min(room, report.keys - at)
                path = self.entry_file(report.number)
                pieces[-1].append((path, at * entry_bytes, (at + count) * entry_bytes))
                at, room = at + count, room - count
                last = path, (at - 1) * entry_bytes
            keyless = report.noted_last if report.keys else keyless or report.noted > 0
        if keyless and room == 0:
            pieces.append([])
            befores.append(last)
        return [
            IndexJob(number, before, tuple(some))
            for number, (before, some) in enumerate(zip(befores, pieces, strict=True))
        ]

    def run_task(self, tasks: list[Task], number: int) -> Iterator[Row]:
        """Do what is to be done behind the scan."""
        task = tasks[number]
        written = Written()
        try:
            getattr(self, f"do_{task.name}")(task.argument, written)
        except (StoreError, OSError) as error:
            written.error = error
        yield _report(written)

    def outline_index(self, job: IndexJob, slots_used: int = 0) -> int:
        """Make an index file without keys, or end one that has them; its first key's time."""
        config = self.plan.config
        return outline_index_file(
            self.folder(paths.INDEX),
            config.max_hash_slot_num,
            config.max_index_num,
            job,
            slots_used,
        )

    def do_index(self, what: tuple[IndexJob, tuple[int, int]], written: Written) -> None:
        """Enter a share of the keys of an index file."""
        config = self.plan.config
        job, share = what
        written.slots_used[job.number] = enter_index_share(
            self.folder(paths.INDEX),
            config.max_hash_slot_num,
            config.max_index_num,
            job,
            share,
        )

    def do_sync(self, queues: list[tuple[str, int]], written: Written) -> None:
        """Force queues to the disk; other tasks may add to them, and force that."""
        sync_queues(self.folder(paths.CONSUME_QUEUE), queues)

    def do_fill(self, fills: list[QueueFill], written: Written) -> None:
        """Write the units that stand for nothing."""
        writer = QueueWriter(self.folder(paths.CONSUME_QUEUE), self.file_size)
        try:
            for fill in fills:
                writer.fill(fill)
        finally:
            writer.close(sync=True)

    def do_in_order(self, queues: frozenset[tuple[str, int]], written: Written) -> None:
        """Make queues from the whole log whose queue offsets do not go up along it."""
        parts = QueueParts(self.folder(paths.CONSUME_QUEUE), self.file_size)
        try:
            for number in range(self.plan.count):
                walk = self.plan.walk(number)
                for runs, _ in RangeReport(number).slices(walk, _SLICE_BYTES):
                    for topic, queue_id, first, _, _, units in runs:
                        if (topic, queue_id) in queues:
                            parts.put(topic, queue_id, first, units)
            parts.finish()
        finally:
            parts.drop()
        written.skipped = parts.skipped


@contextlib.contextmanager
def _entry_file(path: str) -> Iterator[BufferedWriter]:
    """Open a file that gets its name when it is whole."""
    made = f"{path}.{uuid.uuid4().hex}"
    try:
        with Path(made).open("wb") as file:
            yield file
        Path(made).rename(path)
    finally:
        Path(made).unlink(missing_ok=True)
