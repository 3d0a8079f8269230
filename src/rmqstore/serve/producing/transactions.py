"""Transactions of producers: their ends, and checks of half messages in doubt.

A half message is stored by ``sending.py``; the store's own service checks each, puts it back and
has a producer of its group asked here.

Source: ``broker/processor/EndTransactionProcessor.java``,
``broker/transaction/AbstractTransactionalMessageCheckListener.java``,
``broker/client/net/Broker2Client.java checkProducerTransactionState``,
``broker/client/ProducerManager.java getAvailableChannel``.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX
from rmqstore.errors import PutError
from rmqstore.serve.accounts.aclresources import topic_resource
from rmqstore.serve.stored_records import message_at, topic_of_message
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number, text
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.services.half_queue import copy_key
from rmqstore.services.stored import HALF_TOPIC, OP_TOPIC, real_place, real_record
from rmqstore.types import PutStatus

if TYPE_CHECKING:
    from collections.abc import Generator

    from rmqstore._core import Message
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.serve.network.answers import Handled, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.ownerpool import Pools
    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.network.work import Work
    from rmqstore.services.transaction import InDoubt
    from rmqstore.store import MessageStore

__all__ = ["Transactions", "check_body"]

_COMMIT = 8  # MessageSysFlag: TRANSACTION_COMMIT_TYPE
_ROLLBACK = 12
_MAX_ASKED = 64  # checks waiting for the loop
_TRIES = 3  # connections of a group tried before giving up on a writable one
_PRODUCERS_STEP = 64  # producers examined between two steps
_STOP_SECONDS = 0.5
_ILLEGAL = (
    "The message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 128k, msg properties length limit 32k."
)
_CODES = {
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
_REMARKS = {
    PutStatus.CREATE_MAPEDFILE_FAILED: "Create mapped file failed.",
    PutStatus.MESSAGE_ILLEGAL: _ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: _ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: "Service not available now.",
    PutStatus.OS_PAGECACHE_BUSY: "OS page cache busy, please try another machine",
}


class Transactions:
    """Ends of transactions, and checks with producers of open ones."""

    def __init__(
        self, store: MessageStore, work: Work, access: Access, pools: Pools, clients: Clients
    ) -> None:
        self._store = store
        self._work = work
        self._access = access
        self._pools = pools
        self._clients = clients
        self._turn = 0
        self._closed = False
        self._room = threading.BoundedSemaphore(_MAX_ASKED)
        store.transaction_checks.ask_producers_by(self._ask)
        work.closing.append(self.close)

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.END_TRANSACTION: self.end}

    def close(self) -> None:
        """Stop asking producers."""
        self._closed = True
        self._store.transaction_checks.ask_producers_by(None)

    def end(self, connection: Connection, request: Request) -> Handled:
        """Answer END_TRANSACTION; an unknown outcome gets no answer."""
        end = number(request, "commitOrRollback")
        if end not in (_COMMIT, _ROLLBACK):
            return None
        group = text(request, "producerGroup")
        offset = number(request, "commitLogOffset", least=0, most=INT64_MAX)
        half = message_at(self._store, offset)
        if half is None or half.topic != HALF_TOPIC:
            raise _wrong("Find prepared transaction message failed")
        if half.properties.get("PGROUP") != group:
            raise _wrong("The producer group wrong")
        if half.queue_offset != number(request, "tranStateTableOffset", most=INT64_MAX):
            raise _wrong("The transaction state table offset wrong")
        return self._end(connection, request, half, commit=end == _COMMIT)

    def _end(
        self, connection: Connection, request: Request, half: Message, *, commit: bool
    ) -> Handled:
        """End a transaction; a second end does nothing.

        In this thread if nothing has to be searched for, no topic to be made, and no other thread
        is ending one.
        """
        core, transactions = self._store.core, self._store.transactions
        queue_id, offset = half.queue_id, half.queue_offset
        # Two messages without a key may be equal without being copies.
        key = None if half.uniq_key is None else copy_key(half, half.properties)
        end = partial(self._end_half, queue_id, offset, key, commit)
        written = (OP_TOPIC, topic_of_message(half)) if commit else (OP_TOPIC,)
        if all(map(core.knows_topic, written)) and transactions.lock.acquire(blocking=False):
            try:
                if transactions.ends_at_once(queue_id, offset):
                    return end()
            finally:
                transactions.lock.release()
        return self._pools.end(connection, request, end)

    def _end_half(
        self, queue_id: int, offset: int, key: tuple[object, ...] | None, commit: bool
    ) -> Answer:
        try:
            self._store.transactions.end(
                queue_id, offset, commit=commit, may_have_ended=True, copy_of=key, wait=False
            )
        except PutError as error:
            status = error.status if error.status is not None else PutStatus.UNKNOWN_ERROR
            code = _CODES.get(status, ResponseCode.SYSTEM_ERROR)
            raise Refusal(code, _REMARKS.get(status, status.name)) from error
        return Answer()

    def _ask(self, one: InDoubt) -> None:
        """Have a producer asked; called in the thread of the store's housekeeping."""
        while not self._room.acquire(timeout=_STOP_SECONDS):
            if self._closed:
                return
        try:
            self._work.loop.call_soon_threadsafe(self._send, one)
        except RuntimeError:  # the loop is closed
            self._room.release()

    def _send(self, one: InDoubt) -> None:
        self._work.turns.begin(self._sent(one))

    def _sent(self, one: InDoubt) -> Steps:
        try:
            yield from self._asked(one)
        finally:
            self._room.release()

    def _asked(self, one: InDoubt) -> Steps:
        half = one.message
        assert half is not None  # unreadable half messages are not checked
        producer = yield from self._producer(one.producer_group, half)
        if producer is None:
            self._work.log.info(
                "no producer of group %s can be asked for %s", one.producer_group, half.msg_id
            )
            return
        fields = {
            "commitLogOffset": str(half.physical_offset),
            "tranStateTableOffset": str(half.queue_offset),
            "offsetMsgId": half.msg_id,
        }
        if half.uniq_key is not None:
            fields["msgId"] = fields["transactionId"] = half.uniq_key
        producer.notify(RequestCode.CHECK_TRANSACTION_STATE, fields, check_body(half))

    def _producer(self, group: str, half: Message) -> Generator[None, None, Connection | None]:
        """Return a writable connection of the group, the next in turn.

        With accounts, it must be allowed to write to the topic: anybody can join the group, and the
        check carries the message.
        """
        clients = self._clients.producers(group)
        resource = topic_resource(topic_of_message(half), written=True)
        self._turn += 1
        tries = 0
        for further in range(len(clients)):
            client = clients[(self._turn + further) % len(clients)]
            if further % _PRODUCERS_STEP == _PRODUCERS_STEP - 1:
                yield
            if not self._access.allows(client.caller, resource):
                continue
            if client.connection.is_writable:
                return client.connection
            tries += 1
            if tries == _TRIES:
                break
        return None


def check_body(half: Message) -> bytes:
    """Return the record for a check: with the real topic and queue, and without waiting."""
    properties = half.properties
    properties["WAIT"] = "false"
    return real_record(half, real_place(properties), properties)


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
