"""Log, consume queues and index of a store compared with each other by the executors.

Source: ours.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore import _core, paths
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreError
from rmqstore.spark.log_ranges import LogPlan, plan_log
from rmqstore.spark.mapping import batched, mapped, numbered
from rmqstore.spark.options import absolute_path
from rmqstore.spark.queue_files import UNIT_BYTES
from rmqstore.spark.rebuild import configuration
from rmqstore.times import INT64_MAX

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
_SLICE_BYTES = 4 << 20
_CHAINS_MOST = 1000  # of one file that are told
# Rows between the tasks; their topic and queue are those of what is said about them.
_QUEUE, _UNITS, _RANGE, _BLANK = ".queue", ".units", ".range", ".blank"


def verify(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
    range_bytes: int | None = None,
) -> DataFrame:
    """Compare a store's consume queues and index files with its commit log.

    Nothing is written. The executors do the work when the result is asked for, each time anew,
    and look at the log up to its end as of the call.

    Parameters
    ----------
    spark : SparkSession
        Also one of Spark Connect. Its workers need the same file system.
    path : path-like
        Directory of the store.
    config : StoreConfig or path of a broker.conf, optional
        For the delay levels; sizes are told from the files.
    range_bytes : int, optional
        Bytes of the log for a task to read; by default 8 to 128 MiB, a 32nd of it.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each difference, with ``kind``, ``topic``, ``queue_id``, ``queue_offset``,
        ``physical_offset``, ``file``, ``expected`` and ``found``; what does not apply is null.
        The kinds: ``record_corrupt`` (bytes of the log that are no record), ``unit_missing``,
        ``unit_differs``, ``unit_extra`` (its record is not there, or another's),
        ``index_missing``, ``index_extra``, ``index_differs`` (the time of an entry),
        ``index_chain`` (an entry or a slot leads elsewhere), ``unreadable``.

    Raises
    ------
    StoreNotFoundError
        There is no store.
    ValueError, TypeError
        An argument is not what it may be.

    Notes
    -----
    Units and entries of records that retention removed are no differences, nor are those of a
    topic that was deleted. A time of delivery is not compared: the levels may have changed.
    Source: ours.
    """
    root = absolute_path("argument 'path'", path)
    plan = plan_log(root, configuration(config), range_bytes=range_bytes, any_version=True)
    check = _Check(plan, tuple(_index_files(root)))
    count = plan.count + len(check.index_files) + 1
    found = numbered(spark, count, check.run, _ROWS, plan.tasks)
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


def _text(unit: tuple[int, int, int]) -> str:
    return f"physical_offset={unit[0]} size={unit[1]} tags_code={unit[2]}"


@dataclass(frozen=True)
class _Check:
    """The tasks: ranges of the log, then index files, then the list of queues."""

    plan: LogPlan
    index_files: tuple[str, ...]

    def run(self, number: int) -> Iterator[pa.RecordBatch]:
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
            yield ("unreadable", "", None, None, None, None, None, str(error))

    # ---- a range of the log

    def _range(self, number: int) -> Iterator[Row]:
        walk = self.plan.walk(number)
        units = _QueueFiles(self.plan)
        start, stop = self.plan.bounds(number)
        behind = stop if number + 1 < self.plan.count else INT64_MAX  # also what came since
        entries = _IndexEntries(self, walk, start, behind)
        while (found := walk.next(_SLICE_BYTES)) is not None:
            for run in found[0]:
                yield from units.compare(run, walk)
            entries.compare(found[1])
        yield from entries.end()
        yield from units.seen()
        totals = walk.totals()
        if totals["first_record"] >= 0:
            yield (_RANGE, "", -1, number, totals["first_record"], None, None, None)
        yield from self._damages(number, walk)

    def _damages(self, number: int, walk: _core.LogUnits) -> Iterator[Row]:
        _, stop = self.plan.bounds(number)
        for offset, reason, resumed in walk.damages:
            if offset >= stop and stop % self.plan.file_size == 0:
                continue  # the range that begins there says it
            after = min(self.plan.end, max(stop, offset + 1))
            blank = resumed < 0 and walk.is_blank(offset, after)
            # Zeros may be the end of the log: whether they are is told when all is known.
            kind = _BLANK if blank or offset >= self.plan.end else "record_corrupt"
            yield (kind, "", -1, number, offset, self.plan.file_of(offset), "a record", reason)

    # ---- an index file by itself

    def open_index(self, path: str) -> _core.IndexPart:
        """Open an index file, its sizes told from its length unless they are as configured."""
        config = self.plan.config
        return _core.IndexPart(path, config.max_hash_slot_num, config.max_index_num, "r", True)

    def _index_file(self, path: str) -> Iterator[Row]:
        part = self.open_index(path)
        bad, count = part.check_chains(_CHAINS_MOST)
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
            if not paths.is_topic_name(topic.name) or not topic.is_dir():
                continue
            for queue in sorted(topic.iterdir()):
                queue_id = paths.parse_queue_id(queue.name)
                if queue_id is not None and queue.is_dir():
                    yield (_QUEUE, topic.name, queue_id, -1, None, None, None, None)

    def finish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on what differs, and look for units that no record has."""
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
            yield from _QueueFiles(self.plan).extra(*queue, seen)
        except (StoreError, OSError) as error:
            yield ("unreadable", *queue, None, None, None, None, str(error))


class _QueueFiles:
    """The consume queue files of a store, read for a task."""

    def __init__(self, plan: LogPlan) -> None:
        self._plan = plan
        self._seen: dict[tuple[str, int], list[list[int]]] = {}
        self._sizes: dict[tuple[str, int], int] = {}

    def _folder(self, topic: str, queue_id: int) -> Path:
        return Path(self._plan.path, paths.CONSUME_QUEUE, topic, str(queue_id))

    def _starts(self, topic: str, queue_id: int) -> list[int]:
        folder = self._folder(topic, queue_id)
        if not folder.is_dir():
            return []
        starts = (paths.parse_offset_file_name(file.name) for file in folder.iterdir())
        return sorted(start for start in starts if start is not None)

    def _file_size(self, topic: str, queue_id: int) -> int:
        """Tell the size from the longest file, as opening the store does."""
        known = self._sizes.get((topic, queue_id))
        if known is None:
            folder = self._folder(topic, queue_id)
            lengths = [
                (folder / paths.offset_file_name(start)).stat().st_size
                for start in self._starts(topic, queue_id)
            ]
            known = max(lengths, default=0) or self._plan.config.mapped_file_size_consume_queue
            self._sizes[topic, queue_id] = known
        return known

    def _read(
        self, topic: str, queue_id: int, first: int, count: int
    ) -> Iterator[tuple[str, int, bytes]]:
        """Units by files: path, queue offset of the first, bytes; zeros where there are none."""
        size = self._file_size(topic, queue_id)
        at, end = first * UNIT_BYTES, (first + count) * UNIT_BYTES
        while at < end:
            start = at - at % size
            stop = min(end, start + size)
            path = self._folder(topic, queue_id) / paths.offset_file_name(start)
            try:
                with path.open("rb") as file:
                    data = os.pread(file.fileno(), stop - at, at - start)
            except FileNotFoundError:
                data = b""
            yield str(path), at // UNIT_BYTES, data.ljust(stop - at, b"\0")
            at = stop

    def compare(
        self, run: tuple[str, int, int, int, int, _core.Memory], walk: _core.LogUnits
    ) -> Iterator[Row]:
        """Compare units with the files."""
        topic, queue_id, first, _, _, memory = run
        units = memoryview(memory)
        count = len(units) // UNIT_BYTES
        seen = self._seen.setdefault((topic, queue_id), [])
        if seen and seen[-1][1] == first:
            seen[-1][1] = first + count
        else:
            seen.append([first, first + count])
        at = 0
        for path, _, data in self._read(topic, queue_id, first, count):
            wanted = units[at : at + len(data)]
            if data != wanted:
                place = first + at // UNIT_BYTES
                for number, one, other in _core.differing_units(topic, wanted, data):
                    where = topic, queue_id, place + number
                    row = *where, one[0], path, _text(one)
                    if other is None:
                        yield ("unit_missing", *row, None)
                    elif other[0] <= one[0] or not walk.names(other[0], other[1], *where):
                        # A later record that names the same place is what the queue has.
                        yield ("unit_differs", *row, _text(other))
            at += len(data)

    def seen(self) -> Iterator[Row]:
        """Go through what was compared: first queue offset, and the one behind the last."""
        for (topic, queue_id), spans in self._seen.items():
            for first, stop in spans:
                yield (_UNITS, topic, queue_id, first, stop, None, None, None)

    def extra(self, topic: str, queue_id: int, seen: list[tuple[int, int]]) -> Iterator[Row]:
        """Go through units that no record of the log has, outside of what was compared."""
        plan = self._plan
        size = self._file_size(topic, queue_id) // UNIT_BYTES
        walk = plan.walk(0) if plan.count else None
        for start in self._starts(topic, queue_id):
            at, stop = start // UNIT_BYTES, start // UNIT_BYTES + size
            for low, high in [*sorted(seen), (stop, stop)]:
                if at < min(low, stop):
                    yield from self._extra_between(topic, queue_id, at, min(low, stop), walk)
                at = max(at, min(high, stop))

    def _extra_between(
        self, topic: str, queue_id: int, start: int, stop: int, walk: _core.LogUnits | None
    ) -> Iterator[Row]:
        for path, first, data in self._read(topic, queue_id, start, stop - start):
            for number, unit in _core.used_units(data):
                offset, length, _ = unit
                # What retention removed is not missed; nor is a message that came since.
                if 0 <= offset < self._plan.first:
                    continue
                place = topic, queue_id, first + number
                if walk is None or not walk.names(offset, length, *place):
                    yield ("unit_extra", *place, offset, path, None, _text(unit))


class _IndexEntries:
    """Entries of a range of the log compared with those of all index files."""

    def __init__(self, check: _Check, walk: _core.LogUnits, start: int, stop: int) -> None:
        self._walk = walk
        self._parts: list[tuple[str, _core.IndexPart, int, int, int]] = []
        seeded = -1
        for path in check.index_files:
            try:
                part = check.open_index(path)
                low, high = part.place_of(start), part.place_of(stop)
            except (StoreError, OSError):
                seeded = -1
                continue  # the task of that file says why
            if low < high:
                self._parts.append((path, part, low, high, seeded))
            seeded = part.header()[1]
        self._wanted: list[tuple[int, int, int]] = []  # once something differs
        self._differs = False

    def compare(self, entries: _core.Memory) -> None:
        """Compare the next entries; those that are not there in order are kept for the end."""
        data = memoryview(entries)
        while data and self._parts and not self._differs:
            path, part, low, high, seeded = self._parts[0]
            count = min(high - low, len(data) // _core.LOOSE_ENTRY_BYTES)
            matched = part.match(low, low + count, data, seeded)
            data = data[matched * _core.LOOSE_ENTRY_BYTES :]
            if low + matched == high:
                self._parts.pop(0)
            else:
                self._parts[0] = (path, part, low + matched, high, seeded)
            self._differs = matched < count
        self._wanted += _core.loose_entries(data)

    def end(self) -> Iterator[Row]:
        """Go through what is left on either side."""
        known = Counter((key_hash, offset) for key_hash, offset, _ in self._wanted)
        times = {(key_hash, offset): time for key_hash, offset, time in self._wanted}
        for path, part, low, high, seeded in self._parts:
            begin = part.header()[0]
            for at, (key_hash, offset, seconds) in enumerate(part.entries(low, high), low):
                key = key_hash, offset
                found = f"entry {at}: key_hash={key_hash}"
                if known[key] > 0:
                    known[key] -= 1
                    wanted = _core.index_seconds_of(begin if at > 1 else seeded, times[key])
                    if seconds != wanted and (at > 1 or seeded >= 0):
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
