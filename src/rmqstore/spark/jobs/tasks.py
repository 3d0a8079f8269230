"""Work for a session's executors, and its results: plain objects there and back.

Uses only DataFrames, so that Spark Connect runs it too.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rmqstore.errors import StoreError
from rmqstore.spark.common.sight import SeenStore, check_all, note_host
from rmqstore.spark.jobs.arrow_map import arrow_schema, mapped, numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rmqstore.offline import LogPlan

__all__ = ["Task", "run_on_rows", "run_tasks", "runs", "task_count"]

ANSWER = "number long, value binary"
_REFUSALS = (StoreError, ValueError, TypeError, LookupError)  # retrying is useless
TASK_BYTES = 256 << 20
TASKS_LEAST = 8
_MAX_AT_A_TIME, _LARGE_TASK_BYTES = 8 << 30, 512 << 20


class Task(Protocol):
    """A plain object that pickles; it may run twice, or be ended midway."""

    def run(self) -> Any:
        """Do the work; the result is small, and pickles."""


def run_tasks(
    spark: SparkSession, tasks: Sequence[Task], planned: Sequence[SeenStore] = ()
) -> list[Any]:
    """Run each task on an executor that sees ``planned``; return the results in order.

    An error caused by a task's input is raised as if it had run here; others are retried as the
    session is configured, and raised as Spark's own error.
    """
    if not tasks:
        return []
    work = tuple(tasks)

    def each(number: int) -> Iterator[pa.RecordBatch]:
        yield _answered(number, work[number].run, planned)

    return _collected(numbered(spark, len(work), each, ANSWER, len(work)))


def run_on_rows(
    frame: DataFrame,
    work: Callable[[int, Iterator[pa.RecordBatch]], Generator[None, None, Any]],
    planned: Sequence[SeenStore] = (),
) -> list[Any]:
    """Run a function over each non-empty partition of a DataFrame; return the results in order.

    ``work`` takes the partition's number and rows, may run twice, and yields None when done with a
    batch, for Spark to release its rows. ``planned`` and errors are as for :func:`run_tasks`.
    """

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        filled = (batch for batch in batches if batch.num_rows)
        try:
            check_all(planned)
            value = yield from work(number, filled)
        except _REFUSALS as error:
            note_host(error)
            value = error
        except OSError as error:
            note_host(error)
            raise
        yield _answer(number, value)

    return _collected(mapped(frame, each, ANSWER))


def _answered(number: int, work: Callable[[], Any], planned: Sequence[SeenStore]) -> pa.RecordBatch:
    try:
        check_all(planned)
        return _answer(number, work())
    except _REFUSALS as error:
        note_host(error)
        return _answer(number, error)
    except OSError as error:
        note_host(error)
        raise


def _answer(number: int, value: Any) -> pa.RecordBatch:
    """Return the row with a task's result; an error is a refusal."""
    import pyarrow as pa

    row = {"number": number, "value": pickle.dumps(value)}
    return pa.RecordBatch.from_pylist([row], arrow_schema(ANSWER))


def _collected(frame: DataFrame) -> list[Any]:
    """Return the values by number, or raise the first refusal."""
    rows = sorted(frame.collect(), key=lambda row: int(row["number"]))
    values = [pickle.loads(bytes(row["value"])) for row in rows]
    for value in values:
        if isinstance(value, _REFUSALS):
            raise value
    return values


def runs(sizes: Iterable[int]) -> list[slice]:
    """Divide consecutive pieces of work, given by their bytes, into tasks.

    At least 8 if pieces of one size allow it, each of at most 256 MiB unless a single piece is
    larger.
    """
    known = list(sizes)
    target = max(1, min(TASK_BYTES, -(-sum(known) // TASKS_LEAST)))
    found: list[slice] = []
    start, total = 0, 0
    for number, size in enumerate(known):
        if total and total + size > target:
            found.append(slice(start, number))
            start, total = number, 0
        total += size
    if start < len(known):
        found.append(slice(start, len(known)))
    return found


def task_count(plan: LogPlan) -> int | None:
    """Return the number of tasks for a log's ranges; None: as many as run at a time.

    A task costs Spark some 10 ms, and the ranges are of one size.
    """
    length = plan.end - plan.first
    return None if length <= _MAX_AT_A_TIME else length // _LARGE_TASK_BYTES
