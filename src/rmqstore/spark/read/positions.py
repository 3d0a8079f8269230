"""Start and end positions along queues: by offset, by store time, or by a group's progress.

Source: Spark's Kafka source, ``startingOffsets`` and its kin, for the meaning of the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.base.times import format_millis
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.errors import MessagesRemovedError
from rmqstore.spark.common.options import OptionError, Options, millis_of
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["FIRST", "LAST", "Positions", "parse_from", "parse_until"]

FIRST, LAST = -2, -1
"""JSON values for the first offset, and for the one after the last."""

_WORDS = {"first": "first", "earliest": "first", "last": "last", "latest": "last"}

PerQueue = dict[str, dict[int, int]]


@dataclass(frozen=True)
class Positions:
    """Start or end positions in queues; plain data."""

    option: str  # name of the option, for errors
    # for queues without an entry in ``offsets`` or ``times``
    word: Literal["first", "last", "group"]
    # by topic and queue; -2 is the first, -1 the one after the last
    offsets: PerQueue = field(default_factory=dict)
    time: int | None = None  # for all queues, in ms since the epoch
    times: PerQueue = field(default_factory=dict)  # ms since the epoch, by topic and queue
    on_no_match: Literal["error", "last"] = "error"  # if all messages are older
    group: str | None = None  # the group of ``word``
    exact: bool = True  # whether a missing offset is an error; else the nearest is taken
    is_end: bool = False  # whether reading ends here: after the last message before a time

    @property
    def topics(self) -> dict[str, set[int]]:
        """Named topics, and the named queues of each."""
        found: dict[str, set[int]] = {}
        for per_queue in (self.offsets, self.times):
            for topic, queues in per_queue.items():
                found.setdefault(topic, set()).update(queues)
        return found

    def time_of(self, topic: str, queue_id: int) -> int | None:
        """Return the time for a queue, None if it has an offset."""
        return self.times.get(topic, {}).get(queue_id, self.time)

    def progress(self, store: MessageStore) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the progress of all groups of a store; empty if no group is used."""
        return OffsetTable.load(store.path).offsets if self.word == "group" else {}

    def resolve(
        self,
        store: MessageStore,
        topic: str,
        queue_id: int,
        *,
        bounds: tuple[int, int] | None = None,
        progress: Mapping[tuple[str, str], Mapping[int, int]] | None = None,
    ) -> int:
        """Return the queue offset of a position; ``bounds`` and ``progress`` save look-ups.

        ``bounds`` are the first offset and the one after the last. Raises ``MessagesRemovedError``
        before the first existing offset, ``OptionError`` after the last, or if all messages are
        older.
        """
        low, high = bounds or store.queue_bounds(topic, queue_id)
        time = self.time_of(topic, queue_id)
        if time is not None:
            return self._by_time(Queue(store, topic, queue_id), time, low, high)
        offset = self.offsets.get(topic, {}).get(queue_id)
        if offset is None and self.group is not None:
            known = self.progress(store) if progress is None else progress
            offset = known.get((topic, self.group), {}).get(queue_id)
        if offset is None:
            offset = LAST if self.word == "last" else FIRST
        if offset in (FIRST, LAST):
            return low if offset == FIRST else high
        if self.exact and offset < low:
            raise MessagesRemovedError(topic, queue_id, offset, low)
        if self.exact and offset > high:
            raise OptionError(
                f"option {self.option!r} is {offset} for {topic}/{queue_id}, behind its end at "
                f"{high}"
            )
        return min(max(offset, low), high)

    def _by_time(self, queue: Queue, time: int, low: int, high: int) -> int:
        if self.is_end:
            return queue.offset_at(max(time - 1, INT64_MIN), "upper", bounds=(low, high)) + 1
        found = queue.offset_at(time, bounds=(low, high))
        if low < high == found and self.on_no_match == "error":
            raise OptionError(
                f"option {self.option!r} is {time}: {queue.topic}/{queue.queue_id} has messages, "
                f"but none at or after {format_millis(time)}; with onNoTimestampMatch=last that "
                "is its end"
            )
        return found


def parse_from(options: Options) -> Positions | None:
    """Return the start positions; None without such an option, ``OptionError`` if invalid.

    Queues without an entry, and those without an offset of the group, start at their first.
    """
    options.together("consumeFrom", "consumeFromTimestamp")
    on_no_match = options.choice("onNoTimestampMatch", "error", ("error", "last", "latest"))
    exact = options.flag("failOnDataLoss", True)
    group = options.text("group")
    if "consumeFromTimestamp" in options:
        time, times = _times(options, "consumeFromTimestamp")
        return Positions(
            "consumeFromTimestamp",
            "first",
            time=time,
            times=times,
            on_no_match="error" if on_no_match == "error" else "last",
            exact=exact,
        )
    if "onNoTimestampMatch" in options:
        raise OptionError("option 'onNoTimestampMatch' is given without 'consumeFromTimestamp'")
    text = options.text("consumeFrom")
    if text is None:
        return None
    if text.strip().lower() == "group":
        if not group:
            raise OptionError("option 'consumeFrom' is 'group', but option 'group' names none")
        return Positions("consumeFrom", "group", group=group, exact=exact)
    return _positions(options, "consumeFrom", "first", _WORDS, exact=exact)


def parse_until(options: Options) -> Positions | None:
    """Return the end positions, exclusive; None if there is no such option.

    Raises ``OptionError`` if a value is invalid, or options contradict each other.
    """
    options.together("consumeUntil", "consumeUntilTimestamp")
    exact = options.flag("failOnDataLoss", True)
    if "consumeUntilTimestamp" in options:
        time, times = _times(options, "consumeUntilTimestamp")
        return Positions("consumeUntilTimestamp", "last", time=time, times=times, is_end=True)
    if "consumeUntil" not in options:
        return None
    words = {word: meaning for word, meaning in _WORDS.items() if meaning == "last"}
    found = _positions(options, "consumeUntil", "last", words, exact=exact)
    for topic, queues in found.offsets.items():
        if FIRST in queues.values():
            raise OptionError(f"option 'consumeUntil' must be -1 or more for {topic!r}, got -2")
    return found


def _positions(
    options: Options,
    name: str,
    rest: Literal["first", "last"],
    words: Mapping[str, str],
    *,
    exact: bool,
) -> Positions:
    text = (options.text(name) or "").strip()
    if text.lower() in words:
        word: Any = words[text.lower()]
        return Positions(name, word, exact=exact)
    spelled = ", ".join((*dict.fromkeys(words.values()), *(["group"] if rest == "first" else [])))
    allowed = f'{spelled}, or JSON such as {{"topic":{{"0":23,"1":-1}}}}'
    if not text.startswith("{"):
        raise options.error(name, allowed)
    offsets = _per_queue(options, name, allowed)
    for queues in offsets.values():
        for value in queues.values():
            if type(value) is not int or not FIRST <= value <= INT64_MAX:
                raise options.error(name, allowed)
    return Positions(name, rest, offsets=offsets, exact=exact)


def _times(options: Options, name: str) -> tuple[int | None, PerQueue]:
    text = options.text(name) or ""
    if not text.lstrip().startswith("{"):
        return options.millis(name), {}
    allowed = 'a time, or JSON such as {"topic":{"0":1700000000000}}'
    found = _per_queue(options, name, allowed)
    return None, {
        topic: {queue_id: millis_of(name, value) for queue_id, value in queues.items()}
        for topic, queues in found.items()
    }


def _per_queue(options: Options, name: str, allowed: str) -> dict[str, dict[int, Any]]:
    """Return JSON by topic and queue, with raw values."""
    found = options.json(name)
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise options.error(name, allowed)
    result: dict[str, dict[int, Any]] = {}
    for topic, queues in found.items():
        if not all(key.isascii() and key.isdigit() and len(key) <= 10 for key in queues):
            raise options.error(name, allowed)
        result[topic] = {int(key): value for key, value in queues.items()}
    return result
