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
    from rmqstore.serve.consuming.clients import Client, Clients
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.work import Work
    from rmqstore.store import MessageStore

__all__ = ["ConnectionAdmin"]


class ConnectionAdmin:
    """Requests about connected clients."""

    def __init__(self, store: MessageStore, clients: Clients, work: Work) -> None:
        self._store = store
        self._clients = clients
        self._loop = work.loop

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }

    def _consumers(self, connection: Connection, request: Request) -> AnswerSteps:
        group = group_of(request)
        found = online.consumer_group(self._clients, group)
        if found is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        listed = (one.to_json() for one in online.members(self._clients, group))
        body = Entries({"connectionSet": listed, **found}.items())
        return Answer(body=(yield from dumps_in_steps(body)))

    def _producers(self, connection: Connection, request: Request) -> AnswerSteps:
        group = group_of(request, "producerGroup")
        found = self._clients.producers(group)
        if not found:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = Entries([("connectionSet", (one.to_json() for one in found))])
        return Answer(body=(yield from dumps_in_steps(body)))

    def _all_producers(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer GET_ALL_PRODUCER_INFO of 5.x: the clients of all producer groups."""
        now, at = self._store.clock.now(), self._loop.time()

        def entry(one: Client) -> dict[str, Any]:
            return {
                "clientId": one.client_id,
                "language": one.language,
                "lastUpdateTimestamp": now - int(1000 * (at - one.connection.last_used)),
                "remoteIP": f"/{one.connection.peer}",
                "version": one.version,
            }

        def table() -> Iterator[Any]:
            for group in list(self._clients.producer_groups):
                found = self._clients.producers(group)
                yield (group, map(entry, found)) if found else PAUSE

        return Answer(body=(yield from dumps_in_steps(Entries([("data", Entries(table()))]))))
