"""Bytes of topics' records, from samples of their queues' units."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from rmqstore.base.layout import UNIT, UNIT_BLANK_SIZE
from rmqstore.errors import StoreError

if TYPE_CHECKING:
    from rmqstore._core import Core
    from rmqstore.consume.lag import QueueBounds

__all__ = ["RecordSizes"]

_TOPICS = 50  # sampled in one pass
_SECONDS = 60.0  # until a topic is sampled again,
_GROWTH = 1.25  # unless its messages have become so many times more
_QUEUES = 4  # sampled of a topic
_PIECES = 16  # of a queue, evenly spaced
_UNITS = 8  # read of a piece


class RecordSizes:
    """Mean record sizes by topic; used in one thread."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # The mean, when it was sampled, and of how many messages.
        self._known: dict[str, tuple[float, float, int]] = {}
        self._left = 0  # topics to sample in this pass

    def begin(self, topics: Collection[str]) -> None:
        """Begin a pass over these topics; others are forgotten."""
        self._known = {name: one for name, one in self._known.items() if name in topics}
        self._left = _TOPICS

    def total(self, topic: str, queues: Sequence[QueueBounds]) -> int | None:
        """Return the bytes of a topic's records, an estimate; None before its first sample."""
        messages = sum(one.messages for one in queues)
        if not messages:
            return 0
        known = self._known.get(topic)
        now = time.monotonic()
        if self._left and (
            known is None or now - known[1] >= _SECONDS or messages > known[2] * _GROWTH
        ):
            self._left -= 1
            known = self._known[topic] = self._mean(topic, queues), now, messages
        return None if known is None else round(known[0] * messages)

    def _mean(self, topic: str, queues: Sequence[QueueBounds]) -> float:
        """Return the mean size of records, by sampled ones; 0 if none can be read."""
        size = messages = 0.0
        for queue_id, start, stop in sorted(queues, key=lambda one: -one.messages)[:_QUEUES]:
            count = stop - start
            sizes: list[int] = []
            if count <= _PIECES * _UNITS:
                sizes = self._sizes(topic, queue_id, start, stop)
            else:
                for piece in range(_PIECES):
                    first = start + (count - _UNITS) * piece // (_PIECES - 1)
                    sizes += self._sizes(topic, queue_id, first, first + _UNITS)
            if sizes:
                size += sum(sizes) / len(sizes) * count
                messages += count
        return size / messages if messages else 0.0

    def _sizes(self, topic: str, queue_id: int, start: int, stop: int) -> list[int]:
        try:
            units = self._core.units(topic, queue_id, start, stop)
        except (StoreError, OSError):  # removed, or damaged
            return []
        return [
            size for _, size, _ in UNIT.iter_unpack(memoryview(units)) if 0 < size < UNIT_BLANK_SIZE
        ]
