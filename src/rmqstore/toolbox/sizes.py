"""Bytes and messages of a log by topic, queue, group, tag, day and hour."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from rmqstore import opening
from rmqstore.base.arguments import wrong_value
from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.base.times import format_millis
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.consume.lag import (
    QueueBounds,
    bounds_by_topic,
    queued_size,
    time_of_one,
    within_bounds,
)
from rmqstore.errors import StoreCorruptError

if TYPE_CHECKING:
    from rmqstore._core import Core, Message
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.store import MessageStore

__all__ = [
    "DISK_USE_KEYS",
    "DiskUse",
    "Statistics",
    "disk_use",
    "disk_use_keys",
    "disk_use_of",
    "group_of",
    "statistics",
    "statistics_of",
]

_GROUP_PREFIXES = ("%RETRY%", "%DLQ%")
_PLACES = 1000  # of damage that are reported
_REACHED = 4096  # messages
_SAMPLES = 4096  # least hashes of keys; the estimate's error is 1.6 %
_HASHES = 1 << 64
_HOUR = len("2026-01-31T08")
_DAY = len("2026-01-31")


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Messages with the same values of the keys of :func:`disk_use`.

    Attributes
    ----------
    keys : dict
        The value of each key, in the requested order.
    messages, bytes : int
        Number of records, and the bytes that they take in the log.
    first, last : int or None
        Store times in ms since the epoch: the least and the greatest, or those of both ends of
        queues if only units were read; None if no record there can be read.
    """

    keys: dict[str, Any]
    messages: int
    bytes: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a topic.

    Attributes
    ----------
    topic : str
    messages, bytes : int
        Number of its records, and the bytes that they take in the log.
    rate : float
        Messages a second from the first store time to the last; 0 if these are the same.
    size_p50, size_p99 : int
        Median and 99th percentile of the bytes of a record; 0 without messages.
    tags : dict of str to int
        Messages by tag, most frequent first; ``""`` without one.
    keys_distinct_estimate : int
        Number of different KEYS: exact up to 4,096, with a standard error of 1.6 % above.
    first, last : int or None
        Least and greatest store time, in ms since the epoch.
    """

    topic: str
    messages: int
    bytes: int
    rate: float
    size_p50: int
    size_p99: int
    tags: dict[str, int]
    keys_distinct_estimate: int
    first: int | None
    last: int | None


def group_of(topic: str) -> str | None:
    """Return the consumer group of a retry or dead letter topic, None for any other."""
    for prefix in _GROUP_PREFIXES:
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None


# Keys known from a topic's name and queue: units suffice.
_QUEUE_KEYS: dict[str, Callable[[str, int], Any]] = {
    "topic": lambda topic, queue_id: topic,
    "queue": lambda topic, queue_id: queue_id,
    "group": lambda topic, queue_id: group_of(topic),
}
_MESSAGE_KEYS: dict[str, Callable[[Message], Any]] = {
    "topic": lambda message: message.topic,
    "queue": lambda message: message.queue_id,
    "group": lambda message: group_of(message.topic),
    "day": lambda message: format_millis(message.store_timestamp)[:_DAY],
    "hour": lambda message: format_millis(message.store_timestamp)[:_HOUR] + "Z",
    "tag": lambda message: message.tags,
}
DISK_USE_KEYS = tuple(_MESSAGE_KEYS)


def disk_use(
    path: str | os.PathLike[str],
    *,
    by: str | Iterable[str] = ("topic",),
    top: SupportsIndex | None = None,
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> list[DiskUse]:
    """Return the bytes that messages take in the log, most first.

    By topic, queue and group only the queues' units are read; their bytes leave out prepared
    messages that are in no queue, and records of deleted topics. By tag, day and hour all records
    of the log are read, and these are counted as well, but damaged ones are not. Light queues have
    no records of their own and are left out.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    by : iterable of str, optional
        Any of ``topic queue day hour tag group``. Days and hours are of the store time, in UTC;
        the group is that of retry and dead letter topics, None for others.
    top : int, optional
        Maximum number of rows.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    list of DiskUse

    Raises
    ------
    ValueError
        ``by`` is empty or names no such key, or one twice; ``top`` is negative.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.
    """
    keys = disk_use_keys(by)
    most = None if top is None else index(top)
    if most is not None and most < 0:
        raise wrong_value("top", "0 or more", most)
    with opening.open(path, config=config) as store:
        return disk_use_of(store, keys)[:most]


def disk_use_of(
    store: MessageStore,
    keys: tuple[str, ...],
    *,
    damaged: Callable[[StoreCorruptError], object] | None = None,
    reached: Callable[[int], object] | None = None,
) -> list[DiskUse]:
    """Return :func:`disk_use` of an open store, by checked keys.

    Where records are read, ``damaged`` gets each place of damage that was left out, up to 1,000,
    and ``reached`` every now and then the physical offset.
    """
    if all(key in _QUEUE_KEYS for key in keys):
        rows = _from_units(store, keys)
    else:
        rows = _from_records(store, keys, damaged, reached)
    found = [DiskUse(dict(zip(keys, values, strict=True)), *row) for values, row in rows.items()]
    found.sort(key=lambda one: (-one.bytes, [str(value) for value in one.keys.values()]))
    return found


def disk_use_keys(by: str | Iterable[str]) -> tuple[str, ...]:
    """Return the keys of :func:`disk_use`, checked."""
    keys = (by,) if isinstance(by, str) else tuple(by)
    for key in keys:
        if key not in DISK_USE_KEYS:
            raise wrong_value("by", f"some of {' '.join(DISK_USE_KEYS)}", key)
    if not keys or len(set(keys)) != len(keys):
        raise wrong_value("by", f"some of {' '.join(DISK_USE_KEYS)}, each once", " ".join(keys))
    return keys


_Row = tuple[int, int, int | None, int | None]
_NOTHING: _Row = (0, 0, None, None)


def _added(one: _Row, messages: int, size: int, first: int | None, last: int | None) -> _Row:
    lowest = min((time for time in (one[2], first) if time is not None), default=None)
    highest = max((time for time in (one[3], last) if time is not None), default=None)
    return one[0] + messages, one[1] + size, lowest, highest


def _from_units(store: MessageStore, keys: tuple[str, ...]) -> dict[tuple[Any, ...], _Row]:
    rows: dict[tuple[Any, ...], _Row] = {}
    for topic, queue in _queues(store):
        values = tuple(_QUEUE_KEYS[key](topic, queue.queue_id) for key in keys)
        read = partial(_queue_row, store.core, topic, queue.queue_id)
        row = within_bounds(store.core, topic, queue.queue_id, (queue.start, queue.stop), read)
        if row[0]:
            rows[values] = _added(rows.get(values, _NOTHING), *row)
    return rows


def _queue_row(core: Core, topic: str, queue_id: int, start: int, stop: int) -> _Row:
    messages, size = queued_size(core, topic, queue_id, start, stop)
    first = time_of_one(core, topic, queue_id, range(start, stop), warn=False)
    last = time_of_one(core, topic, queue_id, range(stop - 1, start - 1, -1), warn=False)
    return messages, size, None if first < 0 else first, None if last < 0 else last


def _queues(store: MessageStore) -> Iterator[tuple[str, QueueBounds]]:
    for topic, queues in bounds_by_topic(store.core).items():
        if not topic.startswith(LIGHT_PREFIX):
            yield from ((topic, queue) for queue in queues)


def _good_messages(
    store: MessageStore, damaged: Callable[[StoreCorruptError], object] | None
) -> Iterator[Message]:
    """Iterate over the messages of the log; ``damaged`` gets what lies between them."""
    start: int | None = None
    for _ in range(_PLACES if damaged is not None else 0):
        try:
            yield from store.scan(start=start, on_removed="skip")
            return
        except StoreCorruptError as error:
            assert damaged is not None
            damaged(error)
            behind = store.scan(start=error.offset + 1, on_corruption="skip", on_removed="skip")
            following = next(iter(behind), None)
            if following is None:
                return
            start = following.physical_offset
    yield from store.scan(start=start, on_corruption="skip", on_removed="skip")


def _from_records(
    store: MessageStore,
    keys: tuple[str, ...],
    damaged: Callable[[StoreCorruptError], object] | None,
    reached: Callable[[int], object] | None,
) -> dict[tuple[Any, ...], _Row]:
    rows: dict[tuple[Any, ...], list[int]] = {}
    readers = [_MESSAGE_KEYS[key] for key in keys]
    for number, message in enumerate(_good_messages(store, damaged)):
        if number % _REACHED == 0 and reached is not None:
            reached(message.physical_offset)
        values = tuple([reader(message) for reader in readers])
        time = message.store_timestamp
        row = rows.get(values)
        if row is None:
            rows[values] = [1, message.store_size, time, time]
            continue
        row[0] += 1
        row[1] += message.store_size
        row[2] = min(row[2], time)
        row[3] = max(row[3], time)
    return {values: (row[0], row[1], row[2], row[3]) for values, row in rows.items()}


def statistics(
    path: str | os.PathLike[str],
    topic: str,
    *,
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> Statistics:
    """Return rates, sizes, tags and keys of a topic's messages; damaged ones are left out.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    topic : str
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    Statistics

    Raises
    ------
    TopicNotFoundError
        There is no such topic.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.
    """
    with opening.open(path, config=config) as store:
        return statistics_of(store, topic)


def statistics_of(
    store: MessageStore, topic: str, *, reached: Callable[[int], object] | None = None
) -> Statistics:
    """Return :func:`statistics` of an open store's topic; ``reached`` as in `disk_use_of`."""
    messages: Iterable[Message] = store[topic].messages(on_corruption="skip")
    if not topic.startswith(LIGHT_PREFIX):  # prepared ones as well, which are in no queue
        messages = store.scan(topic, on_corruption="skip", on_removed="skip")
    sizes: dict[int, int] = {}  # messages by size
    tags: dict[str, int] = {}
    keys = _DistinctKeys()
    first, last = INT64_MAX, INT64_MIN
    for number, message in enumerate(messages):
        if number % _REACHED == 0 and reached is not None:
            reached(message.physical_offset)
        size, tag, time = message.store_size, message.tags or "", message.store_timestamp
        sizes[size] = sizes.get(size, 0) + 1
        tags[tag] = tags.get(tag, 0) + 1
        keys.add(message.keys)
        first, last = min(first, time), max(last, time)
    count = sum(sizes.values())
    return Statistics(
        topic,
        messages=count,
        bytes=sum(size * number for size, number in sizes.items()),
        rate=count * 1000 / (last - first) if last > first else 0.0,
        size_p50=_percentile(sizes, 50),
        size_p99=_percentile(sizes, 99),
        tags=dict(sorted(tags.items(), key=lambda one: (-one[1], one[0]))),
        keys_distinct_estimate=keys.estimate(),
        first=first if count else None,
        last=last if count else None,
    )


def _percentile(counts: dict[int, int], percent: int) -> int:
    """Return the least value such that so many percent are not above it; 0 without any."""
    wanted = sum(counts.values()) * percent
    passed = 0
    for value in sorted(counts):
        passed += counts[value] * 100
        if passed >= wanted:
            return value
    return 0


class _DistinctKeys:
    """Number of different keys, by the least hashes (Bar-Yossef et al., k minimum values)."""

    def __init__(self) -> None:
        self._least: list[int] = []  # a heap of negated hashes
        self._held: set[int] = set()

    def add(self, keys: Iterable[str]) -> None:
        """Enter some keys."""
        from xxhash import xxh3_64_intdigest

        for key in keys:
            number = xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"))
            if number in self._held:
                continue
            if len(self._least) < _SAMPLES:
                heapq.heappush(self._least, -number)
            elif number < -self._least[0]:
                self._held.discard(-heapq.heapreplace(self._least, -number))
            else:
                continue
            self._held.add(number)

    def estimate(self) -> int:
        """Return the number of different keys entered."""
        if len(self._least) < _SAMPLES:
            return len(self._least)
        return round((_SAMPLES - 1) * _HASHES / (1 - self._least[0]))
