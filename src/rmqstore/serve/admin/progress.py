"""How far groups have come, and what that means in messages and time.

Source: ``broker/processor/AdminBrokerProcessor.java``,
``broker/offset/ConsumerOffsetManager.java``, ``store/schedule/ScheduleMessageService.java``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rmqstore.serve.admin import online
from rmqstore.serve.admin.groups import all_groups
from rmqstore.serve.admin.topics import entry_of
from rmqstore.serve.consuming.offsets import commit
from rmqstore.serve.figures.rates import GROUP_GET_NUMS
from rmqstore.serve.network.sockets import address_text
from rmqstore.serve.topics.topictable import has_queue, topic_config
from rmqstore.serve.wire.codes import V5, RequestCode, ResponseCode
from rmqstore.serve.wire.fields import truth
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import checked_group, checked_topic, group_of, topic_of
from rmqstore.serve.wire.objecttext import MessageQueue, dumps

if TYPE_CHECKING:
    from rmqstore.brokerfiles.topics import TopicConfig
    from rmqstore.serve.gateway import Gateway, Handler
    from rmqstore.serve.network.connection import Connection

__all__ = ["HANDLERS"]

_LONG_MOST = (1 << 63) - 1
_QUEUES_MOST = 100_000  # in an answer: it has to be a frame


def _topic_or_all(gateway: Gateway, request: Request, group: str) -> list[str]:
    """Return the topic that a request names, or all that the group has offsets for."""
    topic = request.fields.get("topic", "")
    if topic.strip():
        return [checked_topic(topic)]
    return gateway.store._progress.topics_of(group)


def _queues(
    gateway: Gateway,
    request: Request,
    group: str,
    entry: TopicConfig,
    *,
    queue_nums: int,
    before: int,
) -> dict[MessageQueue, dict[str, int]]:
    """Return where each queue ends and where the group is.

    5.x takes what was pulled and not committed for being consumed, of which a store knows nothing.
    ``Refusal`` if the answer, which has so many queues before these, would have too many.
    """
    if before + queue_nums > _QUEUES_MOST:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"the answer would have more than {_QUEUES_MOST} queues"
        )
    store, broker, topic = gateway.store, gateway.settings.broker, entry.topic_name
    committed = store._progress.get(topic, group)
    table: dict[MessageQueue, dict[str, int]] = {}
    for queue_id in range(queue_nums):
        _, stop = store._bounds(topic, queue_id) or (0, 0)
        offset = max(0, committed.get(queue_id, 0))
        stored = store._store_time(topic, queue_id, offset - 1) if offset > 0 else 0
        table[MessageQueue(broker, queue_id, topic)] = {
            "brokerOffset": stop,
            "consumerOffset": offset,
            "lastTimestamp": max(0, stored),
        }
        if request.version >= V5:
            table[MessageQueue(broker, queue_id, topic)]["pullOffset"] = offset
    return table


def of_group(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_CONSUME_STATS."""
    group = group_of(request)
    table: dict[MessageQueue, dict[str, int]] = {}
    tps = 0.0
    for topic in _topic_or_all(gateway, request, group):
        entry = topic_config(gateway, topic)
        if entry is None or online.knows_no_topic(gateway, group, topic):
            continue
        table.update(
            _queues(
                gateway, request, group, entry, queue_nums=entry.read_queue_nums, before=len(table)
            )
        )
        tps += gateway.rates.tps(GROUP_GET_NUMS, f"{topic}@{group}")
    return Answer(body=dumps({"consumeTps": tps, "offsetTable": table}))


async def of_all_groups(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_BROKER_CONSUME_STATS."""
    only_ordered = truth(request, "isOrder")
    queues = total = 0
    listed: list[dict[str, Any]] = []
    for group in all_groups(gateway):
        of_topics = []
        for topic in gateway.store._progress.topics_of(group):
            entry = topic_config(gateway, topic)
            if (
                entry is None
                or (only_ordered and not entry.order)
                or online.knows_no_topic(gateway, group, topic)
            ):
                continue
            table = _queues(
                gateway, request, group, entry, queue_nums=entry.write_queue_nums, before=queues
            )
            queues += len(table)
            total += sum(one["brokerOffset"] - one["consumerOffset"] for one in table.values())
            tps = gateway.rates.tps(GROUP_GET_NUMS, f"{topic}@{group}")
            of_topics.append({"consumeTps": tps, "offsetTable": table})
        listed.append({group: of_topics})
        await asyncio.sleep(0)  # there may be many, and other clients have their turn
    address = address_text(*connection.address)
    return Answer(
        body=dumps({"brokerAddr": address, "consumeStatsList": listed, "totalDiff": total})
    )


def time_span(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer QUERY_CONSUME_TIME_SPAN: store times of the first, the last and the next message."""
    topic, group = topic_of(request), group_of(request, "group")
    store = gateway.store
    committed = store._progress.get(topic, group)
    spans = []
    for queue_id in range(entry_of(gateway, topic).write_queue_nums):
        first, stop = store._bounds(topic, queue_id) or (0, 0)
        earliest = store._store_time(topic, queue_id, first) if stop > first else -1
        latest = store._store_time(topic, queue_id, stop - 1) if stop > 0 else -1
        offset = committed.get(queue_id, -1)
        consumed = store._store_time(topic, queue_id, offset - 1) if offset > 0 else earliest
        delay = 0
        if offset < stop:
            following = store._store_time(topic, queue_id, offset) if offset >= 0 else -1
            delay = store.clock.now() - following
        spans.append(
            {
                "consumeTimeStamp": consumed,
                "delayTime": delay,
                "maxTimeStamp": latest,
                "messageQueue": MessageQueue(gateway.settings.broker, queue_id, topic),
                "minTimeStamp": earliest,
            }
        )
    return Answer(body=dumps({"consumeTimeSpanSet": spans}))


def correction(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer QUERY_CORRECTION_OFFSET: the slowest of the groups in each queue of a topic.

    Where the compared group is slower still, it is the highest number there is.
    """
    topic = topic_of(request)
    left_out = set(request.fields.get("filterGroups", "").split(","))
    progress = gateway.store._progress
    slowest: dict[int, int] = {}
    for group in progress.groups_of(topic):
        if group in left_out:
            continue
        for queue_id, offset in progress.get(topic, group).items():
            first, _ = gateway.store._bounds(topic, queue_id) or (0, 0)
            if offset >= first:
                slowest[queue_id] = min(offset, slowest.get(queue_id, offset))
    compared = request.fields.get("compareGroup", "")
    if compared.strip():
        for queue_id, offset in progress.get(topic, checked_group(compared)).items():
            if queue_id in slowest and slowest[queue_id] > offset:
                slowest[queue_id] = _LONG_MOST
    return Answer(body=dumps({"correctionOffsets": slowest}))


def clone(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer CLONE_GROUP_OFFSET: a group goes on where another one is."""
    source, target = group_of(request, "srcGroup"), group_of(request, "destGroup")
    offline = truth(request, "offline")
    store = gateway.store
    for topic in _topic_or_all(gateway, request, source):
        if topic_config(gateway, topic) is None or (
            not offline and online.knows_no_topic(gateway, source, topic)
        ):
            continue
        for queue_id, offset in store._progress.get(topic, source).items():
            if has_queue(gateway, topic, queue_id):
                commit(gateway, topic, target, queue_id, offset, owner=connection.owner)
    return Answer()


# The tables as their files have them, for slaves and for tools


def all_offsets(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_ALL_CONSUMER_OFFSET."""
    offsets = gateway.store._progress.all()
    if not offsets:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "No consumer offset in this broker")
    table = {f"{topic}@{group}": queues for (topic, group), queues in offsets.items()}
    return Answer(body=dumps({"offsetTable": table}))


def all_delays(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_ALL_DELAY_OFFSET: the offset that is delivered next, by level."""
    levels = gateway.store._delay_progress()
    return Answer(
        body=dumps({"offsetTable": {number: offset for number, (offset, _) in levels.items()}})
    )


HANDLERS: dict[int, Handler] = {
    RequestCode.GET_CONSUME_STATS: of_group,
    RequestCode.GET_BROKER_CONSUME_STATS: of_all_groups,
    RequestCode.QUERY_CONSUME_TIME_SPAN: time_span,
    RequestCode.QUERY_CORRECTION_OFFSET: correction,
    RequestCode.CLONE_GROUP_OFFSET: clone,
    RequestCode.GET_ALL_CONSUMER_OFFSET: all_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: all_delays,
}
