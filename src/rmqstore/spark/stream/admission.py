"""Admission: the part of the backlog that a batch takes.

Source: Spark's Kafka source, ``maxOffsetsPerTrigger``, for the meaning; bytes are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rmqstore.spark.stream.offsets import QueueName, QueueOffsets, share

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Backlog", "Sizes", "admitted", "bytes_of"]

Backlog = Sequence[tuple[QueueName, int, int]]
Sizes = Callable[[QueueName, int, int], "NDArray[Any]"]

_UNITS_FIRST, _MAX_UNITS = 256, 1 << 18  # read at a time
_SAMPLES, _SAMPLE_UNITS = 16, 256


def admitted(
    backlog: Backlog,
    sizes: Sizes,
    *,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    turn: int = 0,
) -> QueueOffsets:
    """Return the ends of a batch, shared by backlog, for the queues with messages in it.

    ``turn`` counts batches: the queue whose turn it is gets at least a message. Only a batch of a
    single message may exceed ``max_bytes``.
    """
    if not backlog:
        return {}
    counts = [stop - start for _, start, stop in backlog]
    if max_messages is not None:
        counts = share(counts, max_messages, turn)
    if max_bytes is not None:
        counts = _within_bytes(backlog, counts, sizes, max_bytes, turn)
    return {
        name: start + count
        for (name, start, _), count in zip(backlog, counts, strict=True)
        if count
    }


def _within_bytes(
    backlog: Backlog, counts: Sequence[int], sizes: Sizes, max_bytes: int, turn: int
) -> list[int]:
    """Return how many messages of each queue fit; at least one of one queue."""
    taken = [0] * len(counts)
    order = [(turn + i) % len(counts) for i in range(len(counts))]
    order = [i for i in order if counts[i]]
    first = order[0]
    name, start, _ = backlog[first]
    left = max_bytes - int(sizes(name, start, start + 1)[0])
    taken[first] = 1
    if left <= 0:
        return taken
    total = sum(counts)
    # First a proportional part for each, then the rest, to the next ones in turn.
    for parts in ([left * count // total for count in counts], None):
        for i in order:
            if taken[i] < counts[i]:
                name, start, _ = backlog[i]
                most = min(parts[i], left) if parts is not None else left
                count, used = _fitting(sizes, name, start + taken[i], start + counts[i], most)
                taken[i] += count
                left -= used
    return taken


def _fitting(sizes: Sizes, name: QueueName, start: int, stop: int, most: int) -> tuple[int, int]:
    """Return how many messages in sequence fit into ``most`` bytes, and their bytes."""
    import numpy as np

    at, used, length = start, 0, _UNITS_FIRST
    while at < stop and used < most:
        ends = np.cumsum(sizes(name, at, min(at + length, stop)))
        count = int(np.searchsorted(ends, most - used, side="right"))
        if count:
            at += count
            used += int(ends[count - 1])
        if count < len(ends):
            break
        length = min(length * 4, _MAX_UNITS)
    return at - start, used


def bytes_of(sizes: Sizes, name: QueueName, start: int, stop: int, most: int) -> int:
    """Return the bytes of a range's records, estimated beyond ``most`` messages."""
    count = stop - start
    if count <= max(most, _SAMPLES * _SAMPLE_UNITS):
        return sum(
            int(sizes(name, at, min(at + _MAX_UNITS, stop)).sum())
            for at in range(start, stop, _MAX_UNITS)
        )
    step = (count - _SAMPLE_UNITS) // (_SAMPLES - 1)
    found = 0
    for i in range(_SAMPLES):
        at = start + i * step
        found += int(sizes(name, at, at + _SAMPLE_UNITS).sum())
    return found * count // (_SAMPLES * _SAMPLE_UNITS)
