"""Admin requests about the clients of a group.

Source: ``broker/processor/AdminBrokerProcessor.java getConsumerConnectionList,
getProducerConnectionList``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rmqstore.serve.admin import online
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import group_of
from rmqstore.serve.wire.objecttext import PAUSE, Entries, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.consuming.clients import Client
    from rmqstore.serve.gateway import Gateway, Handler
    from rmqstore.serve.network.answers import AnswerSteps
    from rmqstore.serve.network.connection import Connection

__all__ = ["HANDLERS"]


def consumers(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer GET_CONSUMER_CONNECTION_LIST."""
    group = group_of(request)
    found = online.consumer_group(gateway, group)
    if found is None:
        raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    listed = (one.to_json() for one in online.members(gateway, group))
    body = Entries({"connectionSet": listed, **found}.items())
    return Answer(body=(yield from dumps_in_steps(body)))


def producers(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer GET_PRODUCER_CONNECTION_LIST."""
    group = group_of(request, "producerGroup")
    found = gateway.clients.producers(group)
    if not found:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    body = Entries([("connectionSet", (one.to_json() for one in found))])
    return Answer(body=(yield from dumps_in_steps(body)))


def all_producers(gateway: Gateway, connection: Connection, request: Request) -> AnswerSteps:
    """Answer GET_ALL_PRODUCER_INFO of 5.x: the clients of all producer groups."""
    now, at = gateway.store.clock.now(), gateway.loop.time()

    def entry(one: Client) -> dict[str, Any]:
        return {
            "clientId": one.client_id,
            "language": one.language,
            "lastUpdateTimestamp": now - int(1000 * (at - one.connection.last_used)),
            "remoteIP": f"/{one.connection.peer}",
            "version": one.version,
        }

    def table() -> Iterator[Any]:
        for group in list(gateway.clients.producer_groups):
            found = gateway.clients.producers(group)
            yield (group, map(entry, found)) if found else PAUSE

    return Answer(body=(yield from dumps_in_steps(Entries([("data", Entries(table()))]))))


HANDLERS: dict[int, Handler] = {
    RequestCode.GET_CONSUMER_CONNECTION_LIST: consumers,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: producers,
    RequestCode.GET_ALL_PRODUCER_INFO: all_producers,
}
