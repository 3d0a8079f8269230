"""Look-ups of positions and sizes in a store, for planning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqstore.base.arrays import sizes_of
from rmqstore.base.layout import INT64_MAX
from rmqstore.spark.read.cutting import units_of
from rmqstore.spark.read.partitions import Piece, scan_piece

if TYPE_CHECKING:
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["COUNTED", "estimated_size", "first_unit_at", "split_scan"]

COUNTED = 4096
"""Messages of a queue whose sizes are added up; beyond that they are estimated."""


def first_unit_at(queue: Queue, start: int, stop: int, physical_offset: int) -> int:
    """Return the first queue offset whose record begins at or after a log offset."""
    if _record_of(queue, stop - 1, stop)[1] < physical_offset:
        return stop
    while start < stop:
        middle = (start + stop) // 2
        at, found = _record_of(queue, middle, stop)
        if found >= physical_offset:
            stop = middle
        else:
            start = at + 1
    return start


def _record_of(queue: Queue, at: int, stop: int) -> tuple[int, int]:
    """Return the first unit from ``at`` on that has a record, and the record's offset."""
    step = 1
    while at < stop:
        units = units_of(queue, at, min(at + step, stop))
        named = sizes_of(units).nonzero()[0]
        if len(named):
            return at + int(named[0]), int(units["physical_offset"][named[0]])
        at += step
        step = min(step * 16, 4096)
    return stop - 1, INT64_MAX


def estimated_size(queue: Queue, start: int, stop: int) -> int:
    """Return the bytes of a queue's range, estimated beyond ``COUNTED`` messages."""
    upto = min(stop, start + COUNTED)
    total = int(sizes_of(units_of(queue, start, upto)).sum())
    return total if upto == stop else total * (stop - start) // (upto - start)


def split_scan(
    store: MessageStore, piece: Piece, limit: int, most: int | None
) -> Iterator[tuple[int, int, int]]:
    """Divide a log range by bytes or messages, reading it: yields start, stop and bytes.

    A part exceeds ``limit`` bytes only with a single message; parts without messages are left out,
    or joined to others.
    """
    import numpy as np

    start, held, count = piece.start, 0, 0
    found = scan_piece(store, piece, ("physical_offset", "store_size"), on_corrupt="skip")
    for batch in found.to_batches():
        offsets = batch.column(0).to_numpy()
        sizes = batch.column(1).to_numpy().astype(np.int64)
        at = 0
        while at < len(offsets):
            ends = np.cumsum(sizes[at:]) + held
            fits = int(np.searchsorted(ends, limit, side="right"))
            if most is not None:
                fits = min(fits, most - count)
            if fits <= 0 and not count:
                fits = 1
            if fits >= len(ends):
                held, count = int(ends[-1]), count + len(ends)
                break
            if fits > 0:
                held, count = int(ends[fits - 1]), count + fits
            at += max(fits, 0)
            yield start, int(offsets[at]), held
            start, held, count = int(offsets[at]), 0, 0
    if count:
        yield start, piece.stop, held
