"""Differences between two stores or copies, by topic and queue."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rmqstore import opening
from rmqstore.base import arrays
from rmqstore.base.arguments import did_you_mean
from rmqstore.base.layout import INT32_MAX
from rmqstore.brokerfiles.topics import TopicTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.consume.lag import bounds_by_topic
from rmqstore.directory.layout import config_of_copy
from rmqstore.errors import (
    MessageNotFoundError,
    StoreCorruptError,
    StoreError,
    TopicNotFoundError,
)
from rmqstore.files.links import absolute
from rmqstore.offline import SCHEDULE_TOPIC
from rmqstore.toolbox.copies.log_bytes import DifferingBytes, differing_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqstore._core import Message
    from rmqstore.store import MessageStore

__all__ = ["Difference", "difference", "difference_of"]

_PIECE = 1 << 14  # units of each store: larger memory is unmapped, and faults anew, each time
_EXT_MOST = -INT32_MAX - 2  # a tags code up to here is an address of consumequeue_ext
_OFFSET_AT, _OFFSET_END = 28, 36  # of the physical offset in a record
_SAMPLED = 16  # queues whose first and last messages show whether both are of one log
_LISTED_SECONDS = 0.1  # how often a reader lists files
_SAME, _ONLY_A, _ONLY_B, _SIZE, _TAGS = range(5)
_FIELDS = (
    *("topic", "queue_id", "queue_offset", "raw_body", "properties", "flag", "sys_flag"),
    *("born_timestamp", "born_host", "reconsume_times", "body_crc"),
)
_COMPRESSION = 0x701  # of sys_flag: whether, and RocketMQ 5's way
_PLACED = ("store_timestamp", "store_host", "prepared_transaction_offset")


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between stores ``a`` and ``b``.

    Attributes
    ----------
    where : {"a", "b", "both"}
        Only in one of them, or different in both.
    topic : str or None
    queue_id : int or None
    queue_offset : int or None
        Of the first message; None for settings and offsets of groups.
    what : str
        How many messages, and in what they differ; or the setting or group with both values.
    """

    where: Literal["a", "b", "both"]
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    what: str


class _Stretch(NamedTuple):
    where: Literal["a", "b", "both"]
    start: int
    stop: int
    field: str  # "": the messages themselves


def difference(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    topic: str | None = None,
    full: bool = False,
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> Iterator[Difference]:
    """Iterate over the differences between two stores, such as a master's and a slave's.

    Messages are compared by topic, queue and queue offset: their units, which have the size and
    the hash of the tag. Neighbours that differ alike are one difference. Physical offsets may
    differ, as those of an extract do. The topics' settings and the groups' offsets are compared
    as well.

    Parameters
    ----------
    a, b : path-like
        Directories of the stores; they may be in use.
    topic : str, optional
        Only this topic.
    full : bool, optional
        Compare the contents as well: by the bytes of both logs where these are copies of one log
        and the messages at the same physical offsets, else by all fields but store time and host,
        and the offset of a half message; bodies are the same if they are so inflated. Bytes of the
        log that belong to no message in a queue are compared if nothing else differs.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`. A copy with its log in ``commitlog``, such as a backup, has
        only the sizes of it.

    Yields
    ------
    Difference

    Raises
    ------
    TopicNotFoundError
        Neither store has the topic.
    StoreCorruptError
        A file of ``config`` is torn. A damaged record is a difference unless both are alike.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`.
    """
    if config is not None and not isinstance(config, StoreConfig):
        config = StoreConfig.from_file(config)
    first, second = (config_of_copy(absolute(path), config) for path in (a, b))
    with opening.open(a, config=first) as one, opening.open(b, config=second) as other:
        if topic is not None and topic not in one.topics and topic not in other.topics:
            near = did_you_mean(topic, {*one.topics, *other.topics})
            text = f"{one.path}, {other.path}: no topic {topic!r} in either"
            raise TopicNotFoundError(f"{text}; {near}" if near else text)
        yield from difference_of(one, other, topic, full)


def difference_of(
    a: MessageStore,
    b: MessageStore,
    topic: str | None,
    full: bool,
    progressed: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Difference]:
    """Return :func:`difference` of open stores; ``progressed`` gets bytes of the logs read."""
    log = differing_bytes(a, b, progressed) if full else None
    pair = _Pair(a, b, log)
    found = False
    for one in pair.all(topic):
        found = True
        yield one
    if log is not None and topic is None and not found and log.common and not pair.moved:
        start, stop = int(log.common[0][0]), int(log.common[-1][1])
        what = f"bytes of the log from {start} to {stop}, of no message in a queue"
        yield Difference("both", None, None, None, what)


class _Pair:
    """Two open stores, compared."""

    def __init__(self, a: MessageStore, b: MessageStore, log: DifferingBytes | None) -> None:
        self._a = a
        self._b = b
        self._log = log
        # Messages are at other bytes of the logs, or have other times: bytes cannot be compared.
        self.moved = False

    def all(self, topic: str | None) -> Iterator[Difference]:
        yield from self._settings(topic)
        queues = [_bounds(store) for store in (self._a, self._b)]
        for place in sorted({*queues[0], *queues[1]}):
            if topic in (None, place[0]):
                for run in _merged(self._queue(*place)):
                    yield Difference(run.where, *place, run.start, _text(run))
        yield from self._offsets(topic)

    @functools.cached_property
    def _is_one_log(self) -> bool:
        """Whether both are copies of one log, as of a master and its slave.

        Logs written apart, as by two imports of a file, may have their messages at the same places,
        and each a store time of its own.
        """
        times = []
        for place in sorted(_bounds(self._a) & _bounds(self._b))[:_SAMPLED]:
            one, other = (store.core.bounds(*place) or (0, 0) for store in (self._a, self._b))
            low, high = max(one[0], other[0]), min(one[1], other[1])
            for at in {low, high - 1} if low < high else ():
                try:
                    offset = _physical_offset(self._a, *place, at)
                    if offset == _physical_offset(self._b, *place, at):
                        left, right = self._a.at(offset), self._b.at(offset)
                        times.append((left.store_timestamp, right.store_timestamp))
                except (StoreError, OSError):  # a difference, or removed meanwhile
                    continue
        return not times or any(one == other for one, other in times)

    def _settings(self, topic: str | None) -> Iterator[Difference]:
        tables = [
            {entry.topic_name: entry.to_json() for entry in TopicTable.load(store.path)}
            for store in (self._a, self._b)
        ]
        for name in sorted({*tables[0], *tables[1]}):
            if topic not in (None, name):
                continue
            one, other = (table.get(name) for table in tables)
            if one is None or other is None:
                where: Literal["a", "b"] = "b" if one is None else "a"
                yield Difference(where, name, None, None, "entry in topics.json")
                continue
            for key in sorted({*one, *other}):
                if one.get(key) != other.get(key):
                    what = f"{key} in topics.json: {one.get(key)}, {other.get(key)}"
                    yield Difference("both", name, None, None, what)

    def _offsets(self, topic: str | None) -> Iterator[Difference]:
        tables = [
            {
                (of_topic, queue_id, group): offset
                for (of_topic, group), queues in store.offsets.items()
                for queue_id, offset in queues.items()
                if topic in (None, of_topic)
            }
            for store in (self._a, self._b)
        ]
        for key in sorted({*tables[0], *tables[1]}):
            one, other = (table.get(key) for table in tables)
            if one == other:
                continue
            where: Literal["a", "b", "both"] = "both"
            values = f"{one}, {other}"
            if one is None or other is None:
                where, values = ("b", f"{other}") if one is None else ("a", f"{one}")
            yield Difference(where, key[0], key[1], None, f"offset of group {key[2]}: {values}")

    def _queue(self, topic: str, queue_id: int) -> Iterator[_Stretch]:
        """Yield runs of offsets of a queue that differ, not merged."""
        place = (topic, queue_id)
        one, other = (store.core.bounds(topic, queue_id) or (0, 0) for store in (self._a, self._b))
        low, high = max(one[0], other[0]), min(one[1], other[1])
        if low >= high:  # nothing in common
            low = high = one[1]
        sides: list[tuple[Literal["a", "b"], tuple[int, int]]] = [("a", one), ("b", other)]
        for where, (start, stop) in sides:
            if start < min(low, stop):
                yield _Stretch(where, start, min(low, stop), "")
        for start in range(low, high, _PIECE):
            stop = min(high, start + _PIECE)
            try:
                runs = list(self._piece(place, start, stop))
            except FileNotFoundError:  # retention was faster
                if not self._is_gone(place, stop):
                    raise
                continue
            yield from runs
        for where, (start, stop) in sides:
            if max(high, start) < stop:
                yield _Stretch(where, max(high, start), stop, "")

    def _is_gone(self, place: tuple[str, int], stop: int) -> bool:
        """Whether one of the stores has nothing below an offset of a queue any more."""
        time.sleep(_LISTED_SECONDS)
        bounds = [store.core.bounds(*place) for store in (self._a, self._b)]
        return any(one is None or one[0] >= stop for one in bounds)

    def _piece(self, place: tuple[str, int], start: int, stop: int) -> Iterator[_Stretch]:
        units, other_units = (store.core.units(*place, start, stop) for store in (self._a, self._b))
        if bytes(units) == bytes(other_units) and (self._log is None or self._log.equal_at(units)):
            return
        import numpy as np

        one, other = arrays.unit_array(units), arrays.unit_array(other_units)
        sizes, others = arrays.sizes_of(one), arrays.sizes_of(other)
        tags, other_tags = one["tags_code"], other["tags_code"]
        kinds = np.zeros(len(one), np.int8)
        retagged = (tags != other_tags) & (tags > _EXT_MOST) & (other_tags > _EXT_MOST)
        if place[0] == SCHEDULE_TOPIC:  # the time of delivery follows from the store time
            retagged &= self._is_one_log & (one["physical_offset"] == other["physical_offset"])
        kinds[retagged] = _TAGS
        kinds[sizes != others] = _SIZE
        kinds[(sizes > 0) & (others == 0)] = _ONLY_A
        kinds[(sizes == 0) & (others > 0)] = _ONLY_B
        kinds[(sizes == 0) & (others == 0)] = _SAME
        contents: dict[int, str] = {}
        if self._log is not None:
            contents = dict(self._contents(one, other, sizes, kinds))
            sized = np.flatnonzero(kinds == _SIZE)
            self.moved |= not self._is_one_log or bool(
                len(sized) or np.any(one["physical_offset"] != other["physical_offset"])
            )
            same = [at for at in sized.tolist() if not contents.pop(at, "")]
            kinds[same] = np.where(retagged[same], _TAGS, _SAME)
        differing = np.flatnonzero(kinds).tolist()
        for at in sorted({*differing, *contents}):
            where, field = _KINDS[int(kinds[at])] if kinds[at] else ("both", contents[at])
            yield _Stretch(where, start + at, start + at + 1, field)

    def _touched(self, units: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
        """Whether each message has a byte that differs or was not compared, if any was to be."""
        import numpy as np

        if self._log is None:
            return np.zeros(len(units), np.bool_)
        return self._log.touch(units["physical_offset"].astype(np.int64), sizes)

    def _contents(
        self, one: NDArray[Any], other: NDArray[Any], sizes: NDArray[Any], kinds: NDArray[Any]
    ) -> Iterator[tuple[int, str]]:
        """Yield the messages in both stores whose contents differ, and in which fields."""
        import numpy as np

        assert self._log is not None
        offsets, others = one["physical_offset"], other["physical_offset"]
        doubted = (kinds == _SAME) & (sizes > 0)
        doubted &= (offsets != others) | self._touched(one, sizes)
        for at in np.flatnonzero(doubted | (kinds == _SIZE)).tolist():
            sized = (int(one["size"][at]), int(other["size"][at])) if kinds[at] == _SIZE else None
            fields = self._fields(int(offsets[at]), int(others[at]), sized)
            if fields:
                yield at, fields

    def _fields(self, offset: int, other: int, sized: tuple[int, int] | None) -> str:
        """Return the names of the fields in which two messages differ; empty if in none.

        ``sized``: their units' sizes, where these differ.
        """
        same_place = offset == other and not sized and self._is_one_log
        try:
            one, two = self._a.core.record(offset), self._b.core.record(other)
            bad_unit = sized is not None and sized != (len(one), len(two))
            before, after = slice(0, _OFFSET_AT), slice(_OFFSET_END, None)
            if bad_unit or (one[before] == two[before] and one[after] == two[after]):
                return "size" if bad_unit else ""
        except (StoreCorruptError, MessageNotFoundError):
            pass  # said by at() below, for each store
        messages = []
        for name, store, at in (("a", self._a, offset), ("b", self._b, other)):
            try:
                messages.append(store.at(at))
            except StoreCorruptError:
                return f"damaged in {name}"
            except MessageNotFoundError:
                return f"missing in the log of {name}"
        fields = _FIELDS + _PLACED if same_place else _FIELDS
        left, right = messages
        found = [name for name in fields if getattr(left, name) != getattr(right, name)]
        if not found and (same_place or sized):
            return "bytes"
        if not same_place and _is_compression(left, right, found):
            return ""
        return ", ".join(name.removeprefix("raw_") for name in found)


def _is_compression(left: Message, right: Message, found: Sequence[str]) -> bool:
    """Whether fields differ by compression alone: a consumer reads the same."""
    if not {"raw_body"} <= set(found) <= {"raw_body", "sys_flag", "body_crc"}:
        return False
    try:
        same = left.body == right.body
    except StoreError:  # one cannot be inflated
        return False
    return same and (left.sys_flag ^ right.sys_flag) & ~_COMPRESSION == 0


_KINDS: dict[int, tuple[Literal["a", "b", "both"], str]] = {
    _ONLY_A: ("a", ""),
    _ONLY_B: ("b", ""),
    _SIZE: ("both", "size"),
    _TAGS: ("both", "tags"),
}


def _bounds(store: MessageStore) -> set[tuple[str, int]]:
    return {
        (topic, queue.queue_id)
        for topic, queues in bounds_by_topic(store.core).items()
        for queue in queues
    }


def _physical_offset(store: MessageStore, topic: str, queue_id: int, at: int) -> int:
    return int(
        arrays.unit_array(store.core.units(topic, queue_id, at, at + 1))["physical_offset"][0]
    )


def _merged(runs: Iterable[_Stretch]) -> Iterator[_Stretch]:
    """Join runs that follow each other and differ alike."""
    last: _Stretch | None = None
    for run in runs:
        if last is not None and last._replace(start=last.stop, stop=run.stop) == run:
            last = last._replace(stop=run.stop)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _text(run: _Stretch) -> str:
    count = run.stop - run.start
    messages = "1 message" if count == 1 else f"{count:,} messages"
    return f"{messages}: {run.field}" if run.field else messages
