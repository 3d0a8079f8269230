"""Verification of a store by the executors: log, consume queues and index compared."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import IncompatibleStoreError, StoreError
from rmqstore.files import paths
from rmqstore.files.links import broken_link
from rmqstore.offline import (
    IndexFileReader,
    LogPlan,
    LogWalk,
    LooseEntry,
    QueueFiles,
    Unit,
    UnitRun,
    differing_units,
    index_seconds,
    loose_entries,
    plan_log,
    used_units,
)
from rmqstore.offline.index import IndexMatch
from rmqstore.spark.common.errors import one_line_errors
from rmqstore.spark.common.options import absolute_path
from rmqstore.spark.common.sight import SeenStore, seen
from rmqstore.spark.jobs.arrow_map import batched, mapped, numbered
from rmqstore.spark.jobs.rebuild import configuration, settings_of
from rmqstore.spark.jobs.tasks import task_count

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["verify"]

# kind, topic, queue_id, queue_offset, physical_offset, file, expected, found
Row = tuple[str, str | None, int | None, int | None, int | None, str | None, str | None, str | None]

_ROWS = (
    "kind string, topic string, queue_id int, queue_offset long, physical_offset long, "
    "file string, expected string, found string"
)
_MAX_CHAINS = 1000  # reported per file
# Kinds of rows between the tasks; topic and queue are the difference's.
_QUEUE, _UNITS, _RANGE, _BLANK = ".queue", ".units", ".range", ".blank"


def verify(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    range_bytes: int | None = None,
) -> DataFrame:
    """Compare a store's consume queues and index files with its commit log.

    Nothing is written. The executors do the work each time the result is requested, and read the
    log up to its end at the time of the call.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect. Its workers need the same file system.
    path : path-like
        Directory of the store.
    config : StoreConfig or path of a broker.conf, optional
        Delay levels; sizes are inferred from the files.
    range_bytes : int, optional
        Bytes of the log per task; by default a 32nd of it, within 8 to 128 MiB.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each difference, with ``kind``, ``topic``, ``queue_id``, ``queue_offset``,
        ``physical_offset``, ``file``, ``expected`` and ``found``; null if not applicable.
        The kinds: ``record_corrupt`` (invalid bytes of the log), ``unit_missing``,
        ``unit_differs``, ``unit_extra`` (no such record, or another's),
        ``index_missing``, ``index_extra``, ``index_differs`` (time of an entry),
        ``index_chain`` (wrong link of an entry or a slot), ``unreadable`` (with the host).

    Raises
    ------
    StoreNotFoundError
        There is no store.
    ValueError, TypeError
        An argument has a wrong type or value.

    Notes
    -----
    If an executor does not see the store at its path, the query fails and names the host.
    Units and entries of records removed by retention, or of a deleted topic, are no differences.
    Delivery times are not compared: the levels may have changed.
    """
    root = absolute_path("path", path)
    index_files = tuple(_index_files(root))
    settings = _with_index_sizes(configuration(config), root, index_files)
    plan = plan_log(root, settings, range_bytes=range_bytes, any_version=True)
    check = _Check(plan, index_files, seen(root))
    count = plan.count + len(check.index_files) + 1
    found = numbered(spark, count, check.run, _ROWS, task_count(plan))
    found = found.repartition("topic", "queue_id")
    found = found.sortWithinPartitions("topic", "queue_id", "queue_offset")
    return mapped(found, check.finish, _ROWS)


def _index_files(root: str) -> list[str]:
    folder = Path(root, paths.INDEX)
    if not folder.is_dir():
        return []
    return sorted(
        str(file)
        for file in folder.iterdir()
        if paths.parse_index_file_name(file.name) is not None and file.is_file()
    )


def _with_index_sizes(config: StoreConfig, root: str, files: tuple[str, ...]) -> StoreConfig:
    """Return the configuration, with the index sizes inferred if the first file needs them."""
    if not files:
        return config
    try:
        IndexFileReader(files[0], config).close()
    except IncompatibleStoreError:  # not four entries a slot
        with suppress(StoreError, OSError):  # reported by the tasks
            return settings_of(config, root)
    except (StoreError, OSError):  # reported by that file's task
        pass
    return config


def _unreadable(topic: str, queue_id: int | None, error: object) -> Row:
    found = f"{error} (on host {socket.gethostname()})"
    return ("unreadable", topic, queue_id, None, None, None, None, found)


def _text(unit: Unit) -> str:
    return f"physical_offset={unit.physical_offset} size={unit.size} tags_code={unit.tags_code}"


@dataclass(frozen=True)
class _Check:
    """Tasks: ranges of the log, then index files, then the list of queues."""

    plan: LogPlan
    index_files: tuple[str, ...]
    seen: SeenStore

    def run(self, number: int) -> Iterator[pa.RecordBatch]:
        with one_line_errors():
            self.seen.check()  # an invisible store must not pass for an empty one
        return batched(self._rows_of(number), _ROWS)

    def _rows_of(self, number: int) -> Iterator[Row]:
        ranges = self.plan.count
        try:
            if number < ranges:
                yield from self._range(number)
            elif number < ranges + len(self.index_files):
                yield from self._index_file(self.index_files[number - ranges])
            else:
                yield from self._queues()
        except (StoreError, OSError) as error:
            yield _unreadable("", None, error)

    # ---- a range of the log

    def _range(self, number: int) -> Iterator[Row]:
        walk = self.plan.walk(number)
        units = _UnitCheck(self.plan)
        start, stop = self.plan.bounds(number)
        behind = stop if number + 1 < self.plan.count else INT64_MAX  # also later records
        with closing(
            _EntryCheck(self.plan.config, self.index_files, walk, start, behind)
        ) as entries:
            for found in walk.slices():
                for run in found.runs:
                    yield from units.compare(run, walk)
                entries.compare(found.entries)
            yield from entries.end()
        yield from units.seen()
        first = walk.totals.first_record
        if first >= 0:
            yield (_RANGE, "", -1, number, first, None, None, None)
        yield from self._damages(number, walk)

    def _damages(self, number: int, walk: LogWalk) -> Iterator[Row]:
        _, stop = self.plan.bounds(number)
        for offset, reason, resumed in walk.damages:
            if offset >= stop and stop % self.plan.file_size == 0:
                continue  # reported by the range that begins there
            after = min(self.plan.end, max(stop, offset + 1))
            blank = resumed < 0 and walk.is_blank(offset, after)
            # Zeros may be the end of the log: decided once all ranges are known.
            kind = _BLANK if blank or offset >= self.plan.end else "record_corrupt"
            yield (kind, "", -1, number, offset, self.plan.file_of(offset), "a record", reason)

    # ---- an index file by itself

    def _index_file(self, path: str) -> Iterator[Row]:
        with closing(IndexFileReader(path, self.plan.config)) as reader:
            bad, count, _ = reader.check_chains(_MAX_CHAINS)
        for number, expected, found in bad:
            what = f"entry {number}" if number >= 0 else f"slot {-1 - number}"
            one = f"{what} leads to entry"
            yield (
                "index_chain", "", None, None, None, path, f"{one} {expected}", f"{one} {found}",
            )  # fmt: skip
        if count > len(bad):
            more = f"{count - len(bad)} more"
            yield ("index_chain", "", None, None, None, path, None, more)

    # ---- queues

    def _queues(self) -> Iterator[Row]:
        folder = Path(self.plan.path, paths.CONSUME_QUEUE)
        for topic in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not paths.is_stored_topic_name(topic.name):
                continue
            if not topic.is_dir():
                if broken := broken_link(topic):
                    yield _unreadable(topic.name, None, broken)
                continue
            for queue in sorted(topic.iterdir()):
                queue_id = paths.parse_queue_id(queue.name)
                if queue_id is None:
                    continue
                if queue.is_dir():
                    yield (_QUEUE, topic.name, queue_id, -1, None, None, None, None)
                elif broken := broken_link(queue):
                    yield _unreadable(topic.name, queue_id, broken)

    def finish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on differences, and search for units without a record."""
        with one_line_errors():
            self.seen.check()
        return batched(self._finished(batches), _ROWS)

    def _finished(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        queue: tuple[str, int] | None = None
        seen: list[tuple[int, int]] = []
        blanks: list[Row] = []
        last_record = -1
        for batch in batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                kind, topic, queue_id, queue_offset, physical_offset = row[:5]
                if queue is not None and (topic, queue_id) != queue:
                    yield from self._extra(queue, seen)
                    queue, seen = None, []
                if kind in (_QUEUE, _UNITS):
                    queue = (topic, queue_id)
                    if kind == _UNITS:
                        seen.append((queue_offset, physical_offset))
                elif kind == _RANGE:
                    last_record = max(last_record, physical_offset)
                elif kind == _BLANK:
                    blanks.append(row)
                else:
                    yield row if topic else (kind, None, None, None, *row[4:])
        if queue is not None:
            yield from self._extra(queue, seen)
        for row in blanks:
            if row[4] is not None and row[4] < last_record:
                yield ("record_corrupt", None, None, None, *row[4:])

    def _extra(self, queue: tuple[str, int], seen: list[tuple[int, int]]) -> Iterator[Row]:
        try:
            yield from _UnitCheck(self.plan).extra(*queue, seen)
        except (StoreError, OSError) as error:
            yield _unreadable(*queue, error)


class _UnitCheck:
    """Comparison of units of a log range with the queues' files."""

    def __init__(self, plan: LogPlan) -> None:
        self._plan = plan
        self._seen: dict[tuple[str, int], list[list[int]]] = {}
        self._files: dict[tuple[str, int], QueueFiles] = {}

    def _queue(self, topic: str, queue_id: int) -> QueueFiles:
        known = self._files.get((topic, queue_id))
        if known is None:
            known = QueueFiles(self._plan.path, topic, queue_id, self._plan.config)
            self._files[topic, queue_id] = known
        return known

    def compare(self, run: UnitRun, walk: LogWalk) -> Iterator[Row]:
        topic, queue_id, first = run.topic, run.queue_id, run.first
        seen = self._seen.setdefault((topic, queue_id), [])
        if seen and seen[-1][1] == first:
            seen[-1][1] = run.stop
        else:
            seen.append([first, run.stop])
        at = 0
        gone: bool | None = None
        for path, start, data in self._queue(topic, queue_id).read(first, run.stop):
            wanted = run.units[at : at + len(data)]
            if data != wanted:
                for number, one, other in differing_units(topic, wanted, data):
                    where = topic, queue_id, start + number
                    row = *where, one.physical_offset, str(path), _text(one)
                    if other is None:
                        if gone is None:
                            gone = self._plan.is_gone(topic, run.log_stop)
                        if not gone:
                            yield ("unit_missing", *row, None)
                    elif other.physical_offset == one.physical_offset or not walk.has_unit(
                        *where, other.physical_offset, other.size
                    ):  # of two records for a queue offset, either is the queue's
                        yield ("unit_differs", *row, _text(other))
            at += len(data)

    def seen(self) -> Iterator[Row]:
        """Yield the compared ranges: first queue offset, and the end."""
        for (topic, queue_id), spans in self._seen.items():
            for first, stop in spans:
                yield (_UNITS, topic, queue_id, first, stop, None, None, None)

    def extra(self, topic: str, queue_id: int, seen: list[tuple[int, int]]) -> Iterator[Row]:
        """Yield units without a record of the log, outside the compared ranges."""
        queue = self._queue(topic, queue_id)
        walk = self._plan.walk(0) if self._plan.count else None
        for start in queue.starts:
            at, stop = start, start + queue.units_a_file
            for low, high in [*sorted(seen), (stop, stop)]:
                if at < min(low, stop):
                    yield from self._extra_between(topic, queue_id, at, min(low, stop), walk)
                at = max(at, min(high, stop))

    def _extra_between(
        self, topic: str, queue_id: int, start: int, stop: int, walk: LogWalk | None
    ) -> Iterator[Row]:
        for path, first, data in self._queue(topic, queue_id).read(start, stop):
            for number, unit in used_units(data):
                offset = unit.physical_offset
                # Records removed by retention are not missed, nor are later ones.
                if 0 <= offset < self._plan.first:
                    continue
                where = topic, queue_id, first + number
                if walk is None or not walk.has_unit(*where, offset, unit.size):
                    yield ("unit_extra", *where, offset, str(path), None, _text(unit))


class _EntryCheck:
    """Comparison of index entries of a log range with all index files."""

    def __init__(
        self, config: StoreConfig, files: Iterable[str], walk: LogWalk, start: int, stop: int
    ) -> None:
        self._walk = walk
        self._match = IndexMatch(config, files, start, stop)
        self._wanted: list[LooseEntry] = []  # from the first difference on

    def compare(self, data: memoryview) -> None:
        """Compare the next entries; those not found in order are kept for :meth:`end`."""
        self._wanted += loose_entries(self._match.rest(data))

    def close(self) -> None:
        """Close the index files."""
        self._match.close()

    def end(self) -> Iterator[Row]:
        """Yield the unmatched entries of both sides."""
        known = Counter((one.key_hash, one.physical_offset) for one in self._wanted)
        times = {(one.key_hash, one.physical_offset): one.store_timestamp for one in self._wanted}
        for path, part, low, high, before in self._match.parts:
            for at, (key_hash, offset, seconds) in enumerate(part.entries(low, high), low):
                key = key_hash, offset
                found = f"entry {at}: key_hash={key_hash}"
                if known[key] > 0:
                    known[key] -= 1
                    # The first entry's time is counted from the end of the previous file.
                    wanted = index_seconds(part.begin_timestamp if at > 1 else before, times[key])
                    if seconds != wanted and (at > 1 or before >= 0):
                        yield (
                            "index_differs", "", None, None, offset, path,
                            f"{wanted} s after the first", f"{seconds} s after the first",
                        )  # fmt: skip
                elif not self._walk.has_key(offset, key_hash):
                    yield ("index_extra", "", None, None, offset, path, None, found)
        for (key_hash, offset), count in known.items():
            for _ in range(count):
                wanted_text = f"key_hash={key_hash}"
                yield ("index_missing", "", None, None, offset, None, wanted_text, None)
