"""Admin requests that reset offsets of consumers, or query their positions.

Source: ``broker/client/net/Broker2Client.java resetOffset, getConsumeStatus``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.serve.admin import online
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number, truth
from rmqstore.serve.wire.frames import MAX_FRAME, Answer, Refusal, Request
from rmqstore.serve.wire.names import group_of, topic_of
from rmqstore.serve.wire.objecttext import (
    PAUSE,
    Entries,
    MessageQueue,
    dumps_in_steps,
    loads_in_steps,
)
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from rmqstore.serve.consuming.clients import Client, Clients
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.longanswers import LongAnswers
    from rmqstore.serve.network.unread import Unread
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics
    from rmqstore.store import MessageStore

__all__ = ["Resets"]

_VERSION = 28  # MQVersion.Version.V3_0_7_SNAPSHOT: the first that supports these requests
_STATUS_SECONDS = 5.0
_STATUS_BYTES = 256 << 10  # of a consumer's reply: 1,024 queues of a topic with a long name
_STATUS_BYTES_OF_ALL = MAX_FRAME  # of the replies of a group, until they are an answer
_NEWEST = -1  # as a time: after the last message


class Resets:
    """Requests that reset the offsets of a group, or query the positions of its consumers."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        topics: ServedTopics,
        clients: Clients,
        unread: Unread,
        *,
        long_answers: LongAnswers,
    ) -> None:
        self._store = store
        self._broker = settings.broker
        self._topics = topics
        self._clients = clients
        self._unread = unread
        self._long_answers = long_answers

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
        }

    def _reset(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer INVOKE_BROKER_TO_RESET_OFFSET, and notify the group's consumers."""
        topic, group = topic_of(request), group_of(request, "group")
        timestamp = number(request, "timestamp", least=INT64_MIN, most=INT64_MAX)
        force = truth(request, "isForce")
        offsets = yield from self._offsets(topic, group, timestamp, force)
        members = online.members(self._clients, group)
        if not members:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {timestamp}",
            )
        fields = {
            "group": group, "isForce": "false", "timestamp": str(timestamp), "topic": topic,
        }  # fmt: skip
        body = yield from dumps_in_steps(Entries([("offsetTable", Entries(offsets.items()))]))
        for_c = b""
        if any(member.language == "CPP" for member in members):
            for_c = yield from _for_c(offsets)
        for member in members:
            _check_version(member)
            sent = for_c if member.language == "CPP" else body
            member.connection.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, sent)
            yield
        return Answer(body=body)

    def _offsets(
        self, topic: str, group: str, timestamp: int, force: bool
    ) -> Generator[None, None, dict[MessageQueue, int]]:
        """Return the group's new offset in each queue; without ``force`` only backwards."""
        entry = self._topics.config(topic)
        if entry is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        store = self._store
        committed = store.progress.get(topic, group)
        offsets: dict[MessageQueue, int] = {}
        for queue_id in range(entry.write_queue_nums):
            if queue_id not in committed:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            if timestamp == _NEWEST:
                _, offset = store.core.bounds(topic, queue_id) or (0, 0)
            else:
                offset = self._offset_at(topic, queue_id, timestamp)
            if not force:
                offset = min(offset, committed[queue_id])
            offsets[MessageQueue(self._broker, queue_id, topic)] = offset
            yield
        return offsets

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset nearest to a time; 0 if there is no such queue."""
        store = self._store
        if store.core.bounds(topic, queue_id) is None:
            return 0
        return Queue(store, topic, queue_id).offset_at(timestamp, boundary="nearest")

    async def _status(self, connection: Connection, request: Request) -> Answer:
        """Answer INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the offset of each consumer in its queues.

        The consumers' replies count as bytes of the answer, reserved in advance.
        """
        topic, group = topic_of(request), group_of(request, "group")
        wanted = request.fields.get("clientAddr", "")
        members = online.members(self._clients, group)
        if not members:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        asked = [one for one in members if not wanted.strip() or one.client_id == wanted]
        for member in asked:
            _check_version(member)
        size = min(len(asked) * _STATUS_BYTES, _STATUS_BYTES_OF_ALL)
        await self._unread.reserve(connection, size)
        statuses = _Statuses({"group": group, "topic": topic}, connection)
        async with asyncio.TaskGroup() as asking:
            for member in asked:
                asking.create_task(statuses.ask(member))
                await asyncio.sleep(0)  # one per turn of the loop: there may be a thousand
        return await self._long_answers.built(connection, _listed(statuses.found()))


def _for_c(offsets: dict[MessageQueue, int]) -> Generator[None, None, bytes]:
    """Return the body for C++ clients: a list, as their JSON has no objects as keys."""
    listed = (
        {
            "brokerName": queue.broker, "offset": offset, "queueId": queue.queue_id,
            "topic": queue.topic,
        }
        for queue, offset in offsets.items()
    )  # fmt: skip
    return (yield from dumps_in_steps(Entries([("offsetTable", listed)])))


def _check_version(member: Client) -> None:
    if member.version < _VERSION:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the client does not support this feature. version={member.version}",
        )


def _listed(bodies: dict[str, bytes]) -> AnswerSteps:
    """List the consumers' replies by client id, without unreadable ones."""

    def tables() -> Iterator[Any]:
        for client_id, body in bodies.items():
            steps = loads_in_steps(body)
            while True:
                try:
                    next(steps)
                    yield PAUSE
                except StopIteration as end:
                    if isinstance(end.value, dict):
                        table = end.value.get("messageQueueTable")
                        found = table if isinstance(table, dict) else {}
                        yield client_id, Entries(found.items())
                    break
                except ValueError:
                    break

    table = Entries([("consumerTable", Entries(tables()))])
    return Answer(body=(yield from dumps_in_steps(table)))


class _Statuses:
    """Positions reported by the consumers of a group."""

    def __init__(self, fields: dict[str, str], asker: Connection) -> None:
        self._fields = fields
        self._asker = asker
        self._bodies: dict[str, bytes] = {}
        self._size = 0

    async def ask(self, member: Client) -> None:
        """Keep a consumer's reply; none if it fails, is empty or too long."""
        try:
            answer = await member.connection.ask(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                self._fields,
                asker=self._asker,
                seconds=_STATUS_SECONDS,
            )
        except (TimeoutError, ConnectionError):
            return
        size = len(answer.body)
        if answer.code == ResponseCode.SUCCESS and 0 < size <= _STATUS_BYTES:
            self._size += size
            if self._size <= _STATUS_BYTES_OF_ALL:
                self._bodies[member.client_id] = answer.body

    def found(self) -> dict[str, bytes]:
        """Return the replies by client id; ``Refusal`` if they are too long together."""
        if self._size > _STATUS_BYTES_OF_ALL:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"what the consumers say has more than {_STATUS_BYTES_OF_ALL} bytes",
            )
        return self._bodies
