"""Records named by clients by their offset in the log.

Source: ``store/DefaultMessageStore.java lookMessageByOffset``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.services.schedule_search import record_at, waiting
from rmqstore.services.stored import (
    HALF_TOPIC,
    MAX_TIME_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    real_place,
)

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.store import MessageStore

__all__ = ["OF_ALL_TOPICS", "message_at", "topic_of_message"]

# The broker's own topics that contain messages of any topic.
OF_ALL_TOPICS = frozenset((SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, MAX_TIME_TOPIC))


def topic_of_message(message: Message) -> str:
    """Return a message's real topic, even of a delayed or half message."""
    place = None
    if message.topic in OF_ALL_TOPICS:
        place = real_place(message.properties)
    return message.topic if place is None else place.topic


def message_at(store: MessageStore, physical_offset: int) -> Message | None:
    """Return the message whose record begins at a log offset, ``None`` if there is none.

    A body may contain what looks like a record: it counts only if a queue has it at that offset.
    """
    message = record_at(store.core, physical_offset)
    if message is None:
        return None
    topic, queue_id, offset = message.topic, message.queue_id, message.queue_offset
    bounds = store.core.bounds(topic, queue_id)
    if bounds is None or not bounds[0] <= offset < bounds[1]:
        return None
    units = waiting(store.core, topic, queue_id, offset, offset + 1)
    return message if any(unit.physical_offset == physical_offset for unit in units) else None
