"""Message rates by topic and by group: sums and rates of a minute, hour and day.

Messages put are not counted here: the core counts them by topic when they are dispatched, and its
counters are read with each sample, including puts of the embedding program.

Source: ``store/stats/BrokerStatsManager.java``, ``common/stats/StatsItem.java``,
``broker/stats/BrokerStats.java``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.serve.network.turns import Steps, ended

if TYPE_CHECKING:
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.store import MessageStore

__all__ = ["Rates", "Span"]

_SECOND = 1000
SAMPLE_SECONDS = 10
_MINUTE_SAMPLES = 7
_HOUR_SAMPLES = 7  # ten minutes apart
_DAY_SAMPLES = 25  # an hour apart
_SAMPLE = Struct("<3q")
_MAX_ITEMS = 20_000  # per name: groups are named by clients
_STEP = 128  # counters read or sampled between two steps

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
_NAMES = (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK_PUT_NUMS,
          BROKER_PUT_NUMS, BROKER_GET_NUMS)  # fmt: skip


class Span(NamedTuple):
    """Counts between two snapshots: sum, rate a second, average per event."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class _Item:
    """A counter and its snapshots, each with the loop's clock in ms, times and value.

    Packed, as there may be many: the garbage collector has nothing to visit.
    """

    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self.minute = b""
        self.hour = b""
        self.day = b""

    def sampled(self, snapshots: bytes, most: int, now: int, seconds: int) -> bytes:
        """Add a snapshot, keeping at most ``most``; before the first one nothing was counted."""
        if not snapshots:
            snapshots = _SAMPLE.pack(now - seconds * _SECOND, 0, 0)
        return snapshots[-_SAMPLE.size * (most - 1) :] + _SAMPLE.pack(now, self.times, self.value)


def _span(snapshots: bytes) -> Span:
    if not snapshots:
        return Span()
    began, times, value = _SAMPLE.unpack_from(snapshots)
    ended_at, last_times, last_value = _SAMPLE.unpack_from(snapshots, -_SAMPLE.size)
    total, times = last_value - value, last_times - times
    tps = total * 1000.0 / max(1, ended_at - began)
    return Span(total, tps, total / times if times > 0 else 0.0)


class Rates:
    """Counters of a gateway; used only in its loop."""

    def __init__(self, store: MessageStore, settings: Settings, work: Work) -> None:
        self._store = store
        self._cluster = settings.cluster
        self._work = work
        self._items: dict[str, dict[str, _Item]] = {name: {} for name in _NAMES}
        self._began = store.core.topic_counts()
        self.put_morning = (0, 0)  # messages until yesterday's and this morning
        self.got_morning = (0, 0)  # the same
        self._day = self._today()
        self._begun = self._read_put(), self._read_got()
        for seconds, sampled, name in (
            (SAMPLE_SECONDS, self._sampled_seconds, "sampling rates"),
            (600, self._sampled_minutes, "sampling rates of an hour"),
            (3600, self._sampled_hours, "sampling rates of a day"),
        ):
            work.every(seconds, partial(self._begin, sampled), name)

    # Counting

    def got(self, group: str, topic: str, messages: int, size: int) -> None:
        """Count the messages of a pull's answer, and their bytes."""
        key = f"{topic}@{group}"
        self._add(GROUP_GET_NUMS, key, messages, 1)
        self._add(GROUP_GET_SIZE, key, size, 1)
        self._add(BROKER_GET_NUMS, self._cluster, messages, 0)

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message given back by a consumer."""
        self._add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1, 1)

    def forget_topic(self, topic: str) -> Steps:
        """Forget the counters of a deleted topic; the core's continue."""
        for name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
            self._items[name].pop(topic, None)
        counts = self._store.core.topic_counts()
        if topic in counts:
            self._began[topic] = counts[topic]
        yield from self._forget(lambda key: key.startswith(topic + "@"))

    def forget_group(self, group: str) -> Steps:
        """Forget the counters of a deleted group."""
        yield from self._forget(lambda key: key.endswith("@" + group))

    def _forget(self, chosen: Callable[[str], bool]) -> Steps:
        for name in (GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK_PUT_NUMS):
            items = self._items[name]
            for number, key in enumerate(list(items)):
                if chosen(key):
                    items.pop(key, None)
                if number % _STEP == _STEP - 1:
                    yield

    def _add(self, name: str, key: str, value: int, times: int) -> None:
        item = self._item(name, key)
        if item is not None:
            item.value += value
            item.times += times

    def _item(self, name: str, key: str) -> _Item | None:
        """Return a counter, created for a new key; ``None`` if there are too many."""
        items = self._items[name]
        item = items.get(key)
        if item is None and len(items) < _MAX_ITEMS:
            item = items[key] = _Item()
        return item

    def read(self) -> Steps:
        """Read the core's counters of messages put, with a step after every few topics."""
        counts = self._store.core.topic_counts()
        for number, (topic, (messages, size)) in enumerate(counts.items()):
            if number % _STEP == _STEP - 1:
                yield
            began_messages, began_size = self._began.get(topic, (0, 0))
            if messages > began_messages:
                self._set(TOPIC_PUT_NUMS, topic, messages - began_messages, messages)
                self._set(TOPIC_PUT_SIZE, topic, size - began_size, messages)
        put = self.put_total
        if put:
            self._set(BROKER_PUT_NUMS, self._cluster, put, 0)

    def _set(self, name: str, key: str, value: int, times: int) -> None:
        item = self._item(name, key)
        if item is not None:
            item.value, item.times = value, times

    # Totals

    def _read_put(self) -> int:
        return int(self._store.core.figures()["put_records"])

    def _read_got(self) -> int:
        return int(self._store.core.figures()["get_transferred"])

    @property
    def put_total(self) -> int:
        """Messages put since the gateway started."""
        return self._read_put() - self._begun[0]

    @property
    def got_total(self) -> int:
        """Messages read since the gateway started."""
        return self._read_got() - self._begun[1]

    def _today(self) -> tuple[int, int]:
        local = time.localtime(self._store.clock.now() / 1000)
        return local.tm_year, local.tm_yday

    # Samples

    def _now(self) -> int:
        return int(self._work.loop.time() * 1000)

    def _begin(self, sampled: Callable[[], Steps]) -> None:
        self._work.turns.add(sampled())

    def sample_seconds(self) -> None:
        """Take the samples of a minute."""
        ended(self._sampled_seconds())

    def sample_minutes(self) -> None:
        """Take the samples of an hour."""
        ended(self._sampled_minutes())

    def sample_hours(self) -> None:
        """Take the samples of a day."""
        ended(self._sampled_hours())

    def _sampled(self, seconds: int, most: int, span: str) -> Steps:
        yield from self.read()
        now = self._now()
        for items in self._items.values():
            for number, item in enumerate(list(items.values())):
                setattr(item, span, item.sampled(getattr(item, span), most, now, seconds))
                if number % _STEP == _STEP - 1:
                    yield

    def _sampled_seconds(self) -> Steps:
        """Take the samples of a minute, every ten seconds."""
        yield from self._sampled(SAMPLE_SECONDS, _MINUTE_SAMPLES, "minute")
        today = self._today()
        if today != self._day:
            self._day = today
            self.put_morning = (self.put_morning[1], self.put_total)
            self.got_morning = (self.got_morning[1], self.got_total)

    def _sampled_minutes(self) -> Steps:
        """Take the samples of an hour, every ten minutes."""
        yield from self._sampled(600, _HOUR_SAMPLES, "hour")

    def _sampled_hours(self) -> Steps:
        """Take the samples of a day, every hour."""
        yield from self._sampled(3600, _DAY_SAMPLES, "day")

    # Reading

    def spans(self, name: str, key: str) -> tuple[Span, Span, Span] | None:
        """Return a counter's spans of minute, hour and day, as last read; ``None`` if unknown."""
        item = self._items.get(name, {}).get(key)
        if item is None:
            return None
        return _span(item.minute), _span(item.hour), _span(item.day)

    def rates(self, name: str) -> Iterator[tuple[str, float]]:
        """Yield each key of a counter with its rate a second, over the last minute."""
        for key, item in list(self._items[name].items()):
            yield key, _span(item.minute).tps

    def tps(self, name: str, key: str) -> float:
        """Return a counter's rate a second, over the last minute; 0.0 if unknown."""
        item = self._items[name].get(key)
        return _span(item.minute).tps if item is not None else 0.0
