"""Tasks of a rebuild as Spark runs them: from numbers to rows.

The work itself is :class:`rmqstore.offline.Build`'s.  In mode ``"shuffle"`` units are rows, sorted
by Spark, so that one task writes a queue.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqstore.errors import StoreError
from rmqstore.offline import Build, BuildStep, QueueAppender, RangeReport, StepReport
from rmqstore.spark.common.sight import SeenStore, check_all, note_host
from rmqstore.spark.jobs.arrow_map import batched, numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ROWS", "Failure", "RebuildTasks", "Row", "collect", "spread"]

Row = tuple[str, int, int, int, bytes | memoryview]

ROWS = "topic string, queue_id int, position long, first long, data binary"


def spread(
    spark: SparkSession, count: int, task: Callable[[int], Iterator[Row]], tasks: int | None
) -> DataFrame:
    """Run ``task`` for each number below ``count``; ``tasks=None``: as many as run at a time."""
    return numbered(spark, count, lambda number: batched(task(number), ROWS), ROWS, tasks)


@dataclass(frozen=True)
class Failure:
    """An error that ended a task, and would end a retry."""

    error: Exception


def _report(found: object) -> Row:
    """Return a task's report to the driver, as a row."""
    return "", 0, 0, 0, pickle.dumps(found)


def _failed(error: Exception) -> Row:
    note_host(error)
    return _report(Failure(error))


def collect(frame: DataFrame) -> list[Any]:
    """Run the tasks, and return their reports; raise the error of a failed one."""
    found = [pickle.loads(row[0]) for row in frame.select("data").collect()]
    for one in found:
        if isinstance(one, Failure):
            raise one.error
    return found


@dataclass(frozen=True)
class RebuildTasks:
    """Tasks of a rebuild."""

    build: Build
    planned: tuple[SeenStore, ...] = ()  # checked first by each task: the store, and its target

    def scan_direct(self, number: int) -> Iterator[Row]:
        """Read a range, and write its units at their positions."""
        try:
            check_all(self.planned)
            yield _report(self.build.scan(number))
        except (StoreError, OSError) as error:
            yield _failed(error)

    def scan_rows(self, number: int) -> Iterator[Row]:
        """Read a range, and yield its units as rows."""
        report = RangeReport(number)
        try:
            check_all(self.planned)
            for runs in self.build.runs(report):
                for run in runs:
                    yield run.topic, run.queue_id, run.log_start, run.first, run.units
        except (StoreError, OSError) as error:
            yield _failed(error)
        else:
            yield _report(report)

    def write_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write each queue of sorted rows; rows for the driver are passed on."""
        return batched(self._write_rows(batches), ROWS)

    def _write_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        appender = QueueAppender(self.build.queue_directory, self.build.queue_file_size)
        written = StepReport()
        last = None
        try:
            check_all(self.planned)
            for batch in batches:
                topics, ids, _, firsts, blobs = (column for column in batch.columns)
                for at, queue in enumerate(zip(topics.to_pylist(), ids.to_pylist(), strict=True)):
                    if not queue[0]:
                        yield "", 0, 0, 0, blobs[at].as_py()
                        continue
                    if queue != last:
                        appender.finish()
                        written.queues.append(queue)
                        last = queue
                    appender.put(*queue, firsts[at].as_py(), memoryview(blobs[at].as_buffer()))
            appender.finish()
        except (StoreError, OSError) as error:
            yield _failed(error)
            return
        finally:
            appender.drop()
        written.skipped = appender.skipped
        yield _report(written)

    def run_step(self, steps: list[BuildStep], number: int) -> Iterator[Row]:
        """Run a step that follows the scan."""
        try:
            check_all(self.planned)
            yield _report(self.build.run(steps[number]))
        except (StoreError, OSError) as error:
            yield _failed(error)
