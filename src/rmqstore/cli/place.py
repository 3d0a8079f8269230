"""``TOPIC/QUEUE@OFFSET``: a message by its place, as ``-f '%t/%q@%o'`` writes it."""

from __future__ import annotations

import contextlib
import re
import shlex
from typing import TYPE_CHECKING

from rmqstore.cli.common import known_queue, known_topic, unknown_name
from rmqstore.cli.failures import NOT_FOUND, CliError
from rmqstore.cli.walk import Damaged
from rmqstore.errors import MessageNotFoundError, StoreCorruptError, StoreError

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.store import MessageStore

__all__ = ["message_of", "refuse_place"]

_PLACE = re.compile(r"([^/@]+)/(\d{1,10})@(\d{1,18})", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]{24,64}", re.ASCII)
_ID_LENGTHS = (32, 56)  # with an IPv4, an IPv6 address


def message_of(store: MessageStore, id: str) -> Message:
    """Return the message of an argument of ``get``; for an unknown one, fail and explain ids."""
    place = _PLACE.fullmatch(id)
    if place is not None and place[1] in store.topics:
        topic, queue_id, offset = known_topic(store, place[1]), int(place[2]), int(place[3])
        known_queue(topic, queue_id)
        queue = topic[queue_id]
        try:
            return queue[offset]
        except IndexError:
            low, high = queue.min_offset, queue.max_offset
            there = f"has offsets {low} to {high - 1}" if low < high else "has no messages"
            raise CliError(
                f"no message {id!r}; queue {topic.name}/{queue_id} {there}", NOT_FOUND
            ) from None
    try:
        return store.message(id)
    except MessageNotFoundError as error:
        if place is not None:
            raise unknown_name("topic", place[1], store.topics) from None
        if isinstance(damage := error.__cause__, StoreCorruptError):
            # At the start of a record this raises the damage; within one, ID is of another store.
            store.scan(start=damage.offset, stop=damage.offset + 1).count()
        damaged = Damaged(store)
        damaged.add_passed_over(store)
        damaged.check()
        hint = (
            "ID is a message id (%i), a unique key (%u) or TOPIC/QUEUE@OFFSET; "
            "'rmqstore find' finds by key"
        )
        if _is_key(store, id):
            hint = "it is a key: "
            hint += f"rmqstore find {shlex.quote(store.path)} --key {shlex.quote(id)}"
        elif _HEX.fullmatch(id) and len(id) not in _ID_LENGTHS:
            hint = f"a message id has {_ID_LENGTHS[0]} hexadecimal digits, this has {len(id)}"
        raise CliError(f"{error}; {hint}", NOT_FOUND) from None


def _is_key(store: MessageStore, text: str) -> bool:
    """Whether the index has a message with this key."""
    with contextlib.suppress(StoreError, ValueError, OSError):
        return any(store.query(topic, text, max_num=1, index_only=True) for topic in store.topics)
    return False


def refuse_place(store: MessageStore, topic: str) -> None:
    """Raise, naming the right options, if a place was given instead of a topic."""
    place = _PLACE.fullmatch(topic)
    if place is not None and place[1] in store.topics:
        name, queue_id, offset = place.groups()
        raise CliError(
            f"no topic {topic!r}; did you mean -t {name} -q {queue_id} --from {offset}?", NOT_FOUND
        )
