"""Walk through the messages of many queues in log order, as ``cat`` does."""

from __future__ import annotations

import heapq
import itertools
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX, INT64_MIN, UNIT_BLANK_SIZE
from rmqstore.cli.common import reported_damage
from rmqstore.cli.failures import UNREADABLE, CliError, say
from rmqstore.cli.progress import Progress
from rmqstore.errors import MessageNotFoundError, StoreCorruptError
from rmqstore.filters import message_passes
from rmqstore.types import GetStatus

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["Bound", "Damaged", "MessageSelection", "follow", "walk"]

_BATCH_MESSAGES = 256
_BATCH_BYTES = 1 << 20
_ALL_BATCHES_MESSAGES = 8192  # of all queues together
_POLL_SECONDS = 0.1
_REPORTED = 10  # damaged messages, each on a line
_UNITS = 4096  # examined together

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end of a selection."""

    kind: str  # "time" (ms), "queue" or "log" (offsets), or "last" (so many before the end)
    value: int  # 0 or more

    def offset_in(self, queue: Queue) -> int:
        """Return the first queue offset at or after the bound."""
        low, high = queue.min_offset, queue.max_offset
        if self.kind == "queue":
            return max(low, min(self.value, high))
        if self.kind == "last":
            return max(low, high - self.value)
        first = _first_unit
        if self.kind == "time":
            try:
                return queue.offset_at(self.value, "lower")
            except StoreCorruptError:  # a damaged message on the way
                first = _first_time
        while low < high:
            middle = (low + high) // 2
            at, found = first(queue, middle, high)
            if found < self.value:
                low = at + 1
            else:
                high = middle
        return low

    def end_in(self, queue: Queue) -> int:
        """Return a queue offset such that all messages before the bound lie before it."""
        if self.kind != "time":
            return self.offset_in(queue)
        try:
            return queue.offset_at(self.value - 1, "upper") + 1
        except StoreCorruptError:  # a damaged message on the way: up to the end
            return queue.max_offset


def _first_unit(queue: Queue, start: int, stop: int) -> tuple[int, int]:
    """Return queue and log offset of the first unit with a record; ``stop`` without one."""
    while start < stop:
        units = queue.units(start, min(stop, start + _UNITS))
        sizes = units["size"]
        good = (sizes > 0) & (sizes != UNIT_BLANK_SIZE) & (units["physical_offset"] >= 0)
        if good.any():
            at = int(good.argmax())
            return start + at, int(units["physical_offset"][at])
        start += len(units)
    return stop, INT64_MAX


def _first_time(queue: Queue, start: int, stop: int) -> tuple[int, int]:
    """Return queue offset and store time of the first good message; as :func:`_first_unit`."""
    for at in range(start, stop):
        try:
            return at, queue[at].store_timestamp
        except (StoreCorruptError, LookupError):  # damaged, or lost
            continue
    return stop, INT64_MAX


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Selection of messages; ``topic`` and ``queue_id`` are ``None`` for all."""

    topic: str | None = None
    queue_id: int | None = None
    start: Bound | None = None
    stop: Bound | None = None  # exclusive
    tags: str | None = None  # an expression
    sql: str | None = None  # an SQL92 filter

    def queues(self, store: MessageStore) -> dict[Key, Queue]:
        """Return the current queues; raise if a named one is missing."""
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

    def in_time(self, messages: Iterator[Message]) -> Iterator[Message]:
        """Leave out messages stored at other times, mixed in by a clock set back."""
        since = self.start.value if self.start and self.start.kind == "time" else INT64_MIN
        until = self.stop.value if self.stop and self.stop.kind == "time" else INT64_MAX
        if (since, until) == (INT64_MIN, INT64_MAX):
            return messages
        return (each for each in messages if since <= each.store_timestamp < until)


class Damaged:
    """Count of the damaged messages left out, of which the first are reported at once.

    Damage of the log reported by opening counts too: its messages and topics are unknown.
    ``on_corruption``: ``"raise"`` an error at the first, or ``"skip"`` them and report their count.
    """

    def __init__(self, store: MessageStore, on_corruption: str | None = None) -> None:
        self.count = 0
        self._on_corruption = on_corruption
        self.reported = len(reported_damage(store)) if store.mode == "r" else 0
        self._starts = [one.start for one in store.recovery.ranges]
        self._lacks_files = bool(store.recovery.damaged_files)

    def add(self, where: str, error: StoreCorruptError) -> None:
        """Count a damaged message."""
        if self._on_corruption == "raise":
            raise error
        self.count += 1
        if self.count <= _REPORTED:
            say(f"{where}: {error}")

    def add_passed_over(self, store: MessageStore) -> None:
        """Count the damage that queries skipped where no index covers the log."""
        for error in store.passed_over:
            self.add("the log", error)

    def first(
        self, messages: Iterable[Message], number: int, *, newest_first: bool = False
    ) -> Iterator[Message]:
        """Iterate over the first ``number``; damage behind as many messages does not count."""
        shown = 0
        least, most = sys.maxsize, -1
        for message in itertools.islice(messages, number):
            shown += 1
            least = min(least, message.physical_offset)
            most = max(most, message.physical_offset)
            yield message
        if newest_first:
            among = any(start > least for start in self._starts)
        else:
            among = any(start < most for start in self._starts)
        if shown == number and not among and not self._lacks_files:
            self.reported = 0

    def check(self) -> None:
        """Raise if any message was left out."""
        if self.count:
            text = "message was" if self.count == 1 else "messages were"
            why = f"{self.count} damaged {text} left out"
        elif self.reported:
            why = "what lay in the damaged part of the log is not known: messages may be left out"
        else:
            return
        if self._on_corruption != "skip":
            raise CliError(why, UNREADABLE)
        say(why)


def walk(
    store: MessageStore,
    chosen: MessageSelection,
    damaged: Damaged,
    progress: Progress,
    reached: dict[Key, int] | None = None,
) -> Iterator[Message]:
    """Iterate over the chosen messages present now, in log order.

    A ``"last"`` start counts over all queues together; ``progress`` counts queue offsets passed.
    ``reached``, if given, has the first offset for each queue, and is set to the queue's end.
    """
    queues = chosen.queues(store)
    share = max(4, min(_BATCH_MESSAGES, _ALL_BATCHES_MESSAGES // max(1, len(queues))))
    places = {} if reached is None else reached
    parts: list[Iterator[Message]] = []
    total = 0
    read = partial(_read, store, chosen, share=share, damaged=damaged, progress=progress)
    for key, queue in queues.items():
        end = queue.max_offset
        if chosen.stop is not None:
            end = min(end, chosen.stop.end_in(queue))
        begin = places.get(key)
        if begin is None:
            begin = chosen.start.offset_in(queue) if chosen.start else queue.min_offset
        places[key] = max(begin, end)
        if span := range(begin, end):
            total += len(span)
            parts.append(read(key, span))
    progress.total = total
    merged: Iterator[Message]
    if len(parts) == 1:
        merged = parts[0]
    else:
        merged = heapq.merge(*parts, key=lambda message: message.physical_offset)
    merged = chosen.in_time(merged)
    if chosen.start is not None and chosen.start.kind == "last":
        merged = iter(deque(merged, maxlen=chosen.start.value))
    return merged


def _read(
    store: MessageStore,
    chosen: MessageSelection,
    key: Key,
    span: range,
    *,
    share: int,
    damaged: Damaged,
    progress: Progress,
) -> Iterator[Message]:
    """Iterate over the queue offsets ``span`` of one queue, ``share`` messages at a time."""
    topic, queue_id = key
    offset, end = span.start, span.stop
    while offset < end:
        most = min(share, end - offset)
        try:
            found = store.get(
                *(topic, queue_id, offset, most),
                max_bytes=_BATCH_BYTES,
                tags=chosen.tags,
                sql=chosen.sql,
            )
        except StoreCorruptError:
            each = range(offset, offset + most)
            yield from _read_each(store[topic][queue_id], each, chosen, damaged)
            offset += most
            progress.done += most
            continue
        if found.status is GetStatus.OFFSET_TOO_SMALL:
            say(
                f"{topic}/{queue_id}: messages {offset} to {found.next_offset - 1} "
                "have been removed"
            )
        for message in found.messages:
            if message.queue_offset >= end and message.topic == topic:
                return
            yield message
        if found.next_offset <= offset:
            return
        progress.done += found.next_offset - offset
        offset = found.next_offset


def _read_each(
    queue: Queue, span: range, chosen: MessageSelection, damaged: Damaged
) -> Iterator[Message]:
    """Iterate over queue offsets one at a time, as one of them is damaged."""
    for offset in span:
        try:
            if queue.units(offset, offset + 1)["size"][0] == UNIT_BLANK_SIZE:
                continue
            message = queue[offset]
        except StoreCorruptError as error:
            damaged.add(f"{queue.topic}/{queue.queue_id} at {offset}", error)
        except LookupError:  # no message at this offset
            continue
        else:
            if message_passes(message, tags=chosen.tags, sql=chosen.sql):
                yield message


def follow(
    store: MessageStore, chosen: MessageSelection, damaged: Damaged, shown: Callable[[], None]
) -> Iterator[Message]:
    """Iterate over the chosen messages and then over new ones, without end.

    The ``stop`` of ``chosen`` does not count. ``shown`` is called whenever all are read.
    """
    reached: dict[Key, int] = {}
    unseen = Progress("")
    yield from walk(store, chosen, damaged, unseen, reached)
    # A queue that appears later is shown from its first message on.
    later = replace(chosen, start=None, stop=None)
    for _ in itertools.count():
        shown()
        time.sleep(_POLL_SECONDS)
        yield from walk(store, later, damaged, unseen, reached)
