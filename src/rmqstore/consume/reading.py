"""Reading position of a consumer in a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rmqstore._core import Core, Message
from rmqstore.base.warn import log_warning
from rmqstore.errors import StoreCorruptError
from rmqstore.types import GetResult

__all__ = ["Reading"]

_BATCH_BYTES = 1 << 20


class Reading:
    """The next offset, and messages read but not taken; damage is skipped for a ``group``."""

    __slots__ = ("_damaged", "_group", "buffer", "next")

    def __init__(self, at: int, group: str | None) -> None:
        self.next = at
        self.buffer: deque[tuple[int, Message]] = deque()  # the offset after each
        self._group = group
        self._damaged = ""  # logged last

    def read(
        self, core: Core, topic: str, queue_id: int, count: int, filters: Mapping[str, Any]
    ) -> GetResult | None:
        """Read the next messages; ``None`` after damage that is skipped, or an offset before it."""
        try:
            return core.get(topic, queue_id, self.next, count, max_bytes=_BATCH_BYTES, **filters)
        except StoreCorruptError as error:
            if self._group is None:
                raise
            if count > 1:  # it hides good messages before the damage
                return self.read(core, topic, queue_id, 1, filters)
            # With a filter it may lie behind messages that do not pass, each met by this.
            if self._damaged != str(error):
                self._damaged = str(error)
                log_warning("group %s passes over a damaged message: %s", self._group, error)
        self.next += 1
        return None

    def catch_up(self, resume: int | None) -> None:
        """Drop messages that another consumer has committed meanwhile."""
        if resume is None:
            return
        while self.buffer and self.buffer[0][0] <= resume:
            self.buffer.popleft()
        if not self.buffer and self.next < resume:
            self.next = resume
