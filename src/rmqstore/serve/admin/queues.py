"""Admin requests about the queues of a topic: bounds and units.

Source: ``broker/processor/AdminBrokerProcessor.java getTopicStatsInfo, queryConsumeQueue``.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rmqstore.base.layout import EXT_ADDRESS, INT64_MAX, INT64_MIN, UNIT
from rmqstore.serve.admin import online
from rmqstore.serve.admin.topics import UNSET, entry_of
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number, optional_number
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import checked_group, topic_of
from rmqstore.serve.wire.objecttext import Entries, MessageQueue, dumps, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["QueueAdmin"]

_MAX_UNITS = 16_384  # of a queue, per answer
_EXT_FIELDS = struct.Struct("=qqq")
_EXT_FIXED_BYTES = 20


class QueueAdmin:
    """Requests about the queues of a topic."""

    def __init__(
        self, store: MessageStore, settings: Settings, topics: ServedTopics, clients: Clients
    ) -> None:
        self._store = store
        self._broker = settings.broker
        self._topics = topics
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self._status,
            RequestCode.QUERY_CONSUME_QUEUE: self._queue_units,
        }

    def _status(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer GET_TOPIC_STATS_INFO: first and end offset of each queue."""
        topic = topic_of(request)
        store, broker = self._store, self._broker

        def queue(queue_id: int) -> tuple[MessageQueue, dict[str, int]]:
            first, stop = store.core.bounds(topic, queue_id) or (0, 0)
            return MessageQueue(broker, queue_id, topic), {
                "lastUpdateTimestamp": store.core.store_time(topic, queue_id, stop - 1)
                if stop > 0
                else 0,
                "maxOffset": stop,
                "minOffset": first,
            }

        table = Entries(map(queue, range(entry_of(self._topics, topic).write_queue_nums)))
        return Answer(body=(yield from dumps_in_steps(Entries([("offsetTable", table)]))))

    def _queue_units(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer QUERY_CONSUME_QUEUE: units as in the queue's files."""
        topic = topic_of(request)
        queue_id = number(request, "queueId", least=0)
        index = optional_number(request, "index", least=INT64_MIN, most=INT64_MAX) or 0
        count = optional_number(request, "count") or 0
        group = request.fields.get("consumerGroup")
        store = self._store
        first, stop = store.core.bounds(topic, queue_id) or (0, 0)
        if not self._topics.is_stored(topic, queue_id):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not first <= index < stop:
            return Answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        until = min(stop, index + max(0, min(count, _MAX_UNITS)))
        body: dict[str, Any] = {}
        if group is not None:
            body.update(self._filter_of(checked_group(group), topic))
        body["maxQueueIndex"] = stop
        body["minQueueIndex"] = first
        body["queueData"] = self._units(topic, queue_id, index, until)
        return Answer(remark=UNSET, body=(yield from dumps_in_steps(Entries(body.items()))))

    def _filter_of(self, group: str, topic: str) -> dict[str, Any]:
        subscription = online.subscription(self._clients, group, topic)
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        return {"filterData": "null", "subscriptionData": subscription}

    def _units(self, topic: str, queue_id: int, start: int, stop: int) -> Iterator[dict[str, Any]]:
        store = self._store
        for place, (offset, size, code) in enumerate(
            UNIT.iter_unpack(bytes(memoryview(store.core.units(topic, queue_id, start, stop))))
        ):
            unit: dict[str, Any] = {
                "eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code,
            }  # fmt: skip
            if code <= EXT_ADDRESS:
                unit.update(self._ext_unit(topic, queue_id, start + place, code))
            yield unit

    def _ext_unit(
        self, topic: str, queue_id: int, queue_offset: int, address: int
    ) -> dict[str, str]:
        """Return the fields of a unit in consumequeue_ext."""
        core = self._store.core
        fields, bitmaps, _ = core.ext_units(topic, queue_id, queue_offset, queue_offset + 1)
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
        lines = (
            f"{bits[at]:08b}" + ("" if at % 8 else "\n") for at in range(len(bits) - 1, -1, -1)
        )
        return {"bitMap": "".join(lines), "extendDataJson": dumps(unit).decode()}
