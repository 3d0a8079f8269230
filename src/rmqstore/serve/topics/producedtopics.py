"""Topics created by the first message to them.

Source: ``broker/topic/TopicConfigManager.java createTopicInSendMessageMethod``,
``createTopicInSendMessageBackMethod``, ``common/TopicConfig.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.files import paths
from rmqstore.serve.sharedtable import SharedTable
from rmqstore.serve.topics.newtopics import TopicAwaited
from rmqstore.serve.topics.topictable import DEFAULT_TOPIC
from rmqstore.services.stored import has_one_queue

if TYPE_CHECKING:
    from rmqstore.directory.registry import TopicRegistry
    from rmqstore.serve.network.turns import Steps, Turns
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.newtopics import NewTopics
    from rmqstore.serve.topics.topictable import ServedTopics

__all__ = ["ProducedTopics", "SentTopics", "config_text"]

_INHERIT = 1  # PermName
_UNIT, _UNIT_SUB = 1, 2  # TopicSysFlag
_OF_GROUPS = (paths.retry_topic(""), paths.dead_letter_topic(""))


class ProducedTopics(SharedTable[str]):
    """Shares of topics that clients have made since the start, by sends or by requests for them."""

    def __init__(
        self, registry: TopicRegistry, new_topics: NewTopics, turns: Turns, most: int
    ) -> None:
        self._registry = registry
        self._new_topics = new_topics
        super().__init__(turns, most)

    def _keys(self) -> tuple[str, ...]:
        return ()  # only those that are counted already

    def _has(self, key: str) -> int:
        return int(self._registry.get(key) is not None or self._new_topics.is_awaited(key))

    def _size(self) -> int:
        return self._shares.taken

    def _remove_unused(self) -> Steps:
        """Remove none: a topic is not in use by clients alone."""
        yield from ()


class SentTopics:
    """Topics as sends find them, made at the cost of their owners where there are none."""

    def __init__(
        self,
        topics: ServedTopics,
        new_topics: NewTopics,
        produced: ProducedTopics,
        settings: Settings,
    ) -> None:
        self._topics = topics
        self._new_topics = new_topics
        self._produced = produced
        self._settings = settings
        new_topics.failed = produced.count

    def for_send(
        self, owner: str, topic: str, default_topic: str, queue_nums: int, *, unit: bool
    ) -> TopicConfig | None:
        """Return a topic's entry, ``None`` if there is none and it may not be made.

        ``TopicAwaited`` while it is being made, at the cost of ``owner``: like ``default_topic`` if
        that has the inherit bit, with at most ``queue_nums`` queues.
        """
        self._new_topics.check(topic)
        entry = self._topics.config(topic)
        if entry is not None:
            return entry
        is_retry = topic.startswith(paths.retry_topic(""))
        flag = (_UNIT_SUB if is_retry else _UNIT) if unit else 0
        if has_one_queue(topic):
            if topic.startswith(_OF_GROUPS) and not self._produced.take(topic, owner):
                return None
            return self.entered(TopicConfig(topic, 1, 1, topic_sys_flag=flag))
        model = self._topics.config(default_topic)
        if (
            model is None
            or not model.perm & _INHERIT
            # A broker that made topics has left its default topic in the file.
            or (default_topic == DEFAULT_TOPIC and not self._settings.auto_create)
            or not self._produced.take(topic, owner)
        ):
            return None
        nums = max(1, min(queue_nums, model.write_queue_nums, self._settings.most_queues))
        perm = model.perm & ~_INHERIT
        return self.entered(
            TopicConfig(topic, nums, nums, perm, model.topic_filter_type, topic_sys_flag=flag)
        )

    def entered(self, entry: TopicConfig) -> TopicConfig:
        """Return a topic's entry in ``topics.json``; ``TopicAwaited`` if it has to be made first.

        It is new, or a built-in topic, materialised on its first message.
        """
        known = self._topics.registry.get(entry.topic_name)
        if known is None:
            raise TopicAwaited(entry)
        return known


def config_text(entry: TopicConfig) -> str:
    """Return a topic's entry as a broker prints it in errors."""
    perm = "".join(
        letter if entry.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1))
    )
    return (
        f"TopicConfig [topicName={entry.topic_name}, readQueueNums={entry.read_queue_nums}, "
        f"writeQueueNums={entry.write_queue_nums}, perm={perm}, "
        f"topicFilterType={entry.topic_filter_type}, topicSysFlag={entry.topic_sys_flag}, "
        f"order={'true' if entry.order else 'false'}]"
    )
