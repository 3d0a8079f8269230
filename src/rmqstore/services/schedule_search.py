"""Search for waiting delayed messages, and for deliveries that were not noted.

A broker's ``delayOffset.json`` is behind its deliveries, and so is ours after a kill.  A delivered
message is known by its record in the real topic, which has the same properties, among them
``DELAY`` and ``REAL_TOPIC``.

Source: ``store/schedule/ScheduleMessageService.java``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from rmqstore import _core
from rmqstore._core import Core, Message
from rmqstore.base.layout import EXT_ADDRESS, INT32_MAX, INT64_MAX, UNIT, UNIT_BLANK_SIZE
from rmqstore.base.warn import log_warning
from rmqstore.errors import MessageNotFoundError, StoreCorruptError, StoreError
from rmqstore.services.base import STORE_ENDED
from rmqstore.services.stored import SCHEDULE_TOPIC, Place, identity, real_place

__all__ = [
    "Waiting",
    "due_of",
    "find_delivered",
    "first_behind",
    "level_millis",
    "read_record",
    "record_at",
    "waiting",
]

_BLANK = (0, UNIT_BLANK_SIZE)  # physical offset and size of a blank unit
_EARLIEST = INT32_MAX + 1  # ms: tags codes below are hashes, or addresses in consumequeue_ext
_UNKNOWN_LEVEL = 1000  # ms, as 4.9.3
_CHUNK = 1024  # units read at a time
_TRIES = 3  # attempts, while another process removes files
_LISTED_SECONDS = 0.1  # how often a reader lists files
_MOST = 100_000  # messages of a level searched for at a time
_BACK = 4096  # units examined regardless of their time: the clock may have stepped
_NEVER = INT64_MAX
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Waiting(NamedTuple):
    """A unit of a queue; its ``physical_offset`` is -1 if it is damaged."""

    place: Place
    queue_offset: int
    physical_offset: int
    tags_code: int


@dataclass
class _Candidate:
    """A due message that may have been delivered."""

    level: int
    queue_offset: int
    physical_offset: int
    tags_code: int  # of the delivered record


@dataclass
class _Sought:
    """Candidates with the same real queue."""

    due: int  # the earliest
    behind: dict[tuple[int, bool], int] = field(default_factory=dict)
    """Of each level, and whether not due: where in the log its first record may be, or is."""
    found: dict[tuple[object, ...], list[_Candidate]] = field(default_factory=dict)
    codes: set[int] = field(default_factory=set)


def level_millis(levels: str) -> list[int]:
    """Return the delay of each level, in milliseconds; level 1 is the first."""
    return [int(text[:-1]) * _UNITS[text[-1]] for text in levels.split()]


def record_at(core: Core, physical_offset: int) -> Message | None:
    """Return a message by its physical offset, ``None`` if it is gone or damaged."""
    try:
        return core.at(physical_offset)
    except (MessageNotFoundError, StoreCorruptError, ValueError, OSError):
        return None


def read_record(core: Core, unit: Waiting) -> Message | StoreError | OSError | None:
    """Return the message of a unit, or the error of reading it.

    ``None`` if it is gone: removed by retention, or about to be cut by a recovery.
    """
    try:
        if unit.physical_offset >= 0:
            message = core.at(unit.physical_offset)
            if (message.topic, message.queue_id) == unit.place \
                    and message.queue_offset == unit.queue_offset:  # fmt: skip
                return message
        # The unit is damaged: the queue reports this, or has it repaired.
        found = core.get(*unit.place, unit.queue_offset, 1).messages
    except MessageNotFoundError as error:
        first, last, _ = core.removable_files()
        at = unit.physical_offset
        # A reader sees that a recovery will cut the end of the log.
        there = first <= at and (core.mode != "r" or at < last)
        return error if there else None
    except (StoreCorruptError, OSError) as error:
        return error
    return found[0] if found and found[0].queue_offset == unit.queue_offset else None


def due_of(core: Core, unit: Waiting, millis: int | None) -> int:
    """Return when a message is due; ``millis`` is its level's delay, ``None`` if it has none.

    A tags code that is no time, left by a recovery of 4.9.3, is replaced by the store time plus the
    delay.  A message whose record is gone is due at once.
    """
    if unit.tags_code >= _EARLIEST:
        return unit.tags_code
    message = read_record(core, unit)
    if not isinstance(message, Message):
        return 0
    return message.store_timestamp + (_UNKNOWN_LEVEL if millis is None else millis)


def waiting(core: Core, topic: str, queue_id: int, start: int, stop: int) -> Iterator[Waiting]:
    """Yield the units of a queue except blank ones; skip units removed by retention."""
    place = Place(topic, queue_id)
    tries = 0
    while start < stop:
        try:
            chunk = bytes(core.units(topic, queue_id, start, min(stop, start + _CHUNK)))
        except (StoreError, FileNotFoundError) as error:
            low, _ = core.bounds(topic, queue_id) or (0, 0)
            if low <= start:
                tries += 1
                if tries == _TRIES or not isinstance(error, FileNotFoundError):
                    raise
                time.sleep(_LISTED_SECONDS)
            start = max(start, low)  # removed by retention
            continue
        if not chunk:
            return
        tries = 0
        for physical_offset, size, code in UNIT.iter_unpack(chunk):
            if size <= 0 or physical_offset < 0:
                yield Waiting(place, start, -1, 0)
            elif (physical_offset, size) != _BLANK:
                yield Waiting(place, start, physical_offset, code)
            start += 1


def first_behind(core: Core, place: Place, bounds: tuple[int, int], physical_offset: int) -> int:
    """Return the first queue offset within bounds whose record lies behind a physical offset.

    Unlike a search by time, this does not depend on steps of the clock.
    """
    low, high = bounds
    while low < high:
        middle = (low + high) // 2
        units = waiting(core, *place, middle, high)
        unit = next((one for one in units if one.physical_offset >= 0), None)
        if unit is None or unit.physical_offset > physical_offset:
            high = middle
        else:
            low = unit.queue_offset + 1
    return low


def find_delivered(
    core: Core, levels: Sequence[int], offsets: Mapping[int, int], now: int
) -> dict[int, set[int]]:
    """Find the messages behind the given offsets that were nevertheless delivered.

    ``levels`` are delays in ms, ``offsets`` the first waiting messages by level, ``now`` is in ms.
    Returns queue offsets by level; levels without any are left out.
    """
    found: dict[int, set[int]] = {}
    starts = dict(offsets)
    while starts:
        sought: dict[Place, _Sought] = {}
        asked = {}
        # Of messages not due, only the first of a level is searched for; further ones only if it
        # was delivered.
        for level, start in starts.items():
            try:
                asked[level] = _gather(core, level, start, (levels[level - 1], now), sought)
            except STORE_ENDED:
                raise
            except (StoreError, OSError) as error:
                asked[level] = start, False
                log_warning(
                    "%s: messages of delay level %s that were delivered may be delivered again: %s",
                    core.path, level, error,
                )  # fmt: skip
        delivered: set[int] = set()  # levels
        # The real queues are searched from the time at which the earliest message was due. A broker
        # whose clock is behind a message's store time delivers it at once, with a store time before
        # the message's: so the first records behind it in the log, or from its entry in the index,
        # are searched too, and the last ones of the queue.
        for place, one in sought.items():
            try:
                for level, offset in _search(core, place, one):
                    found.setdefault(level, set()).add(offset)
                    delivered.add(level)
            except STORE_ENDED:
                raise
            except (StoreError, OSError) as error:
                log_warning(
                    "%s: queue %s of %s cannot be searched for messages that were delivered, "
                    "which may be delivered again: %s",
                    core.path, place.queue_id, place.topic, error,
                )  # fmt: skip
        # Delivery is in order, except for failed messages: behind very many undelivered ones none
        # was delivered.
        starts = {
            level: stop for level, (stop, more) in asked.items() if more and level in delivered
        }
    return found


def _gather(
    core: Core,
    level: int,
    start: int,
    times: tuple[int, int],
    sought: dict[Place, _Sought],
) -> tuple[int, bool]:
    """Collect the due messages of a level; return the offset reached, and whether more follow.

    ``times``: the level's delay, and now.
    """
    millis, now = times
    stop = (core.bounds(SCHEDULE_TOPIC, level - 1) or (0, 0))[1]
    ahead = asked = known = False  # no longer due; the index has the first of these
    for count, unit in enumerate(waiting(core, SCHEDULE_TOPIC, level - 1, start, stop)):
        if count >= _MOST:
            return unit.queue_offset, True
        due = due_of(core, unit, millis)
        ahead = ahead or due > now
        message = record_at(core, unit.physical_offset)
        if message is None:
            continue
        properties = message.properties
        place = real_place(properties)
        if place is None:
            continue
        one = sought.get(place) or _Sought(due)
        behind = one.behind.get((level, ahead))
        if behind is None or known:
            indexed = _indexed_at(core, message, properties, place)
            if known and indexed is None and message.uniq_key is not None:
                return unit.queue_offset, False
            if behind is None:
                behind = unit.physical_offset if indexed is None else indexed - 1
        same = identity(message, properties)
        code = _core.string_hash(properties["TAGS"]) if "TAGS" in properties else 0
        candidate = _Candidate(level, unit.queue_offset, unit.physical_offset, code)
        if ahead and not asked:
            asked, known = True, indexed is not None
            probe = _Sought(_NEVER, {(level, True): behind}, {same: [candidate]}, {code})
            if not known and not any(_search(core, place, probe)):
                return unit.queue_offset, False
        sought[place] = one
        one.due = min(one.due, message.store_timestamp if ahead else due)
        one.behind[level, ahead] = behind
        one.codes.add(code)
        one.found.setdefault(same, []).append(candidate)
    return stop, False


def _indexed_at(
    core: Core, message: Message, properties: dict[str, str], place: Place
) -> int | None:
    """Return the physical offset of the first record of a delivered message, by the index."""
    key = message.uniq_key
    if key is None:
        return None
    try:
        hits = core.query(place.topic, key, index_only=True)
    except StoreCorruptError:
        return None
    wanted = identity(message, properties)
    return min(
        (
            hit.physical_offset
            for hit in hits
            if hit.physical_offset > message.physical_offset
            and hit.queue_id == place.queue_id
            and identity(hit, hit.properties) == wanted
        ),
        default=None,
    )


def _search(core: Core, place: Place, sought: _Sought) -> Iterator[tuple[int, int]]:
    """Search a real queue; yield level and queue offset of its delivered messages."""
    bounds = core.bounds(*place)
    if bounds is None or bounds[0] >= bounds[1]:
        return
    starts = sorted(first_behind(core, place, bounds, one) for one in sought.behind.values())
    try:
        begin = core.first_after(*place, max(0, sought.due - 1), None)
    except (StoreCorruptError, OSError) as error:
        log_warning(
            "%s: the search for delivered messages passes over damage in queue %s of %s: %s",
            core.path, place.queue_id, place.topic, error,
        )  # fmt: skip
        begin = bounds[0]
    # The record of a failed message may lie behind records of later messages.
    first = min(one.physical_offset for same in sought.found.values() for one in same)
    begin = max(first_behind(core, place, bounds, first), min(begin, bounds[1] - _BACK))
    most = _BACK + sum(len(candidates) for candidates in sought.found.values())
    ranges = []
    passed = 0
    for start in starts:
        ranges.append((max(start, passed), min(start + most, begin)))
        passed = ranges[-1][1]
    ranges.append((begin, bounds[1]))
    for unit in chain.from_iterable(waiting(core, *place, *one) for one in ranges):
        if unit.tags_code not in sought.codes and unit.tags_code > EXT_ADDRESS:
            continue
        message = record_at(core, unit.physical_offset)
        if message is None:
            continue
        properties = message.properties
        if "DELAY" not in properties or real_place(properties) != place:
            continue
        same = identity(message, properties)
        candidates = sought.found.get(same, [])
        if message.reconsume_times and len(candidates) <= _waiting_twins(core, place, message):
            continue  # the record of a twin known to be delivered
        for candidate in candidates:
            if candidate.physical_offset < unit.physical_offset:
                candidates.remove(candidate)
                yield candidate.level, candidate.queue_offset
                break


def _waiting_twins(core: Core, place: Place, message: Message) -> int:
    """Return the number of records of a given-back message that wait for delivery, by the index.

    A killed consumer receives a message and gives it back again: two equal records.
    """
    wanted = identity(message, message.properties)

    def count(topic: str) -> int:
        return sum(
            "DELAY" in hit.properties
            and real_place(hit.properties) == place
            and identity(hit, hit.properties) == wanted
            for hit in core.query(topic, message.uniq_key or "", index_only=True)
        )

    try:
        return count(SCHEDULE_TOPIC) - count(place.topic)
    except StoreCorruptError:
        return 0
