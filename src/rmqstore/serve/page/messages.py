"""Messages on the page: the newest of a topic, and those found by key or id.

Source: ``tools/command/message/QueryMsgByKeySubCommand.java``, ``QueryMsgByIdSubCommand.java``.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rmqstore.base.layout import INT64_MAX
from rmqstore.base.lookups import offset_of
from rmqstore.bodies import BODY_MARK, inflate_start
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.services.schedule_search import record_at

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.store import MessageStore

__all__ = ["find_messages", "message_body", "topic_figures"]

_MESSAGES = 20
_QUEUES = 256  # of a topic, read at most
_TEXT = 2000  # characters of a body or a property
_PROPERTIES = 50
_START = 4 * _TEXT  # bytes of a body decoded for those characters
_FRAMES = 1000  # limit of compression frames read for them
_COMPRESSED = 1  # MessageSysFlag.COMPRESSED_FLAG
_FIND_SECONDS = 1.0  # no further topic is searched then
_DIGITS = 19  # of a physical offset


def topic_figures(store: MessageStore, name: str) -> dict[str, Any] | None:
    """Return a topic's queues and its newest messages; None if there is no such topic."""
    topic = store.topics.get(name)
    if topic is None:
        return None
    queues = [topic[queue_id] for queue_id in sorted(topic)[:_QUEUES]]
    # The newest of each queue; repeatedly the newest of these, replaced by the one before it.
    heap: list[tuple[int, int, int, Message]] = []

    def push(at: int, offset: int) -> None:
        try:
            message = queues[at][offset]
        except (LookupError, StoreError, OSError):  # before the first, removed, or damaged
            return
        heapq.heappush(heap, (-message.physical_offset, at, offset, message))

    for at, queue in enumerate(queues):
        if queue.max_offset > 0:
            push(at, queue.max_offset - 1)
    newest: list[dict[str, Any]] = []
    while heap and len(newest) < _MESSAGES:
        _, at, offset, message = heapq.heappop(heap)
        newest.append(_description(message) | _preview(message))
        if offset > 0:
            push(at, offset - 1)
    return {
        "name": name,
        "perm": topic.perm,
        "queues": [
            {"id": queue.queue_id, "min": queue.min_offset, "max": queue.max_offset}
            for queue in queues
        ],
        "queues_left_out": max(0, len(topic) - _QUEUES),
        "messages": newest,
    }


def find_messages(
    store: MessageStore, topic: str, text: str, is_built_in: Callable[[str], bool]
) -> dict[str, Any]:
    """Return the messages with a key or an id, newest first, without their bodies.

    Keys and unique keys are looked up in the index, of one topic or, without one, of the users'
    topics for as long as :data:`_FIND_SECONDS`; a store's message id needs neither.
    """
    found: dict[int, Message] = {}
    offset = offset_of(text)
    named = record_at(store.core, offset) if offset is not None else None
    if named is not None:
        found[named.physical_offset] = named
    topics = [topic] if topic else [one for one in store.topics if not is_built_in(one)]
    until = time.monotonic() + _FIND_SECONDS
    searched = 0
    error = ""
    for name in topics:
        if len(found) > _MESSAGES or (searched and time.monotonic() > until):
            break
        searched += 1
        try:
            for message in _query(store, name, text):
                found[message.physical_offset] = message
        except (StoreError, OSError) as damage:
            error = error or str(damage)
    newest = sorted(found.values(), key=lambda one: -one.physical_offset)
    return {
        "messages": [_description(one) for one in newest[:_MESSAGES]],
        "more": len(newest) > _MESSAGES,
        "topics_left_out": len(topics) - searched,
        "error": _cut(error),
    }


def _query(store: MessageStore, topic: str, key: str) -> list[Message]:
    if not key or not paths.is_stored_topic_name(topic):
        return []
    try:
        return store.query(topic, key, max_num=_MESSAGES + 1, index_only=True)
    except ValueError:  # no UTF-8, or with a character that no key has
        return []


def message_body(store: MessageStore, at: str) -> dict[str, Any] | None:
    """Return the start of a body, by its message's physical offset; None if there is none."""
    if not (at.isascii() and at.isdigit() and len(at) <= _DIGITS and int(at) <= INT64_MAX):
        return None
    message = record_at(store.core, int(at))
    return None if message is None else _preview(message)


def _description(message: Message) -> dict[str, Any]:
    """Return everything of a message but its body, as cut text."""
    return {
        "topic": _cut(message.topic),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "at": str(message.physical_offset),  # may exceed a number of the script
        "stored": message.store_timestamp,
        "born": message.born_timestamp,
        "id": _cut(message.uniq_key or message.msg_id),
        "msg_id": message.msg_id,
        "tags": _cut(message.tags or ""),
        "keys": _cut(" ".join(message.keys)),
        "born_host": message.born_host,
        "bytes": len(message.raw_body),
        "properties": _properties(message.properties),
    }


def _preview(message: Message) -> dict[str, Any]:
    """Return the start of a body as text, inflated no further."""
    raw = message.raw_body
    size = len(raw)
    mark = ""
    part = bytes(raw[:_START])
    whole = size <= len(part)
    if message.sys_flag & _COMPRESSED:
        try:
            part, whole = inflate_start(bytes(raw), message.sys_flag, _START, _FRAMES)
        except StoreError:
            whole, mark = False, BODY_MARK
    text = part.decode("utf-8", "replace")
    readable = "\ufffd" not in text[: _TEXT - 4]
    return {
        "text": mark + (text[:_TEXT] if readable else part[: _TEXT // 4].hex(" ")),
        "is_text": readable,
        "is_cut": not whole or len(text) > _TEXT or (not readable and size > _TEXT // 4),
    }


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {_cut(name): _cut(value) for name, value in list(properties.items())[:_PROPERTIES]}


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else text[:_TEXT] + "..."
