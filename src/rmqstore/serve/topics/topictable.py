"""The topics of a gateway: the entries of ``topics.json``, and the built-in topics.

A broker writes the latter to its file with their first change; here they are not written, so that
a store has only the topics of its users.

Source: ``broker/topic/TopicConfigManager.java``, ``common/topic/TopicValidator.java``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.services import stored
from rmqstore.services.stored import SCHEDULE_TOPIC, SYSTEM_TOPICS, made_queue_nums

if TYPE_CHECKING:
    from rmqstore.serve.settings import Settings
    from rmqstore.store import MessageStore

__all__ = ["DEFAULT_TOPIC", "ServedTopics", "is_system_topic", "system_topics"]

DEFAULT_TOPIC = "TBW102"  # TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC
_READ_WRITE = 6
_INHERITED = 7


class ServedTopics:
    """Topics of a gateway by name."""

    def __init__(self, store: MessageStore, settings: Settings) -> None:
        self._store = store
        self.registry = store.registry  # those of ``topics.json``
        self.built_in = _built_in_topics(settings)

    def config(self, name: str) -> TopicConfig | None:
        """Return a topic's entry, ``None`` without one."""
        entry = self.registry.get(name)
        return entry if entry is not None else self.built_in.get(name)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a topic has a queue, or a stored one from before."""
        entry = self.config(topic)
        if entry is not None and queue_id < max(entry.read_queue_nums, entry.write_queue_nums):
            return queue_id >= 0
        return queue_id >= 0 and self.is_stored(topic, queue_id)

    def is_stored(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has, or had, messages; not of a topic that was deleted since."""
        return self._store.core.bounds(topic, queue_id) not in (None, (0, 0))

    def delay_offsets(self) -> dict[int, tuple[int, int]]:
        """Return the next offset to deliver and the queue's end, by delay level with messages.

        As ``store.schedule.progress``, without a look at the queues of all topics.
        """
        levels = self._store.schedule.levels or {}
        entry = self.config(SCHEDULE_TOPIC)
        queues = 0 if entry is None else entry.write_queue_nums
        found = {}
        for number in range(1, max(len(levels), queues) + 1):
            first, stop = self._store.core.bounds(SCHEDULE_TOPIC, number - 1) or (0, 0)
            if stop > 0:
                offset = levels[number].offset if number in levels else 0
                found[number] = (min(max(offset, first), stop), stop)
        return found

    def all(self) -> Iterator[TopicConfig]:
        """Yield the entries of all topics."""
        for name, entry in self.built_in.items():
            yield self.registry.get(name) or entry
        for entry in self.registry:
            if entry.topic_name not in self.built_in:
                yield entry


def _built_in_topics(settings: Settings) -> dict[str, TopicConfig]:
    """Return the topics that a broker makes when it starts, by name."""
    made = [
        _topic("SELF_TEST_TOPIC", 1),
        _topic("BenchmarkTest", 1024),
        _topic(settings.cluster, 16, _INHERITED),
        _topic(settings.broker, 1, _INHERITED),
        _topic("OFFSET_MOVED_EVENT", 1),
        _topic(SCHEDULE_TOPIC, made_queue_nums(SCHEDULE_TOPIC, 0)),
        _topic(f"{settings.cluster}_REPLY_TOPIC", 1),
    ]
    if settings.auto_create:
        made.append(_topic(DEFAULT_TOPIC, settings.default_queue_nums, _INHERITED))
    if settings.trace_topic is not None:
        made.append(_topic(settings.trace_topic, 1))
    return {topic.topic_name: topic for topic in made}


def _topic(name: str, queue_nums: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_nums, queue_nums, perm)


def system_topics(settings: Settings) -> list[str]:
    """Return the names that clients may not make, change or delete."""
    names = [*SYSTEM_TOPICS, settings.broker, settings.cluster, f"{settings.cluster}_REPLY_TOPIC"]
    if settings.trace_topic is not None and settings.trace_topic not in names:
        names.append(settings.trace_topic)
    return names


def is_system_topic(settings: Settings, name: str) -> bool:
    """Whether a topic is one of the broker's own."""
    return stored.is_system_topic(name) or name in system_topics(settings)
