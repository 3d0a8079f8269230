"""Topics and queues as mappings and sequences over the core.

Source: ``store/ConsumeQueue.java``, ``common/TopicConfig.java``.
"""

from __future__ import annotations

import heapq
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from rmqstore.base import arrays
from rmqstore.base.arguments import one_of, wrong_value
from rmqstore.base.layout import INT64_MAX, INT64_MIN, UNIT_BYTES
from rmqstore.base.tables import TableMapping, html_table
from rmqstore.base.times import to_millis
from rmqstore.errors import MessageNotFoundError, MessagesRemovedError, StoreCorruptError
from rmqstore.files import paths
from rmqstore.types import GetStatus

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqstore._core import Engine, Message
    from rmqstore.base.times import TimeLike
    from rmqstore.brokerfiles.topics import TopicConfig
    from rmqstore.directory.registry import TopicRegistry

__all__ = ["Queue", "Topic", "read_queue", "topics_of"]

_BATCH = 256
_READ_WRITE = 6


def topics_of(
    store: Engine, registry: TopicRegistry, queue_ids: Mapping[str, Iterable[int]]
) -> TableMapping[str, Topic]:
    """Return the topics whose queues are given, in their order."""
    topics = {
        name: Topic(store, name, registry.get(name), tuple(ids)) for name, ids in queue_ids.items()
    }
    return TableMapping(topics, ("topic", "queues", "perm", "messages"), _topic_rows)


def _topic_rows(topics: dict[str, Topic]) -> Iterator[tuple[object, ...]]:
    return ((one.name, len(one), one.perm, sum(map(len, one.values()))) for one in topics.values())


class Topic(Mapping[int, "Queue"]):
    """A topic: a mapping of queue id to :class:`Queue`, as of its look-up.

    Attributes
    ----------
    name : str
        1 to 127 of ``[%|a-zA-Z0-9_-]``.
    read_queue_nums, write_queue_nums : int
        As in ``topics.json``; without an entry there, the highest id of an existing queue plus 1.
    perm : int
        2 write, 4 read, 6 both.
    order : bool
        The broker's flag of an ordered topic.

    Notes
    -----
    Source: ``common/TopicConfig.java``.
    """

    name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order: bool

    def __init__(
        self, store: Engine, name: str, entry: TopicConfig | None, existing: tuple[int, ...]
    ) -> None:
        self._store = store
        self.name = name
        present = existing[-1] + 1 if existing else 0
        self.read_queue_nums = entry.read_queue_nums if entry else present
        self.write_queue_nums = entry.write_queue_nums if entry else present
        self.perm = entry.perm if entry else _READ_WRITE
        self.order = entry.order if entry else False
        ids = set(existing)
        if entry:
            ids.update(range(max(entry.read_queue_nums, entry.write_queue_nums)))
        self._ids = tuple(sorted(ids))

    def __getitem__(self, queue_id: int) -> Queue:
        if queue_id not in self._ids:
            raise KeyError(queue_id)
        return Queue(self._store, self.name, queue_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        noun = "queue" if len(self) == 1 else "queues"
        return f"<rmqstore.Topic {self.name!r} {len(self)} {noun}>"

    def _repr_html_(self) -> str:
        limits = ((queue.queue_id, queue.min_offset, queue.max_offset) for queue in self.values())
        return html_table(("queue", "min offset", "max offset"), limits, caption=self.name)

    def messages(self, *, on_corruption: Literal["raise", "skip"] = "raise") -> Iterator[Message]:
        """Iterate over the topic's messages in log order, up to the current heads.

        Parameters
        ----------
        on_corruption : {"raise", "skip"}, optional
            At an invalid record: raise an error, or go on behind it.

        Returns
        -------
        iterator of Message

        Raises
        ------
        MessagesRemovedError
            Retention removed messages before they were read.
        StoreCorruptError
            A record does not check, and ``on_corruption`` is ``"raise"``; or a file of a queue is
            missing.
        """
        skip = one_of("on_corruption", on_corruption, ("raise", "skip")) == "skip"
        return heapq.merge(
            *(
                read_queue(
                    self._store, queue, queue.min_offset, queue.max_offset, skip_damaged=skip
                )
                for queue in self.values()
            ),
            key=operator.attrgetter("physical_offset"),
        )


class Queue:
    """A queue of a topic: messages by queue offset.

    ``queue[offset]`` is one message, ``queue[-1]`` the newest, ``queue[a:b]`` a list; an offset
    outside raises an ``IndexError`` that names min and max, and so does a slice that begins below
    ``min_offset``. Iteration and ``reversed()`` go up to the head at their start.

    Attributes
    ----------
    topic : str
    queue_id : int
        0 or more.
    min_offset, max_offset : int
        Current queue offset of the first message that exists, and the offset after the last.

    Notes
    -----
    Source: ``store/ConsumeQueue.java``.
    """

    topic: str
    queue_id: int

    def __init__(self, store: Engine, topic: str, queue_id: int) -> None:
        self._store = store
        self._core = store.core
        self.topic = topic
        self.queue_id = queue_id

    def _limits(self) -> tuple[int, int]:
        return self._core.bounds(self.topic, self.queue_id) or (0, 0)

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message that exists."""
        return self._limits()[0]

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message."""
        return self._limits()[1]

    def __len__(self) -> int:
        """Return ``max_offset - min_offset``."""
        low, high = self._limits()
        return high - low

    def __repr__(self) -> str:
        return f"<rmqstore.Queue {self.topic}/{self.queue_id}>"

    @overload
    def __getitem__(self, offset: SupportsIndex) -> Message: ...
    @overload
    def __getitem__(self, offset: slice) -> list[Message]: ...
    def __getitem__(self, offset: SupportsIndex | slice) -> Message | list[Message]:
        """Return the message at a queue offset, or the messages of a slice.

        Raises
        ------
        IndexError
            The offset does not exist; the error names min and max.
        StoreCorruptError
            A record does not check.
        MessagesRemovedError, MessageNotFoundError
            Retention removed it meanwhile.
        """
        low, high = self._limits()
        if isinstance(offset, slice):
            start, stop, step = self._slice(offset, low, high)
            found = list(read_queue(self._store, self, start, stop))
            return found[::step] if step != 1 else found
        at = operator.index(offset)
        if at < 0:
            at += high
        if not low <= at < high:
            raise IndexError(f"{self!r}: offset {offset} is not there; min is {low}, max is {high}")
        for message in read_queue(self._store, self, at, at + 1):
            return message
        raise MessageNotFoundError(
            f"{self!r}: the message at {at} is gone; iteration and slices pass over it"
        )

    def _slice(self, asked: slice, low: int, high: int) -> tuple[int, int, int]:
        step = 1 if asked.step is None else operator.index(asked.step)
        if step < 1:
            raise ValueError(f"{self!r}: the step of a slice is {step}; it may be 1 or more")
        start = low if asked.start is None else operator.index(asked.start)
        stop = high if asked.stop is None else operator.index(asked.stop)
        start = start + high if start < 0 else start
        stop = stop + high if stop < 0 else stop
        if start < low:
            raise IndexError(f"{self!r}: the slice begins at {start}; min is {low}, max is {high}")
        return start, min(stop, high), step

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages up to the current head."""
        return read_queue(self._store, self, *self._limits())

    def __reversed__(self) -> Iterator[Message]:
        """Iterate over the messages backwards from the current head."""
        low, high = self._limits()
        while high > low:
            start = max(low, high - _BATCH)
            yield from reversed(list(read_queue(self._store, self, start, high)))
            high = start

    def units(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        bounds: tuple[int, int] | None = None,
    ) -> NDArray[Any]:
        """Return units as stored, including ext addresses.

        Parameters
        ----------
        start, stop : int, optional
            Queue offsets; by default all that exist.
        bounds : (int, int), optional
            ``min_offset`` and ``max_offset`` if known, which saves looking them up.

        Returns
        -------
        numpy.ndarray
            Shape ``(stop - start,)``; fields ``physical_offset`` (>i8), ``size`` (>i4),
            ``tags_code`` (>i8).

        Raises
        ------
        IndexError
            A part of the range does not exist.
        FileNotFoundError
            Retention removed a file of the range since the bounds were looked up.

        Notes
        -----
        Source: ``store/ConsumeQueue.java getIndexBuffer``.
        """
        start, stop = self._range(start, stop, bounds)
        return arrays.unit_array(self._core.units(self.topic, self.queue_id, start, stop))

    def _range(
        self, start: int | None, stop: int | None, bounds: tuple[int, int] | None
    ) -> tuple[int, int]:
        """Return a range of queue offsets; ``IndexError`` unless all exist."""
        low, high = self._limits() if bounds is None else bounds
        start = low if start is None else operator.index(start)
        stop = high if stop is None else operator.index(stop)
        if start < low or stop > high:
            raise IndexError(
                f"{self!r}: units {start} to {stop} are not all there; min is {low}, max is {high}"
            )
        return start, stop

    def ext_units(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        bounds: tuple[int, int] | None = None,
    ) -> NDArray[Any]:
        """Return units of ``consumequeue_ext``: tags codes, store times and bit maps.

        Parameters
        ----------
        start, stop : int, optional
            Queue offsets; by default all that exist.
        bounds : (int, int), optional
            ``min_offset`` and ``max_offset`` if known, which saves looking them up.

        Returns
        -------
        numpy.ndarray
            Shape ``(stop - start,)``; fields ``tags_code`` (i8), ``store_timestamp`` (i8,
            milliseconds), ``bitmap_size`` (i8, bytes) and ``bitmap`` (u1, as long as the largest,
            shorter ones padded with zeros; bit n is ``bitmap[n // 8] >> n % 8 & 1``). In
            ``SCHEDULE_TOPIC_XXXX`` the tags code is the delivery time. A unit without an ext
            unit, or whose ext unit is missing or incomplete, has -1 as ``bitmap_size`` and
            ``store_timestamp``, and its tags code as in :meth:`units`.

        Raises
        ------
        IndexError
            A part of the range does not exist.
        FileNotFoundError
            Retention removed a file of the range since the bounds were looked up.

        Notes
        -----
        Source: ``store/ConsumeQueue.java getExt``, ``store/ConsumeQueueExt.java``.
        """
        start, stop = self._range(start, stop, bounds)
        return arrays.ext_unit_array(*self._core.ext_units(self.topic, self.queue_id, start, stop))

    def offset_at(
        self,
        time: TimeLike,
        boundary: Literal["lower", "upper", "nearest"] = "lower",
        *,
        bounds: tuple[int, int] | None = None,
    ) -> int:
        """Return a queue offset by store time.

        Parameters
        ----------
        time : int, datetime or str
            Milliseconds since the epoch, or an aware point in time.
        boundary : str, optional
            ``"lower"``: first offset at or after the time, ``max_offset`` if there is none: no
            message before it was stored then or later. ``"upper"``: last one at or before it,
            ``min_offset - 1`` if there is none: no message after it was stored by then.
            ``"nearest"``: as 4.9.3 answers (0 for an empty queue).
        bounds : (int, int), optional
            ``min_offset`` and ``max_offset`` if known, which saves looking them up.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            ``boundary`` or ``time`` is invalid.
        StoreCorruptError
            A record does not check.

        Notes
        -----
        The first call reads the record heads of a log of up to 1 GiB, to find how far the clock was
        ever set back; messages within that distance of the time are read one by one. In a longer
        log only the first records of its files count, and each call allows for a step of an hour; a
        larger step that they do not show may hide messages.
        Source: ``store/ConsumeQueue.java getOffsetInQueueByTime``.
        """
        # A plain integer needs no conversion: that alone would take a third of the time.
        millis = time if type(time) is int else 0
        if not 0 < millis <= INT64_MAX:
            millis = to_millis(time, name="time")
        if boundary == "lower":
            before = millis - 1 if millis > INT64_MIN else millis
            return self._core.first_after(self.topic, self.queue_id, before, bounds)
        if boundary == "upper":
            end = self._core.first_after(self.topic, self.queue_id, millis, bounds, last=True)
            return end - 1
        if boundary == "nearest":
            low, high = self._limits() if bounds is None else bounds
            return self._nearest(millis, low, high)
        raise wrong_value("boundary", "'lower', 'upper' or 'nearest'", boundary)

    def _time(self, offset: int) -> int:
        return self._core.store_time(self.topic, self.queue_id, offset)

    def _nearest(self, millis: int, low: int, high: int) -> int:
        """Bisect within the one file chosen by its file time, as 4.9.3 does."""
        if high == 0:
            return 0
        start, stop = self._file_by_time(millis, high)
        left = right = -1
        left_time = right_time = -1
        first, last = max(start, low), stop - 1
        while last >= first:
            middle = (first + last) // 2
            time = self._time(middle)
            if time < 0:
                return 0
            if time == millis:
                return middle
            if time > millis:
                last, right, right_time = middle - 1, middle, time
            else:
                first, left, left_time = middle + 1, middle, time
        if left_time == -1:
            return max(right, 0)
        if right_time == -1:
            return left
        return right if abs(millis - left_time) > abs(millis - right_time) else left

    def _file_by_time(self, millis: int, high: int) -> tuple[int, int]:
        """Return the offsets of the first file not modified before the time, else of the last.

        Units before or behind it without a file, derived from the log, count with it.
        """
        per_file = self._store.config.mapped_file_size_consume_queue // UNIT_BYTES
        directory = Path(self._store.path, paths.CONSUME_QUEUE, self.topic, str(self.queue_id))
        last = start = 0
        for name in sorted(_names_in(directory)):
            offset = paths.parse_offset_file_name(name)
            if offset is None:
                continue
            try:
                modified = int((directory / name).stat().st_mtime * 1000)
            except FileNotFoundError:
                continue  # removed meanwhile
            stop = offset // UNIT_BYTES + per_file
            if modified >= millis:
                return start, min(stop, high)
            last, start = start, stop
        return start if start < high else last, high


def read_queue(
    store: Engine, queue: Queue, start: int, stop: int, *, skip_damaged: bool = False
) -> Iterator[Message]:
    """Iterate over the messages of [start, stop) of a queue; blank units are skipped."""
    topic, queue_id = queue.topic, queue.queue_id
    most = _BATCH
    while start < stop:
        try:
            got = store.get(topic, queue_id, start, min(most, stop - start))
        except StoreCorruptError:
            if not skip_damaged:
                raise
            if most == 1:
                start += 1
            most = 1 if most > 1 else _BATCH  # damage hides good messages before it
            continue
        if got.status is GetStatus.OFFSET_TOO_SMALL:
            raise MessagesRemovedError(topic, queue_id, start, got.min_offset)
        if got.status is GetStatus.OFFSET_FOUND_NULL:
            place = Path(store.path, "consumequeue", topic, str(queue_id))
            raise StoreCorruptError(
                place,
                start * UNIT_BYTES,
                f"the file that has unit {start} is missing, of {got.min_offset} to "
                f"{got.max_offset}; open the store again to have it derived from the log",
            )
        for message in got.messages:
            if message.queue_offset < stop or message.topic != topic:
                yield message
        if got.next_offset <= start:
            return
        start = got.next_offset


def _names_in(directory: Path) -> list[str]:
    """Return the names in a directory, none if it is not there."""
    try:
        return os.listdir(directory)  # noqa: PTH208
    except FileNotFoundError:
        return []
