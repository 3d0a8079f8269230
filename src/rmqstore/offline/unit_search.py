"""Searches of an open store's queues by physical offset, without reading them whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqstore.base.arrays import unit_array
from rmqstore.base.layout import UNIT, UNIT_BLANK_SIZE
from rmqstore.consume.lag import QueueBounds, bounds_by_topic
from rmqstore.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqstore._core import Core

__all__ = ["count_from", "first_from", "first_unit", "queues_of", "records_in"]

_PASSED = 64  # units without a record that a bisection passes over at a time


def queues_of(core: Core) -> Iterator[tuple[str, QueueBounds]]:
    """Yield each topic with each of its queues that has files, or units derived from the log."""
    for topic, queues in bounds_by_topic(core).items():
        for queue in queues:
            yield topic, queue


def first_from(core: Core, topic: str, queue: QueueBounds, physical_offset: int) -> int:
    """Return the first queue offset whose record begins at or after a physical offset."""
    low, high = queue.start, queue.stop
    while low < high:
        middle = (low + high) // 2
        at, found = _named(core, topic, queue.queue_id, middle, high)
        if found is None or found >= physical_offset:
            high = middle
        else:
            low = at + 1
    at, found = _named(core, topic, queue.queue_id, low, queue.stop)
    return low if found is None else at


def _named(core: Core, topic: str, queue_id: int, start: int, stop: int) -> tuple[int, int | None]:
    """Return the first unit from ``start`` on that names a record, and that, if any is near."""
    for count in (1, _PASSED):
        try:
            units = core.units(topic, queue_id, start, min(stop, start + count))
        except (StoreError, OSError, LookupError):
            break  # a live owner removed them, or they cannot be read
        for number, (offset, size, _) in enumerate(UNIT.iter_unpack(memoryview(units))):
            if offset >= 0 and 0 < size < UNIT_BLANK_SIZE:
                return start + number, offset
    return start, None


def first_unit(
    core: Core, topic: str, queue_id: int, start: int, stop: int
) -> tuple[int, int] | None:
    """Return physical offset and size of the first unit in a range that names a record near it."""
    at, offset = _named(core, topic, queue_id, start, stop)
    if offset is None:
        return None
    _, size, _ = UNIT.unpack(memoryview(core.units(topic, queue_id, at, at + 1)))
    return offset, size


def count_from(core: Core, physical_offset: int) -> int:
    """Count the units whose record begins at or after a physical offset."""
    return sum(
        queue.stop - first_from(core, topic, queue, physical_offset)
        for topic, queue in queues_of(core)
    )


def records_in(core: Core, start: int, stop: int) -> NDArray[np.int64]:
    """Return the sorted physical offsets, each once, that units name in a part of the log."""
    import numpy as np

    found = [np.empty(0, np.int64)]
    for topic, queue in queues_of(core):
        low = first_from(core, topic, queue, start)
        high = first_from(core, topic, queue._replace(start=low), stop)
        if low < high:
            named = unit_array(core.units(topic, queue.queue_id, low, high))["physical_offset"]
            found.append(named.astype(np.int64))
    every = np.unique(np.concatenate(found))
    return every[(every >= start) & (every < stop)]
