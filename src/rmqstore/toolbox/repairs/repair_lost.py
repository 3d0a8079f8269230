"""Records lost in damaged parts of a log, by the queues that name them or lack them."""

from __future__ import annotations

import bisect
import contextlib
import stat
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.base import layout
from rmqstore.brokerfiles.offsets import LIGHT_PREFIX
from rmqstore.errors import MessagesRemovedError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.queues import OffsetSpan, add_run, dispatched
from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.start_files import listed
from rmqstore.offline.walk import UnitRun
from rmqstore.services.stored import SYSTEM_TOPICS
from rmqstore.toolbox.repairs.derived import QueueKey, file_numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LOST_PROPERTY", "Lost", "LostRecords", "is_own", "lost_records"]

_PIECE = 16 << 20  # of the log, whose lost records are in memory at a time
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
        self.plan = plan
        # Queue offsets [first, stop) by queue, with the begin of their part.
        self._taken: dict[tuple[str, int], list[list[int]]] = {}

    def within(self, start: int, stop: int) -> Iterator[Lost]:
        """Yield the lost records of a damaged part of one file; again the same for the same part.

        Those that queues name; then those whose queue offsets the log lacks, at any place with
        room: a broker that reads a unit without a record passes over messages behind it. In the
        order of their places, but for the broker's own topics.
        """
        for one in self._merged(start, stop):
            spans = self._taken.setdefault((one.topic, one.queue_id), [])
            if spans and spans[-1][1:] == [one.queue_offset, start]:
                spans[-1][1] += 1
            else:
                spans.append([one.queue_offset, one.queue_offset + 1, start])
            yield one

    def _merged(self, start: int, stop: int) -> Iterator[Lost]:
        root = Path(self.plan.path)
        named = {(one.topic, one.queue_id) for one in _naming(root, start, stop, own=False)}
        found = filter(self._is_due, lost_records(root, start, stop, own=True))
        ahead = next(found, None)
        at = start
        for gap in self._walked[1]:
            key = gap.topic, gap.queue_id
            if key in named or gap.low > start or gap.high < stop:
                continue
            size = layout.RECORD_FIXED_BYTES + len(gap.topic.encode()) + len(LOST_PROPERTY)
            taken = [one for one in self._taken.get(key, ()) if one[2] != start]
            for number in range(gap.first, gap.stop):
                while ahead is not None and not _has_room(ahead, at + size):
                    at = at if is_own(ahead.topic) else max(at, ahead.stop)
                    yield ahead
                    ahead = next(found, None)
                if at + size > stop:
                    break
                if not any(first <= number < end for first, end, _ in taken):
                    yield Lost(at, size, *key, number)
                    at += size
        if ahead is not None:
            yield ahead
        yield from found

    def _is_due(self, one: Lost) -> bool:
        """Whether a queue offset is missing at that place: a queue's files may be another's."""
        spans = self._walked[0].get((one.topic, one.queue_id), []) if not is_own(one.topic) else []
        number = bisect.bisect(spans, one.offset, key=lambda span: span.log_start)
        before, after = spans[:number][-1:], spans[number : number + 1]
        return all(
            span.log_stop <= one.offset and span.stop <= one.queue_offset for span in before
        ) and all(one.queue_offset < span.first for span in after)

    @cached_property
    def _walked(self) -> tuple[dict[QueueKey, Sequence[OffsetSpan | UnitRun]], list[_Gap]]:
        """The queue offsets that the log's records have, in its order, and those missing."""
        plan = self.plan
        spans: dict[QueueKey, list[OffsetSpan]] = {}
        gaps: list[_Gap] = []
        ends: dict[QueueKey, tuple[int, int]] = {}
        for number in file_numbers(plan):
            with contextlib.suppress(MessagesRemovedError):
                for part in plan.walk(number).slices():
                    for run in part.runs:
                        key = run.topic, run.queue_id
                        add_run(spans.setdefault(key, []), run)
                        # Behind the log's first byte retention may have removed the records.
                        default = (0, 0) if plan.first == 0 else (run.first, run.log_start)
                        stop, log_stop = ends.get(key, default)
                        if run.first > stop and not is_own(run.topic):
                            gaps.append(_Gap(*key, stop, run.first, log_stop, run.log_start))
                        ends[key] = run.stop, run.log_stop
        return {**spans, **dispatched(plan, spans)}, gaps


def _has_room(ahead: Lost, stop: int) -> bool:
    """Whether a record up to a place is followed by another at once, or by a filler with room."""
    left = ahead.offset - stop
    return not is_own(ahead.topic) and (left == 0 or left >= layout.RECORD_FIXED_BYTES)


def is_own(topic: str) -> bool:
    """Whether a topic is a broker's own, which services read, or a light queue."""
    return topic in SYSTEM_TOPICS or topic.startswith(LIGHT_PREFIX)


class _UnitFile(NamedTuple):
    """Queue file with units of records in a part of the log, from ``low`` to ``high``."""

    path: str
    size: int
    topic: str
    queue_id: int
    first: int  # its first queue offset
    low: int
    high: int


def lost_records(root: Path, start: int, stop: int, *, own: bool = False) -> Iterator[Lost]:
    """Yield the records that queue files name within a part of the log, in order, each once.

    Records of the broker's own topics, which services read, only with ``own``; of light queues
    never. A piece of the log at a time is in memory.
    """
    files = list(_naming(root, start, stop, own=own))
    low: int | None = min((one.low for one in files), default=None)
    while low is not None:
        high = low + _PIECE
        found: dict[int, Lost] = {}
        behind = [one.low for one in files if one.low >= high]
        for one in files:
            if one.low >= high or one.high < low:
                continue
            units = _units_of(one.path, one.size)
            offsets, sizes = units["physical_offset"], units["size"]
            inside = _inside(units, start, stop)
            for at in (inside & (offsets >= low) & (offsets < high)).nonzero()[0].tolist():
                offset = int(offsets[at])
                lost = Lost(offset, int(sizes[at]), one.topic, one.queue_id, one.first + at)
                found.setdefault(offset, lost)
            if one.high >= high:
                behind.append(int(offsets[inside & (offsets >= high)].min()))
        for offset in sorted(found):
            yield found[offset]
        low = min(behind, default=None)


def _naming(root: Path, start: int, stop: int, *, own: bool) -> Iterator[_UnitFile]:
    """Yield the queue files that name records within a part of the log."""
    for topic in listed(root / paths.CONSUME_QUEUE) or []:
        if is_own(topic.name) and (not own or topic.name.startswith(LIGHT_PREFIX)):
            continue
        for queue in listed(topic.path) or []:
            queue_id = paths.parse_queue_id(queue.name)
            for one in listed(queue.path) or [] if queue_id is not None else []:
                begin = paths.parse_offset_file_name(one.name)
                if begin is None or not stat.S_ISREG(one.mode):
                    continue
                units = _units_of(one.path, one.size)
                named = units["physical_offset"][_inside(units, start, stop)]
                if len(named):
                    yield _UnitFile(
                        one.path, one.size, topic.name, queue_id or 0, begin // layout.UNIT_BYTES,
                        int(named.min()), int(named.max()),
                    )  # fmt: skip


def _units_of(path: str, size: int) -> NDArray[np.void]:
    import numpy as np

    with open_regular(path) as file:
        return np.fromfile(file, dtype=layout.UNIT_FIELDS, count=size // layout.UNIT_BYTES)


def _inside(units: NDArray[np.void], start: int, stop: int) -> NDArray[np.bool_]:
    """Whether units name a record within a part of the log."""
    offsets, sizes = units["physical_offset"], units["size"]
    inside: NDArray[np.bool_] = (offsets >= start) & (sizes > layout.RECORD_FIXED_BYTES)
    inside &= (sizes < layout.UNIT_BLANK_SIZE) & (offsets + sizes <= stop)
    inside[1:] &= offsets[1:] > offsets[:-1]  # else a damaged unit
    return inside
