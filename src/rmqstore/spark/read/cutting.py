"""Queues cut into parts of so many bytes and messages, and parts joined to what a task reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rmqstore.topic import Queue
from rmqstore.warn import Log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqstore.spark.read.partitions import Piece
    from rmqstore.store import MessageStore

__all__ = [
    "WORTH",
    "at_least",
    "merged",
    "sizes_of",
    "split_queue_range",
    "units_of",
    "warn_of_many",
]

_log = Log("rmqstore")

WORTH = 8 << 20  # bytes that are worth a task of their own
_TASKS_BY_SIZE = 1000  # that maxPartitionBytes makes where it is less than that
_TASKS_WARNED = 4000

_UNITS_AT_A_TIME = 1 << 19


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


def at_least(max_bytes: int, total: int) -> int:
    """Return ``maxPartitionBytes``, or more where that would make thousands of tiny tasks.

    Parameters
    ----------
    max_bytes : int
        As the option has it.
    total : int
        Bytes of all tasks.

    Returns
    -------
    int
        No less than a thousandth of all, up to 8 MiB.
    """
    return max(max_bytes, min(WORTH, -(-total // _TASKS_BY_SIZE)))


def warn_of_many(tasks: int, total: int) -> None:
    """Log that a query has thousands of tasks that are small: each costs Spark some 10 ms."""
    if tasks > _TASKS_WARNED and total // tasks < WORTH:
        _log.warning(
            "%d tasks of %d bytes on average: larger maxPartitionBytes or maxMessagesPerPartition, "
            "or a smaller minPartitions, would be faster",
            tasks,
            total // tasks,
        )


def units_of(queue: Queue, start: int, stop: int) -> NDArray[Any]:
    """Return units that were there when the bounds were looked up; no file is listed again."""
    return queue.units(start, stop, bounds=(start, stop))


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
