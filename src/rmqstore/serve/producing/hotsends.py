"""Plain sends, which the core takes from their frames to the log: their eligible topics.

Source: ``broker/processor/AbstractSendMessageProcessor.java msgCheck``,
``common/topic/TopicValidator.java isNotAllowedSendTopic``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rmqstore._core import ClientSends
from rmqstore.files import paths
from rmqstore.services.stored import HALF_TOPIC, MAX_TIME_TOPIC, OP_TOPIC, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rmqstore.brokerfiles.topics import TopicConfig
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.newtopics import NewTopics
    from rmqstore.store import MessageStore

__all__ = ["client_queues", "client_sends"]

_WRITE = 2  # PermName.PERM_WRITE
# Names closed to clients, or whose messages are not plain.
_NOT_PLAIN = frozenset({
    SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, MAX_TIME_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    "TBW102",
})  # fmt: skip


def client_queues(entry: TopicConfig | None) -> int:
    """Return the number of queues for clients' plain messages, 0 if the topic is not eligible."""
    if (
        entry is None
        or not entry.perm & _WRITE
        or entry.write_queue_nums <= 0
        or entry.topic_filter_type != "SINGLE_TAG"
        or entry.topic_name.startswith("%")
        or entry.topic_name in _NOT_PLAIN
        or not paths.is_topic_name(entry.topic_name)
    ):
        return 0
    return max(entry.read_queue_nums, entry.write_queue_nums)


def client_sends(
    store: MessageStore, settings: Settings, new_topics: NewTopics, work: Work
) -> ClientSends:
    """Return the state shared by the core's sends, which follows the store's topics."""
    registry = store.registry
    sends = ClientSends(store.core, settings.cluster, settings.region)
    sends.offsets = store.progress.table

    changing = threading.Lock()

    def changed(name: str, _entry: TopicConfig | None = None) -> None:
        if not paths.is_topic_name(name) or new_topics.is_awaited(name):
            return  # parked requests are stored first
        with changing:  # read within it, so that the last to set it has read the newest
            if not store.closed:
                sends.set_topic(name, client_queues(registry.get(name)))

    new_topics.made = changed
    with registry.lock:
        registry.watchers.append(changed)
        for entry in registry:
            changed(entry.topic_name, entry)
    work.closing.append(lambda: registry.watchers.remove(changed))
    return sends
