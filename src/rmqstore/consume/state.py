"""State shared by all consumers of a store object.

Source: ``client/impl/factory/MQClientInstance.java``.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from rmqstore._core import CallLock, Core
from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.consume.groups import GroupRegistry
from rmqstore.consume.progress import GroupProgress
from rmqstore.consume.retries import Retries
from rmqstore.consume.sharing import Sharing
from rmqstore.directory.registry import TopicRegistry
from rmqstore.services.base import Ownership

__all__ = ["ConsumerState"]


class ConsumerState:
    """Shares, retries, and the parts of the store that consumers use."""

    def __init__(
        self,
        core: Core,
        ownership: Ownership,
        topics: TopicRegistry,
        progress: GroupProgress,
        entries: GroupRegistry,
    ) -> None:
        self.core = core
        self.ownership = ownership
        self.topics = topics
        self.progress = progress
        self.sharing = Sharing(topics)
        self.joining = CallLock()  # so that consumers that join at once share retries
        self._entries = entries
        self._retries: WeakValueDictionary[str, Retries] = WeakValueDictionary()

    def retries_of(self, group: str) -> Retries:
        """Retry-topic state shared by a group's consumers; created on first use."""
        found = self._retries.get(group)
        if found is None or not self.sharing.has_group(group):
            sharing = self.sharing
            found = self._retries[group] = Retries(
                group,
                self.core,
                self.topics,
                self.progress,
                lambda topic: sharing.has_topic(topic, group),
            )
        return found

    def forget_topic(self, topic: str) -> None:
        """Reset consumers and groups of a deleted topic."""
        with self.joining:
            self.sharing.forget_topic(topic)
            for retries in list(self._retries.values()):
                if retries.topic == topic:
                    retries.forget()
        self.progress.forget(topic=topic)

    def enter_group(self, group: str) -> GroupConfig:
        """Return the entry of a group, created if missing, as a broker does."""
        with self._entries.lock:
            entry = self._entries.get(group)
            if entry is None:
                entry = GroupConfig(group)
                if self.core.mode != "r":
                    self._entries.put(entry)
            return entry
