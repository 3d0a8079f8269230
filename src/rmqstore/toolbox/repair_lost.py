"""Records lost in damaged parts of a log, by the queues that name them or lack them."""

from __future__ import annotations

import contextlib
import stat
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rmqstore.base import layout
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.errors import MessagesRemovedError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.start_files import listed
from rmqstore.services.stored import SYSTEM_TOPICS
from rmqstore.toolbox.derived import file_numbers

__all__ = ["LOST_PROPERTY", "Lost", "LostRecords", "is_own", "lost_records"]

LOST_PROPERTY = b"RMQSTORE_LOST\x01true\x02"  # of dummies


class Lost(NamedTuple):
    """A record that a queue names in a damaged part."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int

    @property
    def stop(self) -> int:
        """End of the record."""
        return self.offset + self.size


class _Gap(NamedTuple):
    """Queue offsets [first, stop) without a record, which was between two places of the log."""

    topic: str
    queue_id: int
    first: int
    stop: int
    low: int
    high: int


class LostRecords:
    """Lost records of a log, found as they are asked for."""

    def __init__(self, plan: LogPlan) -> None:
        self._plan = plan
        self._taken: dict[tuple[str, int, int], int] = {}  # to the begin of their part

    def within(self, start: int, stop: int) -> list[Lost]:
        """Return the lost records of a damaged part of one file; again the same for the same part.

        Those that queues name; then those whose queue offsets the log lacks, at any place with
        room: a broker that reads a unit without a record passes over messages behind it.
        """
        every = lost_records(Path(self._plan.path), [(start, stop)], own=True)
        found = [one for one in every if not is_own(one.topic)]
        others = [one for one in every if is_own(one.topic)]
        named = {(one.topic, one.queue_id) for one in found}
        ahead = deque(found)
        at = start
        for gap in self._gaps:
            if (gap.topic, gap.queue_id) in named or gap.low > start or gap.high < stop:
                continue
            size = layout.RECORD_FIXED_BYTES + len(gap.topic.encode()) + len(LOST_PROPERTY)
            for number in range(gap.first, gap.stop):
                at = _room(ahead, at, size)
                if at + size > stop:
                    break
                if self._taken.get((gap.topic, gap.queue_id, number), start) == start:
                    found.append(Lost(at, size, gap.topic, gap.queue_id, number))
                    at += size
        for one in found:
            self._taken[one.topic, one.queue_id, one.queue_offset] = start
        return sorted(found + others)

    @cached_property
    def _gaps(self) -> list[_Gap]:
        plan = self._plan
        found: list[_Gap] = []
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        for number in file_numbers(plan):
            with contextlib.suppress(MessagesRemovedError):
                for part in plan.walk(number).slices():
                    for run in part.runs:
                        key = run.topic, run.queue_id
                        # Behind the log's first byte retention may have removed the records.
                        default = (0, 0) if plan.first == 0 else (run.first, run.log_start)
                        stop, log_stop = ends.get(key, default)
                        if run.first > stop and not is_own(run.topic):
                            found.append(_Gap(*key, stop, run.first, log_stop, run.log_start))
                        ends[key] = run.stop, run.log_stop
        return found


def _room(ahead: deque[Lost], at: int, size: int) -> int:
    """Return the first place from an offset on for a record; drops those of ``ahead`` before it."""
    while ahead:
        one = ahead[0]
        # The record itself follows, or a filler with room.
        left = one.offset - (at + size)
        if left == 0 or left >= layout.RECORD_FIXED_BYTES:
            break
        at = max(at, ahead.popleft().stop)
    return at


def is_own(topic: str) -> bool:
    """Whether a topic is a broker's own, which services read, or a light queue."""
    return topic in SYSTEM_TOPICS or topic.startswith(LIGHT_PREFIX)


def lost_records(root: Path, parts: Sequence[tuple[int, int]], *, own: bool = False) -> list[Lost]:
    """Return the records that queue files name within parts of the log, each once.

    Without ``own`` not those of the broker's own topics, which services read; never those of light
    queues.
    """
    import numpy as np

    found: dict[int, Lost] = {}
    for topic in listed(root / paths.CONSUME_QUEUE) or []:
        if is_own(topic.name) and (not own or topic.name.startswith(LIGHT_PREFIX)):
            continue
        for queue in listed(topic.path) or []:
            queue_id = paths.parse_queue_id(queue.name)
            for one in listed(queue.path) or [] if queue_id is not None else []:
                start = paths.parse_offset_file_name(one.name)
                if start is None or not stat.S_ISREG(one.mode):
                    continue
                with open_regular(one.path) as file:
                    count = one.size // layout.UNIT_BYTES
                    units = np.fromfile(file, dtype=layout.UNIT_FIELDS, count=count)
                offsets, sizes = units["physical_offset"], units["size"]
                for low, high in parts:
                    inside = (offsets >= low) & (sizes > layout.RECORD_FIXED_BYTES)
                    inside &= (sizes < layout.UNIT_BLANK_SIZE) & (offsets + sizes <= high)
                    inside[1:] &= offsets[1:] > offsets[:-1]  # else a damaged unit
                    for at in inside.nonzero()[0].tolist():
                        offset = int(offsets[at])
                        number = start // layout.UNIT_BYTES + at
                        lost = Lost(offset, int(sizes[at]), topic.name, queue_id or 0, number)
                        found.setdefault(offset, lost)
    return sorted(found.values())
