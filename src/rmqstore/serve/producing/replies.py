"""Replies: pushed to the waiting client, and stored as by a broker.

Source: ``broker/processor/ReplyMessageProcessor.java``,
``broker/client/net/Broker2Client.java callClient``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqstore.aio.wait import put_at_once, put_durable
from rmqstore.errors import PutError, StoreError
from rmqstore.serve.producing.sending import Sent, parse_send, properties_of, refusal_of
from rmqstore.serve.shares import Shares
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.services.stored import Place, properties_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqstore._core import PutResult
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.serve.network.answers import Handled, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.producing.sending import Sends
    from rmqstore.serve.settings import Settings
    from rmqstore.store import MessageStore

__all__ = ["Replies"]

_PUSH_SECONDS = 10.0  # Broker2Client.callClient
_MAX_PUSHED_BYTES = 64 << 20
_MIN_PUSHED = _MAX_PUSHED_BYTES // 10_000  # of one; replyThreadPoolQueueCapacity of them
# MessageSysFlag.COMPRESSED_FLAG and its type. A broker drops it, and the body is unreadable.
_COMPRESSED = 0x701


class Replies:
    """Replies; those pushed and not confirmed are bounded."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        work: Work,
        access: Access,
        *,
        clients: Clients,
        sends: Sends,
    ) -> None:
        self._store = store
        self._settings = settings
        self._log = work.log
        self._access = access
        self._clients = clients
        self._sends = sends
        # Bytes of the bodies of pushed replies; a small one counts for more.
        self.shares = Shares(_MAX_PUSHED_BYTES)

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def has_room(self, connection: Connection, body: bytes) -> bool:
        """Whether there is room for a pushed reply of a connection."""
        return self.shares.has_room(connection.owners, max(len(body), _MIN_PUSHED))

    def take(self, connection: Connection, body: bytes) -> Callable[[], None]:
        """Count a reply about to be pushed; return the call that ends the count."""
        owners, size = connection.owners, max(len(body), _MIN_PUSHED)
        self.shares.take(owners, size)
        return partial(self.shares.give, owners, size)

    def reply(self, connection: Connection, request: Request) -> Handled:
        """Answer SEND_REPLY_MESSAGE: the push's result, and the offset of the stored reply.

        It is stored whether or not a client is there to receive it, and answered even if it cannot
        be stored.
        """
        fields = {"MSG_REGION": self._settings.region, "TRACE_ON": "true"}
        try:
            if not self.has_room(connection, request.body):
                raise Refusal(
                    ResponseCode.SYSTEM_BUSY,
                    "[OVERLOAD]system busy, start flow control for a while",
                )
            sent = parse_send(request)
            asked_queue = sent.asked_queue
            self._sends.topic_of(connection, sent)
        except (Refusal, StoreError) as error:
            answer = error.answer if isinstance(error, Refusal) else refusal_of(error)
            answer.fields = fields
            return answer
        give = self.take(connection, request.body)  # before those received together with it
        return self._pushed_and_stored(connection, sent, asked_queue, fields, give=give)

    async def _pushed_and_stored(
        self,
        connection: Connection,
        sent: Sent,
        asked_queue: int,
        fields: dict[str, str],
        *,
        give: Callable[[], None],
    ) -> Answer:
        """Push a reply and store it; return the answer to its sender."""
        version = self._access.version
        try:
            refused = await self._push(connection, sent, asked_queue)
        finally:
            give()
        sent.properties = properties_of(sent.request)
        self._access.ask_again(connection, sent.request, version)  # the push took up to 10 s
        if refused is None:
            fields |= {"msgId": "0", "queueId": str(sent.queue_id), "queueOffset": "0"}
        try:
            done = await self._put(connection, sent)
        except PutError as error:
            self._log.warning("a reply to %s is not stored: %s", sent.topic, error)
            done = error.result  # stored after all, if only the disk was too slow
        if done is not None:
            fields |= {
                "msgId": done.msg_id,
                "queueId": str(sent.queue_id),
                "queueOffset": str(done.queue_offset),
            }
        code = ResponseCode.SUCCESS if refused is None else ResponseCode.SYSTEM_ERROR
        return Answer(code, refused, fields)

    async def _push(self, connection: Connection, sent: Sent, asked_queue: int) -> str | None:
        """Push a reply to the waiting client; return the reason of a failure.

        Its properties are dropped for the wait: parsed they take many times the counted bytes.
        """
        client_id = sent.properties.get("REPLY_TO_CLIENT")
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        client = self._clients.client_of(client_id)
        if client is None or not self._access.allows(client.caller):
            return f"push reply message fail, channel of <{client_id}> not found."
        try:
            asked = client.connection.ask(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                self._pushed_fields(connection, sent, asked_queue),
                sent.request.body,
                asker=connection,
                seconds=_PUSH_SECONDS,
            )
            sent.properties = {}
            answer = await asked
            if answer.code == ResponseCode.SUCCESS:
                return None
            why = answer.remark
        except (TimeoutError, ConnectionError) as error:
            why = str(error)
        self._log.warning("a reply is not taken by %s: %s", client_id, why)
        return f"push reply message to {client_id}fail."

    def _pushed_fields(
        self, connection: Connection, sent: Sent, asked_queue: int
    ) -> dict[str, str]:
        now = str(self._store.clock.now())
        return {
            "producerGroup": sent.producer_group,
            "topic": sent.topic,
            "defaultTopic": sent.default_topic,
            "defaultTopicQueueNums": str(sent.default_queue_nums),
            "queueId": str(asked_queue),
            "sysFlag": str(sent.sys_flag),
            "bornTimestamp": str(sent.born_timestamp),
            "flag": str(sent.flag),
            "properties": properties_text(sent.properties | {"PUSH_REPLY_TIME": now}),
            "reconsumeTimes": str(sent.reconsume_times),
            "unitMode": "true" if sent.unit_mode else "false",
            "bornHost": f"/{connection.peer}",
            "storeHost": f"/{connection.store_host}",
            "storeTimestamp": now,
        }

    async def _put(self, connection: Connection, sent: Sent) -> PutResult:
        """Store a reply with only its own properties."""
        core = self._store.core
        wait = core.config.flush_disk_type == "SYNC_FLUSH" and sent.waits
        return await (put_durable if wait else put_at_once)(
            core,
            sent.topic,
            lambda: self._sends.store_plain(
                connection, sent, Place(sent.topic, sent.queue_id), sent.properties,
                sys_flag=sent.sys_flag & _COMPRESSED,
            ),
        )  # fmt: skip
