"""Admin requests forwarded to a consumer, whose answer is returned.

Source: ``broker/processor/AdminBrokerProcessor.java callConsumer``,
``broker/client/net/Broker2Client.java callClient``.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from rmqstore.base.lookups import offset_of
from rmqstore.serve.accounts.aclresources import Resource
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import text
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.serve.wire.names import group_of

if TYPE_CHECKING:
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.serve.network.answers import Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.settings import Settings
    from rmqstore.store import MessageStore

__all__ = ["Forwarding"]

_VERSION = 62  # MQVersion.Version.V3_1_8_SNAPSHOT
_SECONDS = 10.0
# Limit of a running info request, where no client sends a body; and of an answer's size in memory
# beyond its body.
_BODY_MOST = 64 << 10
# Not forwarded: the consumer could send requests in the asker's name.
_SIGNATURE = ("AccessKey", "Signature", "SecurityToken")


class Forwarding:
    """Requests answered by a consumer."""

    def __init__(
        self, store: MessageStore, settings: Settings, clients: Clients, access: Access
    ) -> None:
        self._store = store
        self._broker = settings.broker
        self._clients = clients
        self._access = access

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    # Plain methods: a coroutine would begin in the next turn, outside the asker's share.

    def _running_info(
        self, connection: Connection, request: Request
    ) -> Coroutine[Any, Any, Answer]:
        if len(request.body) > _BODY_MOST:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the body must be at most {_BODY_MOST} bytes, got {len(request.body)}",
            )
        return self._passed_on(connection, request, request.fields)

    def _consume_directly(
        self, connection: Connection, request: Request
    ) -> Coroutine[Any, Any, Answer]:
        """Answer CONSUME_MESSAGE_DIRECTLY: a consumer handles a message at any offset."""
        offset = _offset_of(text(request, "msgId"))
        request.body = self._store.core.record(offset)
        fields = {**request.fields, "brokerName": self._broker}
        return self._passed_on(connection, request, fields)

    def _passed_on(
        self, connection: Connection, request: Request, fields: dict[str, str]
    ) -> Coroutine[Any, Any, Answer]:
        """Forward to the consumer in a request; the body is not kept until the answer."""
        group = group_of(request)
        client_id = text(request, "clientId")
        member = self._clients.consumer(group, client_id)
        if member is None or not self._access.allows(member.caller, Resource(group, is_group=True)):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if member.version < _VERSION:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        # Copies: an encoded str keeps its UTF-8 for its lifetime.
        copies = {_copy(k): _copy(v) for k, v in fields.items() if k not in _SIGNATURE}
        body, request.body = request.body, b""
        try:
            asked = member.connection.ask(
                request.code, copies, body, asker=connection, seconds=_SECONDS
            )
        except ConnectionError as error:
            raise _failed(group, client_id, error) from None
        return _answered(asked, group, client_id)


def _offset_of(msg_id: str) -> int:
    """Return the log offset in a message id."""
    offset = offset_of(msg_id)
    if offset is None:
        text = f"{msg_id[:64]!r} is no id of a stored message"
        raise Refusal(ResponseCode.SYSTEM_ERROR, text)
    return offset


def _copy(text: str) -> str:
    return f"{text[:1]}{text[1:]}"


def _failed(group: str, client_id: str, error: ConnectionError) -> Refusal:
    return Refusal(
        ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
    )


async def _answered(asked: Coroutine[Any, Any, Request], group: str, client_id: str) -> Answer:
    try:
        answer = await asked
    except TimeoutError:
        raise Refusal(
            ResponseCode.CONSUME_MSG_TIMEOUT,
            f"consumer <{group}> <{client_id}> Timeout: no answer in {_SECONDS:.0f} s",
        ) from None
    except ConnectionError as error:
        raise _failed(group, client_id, error) from None
    size = answer.held_bytes - len(answer.body)
    if size > _BODY_MOST:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"consumer <{group}> <{client_id}> answers with fields of {size} bytes, "
            f"may have {_BODY_MOST}",
        )
    return Answer(answer.code, answer.remark, answer.fields or None, answer.body)
