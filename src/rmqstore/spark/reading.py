"""What a task reads: pieces of one store, as Arrow batches in the types that Spark planned with.

A piece says what :meth:`MessageStore.scan` is to be asked for; the end of each is fixed when the
query is planned, so that messages put later never appear.

Source: none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import InputPartition

import rmqstore
from rmqstore import paths
from rmqstore.arrays import unit_array
from rmqstore.errors import MessagesRemovedError, StoreCorruptError
from rmqstore.spark.filters import NO_FILTERS, Filters
from rmqstore.spark.landmarks import Landmark, StoreReplacedError, landmark_at
from rmqstore.spark.schema import arrow_schema, as_planned, spark_schema
from rmqstore.spark.worker_errors import told_plainly
from rmqstore.topic import Queue

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

    from rmqstore.scan import Scan
    from rmqstore.store import MessageStore

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "Piece",
    "StorePartition",
    "merged",
    "opened",
    "queue_piece",
    "read_partition",
    "scan_piece",
    "sizes_of",
    "split_queue_range",
    "units_of",
]

BATCH_ROWS, BATCH_BYTES = 16384, 8 << 20

_OPEN_MOST = 32  # stores that a worker's process keeps open
_UNITS_AT_A_TIME = 1 << 19


@dataclass(frozen=True)
class Piece:
    """A part of a store that is read in a row.

    Attributes
    ----------
    kind : {"queue", "log", "keys"}
        ``"queue"``: of one queue, ``start`` and ``stop`` are queue offsets. ``"log"``: records
        that begin in ``[start, stop)`` of the log. ``"keys"``: likewise, found by the index.
    start, stop : int
    topics : tuple of str
        Of a queue, its own alone; else which topics, none for all.
    queue_id : int
        -1: any.
    since, until : int, or None
        Store times in ms since the epoch.
    tags : str, or None
        Taken in place of the partition's.
    keys : tuple of str
        Taken in place of the partition's.
    size : int
        Bytes of the log, for sharing out; reading does not look at it.

    Notes
    -----
    Source: none.
    """

    kind: Literal["queue", "log", "keys"]
    start: int
    stop: int
    topics: tuple[str, ...] = ()
    queue_id: int = -1
    since: int | None = None
    until: int | None = None
    tags: str | None = None
    keys: tuple[str, ...] = ()
    size: int = 0


@dataclass(frozen=True)
class StorePartition(InputPartition):
    """What one task reads; plain data that pickles.

    Attributes
    ----------
    path : str
        The store.
    pieces : tuple of Piece
        One after the other.
    filters : Filters
        What the rows must pass as well.
    on_corrupt : {"raise", "skip", "stop"}
        What happens at a record that does not check; ``"stop"`` ends the piece.
    on_removed : {"raise", "skip"}
        What happens where retention took messages that are still to come.
    landmark : Landmark, or None
        What the log of the store has that was planned with, no earlier than the pieces' last
        message; None: any store will do.

    Notes
    -----
    Source: none.
    """

    path: str
    pieces: tuple[Piece, ...]
    filters: Filters = NO_FILTERS
    on_corrupt: Literal["raise", "skip", "stop"] = "raise"
    on_removed: Literal["raise", "skip"] = "raise"
    landmark: Landmark | None = None


def queue_piece(
    topic: str,
    queue_id: int,
    start: int,
    stop: int,
    *,
    tags: str | None = None,
    keys: tuple[str, ...] = (),
    size: int = 0,
) -> Piece:
    """Return the piece ``[start, stop)`` of a queue."""
    return Piece("queue", start, stop, (topic,), queue_id, tags=tags, keys=keys, size=size)


def read_partition(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Go through the rows of a partition.

    Parameters
    ----------
    partition : InputPartition
        One that is no :class:`StorePartition` has no rows: Spark makes one of an empty plan.
    schema : StructType
        Which columns, in which order.

    Yields
    ------
    pyarrow.RecordBatch
        At most 16,384 rows, and no more of them than 8 MiB hold but one.

    Raises
    ------
    StoreCorruptError
        A record does not check; the message names file and offset.
    MessagesRemovedError
        Retention took messages that were planned.
    StoreReplacedError
        Another store is at the path than when it was planned, whatever ``on_removed`` says:
        rows of two stores are no query's.

    Notes
    -----
    Source: none.
    """
    if isinstance(partition, StorePartition):
        with told_plainly():
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
    # Who replaces a store removes the old one's files, which may have been skipped.
    lenient = partition.on_removed != "raise" or partition.on_corrupt != "raise"
    if lenient and _directories(partition.path) != before:
        raise _replaced(partition)


def _opened_as_planned(partition: StorePartition) -> MessageStore | None:
    """Return the store that was planned with; None where all its messages may be skipped."""
    store = opened(partition.path)
    landmark = partition.landmark
    if landmark is None:
        return store
    place = landmark.physical_offset
    if landmark_at(store, place) != landmark:
        store.close()  # what is kept open may not see what the planner has seen
        store = opened(partition.path)
    if landmark_at(store, place) == landmark:
        return store
    first = store.scan()._pass(()).extent(queued_too=False)[0]
    if place >= first:
        raise _replaced(partition)
    if partition.on_removed == "raise":
        raise MessagesRemovedError("", -1, place, first)
    return None


def _replaced(partition: StorePartition) -> StoreReplacedError:
    return StoreReplacedError(
        f"{partition.path}: the store was replaced since the query was planned"
    )


def scan_piece(
    store: MessageStore,
    piece: Piece,
    columns: Iterable[str],
    *,
    on_corrupt: Literal["raise", "skip", "stop"] = "raise",
    on_removed: Literal["raise", "skip"] = "raise",
) -> Scan:
    """Return the scan of a piece."""
    return store.scan(
        piece.topics or None,
        piece.queue_id if piece.queue_id >= 0 else None,
        columns=tuple(columns) or ("queue_id",),  # rows are counted by one that is made soonest
        start=piece.start,
        stop=piece.stop,
        since=piece.since,
        until=piece.until,
        tags=piece.tags,
        keys=piece.keys or None,
        batch_rows=BATCH_ROWS,
        batch_bytes=BATCH_BYTES,
        on_corruption=on_corrupt,
        on_removed=on_removed,
    )


_open: dict[str, tuple[Any, MessageStore]] = {}


def opened(path: str) -> MessageStore:
    """Return a store open for reading, kept open for the process's next task.

    Parameters
    ----------
    path : str
        Absolute.

    Returns
    -------
    MessageStore
        Not to be closed by the caller. Another one where the directory was replaced meanwhile.

    Raises
    ------
    StoreNotFoundError
        There is no store.

    Notes
    -----
    Source: none.
    """
    identity = _identity(path)
    known = _open.pop(path, None)
    if known is not None and (known[0] != identity or known[1].closed):
        known[1].close()
        known = None
    if known is None:
        known = (identity, rmqstore.open(path, "r"))
    _open[path] = known
    while len(_open) > _OPEN_MOST:
        _open.pop(next(iter(_open)))[1].close()
    return known[1]


def _identity(path: str) -> tuple[int, ...]:
    """Return what differs when another store is at the path, or topics of it were deleted."""
    found = [*_directories(path), *_numbers(Path(path, paths.DELETED_TOPICS))]
    # A broker notes nowhere that it deleted a topic: the directory of all topics tells.
    with contextlib.suppress(OSError):
        found.append(Path(path, paths.CONSUME_QUEUE).stat().st_mtime_ns)
    return tuple(found)


def _directories(path: str) -> tuple[int, ...]:
    """Return what differs when another store is at the path, while the first is open."""
    return *_numbers(Path(path)), *_numbers(Path(path, paths.COMMIT_LOG))


def _numbers(place: Path) -> tuple[int, ...]:
    try:
        status = place.stat()
    except OSError:
        return (-1,)
    return status.st_dev, status.st_ino


def split_queue_range(
    store: MessageStore,
    topic: str,
    queue_id: int,
    start: int,
    stop: int,
    *,
    max_bytes: int,
    max_messages: int | None = None,
) -> list[tuple[int, int, int]]:
    """Return parts of a queue's range, none of more bytes or messages than these.

    Parameters
    ----------
    store : MessageStore
    topic : str
    queue_id : int
    start, stop : int
        Queue offsets that are there.
    max_bytes : int
        Of records; a single one may have more.
    max_messages : int, optional

    Returns
    -------
    list of (int, int, int)
        Start, stop and bytes, in order; together the range.

    Raises
    ------
    MessagesRemovedError
        Retention took some of them meanwhile.

    Notes
    -----
    Source: none.
    """
    import numpy as np

    parts: list[tuple[int, int, int]] = []
    queue = Queue(store, topic, queue_id)
    first, base = start, 0  # of the part that is being made, and the bytes before it
    total = 0
    for at in range(start, stop, _UNITS_AT_A_TIME):
        upto = min(at + _UNITS_AT_A_TIME, stop)
        ends = np.cumsum(sizes_of(units_of(queue, at, upto))) + total
        while True:
            cut = at + int(np.searchsorted(ends, base + max_bytes, side="right"))
            if max_messages is not None:
                cut = min(cut, first + max_messages)
            cut = max(cut, first + 1)
            if cut >= upto:
                break
            bytes_before = int(ends[cut - 1 - at]) if cut > at else total
            parts.append((first, cut, bytes_before - base))
            first, base = cut, bytes_before
        total = int(ends[-1])
    if first < stop:
        parts.append((first, stop, total - base))
    return parts


def units_of(queue: Queue, start: int, stop: int) -> NDArray[Any]:
    """Return units that were there when the bounds were looked up; no file is listed again."""
    return unit_array(queue._store._units(queue.topic, queue.queue_id, start, stop))


def sizes_of(units: NDArray[Any]) -> NDArray[np.int64]:
    """Return the sizes of the records that units name, 0 where one names none."""
    import numpy as np

    sizes = units["size"].astype(np.int64)
    sizes[(units["physical_offset"] == 0) & (sizes == np.iinfo(np.int32).max)] = 0
    return np.maximum(sizes, 0, out=sizes)


def merged(
    pieces: Iterable[Piece], max_bytes: int, max_messages: int | None = None
) -> list[tuple[Piece, ...]]:
    """Return pieces in groups that together have no more bytes and messages, order kept.

    Parameters
    ----------
    pieces : iterable of Piece
    max_bytes : int
        A piece that has more is alone.
    max_messages : int, optional
        Likewise, and a piece that is none of a queue is alone.

    Returns
    -------
    list of tuple of Piece

    Notes
    -----
    Source: none.
    """
    groups: list[list[Piece]] = []
    size = count = 0
    for piece in pieces:
        if piece.start >= piece.stop:
            continue
        messages = piece.stop - piece.start if piece.kind == "queue" else max_messages or 0
        full = max_messages is not None and count + messages > max_messages
        if not groups or full or size + piece.size > max_bytes:
            groups.append([])
            size = count = 0
        groups[-1].append(piece)
        size += piece.size
        count += messages
    return [tuple(group) for group in groups]
