"""``df.write`` and ``df.writeStream`` into a store, exactly once.

Tasks leave their rows in files of the store; the commit, in a process on the driver's host, puts
them into the log.

Source: pyspark, ``sql/datasource.py`` DataSourceArrowWriter, DataSourceStreamArrowWriter.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rmqstore.errors import StoreError
from rmqstore.offline.locking import wait_until_free
from rmqstore.spark.common.errors import one_line_errors
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.common.side_files import (
    batch_directory,
    new_name,
    stream_directory,
    stream_ending,
)
from rmqstore.spark.common.sight import SeenStore, seen
from rmqstore.spark.common.zones import SESSION_ZONE
from rmqstore.spark.sink.append import append, check_place
from rmqstore.spark.sink.ledger import Job, Ledger
from rmqstore.spark.sink.options import (
    SinkLimits,
    limits_of,
    parse_write_options,
    sink_columns,
)
from rmqstore.spark.sink.overwrite import (
    check_allowed,
    discard_made,
    making_names,
    making_path,
    recover,
    replace,
)
from rmqstore.spark.sink.staging import Rules, StagedFile, stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "StagedMessage", "StreamWriter"]

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark's options that differ between any two queries of a session.
_QUERY_OPTIONS = ("checkpointlocation", "queryname")


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """Message of a task to the commit."""

    job: Job  # that it staged for
    file: StagedFile
    limits: SinkLimits  # used to check the rows


class _Plan:
    """State of both writers before the first task: plain data, which Spark pickles."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.options = parse_write_options(options)
        columns = sink_columns(schema, self.options.topic)
        self.overwrite = overwrite
        recover(self.options.path)
        if overwrite:
            check_allowed(self.options)
        else:
            check_place(self.options)
        limits = limits_of(self.options.path, self.options.store_config())
        self.rules = Rules(columns, self.options.topic, limits)
        self.makes_directory = not Path(self.options.path).exists()
        self.planned: SeenStore | None = None

    def plan(self, job: Job | None) -> None:
        """Note the store, or else a new directory, for tasks to check before they stage.

        The directory is the job's, or that of all staged files if each batch is another job.
        """
        if self.planned is not None:
            return
        path = self.options.path
        found = seen(path)
        if not found.records:
            if job is not None:
                directory = self._ledger(job).directory(job)
            elif self.overwrite:
                directory = Path(os.path.realpath(path)).parent
            else:
                directory = Ledger(path).staging
            directory.mkdir(parents=True, exist_ok=True)
            found = SeenStore(str(directory))
        self.planned = found

    def _ledger(self, job: Job) -> Ledger:
        path = self.options.path
        return Ledger(making_path(path, job) if self.overwrite else path)

    def stage(
        self, batches: Iterator[pa.RecordBatch], job: Job, task: TaskContext
    ) -> StagedMessage:
        if self.planned is not None:
            self.planned.check()
        file = stage(
            batches,
            self._ledger(job).directory(job),
            self.rules,
            prefix=job.prefix,
            partition=task.partitionId(),
            sync=self.options.sync,
            zone=task.getLocalProperty(SESSION_ZONE),
        )
        return StagedMessage(job, file, self.rules.limits)

    def commit(self, job: Job, messages: list[StagedMessage]) -> None:
        """Make all of a job's rows visible."""
        limits = messages[0].limits if messages else self.rules.limits
        how = replace if self.overwrite else append
        how(self.options, limits, job, [message.file for message in messages])

    def staged_jobs(self) -> list[str]:
        """Return the names of the directories where tasks of any write have staged."""
        if self.overwrite:
            return making_names(self.options.path)
        return Ledger(self.options.path).staged_jobs()

    def discard(self, job: Job) -> None:
        """Remove an uncommitted job."""
        path = self.options.path
        if self.overwrite:
            discard_made(path, job)
            return
        ledger = Ledger(path)
        intent = ledger.intent()
        if intent is not None and intent.job.directory == job.directory:
            return  # committed: the next write to the store completes it
        ledger.discard(job)
        if self.makes_directory:
            with contextlib.suppress(OSError):
                Path(path).rmdir()


class BatchWriter(DataSourceArrowWriter):
    """One ``df.write``: Spark takes it to every task, to the commit and to the abort.

    Raises ``OptionError`` or ``SchemaError`` for an invalid option or column, ``StoreLockedError``
    if the store is open for writing elsewhere.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = _Plan(options, schema, overwrite)
        run = new_name()
        asked = self._plan.options
        wait_until_free(asked.path, asked.lock_timeout)
        name, directory = asked.job_id, batch_directory(run)
        self._job = Job("batch", name or run, asked.batch_id, directory, name is not None)

    def __getstate__(self) -> dict[str, Any]:
        """Plan the write: the writer is pickled for its tasks once the driver has made it."""
        self._plan.plan(self._job)
        return self.__dict__

    @one_line_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage a partition's rows; runs in a task."""
        return self._plan.stage(iterator, self._job, _task())

    @one_line_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible; ``UnfinishedWriteError`` leaves that to the next write."""
        self._plan.commit(self._job, _staged(messages))

    @one_line_errors()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove staged files, unless the commit has begun."""
        self._plan.discard(self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Batches of one ``df.writeStream``: created anew in tasks and for each commit.

    Does not wait for the lock: Spark creates one for each commit, which waits itself, and for each
    abort, which removes staged files whoever has the store. ``overwrite``: output mode complete.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = _Plan(options, schema, overwrite)
        asked = self._plan.options
        if asked.job_id is not None:
            raise OptionError("option 'jobId' is for a batch write; a stream has its query's name")
        if overwrite and not asked.allow_overwrite:
            raise OptionError(
                "output mode complete overwrites the store in each batch: "
                "option 'allowOverwrite' has to be true"
            )
        given = {name.lower(): value for name, value in options.items()}
        is_named = any(name in given for name in _QUERY_OPTIONS)
        self._known_by = repr(sorted(given.items())) if is_named else None

    def __getstate__(self) -> dict[str, Any]:
        """Plan a batch: the writer is pickled for its tasks, not for a commit or an abort."""
        self._plan.plan(None)
        return self.__dict__

    @one_line_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage a partition's rows; runs in a task."""
        task = _task()
        query = task.getLocalProperty(_QUERY_ID)
        batch = task.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise StoreError(
                f"the task has no query and batch: {query!r}, {batch!r}; write a stream with "
                "df.writeStream"
            )
        number = int(batch)
        job = Job("stream", query, number, stream_directory(query, number, self._known_by), True)
        return self._plan.stage(iterator, job, task)

    @one_line_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make all rows of a batch visible, unless they are already."""
        staged = _staged(messages)
        jobs = {message.job for message in staged}
        if len(jobs) > 1 or any(job.batch != batchId for job in jobs):
            named = ", ".join(sorted(job.text for job in jobs))
            raise StoreError(
                f"the tasks of batch {batchId} staged for {named}: stop the query and start it "
                "again"
            )
        for job in jobs:
            self._plan.commit(job, staged)

    @one_line_errors()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove a batch's staged files, unless its commit has begun."""
        jobs = {message.job for message in _staged(messages)}
        if not jobs and self._known_by is not None:
            ending = stream_ending(batchId, self._known_by)
            for name in self._plan.staged_jobs():
                if name.endswith(ending):
                    jobs.add(Job("stream", "", batchId, name, True))
        for job in jobs:
            self._plan.discard(job)


def _task() -> TaskContext:
    found = TaskContext.get()
    if found is None:
        raise StoreError("rows are staged in tasks only: write with df.write or df.writeStream")
    return found


def _staged(messages: list[WriterCommitMessage | None]) -> list[StagedMessage]:
    return [message for message in messages if isinstance(message, StagedMessage)]
