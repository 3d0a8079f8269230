"""Verification of a store by the executors: log, consume queues and index compared."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX, UNIT, UNIT_BYTES
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
from rmqstore.offline.ext_units import without_ext_unit
from rmqstore.offline.index import IndexMatch
from rmqstore.offline.queues import OffsetSpan, add_run, dispatched
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
# Kinds of rows between the tasks, before a queue's differences.
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
    Units and entries of records removed by retention, or of a deleted topic, are no differences,
    nor are missing units of records that dispatch passes over. Delivery times are not compared: the
    levels may have changed.
    """
    from pyspark.sql.functions import expr

    root = absolute_path("path", path)
    index_files = tuple(_index_files(root))
    settings = _with_index_sizes(configuration(config), root, index_files)
    plan = plan_log(root, settings, range_bytes=range_bytes, any_version=True)
    check = _Check(plan, index_files, seen(root))
    count = plan.count + len(check.index_files) + 1
    found = numbered(spark, count, check.run, _ROWS, task_count(plan))
    found = found.repartition("topic", "queue_id")
    found = found.sortWithinPartitions(
        "topic", "queue_id", expr("kind NOT LIKE '.%'"), "queue_offset"
    )
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
        blanks: list[Row] = []
        last_record = -1
        rows = (
            row
            for batch in batches
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        for (topic, queue_id), found in groupby(rows, key=itemgetter(1, 2)):
            if topic:
                yield from self._of_queue((topic, queue_id), found)
                continue
            for row in found:
                if row[0] == _RANGE:
                    last_record = max(last_record, row[4])
                elif row[0] == _BLANK:
                    blanks.append(row)
                else:
                    yield (row[0], None, None, None, *row[4:])
        for row in blanks:
            if row[4] is not None and row[4] < last_record:
                yield ("record_corrupt", None, None, None, *row[4:])

    def _of_queue(self, queue: tuple[str, int], rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the differences of a queue, once its spans are known."""
        spans: list[OffsetSpan] = []
        there = asked = False
        runs: list[UnitRun] | None = None
        for row in rows:
            if row[0] in (_QUEUE, _UNITS):
                there = True
                if row[0] == _UNITS:
                    spans.append(_span_of(row))
                continue
            if not asked:
                spans.sort(key=lambda one: one.log_start)
                runs, asked = dispatched(self.plan, {queue: spans}).get(queue), True
            if row[0] != "unit_missing" or runs is None or any(_has(one, row) for one in runs):
                yield row
        if there:
            yield from self._extra(queue, spans)

    def _extra(self, queue: tuple[str, int], seen: list[OffsetSpan]) -> Iterator[Row]:
        compared = [(one.first, one.stop) for one in seen]
        try:
            yield from _UnitCheck(self.plan).extra(*queue, compared)
        except (StoreError, OSError) as error:
            yield _unreadable(*queue, error)


def _row_of(topic: str, queue_id: int, one: OffsetSpan) -> Row:
    place = f"{one.log_start} {one.log_stop}"
    return (_UNITS, topic, queue_id, one.first, one.stop, None, place, None)


def _span_of(row: Row) -> OffsetSpan:
    assert row[3] is not None
    assert row[4] is not None
    log_start, log_stop = map(int, (row[6] or "").split())
    return OffsetSpan(row[3], row[4], log_start, log_stop)


def _has(run: UnitRun, row: Row) -> bool:
    """Whether a row is of one of a run's records."""
    return row[4] is not None and run.log_start <= row[4] < run.log_stop


class _UnitCheck:
    """Comparison of units of a log range with the queues' files."""

    def __init__(self, plan: LogPlan) -> None:
        self._plan = plan
        self._seen: dict[tuple[str, int], list[OffsetSpan]] = {}
        self._files: dict[tuple[str, int], QueueFiles] = {}

    def _queue(self, topic: str, queue_id: int) -> QueueFiles:
        known = self._files.get((topic, queue_id))
        if known is None:
            known = QueueFiles(self._plan.path, topic, queue_id, self._plan.config)
            self._files[topic, queue_id] = known
        return known

    def compare(self, run: UnitRun, walk: LogWalk) -> Iterator[Row]:
        topic, queue_id = run.topic, run.queue_id
        add_run(self._seen.setdefault((topic, queue_id), []), run)
        at = 0
        gone: bool | None = None
        for path, start, data in self._queue(topic, queue_id).read(run.first, run.stop):
            wanted = run.units[at : at + len(data)]
            at += len(data)
            if data == bytes(wanted):  # a memoryview is compared item by item
                continue
            differs = False
            for number, one, other in differing_units(topic, wanted, data):
                where = topic, queue_id, start + number
                row = *where, one.physical_offset, str(path), _text(one)
                if other is None:
                    if gone is None:
                        gone = self._plan.is_gone(topic, run.log_stop)
                    if not gone:
                        differs = True
                        yield ("unit_missing", *row, None)
                elif other.physical_offset == one.physical_offset or not walk.has_unit(
                    *where, other.physical_offset, other.size
                ):  # of two records for a queue offset, either is the queue's
                    differs = True
                    yield ("unit_differs", *row, _text(other))
            if not differs:
                yield from self._without_ext_unit(run, path, start, wanted, data)

    def _without_ext_unit(
        self, run: UnitRun, path: Path, start: int, wanted: memoryview, data: bytes
    ) -> Iterator[Row]:
        """Yield the units that lead to no ext unit with their record's tags code."""
        plan, queue = self._plan, (run.topic, run.queue_id)
        for number, _ in without_ext_unit(plan.path, *queue, wanted, data):
            one = Unit(*UNIT.unpack_from(wanted, number * UNIT_BYTES))
            found = Unit(*UNIT.unpack_from(data, number * UNIT_BYTES))
            where = *queue, start + number, one.physical_offset, str(path)
            yield ("unit_differs", *where, _text(one), _text(found))

    def seen(self) -> Iterator[Row]:
        """Yield the compared ranges: first queue offset, and the end."""
        for queue, spans in self._seen.items():
            for one in spans:
                yield _row_of(*queue, one)

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
