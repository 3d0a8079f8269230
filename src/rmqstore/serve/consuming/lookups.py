"""Look-ups of messages: by message id, and by key.

Source: ``broker/processor/QueryMessageProcessor.java``,
``store/DefaultMessageStore.java queryMessage``, ``store/index/IndexService.java queryOffset``.
"""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.base.layout import INDEX_RANGE, INT64_MAX, INT64_MIN
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.serve.wire.codes import RequestCode, ResponseCode
from rmqstore.serve.wire.fields import number, text
from rmqstore.serve.wire.frames import Answer, Refusal, Request
from rmqstore.services.schedule_search import record_at

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.serve.network.answers import Handled, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.ownerpool import Pools
    from rmqstore.serve.network.unread import Unread
    from rmqstore.store import MessageStore

__all__ = ["MessageLookups"]

_UNIQUE_KEY = "_UNIQUE_KEY_QUERY"
_MAX_UNIQUE = 32  # defaultQueryMaxNum
_MAX_MESSAGES = 64  # maxMsgsNumBatch
_MAX_BYTES = 8 << 20  # of records in an answer, to fit a frame; at least one record
_MORE_BYTES = 64 << 10  # of a record, besides its body


class MessageLookups:
    """Requests for messages by id or key; look-ups by key run in threads."""

    def __init__(self, store: MessageStore, pools: Pools, unread: Unread) -> None:
        self._store = store
        self._pool = pools.lookups
        self._unread = unread

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
        }

    def _view(self, connection: Connection, request: Request) -> Handled:
        """Answer VIEW_MESSAGE_BY_ID."""
        offset = number(request, "offset", least=INT64_MIN, most=INT64_MAX)
        message = _message_at(self._store, offset)
        if not self._unread.has_room(connection, message.store_size):
            return self._viewed_later(connection, offset, message.store_size)
        return Answer(body=self._store.core.record_bytes(message))

    async def _viewed_later(self, connection: Connection, offset: int, size: int) -> Answer:
        """Read a message once its client has read enough of its answers."""
        await self._unread.reserve(connection, size)
        return Answer(body=self._store.core.record_bytes(_message_at(self._store, offset)))

    async def _query(self, connection: Connection, request: Request) -> Answer:
        """Answer QUERY_MESSAGE."""
        topic, key = text(request, "topic"), text(request, "key")
        most = number(request, "maxNum")
        begin = number(request, "beginTimestamp", least=INT64_MIN, most=INT64_MAX)
        end = number(request, "endTimestamp", least=INT64_MIN, most=INT64_MAX)
        if request.fields.get(_UNIQUE_KEY) == "true":
            most = _MAX_UNIQUE
        store = self._store
        records = b""
        if paths.is_stored_topic_name(topic) and key and most > 0 and max(begin, 0) <= end:
            run = partial(self._pool.run, connection)
            most, times = min(most, _MAX_MESSAGES), (max(begin, 0), end)
            places = await run(_places, store, topic, key, most, times)
            if places:
                size = min(len(places) * (store.config.max_message_size + _MORE_BYTES), _MAX_BYTES)
                await self._unread.reserve(connection, size)
                records = await run(_records, store, places)
        time, offset = _index_end(store)
        fields = {"indexLastUpdateTimestamp": str(time), "indexLastUpdatePhyoffset": str(offset)}
        if not records:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                fields=dict.fromkeys(fields, "0"),  # as a broker answers
            )
        return Answer(fields=fields, body=records)


def _message_at(store: MessageStore, offset: int) -> Message:
    message = record_at(store.core, offset) if offset >= 0 else None
    if message is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    return message


def _places(
    store: MessageStore, topic: str, key: str, most: int, times: tuple[int, int]
) -> list[int]:
    """Return the log offsets of a key's records, newest first."""
    offsets, count, _ = store.core.locate(topic, [key], most, *times, False)
    return memoryview(offsets).cast("q").tolist()[:count]


def _records(store: MessageStore, places: list[int]) -> bytes:
    """Return the newest records that fit an answer, in log order."""
    kept: list[bytes] = []
    size = 0
    for place in places:
        message = record_at(store.core, place)
        if message is None:  # removed meanwhile
            continue
        size += message.store_size
        if kept and size > _MAX_BYTES:
            break
        kept.append(store.core.record_bytes(message))
    kept.reverse()
    return b"".join(kept)


def _index_end(store: MessageStore) -> tuple[int, int]:
    """Return store time and log offset of the newest index entry; 0 without one."""
    try:
        names = [
            one.name
            for one in Path(store.path, paths.INDEX).iterdir()
            if paths.parse_index_file_name(one.name) is not None
        ]
        if not names:
            return 0, 0
        with open_regular(Path(store.path, paths.INDEX, max(names))) as file:
            _, time, _, offset = INDEX_RANGE.unpack(file.read(INDEX_RANGE.size))
    except (OSError, struct.error):
        return 0, 0
    return time, offset
