"""Admin requests about topics: create, delete, list, and their queues.

Source: ``broker/processor/AdminBrokerProcessor.java``, ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.errors import TopicNotFoundError
from rmqstore.serve.admin import online
from rmqstore.serve.topics.topictable import (
    all_topics,
    is_stored,
    is_system_topic,
    system_topics,
    topic_config,
)
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import LONG_MAX, number, optional_number
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import checked_group, new_topic, topic_of
from rmqstore.serve.wire.objecttext import Entries, MessageQueue, dumps, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Gateway, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.longanswers import AnswerSteps

__all__ = ["HANDLERS", "check_queues", "entry_of"]

_MAX_TOPICS = 100_000
_MAX_QUEUES = 65_536
_MAX_UNITS = 16_384  # of a queue, in one answer
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
_UNIT = struct.Struct(">qiq")
_EXT_FIELDS = struct.Struct("=qqq")
_EXT_ADDRESS = -(1 << 31) - 1  # tags codes up to this one are addresses in consumequeue_ext
_EXT_FIXED_BYTES = 20
_UNSET = "not set any response code"  # 4.9.3 leaves it in these answers


def entry_of(gateway: Gateway, topic: str) -> TopicConfig:
    """Return a topic's entry; ``Refusal`` without one."""
    entry = topic_config(gateway, topic)
    if entry is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return entry


def check_queues(gateway: Gateway, name: str, queues: int, has: int) -> None:
    """Refuse more queues than clients may ask for, but not fewer than the topic has."""
    most = gateway.settings.most_queues
    if queues > max(most, has):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"{name} is not given {queues} queues: clients may ask for {most}, or for what "
            "defaultTopicQueueNums of the broker.conf has if that is more",
        )


def _changeable(gateway: Gateway, request: Request) -> str:
    """Return the topic that a request changes; ``Refusal`` if it is built in."""
    topic = topic_of(request)
    if is_system_topic(gateway.settings, topic):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
        )
    return topic


# Changes


async def update(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer UPDATE_AND_CREATE_TOPIC."""
    name = new_topic(_changeable(gateway, request))
    read = number(request, "readQueueNums", least=0, most=_MAX_QUEUES)
    write = number(request, "writeQueueNums", least=0, most=_MAX_QUEUES)
    perm = number(request, "perm", least=0, most=15)
    flag = optional_number(request, "topicSysFlag", least=0) or 0
    kind = request.fields.get("topicFilterType", _FILTER_TYPES[0])
    if kind not in _FILTER_TYPES:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{kind[:64]}] value invalid")

    def entered(there: TopicConfig | None) -> TopicConfig:
        has = max(there.read_queue_nums, there.write_queue_nums) if there is not None else 0
        check_queues(gateway, name, max(read, write), has)
        if there is None and len(gateway.store.registry) >= _MAX_TOPICS:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {name} is not made: there are {_MAX_TOPICS} already",
            )
        return TopicConfig(
            topic_name=name,
            read_queue_nums=read,
            write_queue_nums=write,
            perm=perm,
            topic_filter_type=kind,
            topic_sys_flag=flag,
            order=gateway.nameserver.order(name) is not None,
        )

    def change() -> None:
        store = gateway.store
        store.core.check_writable()
        store.registry.change({name: entered})

    asked, owner = gateway.asked_topics, connection.owner
    if gateway.store.registry.get(name) is None and not asked.take(name, owner):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the topic {name} is not made: {asked.of(owner)} were already, by requests of {owner}",
        )
    with asked.begun(name):
        await gateway.change(connection, request, change)
    return Answer(remark=_UNSET)


async def delete(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer DELETE_TOPIC_IN_BROKER; a missing topic counts as deleted."""
    name = _changeable(gateway, request)

    def change() -> bool:
        try:
            gateway.store.delete_topic(name)
        except TopicNotFoundError:
            return False
        return True

    if await gateway.remove(connection, request, change):
        await gateway.turns.run(gateway.rates.forget_topic(name))
    for made in (gateway.produced_topics, gateway.asked_topics):
        made.count(name)
    return Answer()


async def clean_unused(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer CLEAN_UNUSED_TOPIC, and CLEAN_EXPIRED_CONSUMEQUEUE, which retention does anyway."""
    unused = await gateway.remove(connection, request, gateway.store.clean_unused_topics)
    if unused:
        gateway.log.info("%s had unused topics removed: %s", connection.peer, ", ".join(unused))
    return Answer()


# Lists


def all_configs(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer GET_ALL_TOPIC_CONFIG."""
    table = Entries((entry.topic_name, entry.to_json()) for entry in all_topics(gateway))
    body = Entries(gateway.store.registry.json_of(table).items())
    return Answer(fields={}, body=(yield from dumps_in_steps(body)))


def one_config(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_TOPIC_CONFIG of 5.x: an entry, without attributes, which 4.9.3 does not have."""
    topic = topic_of(request)
    entry = topic_config(gateway, topic)
    if entry is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    return Answer(body=dumps({"attributes": {}} | entry.to_json()))


def system_list(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
    return Answer(body=dumps({"topicList": system_topics(gateway.settings)}))


# Queues


def status(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer GET_TOPIC_STATS_INFO: first and end offset of each queue."""
    topic = topic_of(request)
    store, broker = gateway.store, gateway.settings.broker

    def queue(queue_id: int) -> tuple[MessageQueue, dict[str, int]]:
        first, stop = store.core.bounds(topic, queue_id) or (0, 0)
        return MessageQueue(broker, queue_id, topic), {
            "lastUpdateTimestamp": store.core.store_time(topic, queue_id, stop - 1)
            if stop > 0
            else 0,
            "maxOffset": stop,
            "minOffset": first,
        }

    table = Entries(map(queue, range(entry_of(gateway, topic).write_queue_nums)))
    return Answer(body=(yield from dumps_in_steps(Entries([("offsetTable", table)]))))


def queue_units(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer QUERY_CONSUME_QUEUE: units as in the queue's files."""
    topic = topic_of(request)
    queue_id = number(request, "queueId", least=0)
    index = optional_number(request, "index", least=-LONG_MAX - 1, most=LONG_MAX) or 0
    count = optional_number(request, "count") or 0
    group = request.fields.get("consumerGroup")
    store = gateway.store
    first, stop = store.core.bounds(topic, queue_id) or (0, 0)
    if not is_stored(gateway, topic, queue_id):
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    if not first <= index < stop:
        return Answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
    until = min(stop, index + max(0, min(count, _MAX_UNITS)))
    body: dict[str, Any] = {}
    if group is not None:
        body.update(_filter_of(gateway, checked_group(group), topic))
    body["maxQueueIndex"] = stop
    body["minQueueIndex"] = first
    body["queueData"] = _units(gateway, topic, queue_id, index, until)
    return Answer(remark=_UNSET, body=(yield from dumps_in_steps(Entries(body.items()))))


def _filter_of(gateway: Gateway, group: str, topic: str) -> dict[str, Any]:
    subscription = online.subscription(gateway, group, topic)
    if subscription is None:
        return {"filterData": f"{group}@{topic} is not online!"}
    return {"filterData": "null", "subscriptionData": subscription}


def _units(
    gateway: Gateway, topic: str, queue_id: int, start: int, stop: int
) -> Iterator[dict[str, Any]]:
    store = gateway.store
    for place, (offset, size, code) in enumerate(
        _UNIT.iter_unpack(bytes(memoryview(store.core.units(topic, queue_id, start, stop))))
    ):
        unit: dict[str, Any] = {
            "eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code,
        }  # fmt: skip
        if code <= _EXT_ADDRESS:
            unit.update(_ext_unit(gateway, topic, queue_id, start + place, code))
        yield unit


def _ext_unit(
    gateway: Gateway, topic: str, queue_id: int, queue_offset: int, address: int
) -> dict[str, str]:
    """Return the fields of a unit in consumequeue_ext."""
    fields, bitmaps, _ = gateway.store.core.ext_units(
        topic, queue_id, queue_offset, queue_offset + 1
    )
    code, stored, length = _EXT_FIELDS.unpack_from(fields)
    if length < 0:
        return {"msg": f"Cq extend not exist!addr: {address}"}
    bits = bytes(memoryview(bitmaps))[:length]
    unit: dict[str, Any] = {
        "msgStoreTime": stored, "size": _EXT_FIXED_BYTES + length, "tagsCode": code,
    }  # fmt: skip
    if not bits:
        return {"extendDataJson": dumps(unit).decode()}
    unit = {"filterBitMap": base64.b64encode(bits).decode(), **unit}
    lines = (f"{bits[at]:08b}" + ("" if at % 8 else "\n") for at in range(len(bits) - 1, -1, -1))
    return {"bitMap": "".join(lines), "extendDataJson": dumps(unit).decode()}


HANDLERS: dict[int, Handler] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: update,
    RequestCode.DELETE_TOPIC_IN_BROKER: delete,
    RequestCode.CLEAN_UNUSED_TOPIC: clean_unused,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: clean_unused,
    RequestCode.GET_ALL_TOPIC_CONFIG: all_configs,
    RequestCode.GET_TOPIC_CONFIG: one_config,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: system_list,
    RequestCode.GET_TOPIC_STATS_INFO: status,
    RequestCode.QUERY_CONSUME_QUEUE: queue_units,
}
