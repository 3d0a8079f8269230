"""Distance of a message from the end of the log: a far one is likely to be read from the disk.

Source: ``store/DefaultMessageStore.java checkInDiskByCommitOffset``, ``isTheBatchFull``.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from rmqstore.services.schedule_search import waiting

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["Distance"]

_LOOK_SECONDS = 1.0  # between looks at the log's ends


class Distance:
    """Classifier of messages as near or far; used by one thread."""

    def __init__(self, store: MessageStore) -> None:
        config = store.core.config
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._store = store
        self._near = memory * config.access_message_in_memory_max_ratio // 100
        self._in_memory = (
            config.max_transfer_count_on_message_in_memory,
            config.max_transfer_bytes_on_message_in_memory,
        )
        self._on_disk = (
            config.max_transfer_count_on_message_in_disk,
            config.max_transfer_bytes_on_message_in_disk,
        )
        self._start = self._end = 0
        self._looked = -_LOOK_SECONDS

    def limits(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """Return the limits of one pull from an offset on: messages, bytes."""
        return self._on_disk if self.is_far(topic, queue_id, offset) else self._in_memory

    def is_far(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message of a queue is far from the log's end; a missing one is near."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            stats = self._store.stats()
            self._start, self._end = stats["commitLogMinOffset"], stats["commitLogMaxOffset"]
            self._looked = now
        if self._end - self._start <= self._near:
            return False
        bounds = self._store.core.bounds(topic, queue_id)
        if bounds is None or not bounds[0] <= offset < bounds[1]:
            return False
        unit = next(waiting(self._store.core, topic, queue_id, offset, offset + 1), None)
        at = self._end if unit is None or unit.physical_offset < 0 else unit.physical_offset
        return self._end - at > self._near
