"""Progress of groups on the page: counted in memory, with times of the rows shown.

Source: ``tools/command/consumer/ConsumerProgressSubCommand.java``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqstore.base.layout import UNIT
from rmqstore.consume.lag import QueueBounds, time_of_one
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.serve.figures.lag import counted_offsets, is_idle_retry
from rmqstore.services.stored import HALF_TOPIC, OP_TOPIC

if TYPE_CHECKING:
    from rmqstore.serve.figures.lag import OnlineGroup
    from rmqstore.store import MessageStore

__all__ = ["Behind", "group_figures", "queues_behind", "total_lag"]

# By topic and group: the offsets not consumed, of each queue that has some.
Behind = dict[tuple[str, str], list[QueueBounds]]

_HOUR = 3_600_000  # ms
_WARNING = 24 * _HOUR  # before a deletion, or a quarter of the retention if that is less
_TIMED = 1000  # queues whose times are read
_LOST = 8  # records of a queue that may be lost or damaged before no time is known


def queues_behind(store: MessageStore, online: Mapping[str, OnlineGroup], most: int) -> Behind:
    """Return the queues that groups are behind in; ``most`` limits those without an offset.

    Without the store's own group, which reads half messages.
    """
    counted = {
        names: committed
        for names, committed in counted_offsets(store, online, most).items()
        if names[0] not in {HALF_TOPIC, OP_TOPIC}
    }
    places = {
        (topic, queue_id)
        for (topic, _), committed in counted.items()
        if paths.is_stored_topic_name(topic)
        for queue_id in committed
    }
    bounds = dict(zip(places, store.core.bounds_of_each(places), strict=True))
    found: Behind = {}
    for (topic, group), committed in counted.items():
        behind = found[topic, group] = []
        for queue_id, offset in committed.items():
            low, high = bounds.get((topic, queue_id)) or (0, 0)
            if max(offset, low) < high:
                behind.append(QueueBounds(queue_id, max(offset, low), high))
    return found


def total_lag(store: MessageStore, online: Mapping[str, OnlineGroup], most: int) -> int:
    """Return the messages that all groups are behind."""
    behind = queues_behind(store, online, most)
    return sum(one.messages for queues in behind.values() for one in queues)


def group_figures(
    store: MessageStore, online: Mapping[str, OnlineGroup], most: int, rows: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the progress of groups by topic, largest lag first, and the number left out.

    ``messages`` of a broadcast group is ``None``, and so is ``late``, the delay in ms, if no time
    was read. ``expires`` is the time in ms until retention may
    delete the first message not consumed, ``None`` if that is far or never.
    """
    behind = queues_behind(store, online, most)
    found: list[tuple[str, str, int | None]] = [
        (group, topic, sum(one.messages for one in queues))
        for (topic, group), queues in behind.items()
    ]
    existing = store.queue_ids()
    for name, one in online.items():
        found += (
            (name, topic, None if one.is_broadcast else 0)
            for topic in one.topics
            if (topic, name) not in behind and not is_idle_retry(topic, name, existing)
        )
    found.sort(key=lambda one: (-(one[2] or 0), *one[:2]))
    _, removable, _ = store.core.removable_files()
    shown = []
    left = _TIMED
    for group, topic, messages in found[:rows]:
        queues = sorted(behind.get((topic, group), ()), key=lambda one: -one.messages)[:left]
        left -= len(queues)
        late, expires = _times(store, topic, queues, removable)
        consumers = online[group].consumers if group in online else 0
        shown.append(
            {"group": group, "topic": topic, "messages": messages, "late": late,
             "expires": expires, "consumers": consumers}
        )  # fmt: skip
    return shown, max(0, len(found) - rows)


def _times(
    store: MessageStore, topic: str, queues: Sequence[QueueBounds], removable: int
) -> tuple[int | None, int | None]:
    """Return the delay in ms, and the time until retention may delete a message, where known."""
    core, reserved = store.core, store.config.file_reserved_time
    late: int | None = None
    earliest: int | None = None
    for queue_id, start, stop in queues:
        try:
            first = time_of_one(core, topic, queue_id, range(start, stop)[:_LOST], warn=False)
            newest = range(stop - 1, start - 1, -1)
            last = time_of_one(core, topic, queue_id, newest[:_LOST], warn=False)
            unit = memoryview(core.units(topic, queue_id, start, start + 1))
        except (StoreError, OSError):  # removed meanwhile, or damaged
            continue
        if first < 0:
            continue
        late = max(late or 0, last - first)
        if UNIT.unpack(unit)[0] < removable:
            earliest = first if earliest is None else min(earliest, first)
    if reserved is None or earliest is None:
        return late, None
    expires = earliest + reserved * _HOUR - core.now()
    return late, expires if expires < min(_WARNING, reserved * _HOUR // 4) else None
