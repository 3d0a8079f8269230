"""Lag of consumer groups, from offsets, units and store times.

Source: ``tools/command/consumer/ConsumerProgressSubCommand.java``,
``broker/processor/AdminBrokerProcessor.java getConsumeStats``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqstore.base.layout import UNIT, UNIT_BLANK_SIZE
from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.errors import StoreCorruptError, StoreError
from rmqstore.files import paths

if TYPE_CHECKING:
    from rmqstore._core import Core
    from rmqstore.brokerfiles.offsets import Offsets
    from rmqstore.directory.registry import TopicRegistry

__all__ = [
    "Expiry",
    "Lag",
    "QueueBounds",
    "bounds_by_topic",
    "lag_of",
    "queue_bytes",
    "queued_size",
    "time_of_one",
    "with_uncommitted",
    "within_bounds",
]

_T = TypeVar("_T")

_FEW = 1024  # units in search of a record
_PIECE = 1 << 20  # units that are summed without a pause
_TRIES = 3  # attempts, while another process removes files
_LISTED_SECONDS = 0.1  # how often a reader lists files
_DAMAGED = 1000  # damaged or lost messages skipped in search of a time, at most


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a group in one queue.

    Attributes
    ----------
    group, topic : str
    queue_id : int
    committed : int
        Committed offset, the next that the group takes; 0 without one.
    min_offset, max_offset : int
        First queue offset that exists, and the offset after the last.
    messages : int
        Messages from the committed offset, or the first that exists, to the last.
    bytes : int
        Bytes of their records; a lost one, which recovery filled, has none.
    behind : timedelta
        Time from the store of the first record not consumed to that of the newest; 0 without
        one. Damaged and lost records are skipped.
    """

    group: str
    topic: str
    queue_id: int
    committed: int
    min_offset: int
    max_offset: int
    messages: int
    bytes: int
    behind: timedelta


class Expiry:
    """Times from which on retention may delete messages, which it does by whole log files."""

    def __init__(self, core: Core, hours: int) -> None:
        self._core = core
        self._millis = hours * 3_600_000
        self._first, self._stop, self._size = core.removable_files()
        self._ends: dict[int, int] = {}  # by the first byte of a file

    def of(self, lag: Lag) -> int | None:
        """Return that time for the first message of a lag, in ms.

        None without a lag, and while the message is in the log's last file, which stays.
        """
        start = max(lag.committed, lag.min_offset)
        stop = min(lag.max_offset, start + _FEW)
        try:
            units = self._core.units(lag.topic, lag.queue_id, start, stop) if start < stop else b""
        except (StoreCorruptError, FileNotFoundError):
            return None
        for offset, size, _ in UNIT.iter_unpack(memoryview(units)):
            if 0 < size < UNIT_BLANK_SIZE:
                file = offset - (offset - self._first) % self._size
                if not self._first <= file < self._stop:
                    return None
                if file not in self._ends:
                    self._ends[file] = self._end_of(file)
                return self._ends[file] + self._millis
        return None

    def _end_of(self, file: int) -> int:
        """Return the time of a log file's end: that of the record behind it."""
        try:
            return self._core.at(file + self._size).store_timestamp
        except (StoreError, OSError):  # damaged
            return self._core.log_changed_at(file)


def with_uncommitted(
    offsets: Offsets,
    queues: Mapping[str, Iterable[int]],
    registry: TopicRegistry,
    most: int | None = None,
) -> Offsets:
    """Return the offsets, with 0 added for queues of the same topics without one.

    Only existing queues that the topic's entry lets consumers read: a group consumes all of these.
    ``queues`` has the existing ids by topic; ``most`` limits the queues added.
    """
    found = {names: dict(committed) for names, committed in offsets.items()}
    added = 0
    for (topic, _), committed in found.items():
        entry = registry.get(topic)
        for queue_id in queues.get(topic, ()):
            readable = entry is None or queue_id < entry.read_queue_nums
            if readable and queue_id not in committed and (most is None or added < most):
                committed[queue_id] = 0
                added += 1
    return found


class QueueBounds(NamedTuple):
    """A queue with its first offset and the one after its last."""

    queue_id: int
    start: int
    stop: int

    @property
    def messages(self) -> int:
        """Number of offsets."""
        return self.stop - self.start


def bounds_by_topic(core: Core) -> dict[str, list[QueueBounds]]:
    """Return the bounds of each queue that has files, in order, by topic."""
    queues = core.queue_files()
    places = [(topic, queue_id) for topic, ids in queues.items() for queue_id in ids]
    found = iter(core.bounds_of_each(places))
    return {
        topic: [QueueBounds(queue_id, *(next(found) or (0, 0))) for queue_id in ids]
        for topic, ids in queues.items()
    }


def lag_of(
    core: Core, offsets: Offsets, group: str | None, topic: str | None, *, sizes: bool = True
) -> list[Lag]:
    """Return the lag in each queue with an offset, in order, of ``group`` and ``topic`` only.

    With ``sizes``, add up ``bytes``, which reads all units behind; else they are 0.
    """
    wanted = [
        (of_group, of_topic, queue_id, committed)
        for of_group, of_topic in sorted((names[1], names[0]) for names in offsets)
        if group in (None, of_group) and topic in (None, of_topic)
        for queue_id, committed in sorted(offsets[of_topic, of_group].items())
    ]
    places = {
        (of_topic, queue_id)
        for _, of_topic, queue_id, _ in wanted
        if paths.is_stored_topic_name(of_topic)
    }
    bounds = dict(zip(places, core.bounds_of_each(places), strict=True))
    return [_of_queue(core, one, bounds.get(one[1:3]), sizes=sizes) for one in wanted]


def _of_queue(
    core: Core,
    wanted: tuple[str, str, int, int],
    bounds: tuple[int, int] | None,
    *,
    sizes: bool,
) -> Lag:
    group, topic, queue_id, committed = wanted

    def read(low: int, high: int) -> tuple[int, int, int, int, timedelta]:
        first = min(max(committed, low), high)
        size = queued_size(core, topic, queue_id, first, high)[1] if sizes else 0
        return low, high, high - first, size, _behind(core, topic, queue_id, first, high)

    low, high, messages, size, behind = within_bounds(core, topic, queue_id, bounds, read)
    return Lag(group, topic, queue_id, committed, low, high, messages, size, behind)


def within_bounds(
    core: Core,
    topic: str,
    queue_id: int,
    bounds: tuple[int, int] | None,
    read: Callable[[int, int], _T],
) -> _T:
    """Return what ``read`` returns for a queue's bounds, again if files go meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return read(*(bounds or (0, 0)))
        except FileNotFoundError:
            time.sleep(_LISTED_SECONDS)
            bounds = core.bounds(topic, queue_id)
    return read(*(bounds or (0, 0)))


def queued_size(core: Core, topic: str, queue_id: int, start: int, stop: int) -> tuple[int, int]:
    """Return the number of records of the units of [start, stop), and their bytes."""
    messages = total = 0
    for at in range(start, stop, _PIECE):  # signals are handled between two
        count, size = core.queued_size(topic, queue_id, at, min(stop, at + _PIECE))
        messages += count
        total += size
    return messages, total


def queue_bytes(core: Core, topic: str, queue_id: int) -> int | None:
    """Return the bytes of a queue's records in the log, by its units; None for a light queue."""
    if topic.startswith(LIGHT_PREFIX):
        return None
    read = partial(queued_size, core, topic, queue_id)
    return within_bounds(core, topic, queue_id, core.bounds(topic, queue_id), read)[1]


def _behind(core: Core, topic: str, queue_id: int, first: int, stop: int) -> timedelta:
    """Return the time between the stores of the first message and of the last before ``stop``."""
    if first >= stop:
        return timedelta(0)
    begin = time_of_one(core, topic, queue_id, range(first, stop))
    end = time_of_one(core, topic, queue_id, range(stop - 1, first - 1, -1))
    return timedelta(milliseconds=max(0, end - begin) if begin >= 0 else 0)


def time_of_one(
    core: Core, topic: str, queue_id: int, offsets: Sequence[int], *, warn: bool = True
) -> int:
    """Return the store time of the first message neither lost nor damaged; -1 without one."""
    for at in offsets[:_DAMAGED]:
        try:
            millis = core.store_time(topic, queue_id, at)
        except StoreCorruptError as error:
            if warn and at == offsets[0]:
                log_warning(
                    "lag of %s, queue %d, as of the next good one: %s", topic, queue_id, error
                )
        else:
            if millis >= 0:
                return millis
    return -1
