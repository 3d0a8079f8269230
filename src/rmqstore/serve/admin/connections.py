"""Admin requests about the clients of a group.

Source: ``broker/processor/AdminBrokerProcessor.java getConsumerConnectionList,
getProducerConnectionList``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.serve.admin import online
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import group_of
from rmqstore.serve.wire.objecttext import dumps

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Gateway, Handler
    from rmqstore.serve.network.connection import Connection

__all__ = ["HANDLERS"]


def consumers(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_CONSUMER_CONNECTION_LIST."""
    group = group_of(request)
    found = online.consumer_group(gateway, group)
    if found is None:
        raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    listed = [member.to_json() for member in online.members(gateway, group)]
    return Answer(body=dumps({"connectionSet": listed, **found}))


def producers(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_PRODUCER_CONNECTION_LIST."""
    group = group_of(request, "producerGroup")
    found = online.producers(gateway, group)
    if not found:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    return Answer(body=dumps({"connectionSet": [member.to_json() for member in found]}))


def all_producers(gateway: Gateway, connection: Connection, request: Request) -> Answer:
    """Answer GET_ALL_PRODUCER_INFO of 5.x: the clients of all producer groups."""
    now, at = gateway.store.clock.now(), gateway.loop.time()
    table = {
        group: [
            {
                "clientId": one.client_id,
                "language": one.language,
                "lastUpdateTimestamp": now - int(1000 * (at - one.connection.last_used)),
                "remoteIP": f"/{one.connection.peer}",
                "version": one.version,
            }
            for one in online.producers(gateway, group)
        ]
        for group in gateway.clients.producer_groups
    }
    return Answer(body=dumps({"data": table}))


HANDLERS: dict[int, Handler] = {
    RequestCode.GET_CONSUMER_CONNECTION_LIST: consumers,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: producers,
    RequestCode.GET_ALL_PRODUCER_INFO: all_producers,
}
