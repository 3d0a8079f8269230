"""A new store with some topics of a store, or its newer part; made by the executors.

Records are copied unchanged except their log offsets: queue offsets stay, and with them the
consumers' progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rmqstore
from rmqstore.base.arguments import did_you_mean
from rmqstore.base.layout import INT64_MIN
from rmqstore.base.times import to_millis
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.fields import file_object
from rmqstore.brokerfiles.topics import TopicTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.registry import TopicRegistry
from rmqstore.errors import StoreCorruptError, TopicNotFoundError
from rmqstore.files import paths
from rmqstore.offline import (
    SCHEDULE_TOPIC,
    LogPiece,
    LogSource,
    Measured,
    assign_positions,
    piece_bytes,
)
from rmqstore.spark.common.options import absolute_path
from rmqstore.spark.common.sight import SeenStore, seen
from rmqstore.spark.jobs.copy_tasks import copy_tasks
from rmqstore.spark.jobs.new_store import complete, new_store
from rmqstore.spark.jobs.tasks import run_tasks, runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqstore.base.times import TimeLike

__all__ = ["CompactedStore", "compact"]

# For each file: the table by topics, and the separator after a topic's name.
_TABLES = {
    paths.CONSUMER_OFFSET_JSON: ("offsetTable", "@"),
    paths.LMQ_CONSUMER_OFFSET_JSON: ("offsetTable", "@"),
    paths.CONSUMER_FILTER_JSON: ("filterDataByTopic", None),
}


@dataclass(frozen=True, slots=True)
class CompactedStore:
    """Result of :func:`compact`.

    Attributes
    ----------
    path : str
        The new store.
    messages, messages_left : int
        Records copied, and records left out.
    log_bytes : int
        Bytes of the records copied.
    processes : int
        Processes of executors that wrote log bytes.
    seconds : float
        Duration.
    """

    path: str
    messages: int
    messages_left: int
    log_bytes: int
    processes: int
    seconds: float


def compact(
    spark: SparkSession,
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    topics: str | Iterable[str] | None = None,
    since: TimeLike | None = None,
) -> CompactedStore:
    """Copy selected messages of a store to a new one.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect.
    src : path-like
        The store to read; another process may have it open. Driver and executors share the
        file system of both paths.
    dst : path-like
        A new path, or an empty directory.
    topics : str or iterable of str, optional
        Topics to copy; all by default. Deleted messages are not copied.
    since : int, datetime or str, optional
        Start at the first record in the log stored at or after this time; all of it by default.

    Returns
    -------
    CompactedStore

    Raises
    ------
    DestinationError
        ``dst`` is not empty; also a ``ValueError``.
    StoreNotFoundError, TopicNotFoundError
        No such store, or no such topic in it.
    StoreCorruptError
        A record is invalid; nothing is left at ``dst``.
    MessagesRemovedError
        Retention removed files of ``src`` meanwhile.
    TypeError, ValueError
        An argument has a wrong type or value.

    Notes
    -----
    Bytes, store times and queue offsets stay the same, and so do topics, groups and consumers'
    progress in ``config``. Physical offsets change, and with them the store's message ids; the
    offset of a prepared message, in the record that ended its transaction, is not adjusted. A
    queue's light queues go with its records.
    """
    began = time.monotonic()
    source = Path(absolute_path("src", src))
    target = Path(absolute_path("dst", dst))
    names = (topics,) if isinstance(topics, str) else None if topics is None else tuple(topics)
    millis = INT64_MIN if since is None else to_millis(since, name="since")
    if target == source or target.is_relative_to(source):
        raise ValueError(f"dst must not be within src, got {str(target)!r}")
    with new_store(target) as making:
        planned = [SeenStore(str(making))]
        if source.is_dir():
            planned.append(seen(str(source)))
        look: _Look = run_tasks(spark, [_LookTask(str(source), names)], planned)[0]
        log = LogSource(
            str(source / paths.COMMIT_LOG),
            look.config.mapped_file_size_commit_log,
            topics=names,
            deleted=look.deleted,
        )
        config_task = _ConfigTask(str(source), str(making), names)
        tasks = _measure_tasks(log, look.start, look.stop, millis)
        _, *parts = run_tasks(spark, [config_task, *tasks], planned)
        measured = [part for found in parts for part in found]
        _check_gapless(log, measured, look.start, look.stop)
        pieces = assign_positions(_pieces(measured), log.file_size)
        directory = str(making / paths.COMMIT_LOG)
        copies = copy_tasks(pieces, {0: log}, directory, log.file_size)
        copied = run_tasks(spark, copies, planned)
        complete(spark, making, look.config, copied)
    messages = sum(one.messages for one in copied)
    return CompactedStore(
        path=os.fspath(dst),
        messages=messages,
        messages_left=sum(part.found for part in measured) - messages,
        log_bytes=sum(one.size for one in copied),
        processes=len({one.process for one in copied}),
        seconds=time.monotonic() - began,
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """State of a store at the job's start."""

    config: StoreConfig
    start: int
    stop: int
    deleted: Mapping[str, int]


@dataclass(frozen=True)
class _LookTask:
    """Reads the state of the store, and checks that it has the topics."""

    path: str
    topics: tuple[str, ...] | None

    def run(self) -> _Look:
        with rmqstore.open(self.path) as store:
            known = set(store.topics)
            for topic in self.topics or ():
                if topic not in known:
                    near = did_you_mean(topic, known)
                    hint = f"; {near}" if near else ""
                    raise TopicNotFoundError(f"{self.path}: no topic {topic!r}{hint}")
            found = store.recovery
            deleted = TopicRegistry(self.path, lenient=True).deleted
            return _Look(store.config, found.log_start, found.log_end, deleted)


@dataclass(frozen=True)
class _MeasureTask:
    """Counts the records that begin in ranges of the log."""

    source: LogSource
    ranges: tuple[tuple[int, int], ...]
    since: int

    def run(self) -> list[Measured]:
        return self.source.measure(self.ranges, self.since)


def _measure_tasks(log: LogSource, start: int, stop: int, since: int) -> list[_MeasureTask]:
    """Divide a log into ranges, each within one file, and group them into tasks."""
    cell = piece_bytes(log.file_size)
    ranges = []
    at = start
    while at < stop:
        file_end = at - at % log.file_size + log.file_size
        end = min(at + cell, file_end, stop)
        ranges.append((at, end))
        at = end
    return [
        _MeasureTask(log, tuple(ranges[run]), since) for run in runs(end - at for at, end in ranges)
    ]


def _check_gapless(log: LogSource, measured: Sequence[Measured], start: int, stop: int) -> None:
    """Raise if a part's records do not begin at the end of the previous part's: damaged bytes."""
    expected = start
    for part in measured:
        if part.first >= 0 and part.first != expected:
            break
        if part.first >= 0 or (part.start == expected < part.end):
            expected = part.end
    else:
        if expected == stop:
            return
    name = paths.offset_file_name(expected - expected % log.file_size)
    raise StoreCorruptError(
        Path(log.directory, name),
        expected,
        f"no record begins where the one before it ends, of a log that goes on to {stop}; have "
        'open(path, "r+", verify="full") say what is wrong, and compact again',
    )


def _pieces(measured: Iterable[Measured]) -> Iterator[LogPiece]:
    """Yield the parts, from the first record that is not too old."""
    reached = False
    for part in measured:
        if reached:
            piece = LogPiece(0, part.first, part.stop, part.size)
        else:
            reached = part.since_first >= 0
            piece = LogPiece(0, part.since_first, part.stop, part.since_size)
        if piece.size:
            yield piece


@dataclass(frozen=True)
class _ConfigTask:
    """Copies the files of ``config``, reduced to the copied topics."""

    source: str
    target: str
    topics: tuple[str, ...] | None

    def run(self) -> None:
        source, target = Path(self.source, paths.CONFIG), Path(self.target, paths.CONFIG)
        self._copy_topics()
        for name, (table, separator) in _TABLES.items():
            data = ConfigFile(source / name).load(file_object)
            if data is None:
                continue
            entries = data.get(table)
            if isinstance(entries, dict):
                data[table] = {
                    key: value
                    for key, value in entries.items()
                    if self._is_kept(str(key).split(separator)[0] if separator else str(key))
                }
            ConfigFile(target / name).save(data)
        whole = [paths.SUBSCRIPTION_GROUP_JSON]
        if self._is_kept(SCHEDULE_TOPIC):
            whole.append(paths.DELAY_OFFSET_JSON)
        for name in whole:
            data = ConfigFile(source / name).load(file_object)
            if data is not None:
                ConfigFile(target / name).save(data)

    def _copy_topics(self) -> None:
        known, kept = TopicTable.load(self.source), TopicTable(self.target)
        kept.reload()
        for entry in known:
            if self._is_kept(entry.topic_name):
                kept.put(entry)
        kept.version = known.version
        kept.save()

    def _is_kept(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics
