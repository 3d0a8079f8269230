"""Division of queues into parts by bytes and messages, and grouping of parts into tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rmqstore.base.arrays import sizes_of
from rmqstore.base.warn import Log
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqstore.spark.read.partitions import Piece
    from rmqstore.store import MessageStore

__all__ = [
    "WORTH",
    "at_least",
    "merged",
    "split_queue_range",
    "units_of",
    "warn_of_many",
]

_log = Log("rmqstore")

WORTH = 8 << 20  # bytes worth a task of their own
_TASKS_BY_SIZE = 1000  # limit of tasks smaller than that
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
    """Return consecutive parts of a queue's range: start, stop and bytes.

    No part has more than ``max_messages``, and only one of a single message more than
    ``max_bytes``. Raises ``MessagesRemovedError`` if retention removed some meanwhile.
    """
    import numpy as np

    parts: list[tuple[int, int, int]] = []
    queue = Queue(store, topic, queue_id)
    first, base = start, 0  # start of the current part, and the bytes before it
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
    """Return ``maxPartitionBytes``, or more if that would make thousands of tiny tasks.

    At least a thousandth of ``total``, the bytes of all tasks, up to 8 MiB.
    """
    return max(max_bytes, min(WORTH, -(-total // _TASKS_BY_SIZE)))


def warn_of_many(tasks: int, total: int) -> None:
    """Warn that a query has thousands of small tasks, each of which costs Spark some 10 ms."""
    if tasks > _TASKS_WARNED and total // tasks < WORTH:
        _log.warning(
            "%d tasks of %d bytes on average: larger maxPartitionBytes or maxMessagesPerPartition, "
            "or a smaller minPartitions, would be faster",
            tasks,
            total // tasks,
        )


def units_of(queue: Queue, start: int, stop: int) -> NDArray[Any]:
    """Return units within bounds already looked up; no file is listed again."""
    return queue.units(start, stop, bounds=(start, stop))


def merged(
    pieces: Iterable[Piece], max_bytes: int, max_messages: int | None = None
) -> list[tuple[Piece, ...]]:
    """Group pieces, in order, within limits of bytes and messages per group.

    A larger piece is alone, and with ``max_messages`` so is a piece that is not a queue's.
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
