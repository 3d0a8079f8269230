"""Work of a task: pieces of one store, as Arrow batches in the types that Spark planned with.

A piece holds arguments of :meth:`MessageStore.scan`; its end is fixed when the query is planned,
so that messages put later never appear.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import InputPartition

import rmqstore
from rmqstore.errors import MessagesRemovedError, StoreCorruptError
from rmqstore.files import paths
from rmqstore.spark.common.errors import one_line_errors
from rmqstore.spark.common.schema import arrow_schema, as_planned, spark_schema
from rmqstore.spark.common.sight import check_directory
from rmqstore.spark.read.filters import NO_FILTERS, Filters
from rmqstore.spark.read.store_identity import (
    RecordIdentity,
    StoreReplacedError,
    cut_before,
    identity_at,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rmqstore.columns.scan import Scan
    from rmqstore.store import MessageStore

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "Piece",
    "StorePartition",
    "opened",
    "queue_piece",
    "read_partition",
    "scan_piece",
]

BATCH_ROWS, BATCH_BYTES = 16384, 8 << 20

_MAX_OPEN = 32  # stores kept open by a worker process


@dataclass(frozen=True)
class Piece:
    """Part of a store, read in sequence."""

    # ``start`` and ``stop`` of "queue" are queue offsets, else log offsets ("keys": by the index)
    kind: Literal["queue", "log", "keys"]
    start: int
    stop: int
    topics: tuple[str, ...] = ()  # a queue's own; else those wanted, empty for all
    queue_id: int = -1  # -1: any
    since: int | None = None  # store time in ms since the epoch
    until: int | None = None  # store time in ms since the epoch
    tags: str | None = None
    keys: tuple[str, ...] = ()
    size: int = 0  # bytes of the log, for planning only
    sql: str | None = None


@dataclass(frozen=True)
class StorePartition(InputPartition):
    """Work of one task; plain data that pickles."""

    path: str  # the store
    pieces: tuple[Piece, ...]
    filters: Filters = NO_FILTERS  # further conditions for rows
    on_corrupt: Literal["raise", "skip", "stop"] = "raise"  # at a record; "stop" ends the piece
    on_removed: Literal["raise", "skip"] = "raise"  # if retention removed messages still to read
    # a record of the planned log, no earlier than the last message; None: any store will do
    known_record: RecordIdentity | None = None


def queue_piece(
    topic: str,
    queue_id: int,
    start: int,
    stop: int,
    *,
    tags: str | None = None,
    keys: tuple[str, ...] = (),
    size: int = 0,
    sql: str | None = None,
) -> Piece:
    """Return the piece ``[start, stop)`` of a queue."""
    names = (topic,)
    return Piece("queue", start, stop, names, queue_id, tags=tags, keys=keys, size=size, sql=sql)


def read_partition(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, in batches of up to 16,384, and of 8 MiB unless a single row.

    Spark's own partition for an empty plan has none. Raises ``StoreCorruptError``,
    ``MessagesRemovedError``, and ``StoreReplacedError`` whatever ``on_removed`` is.
    """
    if isinstance(partition, StorePartition):
        with one_line_errors():
            yield from _rows(partition, schema)


def _rows(partition: StorePartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    planned = read = arrow_schema(schema)
    filters = partition.filters
    hidden = [name for name in filters.columns if name not in planned.names]
    if hidden:
        read = arrow_schema(spark_schema([*planned.names, *hidden]))
    before = _directories(partition.path)
    store = _opened_as_planned(partition)
    if store is None:
        return
    try:
        for piece in partition.pieces:
            scan = scan_piece(
                store,
                piece,
                read.names,
                on_corrupt=partition.on_corrupt,
                on_removed=partition.on_removed,
            )
            for batch in scan.to_batches():
                passed = filters.passing(as_planned(batch, read))
                if passed.num_rows:
                    yield as_planned(passed, planned) if hidden else passed
    except (MessagesRemovedError, StoreCorruptError, FileNotFoundError):
        if _directories(partition.path) != before:
            raise _replaced(partition) from None
        raise
    # Replacing a store removes the old one's files, which may have been skipped.
    lenient = partition.on_removed != "raise" or partition.on_corrupt != "raise"
    if lenient and _directories(partition.path) != before:
        raise _replaced(partition)


def _opened_as_planned(partition: StorePartition) -> MessageStore | None:
    """Return the planned store; None if all its messages may be skipped."""
    store = opened(partition.path)
    known_record = partition.known_record
    if known_record is None:
        return store
    offset = known_record.physical_offset
    if identity_at(store, offset) != known_record:
        store.close()  # a store kept open may lag behind the planner's view
        store = opened(partition.path)
    if identity_at(store, offset) == known_record:
        return store
    first = store.scan().extent(queued=False).start
    if offset >= first:
        raise _replaced(partition, cut_before(partition.path, offset))
    if partition.on_removed == "raise":
        raise MessagesRemovedError("", -1, offset, first)
    return None


def _replaced(partition: StorePartition, cut: str = "") -> StoreReplacedError:
    text = f"{partition.path}: the store was replaced since the query was planned"
    return StoreReplacedError(f"{text}, or its log was cut: {cut}" if cut else text)


def scan_piece(
    store: MessageStore,
    piece: Piece,
    columns: Iterable[str],
    *,
    on_corrupt: Literal["raise", "skip", "stop"] = "raise",
    on_removed: Literal["raise", "skip"] = "raise",
) -> Scan:
    """Return the scan of a piece."""
    found = store.scan(
        None,
        piece.queue_id if piece.queue_id >= 0 else None,
        columns=tuple(columns) or ("queue_id",),  # cheapest column for counting rows
        start=piece.start,
        stop=piece.stop,
        since=piece.since,
        until=piece.until,
        tags=piece.tags,
        sql=piece.sql,
        keys=piece.keys or None,
        batch_rows=BATCH_ROWS,
        batch_bytes=BATCH_BYTES,
        on_corruption=on_corrupt,
        on_removed=on_removed,
    )
    return found.replace(topic=piece.topics or None)  # without a warning from each task


_open: dict[str, tuple[Any, MessageStore]] = {}


def opened(path: str) -> MessageStore:
    """Return a store open for reading, kept for the process's next tasks; callers do not close it.

    Reopened if the directory was replaced. Raises ``StoreNotFoundError`` if there is no store, or
    this host does not see it.
    """
    identity = _identity(path)
    known = _open.pop(path, None)
    if known is not None and (known[0] != identity or known[1].closed):
        known[1].close()
        known = None
    if known is None:
        check_directory(path)
        known = (identity, rmqstore.open(path, "r"))
    _open[path] = known
    while len(_open) > _MAX_OPEN:
        _open.pop(next(iter(_open)))[1].close()
    return known[1]


def _identity(path: str) -> tuple[int, ...]:
    """Return values that change when the store is replaced, or its topics are deleted."""
    found = [*_directories(path), *_numbers(Path(path, paths.DELETED_TOPICS))]
    # A broker does not note a deleted topic: the directory of all topics shows it.
    with contextlib.suppress(OSError):
        found.append(Path(path, paths.CONSUME_QUEUE).stat().st_mtime_ns)
    return tuple(found)


def _directories(path: str) -> tuple[int, ...]:
    """Return values that change when the store is replaced while the old one is open."""
    return *_numbers(Path(path)), *_numbers(Path(path, paths.COMMIT_LOG))


def _numbers(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return (-1,)
    return status.st_dev, status.st_ino
