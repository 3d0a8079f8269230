"""Going through the messages of many queues in log order, as ``cat`` does."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rmqstore.cli.failures import UNREADABLE, CliError
from rmqstore.errors import MessageNotFoundError, StoreCorruptError
from rmqstore.types import GetStatus

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["Bound", "Damaged", "Selection", "follow", "walk"]

_BATCH_MESSAGES = 256
_BATCH_BYTES = 1 << 20
_ALL_BATCHES_MESSAGES = 8192  # together, where queues are many
_POLL_SECONDS = 0.1
_BLANK_SIZE = 0x7FFFFFFF  # of a unit that stands for none
_DAMAGES_TOLD = 10  # each by itself

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or end.

    Attributes
    ----------
    kind : str
        ``"time"`` in ms, ``"queue"`` for a queue offset, ``"log"`` for a physical offset, or
        ``"last"`` for so many messages before the end.
    value : int
        0 or more.
    """

    kind: str
    value: int

    def offset_in(self, queue: Queue) -> int:
        """Return the first queue offset at or after the bound."""
        low, high = queue.min_offset, queue.max_offset
        if self.kind == "time":
            return queue.offset_at(self.value, "lower")
        if self.kind == "queue":
            return max(low, min(self.value, high))
        if self.kind == "last":
            return max(low, high - self.value)
        while low < high:
            middle = at = (low + high) // 2
            offset = _offset_of(queue, at)
            while offset is None and at < high - 1:
                at += 1
                offset = _offset_of(queue, at)
            if offset is not None and offset < self.value:
                low = at + 1
            else:
                high = middle
        return low


def _offset_of(queue: Queue, queue_offset: int) -> int | None:
    """Return where a unit points, be that good or bad; ``None`` for a blank one."""
    (unit,) = queue.units(queue_offset, queue_offset + 1)
    return None if unit["size"] == _BLANK_SIZE else int(unit["physical_offset"])


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages.

    Attributes
    ----------
    topic, queue_id
        ``None`` for all.
    start, stop : Bound, optional
        The first, and the one after the last.
    tags : str, optional
        A tag expression.
    """

    topic: str | None = None
    queue_id: int | None = None
    start: Bound | None = None
    stop: Bound | None = None
    tags: str | None = None

    def queues(self, store: MessageStore) -> dict[Key, Queue]:
        """Return the queues that are there now; errors if one was named and is not there."""
        names = [self.topic] if self.topic is not None else list(store.topics)
        found: dict[Key, Queue] = {}
        for name in names:
            topic = store[name]
            for queue_id in list(topic):
                if self.queue_id is None or queue_id == self.queue_id:
                    found[name, queue_id] = topic[queue_id]
        if self.queue_id is not None and not found:
            where = f"topic {self.topic!r}" if self.topic is not None else "the store"
            raise MessageNotFoundError(f"{where} has no queue {self.queue_id}")
        return found


class Damaged:
    """Messages that were passed over as they are damaged: how many; the first are told at once."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, where: str, error: StoreCorruptError) -> None:
        """Take in one more."""
        self.count += 1
        if self.count <= _DAMAGES_TOLD:
            click.echo(f"rmqstore: {where}: {error}", err=True)

    def check(self) -> None:
        """Raise if there was one."""
        if self.count:
            text = "1 damaged message was" if self.count == 1 else f"{self.count} damaged ones were"
            raise CliError(f"{text} left out", UNREADABLE)


def walk(
    store: MessageStore,
    chosen: Selection,
    damaged: Damaged,
    reached: dict[Key, int] | None = None,
) -> Iterator[Message]:
    """Go through the chosen messages that are there now, in log order.

    Parameters
    ----------
    store : MessageStore
        Any mode.
    chosen : Selection
        With a start of kind ``"last"`` the last so many of all queues together.
    damaged : Damaged
        Told of what cannot be shown.
    reached : dict, optional
        Queue offsets to begin at instead; set to where each queue ended.
    """
    queues = chosen.queues(store)
    share = max(4, min(_BATCH_MESSAGES, _ALL_BATCHES_MESSAGES // max(1, len(queues))))
    places = {} if reached is None else reached
    parts: list[Iterator[Message]] = []
    for key, queue in queues.items():
        end = queue.max_offset
        if chosen.stop is not None:
            end = min(end, chosen.stop.offset_in(queue))
        begin = places.get(key)
        if begin is None:
            begin = chosen.start.offset_in(queue) if chosen.start else queue.min_offset
        places[key] = max(begin, end)
        if span := range(begin, end):
            parts.append(_read(store, key, span, tags=chosen.tags, share=share, damaged=damaged))
    merged: Iterator[Message]
    if len(parts) == 1:
        merged = parts[0]
    else:
        merged = heapq.merge(*parts, key=lambda message: message.physical_offset)
    if chosen.start is not None and chosen.start.kind == "last":
        merged = iter(deque(merged, maxlen=chosen.start.value))
    return merged


def _read(
    store: MessageStore, key: Key, span: range, *, tags: str | None, share: int, damaged: Damaged
) -> Iterator[Message]:
    """Go through the queue offsets ``span`` of one queue, ``share`` messages at a time."""
    topic, queue_id = key
    offset, end = span.start, span.stop
    number = share
    while offset < end:
        try:
            found = store.get(
                topic,
                queue_id,
                offset,
                min(number, end - offset),
                max_bytes=_BATCH_BYTES,
                tags=tags,
            )
        except StoreCorruptError as error:
            if number == 1:
                damaged.add(f"{topic}/{queue_id} at {offset}", error)
                offset += 1
            number = share if number == 1 else 1  # one at a time up to the damaged one
            continue
        if found.status is GetStatus.OFFSET_TOO_SMALL:
            click.echo(
                f"rmqstore: {topic}/{queue_id}: messages {offset} to {found.next_offset - 1} "
                "have been removed",
                err=True,
            )
        for message in found.messages:
            if message.queue_offset >= end and message.topic == topic:
                return
            yield message
        if found.next_offset <= offset:
            return
        offset = found.next_offset


def follow(
    store: MessageStore, chosen: Selection, damaged: Damaged, shown: Callable[[], None]
) -> Iterator[Message]:
    """Go through the chosen messages and then through those that are appended, without end.

    Parameters
    ----------
    store : MessageStore
        Any mode.
    chosen : Selection
        Its ``stop`` is not asked.
    damaged : Damaged
        As for :func:`walk`.
    shown : callable
        Called whenever nothing more is there for now.
    """
    reached: dict[Key, int] = {}
    yield from walk(store, chosen, damaged, reached)
    # A queue that appears later is shown from its first message on.
    later = Selection(chosen.topic, chosen.queue_id, None, None, chosen.tags)
    for _ in itertools.count():
        shown()
        time.sleep(_POLL_SECONDS)
        yield from walk(store, later, damaged, reached)
