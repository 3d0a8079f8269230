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
from rmqstore.serve.topics.topictable import DEFAULT_TOPIC, topic_config
from rmqstore.services.stored import has_one_queue

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Gateway
    from rmqstore.serve.network.turns import Steps

__all__ = ["ProducedTopics", "config_text", "entered", "topic_for_send"]

_INHERIT = 1  # PermName
_UNIT, _UNIT_SUB = 1, 2  # TopicSysFlag
_OF_GROUPS = (paths.retry_topic(""), paths.dead_letter_topic(""))


class ProducedTopics(SharedTable[str]):
    """Shares of topics that clients have made since the start, by sends or by requests for them."""

    def _keys(self) -> tuple[str, ...]:
        return ()  # only those that are counted already

    def _has(self, key: str) -> int:
        gateway = self._gateway
        return int(
            gateway.store.registry.get(key) is not None or gateway.new_topics.is_awaited(key)
        )

    def _size(self) -> int:
        return self._shares.taken

    def _remove_unused(self) -> Steps:
        """Remove none: a topic is not in use by clients alone."""
        yield from ()


def topic_for_send(
    gateway: Gateway, owner: str, topic: str, default_topic: str, queue_nums: int, *, unit: bool
) -> TopicConfig | None:
    """Return a topic's entry, ``None`` if there is none and it may not be made.

    ``TopicAwaited`` while it is being made, at the cost of ``owner``: like ``default_topic`` if
    that has the inherit bit, with at most ``queue_nums`` queues.
    """
    gateway.new_topics.check(topic)
    entry = topic_config(gateway, topic)
    if entry is not None:
        return entry
    is_retry = topic.startswith(paths.retry_topic(""))
    flag = (_UNIT_SUB if is_retry else _UNIT) if unit else 0
    if has_one_queue(topic):
        if topic.startswith(_OF_GROUPS) and not gateway.produced_topics.take(topic, owner):
            return None
        return entered(gateway, TopicConfig(topic, 1, 1, topic_sys_flag=flag))
    model = topic_config(gateway, default_topic)
    if (
        model is None
        or not model.perm & _INHERIT
        # A broker that made topics has left its default topic in the file.
        or (default_topic == DEFAULT_TOPIC and not gateway.settings.auto_create)
        or not gateway.produced_topics.take(topic, owner)
    ):
        return None
    nums = max(1, min(queue_nums, model.write_queue_nums, gateway.settings.most_queues))
    return entered(
        gateway,
        TopicConfig(
            topic, nums, nums, model.perm & ~_INHERIT, model.topic_filter_type, topic_sys_flag=flag
        ),
    )


def entered(gateway: Gateway, entry: TopicConfig) -> TopicConfig:
    """Return a topic's entry in ``topics.json``; ``TopicAwaited`` if it has to be made first.

    It is new, or a built-in topic, materialised on its first message.
    """
    known = gateway.store.registry.get(entry.topic_name)
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
