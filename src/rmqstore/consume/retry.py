"""A message given back by its group: a retry later, or a dead letter.

Source: ``broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack``,
``broker/topic/TopicConfigManager.java createTopicInSendMessageBackMethod``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.services.stored import SCHEDULE_TOPIC, Place, made_queue_nums, put_again

if TYPE_CHECKING:
    from rmqstore._core import Core, Message, PutResult
    from rmqstore.brokerfiles.groups import GroupConfig
    from rmqstore.directory.registry import TopicRegistry

__all__ = ["is_dead_letter", "missing_topics", "send_back"]

_FIRST_LEVEL = 3  # delay of the first retry


def is_dead_letter(
    message: Message, group: GroupConfig, delay_level: int | None, retry_max: int | None = None
) -> bool:
    """Whether a message becomes a dead letter; arguments as for ``send_back``."""
    most = group.retry_max_times if retry_max is None else retry_max
    return message.reconsume_times >= most or (delay_level or 0) < 0


def send_back(
    core: Core,
    topics: TopicRegistry,
    message: Message,
    group: GroupConfig,
    delay_level: int | None,  # 0, None: 3 plus its earlier retries; below 0: a dead letter
    *,
    retry_max: int | None = None,  # the group's by default
    topic_sys_flag: int = 0,  # of a retry topic created here
    wait: bool = True,  # with synchronous flush, until the message is on the disk
) -> PutResult:
    """Store a message again, for a later retry by its group, or as a dead letter.

    A ``delay_level`` above the highest counts as the highest.
    """
    name = group.group_name
    if group.retry_queue_nums <= 0:  # a broker loses the message
        raise StoreError(
            f"{core.path}: the group {name!r} has no retry queue: give it a retryQueueNums of 1 "
            "or more in config/subscriptionGroup.json"
        )
    properties = message.properties
    properties.setdefault("RETRY_TOPIC", message.topic)
    properties["WAIT"] = "false"
    tried = message.reconsume_times
    level = delay_level or 0
    dead = is_dead_letter(message, group, delay_level, retry_max)
    missing = missing_topics(topics, group, dead=dead, topic_sys_flag=topic_sys_flag)
    if missing:
        core.check_writable()
        topics.make(*missing)
    if dead:
        topic, queue_id, level = paths.dead_letter_topic(name), 0, 0
    else:
        topic = paths.retry_topic(name)
        queue_id = random.randrange(group.retry_queue_nums)
        levels = len(core.config.message_delay_level.split())
        level = min(level or _FIRST_LEVEL + max(tried, 0), levels)
    properties["DELAY"] = str(level)
    if not properties.get("ORIGIN_MESSAGE_ID", "").strip():
        properties["ORIGIN_MESSAGE_ID"] = message.msg_id
    if level > 0:
        properties["REAL_TOPIC"], properties["REAL_QID"] = topic, str(queue_id)
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    done = put_again(
        core, Place(topic, queue_id), message, properties, reconsume_times=tried + 1, wait=wait
    )
    try:
        return core.result_of(core.at(done.physical_offset))  # with the client's message id
    except StoreError:  # closed meanwhile; the message is stored
        return done


def missing_topics(
    topics: TopicRegistry, group: GroupConfig, *, dead: bool, topic_sys_flag: int
) -> list[TopicConfig]:
    """Return the missing topics that a retry or dead letter of a group needs."""
    name = group.group_name
    nums = group.retry_queue_nums
    retry = TopicConfig(paths.retry_topic(name), nums, nums, topic_sys_flag=topic_sys_flag)
    nums = made_queue_nums(SCHEDULE_TOPIC, 0)
    delayed = TopicConfig(SCHEDULE_TOPIC, nums, nums)
    target = TopicConfig(paths.dead_letter_topic(name), 1, 1) if dead else delayed
    return [one for one in (retry, target) if topics.get(one.topic_name) is None]
