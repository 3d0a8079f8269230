"""How a batch query is read: which pieces of which stores, shared out to tasks.

What is read is fixed here, down to the last message: tasks read no further. Together the pieces
give what :meth:`MessageStore.scan` gives, or, along queues, what consumers would get.

Source: none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import rmqstore
from rmqstore import pushdown
from rmqstore.spark.filters import NO_FILTERS, Condition, Filters
from rmqstore.spark.landmarks import landmark_before
from rmqstore.spark.options import OptionError
from rmqstore.spark.places import COUNTED, first_unit_at, hits_of, size_about, times_range
from rmqstore.spark.positions import Positions
from rmqstore.spark.read_options import (
    Selection,
    check_names,
    selected_queues,
    selected_topics,
)
from rmqstore.spark.reading import Piece, StorePartition, merged, split_queue_range
from rmqstore.times import INT64_MAX, INT64_MIN
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from rmqstore.scan import Scan
    from rmqstore.spark.landmarks import Landmark
    from rmqstore.store import MessageStore

__all__ = ["Query", "Way", "plan"]

Way = Literal["auto", "commitlog", "consumequeue", "index"]

_RECORD_COST = 4096  # reading one by its place costs as much as so many bytes in a row
_LOOKUPS = 4096  # of keys by the index, at most
_HITS = 16384  # of keys, beyond which the log is read
_WORTH = 8 << 20  # bytes that are worth a task of their own


@dataclass(frozen=True)
class Query:
    """What is to be read; plain data.

    Attributes
    ----------
    selection : Selection
    begin, until : Positions, or None
        Where queues are read from, and up to.
    way : {"auto", "commitlog", "consumequeue", "index"}
        Along what.
    filters : Filters
        What the rows must pass as well.

    Notes
    -----
    Source: none.
    """

    selection: Selection
    begin: Positions | None = None
    until: Positions | None = None
    way: Way = "auto"
    filters: Filters = NO_FILTERS

    @property
    def along_queues(self) -> bool:
        """Whether what consumers would get is asked for."""
        named = self.selection.queues is not None or self.way == "consumequeue"
        return named or self.begin is not None or self.until is not None


def plan(query: Query) -> list[StorePartition]:
    """Return what each task reads.

    Parameters
    ----------
    query : Query

    Returns
    -------
    list of StorePartition
        No more bytes and messages in each than the selection allows; none is empty.

    Raises
    ------
    OptionError, FilterError, TopicNotFoundError
        An option names what is not there.
    MessagesRemovedError
        Retention took what an option names.
    StoreNotFoundError, OSError
        A store cannot be read.

    Notes
    -----
    Source: none.
    """
    with ExitStack() as stack:
        # Opened anew: what is kept open may have looked for new queues a moment ago.
        stores = [stack.enter_context(rmqstore.open(path, "r")) for path in query.selection.stores]
        _check(query, stores)
        return _planned([StorePlan(store, query) for store in stores], query.selection)


def _check(query: Query, stores: Iterable[MessageStore]) -> None:
    """Refuse names that no store has."""
    selection = query.selection
    positions: dict[str, set[int]] = {}
    for each in (query.begin, query.until):
        for name, queue_ids in each.topics.items() if each else ():
            positions.setdefault(name, set()).update(queue_ids)
    if not positions and selection.topics is None and selection.queues is None:
        return
    known: dict[str, set[int]] = {}
    for store in stores:
        for name, topic in store.topics.items():
            known.setdefault(name, set()).update(topic)
    check_names(selection, known, positions=positions)


def _planned(plans: list[StorePlan], selection: Selection) -> list[StorePartition]:
    wanted = selection.min_partitions
    total = sum(piece.size for each in plans for piece in each.pieces)
    if wanted is None:
        wanted = max(1, min(os.cpu_count() or 1, total // _WORTH))
    found = _shared_out(plans, selection, total, wanted)
    if len(found) < wanted:  # sizes were estimates
        total = sum(piece.size for partition in found for piece in partition.pieces)
        found = _shared_out(plans, selection, total, wanted)
    return found


def _shared_out(
    plans: list[StorePlan], selection: Selection, total: int, wanted: int
) -> list[StorePartition]:
    limit = min(selection.max_partition_bytes, max(1, -(-total // wanted)))
    most = selection.max_messages_per_partition
    return [
        StorePartition(
            each.store.path,
            group,
            each.filters,
            selection.on_corrupt,
            selection.on_removed,
            each.landmark,
        )
        for each in plans
        for group in merged(each.split(limit, most), limit, most)
    ]


class StorePlan:
    """What is read of one store, in pieces that are as large as can be.

    Parameters
    ----------
    store : MessageStore
    query : Query

    Attributes
    ----------
    store : MessageStore
    filters : Filters
        Of the query, and what a scan along the log does not look at by itself.
    pieces : list of Piece

    Notes
    -----
    Source: none.
    """

    def __init__(self, store: MessageStore, query: Query) -> None:
        self.store = store
        self.filters = query.filters
        self.pieces: list[Piece] = []
        self._query = query
        self._selection = query.selection
        expression = query.filters.expression()
        self._bounds = {} if expression is None else pushdown.bounds_of(expression)
        scan = self._scan()
        self._first, _, self._end = scan._pass(()).extent(queued_too=False)
        self._known_queued: int | None = None
        if scan._nothing or pushdown.is_never(self._bounds):
            return
        if query.along_queues:
            self.pieces += self._of_queues(pushdown.checked(scan, self._bounds))
            return
        bounds = dict(self._bounds)
        if query.way == "commitlog":
            for name in ("uniq_key", "queue_id", "queue_offset"):
                bounds.pop(name, None)
        for narrow in pushdown.narrowed(scan, bounds):
            self.pieces += self._of_scan(narrow)

    @cached_property
    def landmark(self) -> Landmark | None:
        """The last record that may be read."""
        return landmark_before(self.store, self._first, self._end)

    def _scan(self) -> Scan:
        """Return the scan that gives the same rows, but for what filters and queues leave out."""
        selection = self._selection
        topics = selection.topics
        if selection.topic_pattern is not None:
            topics = selected_topics(tuple(self.store.topics), selection)
        return self.store.scan(
            topics,
            columns=("queue_id",),
            tags=selection.tags,
            keys=selection.keys,
            on_corruption=selection.on_corrupt,
            on_removed=selection.on_removed,
        )

    def _queued(self) -> int:
        """Up to where each record has a unit in a queue."""
        if self._known_queued is None:
            queued = self._scan()._pass(()).extent()[1]
            self._known_queued = min(queued, self._end)
        return self._known_queued

    # Along queues

    def _of_queues(self, scan: Scan) -> Iterator[Piece]:
        """Go through what consumers would get."""
        query = self._query
        topics = pushdown.texts_of(self._bounds, "topic")
        low, high = pushdown.range_of(self._bounds, "queue_id")
        progress = query.begin.progress(self.store) if query.begin else None
        places = self._log_range(scan)
        for topic, queue_ids in selected_queues(self.store, self._selection).items():
            for queue_id in queue_ids:
                known = self.store._bounds(topic, queue_id) or (0, 0)
                start, stop = known
                if query.begin is not None:
                    start = query.begin.resolve(
                        self.store, topic, queue_id, bounds=known, progress=progress
                    )
                if query.until is not None:
                    stop = query.until.resolve(self.store, topic, queue_id, bounds=known)
                    self._check_order(topic, queue_id, start, stop)
                if (topics is None or topic in topics) and low <= queue_id <= high:
                    yield from self._queue_piece(scan, topic, queue_id, (start, stop), places)

    def _check_order(self, topic: str, queue_id: int, start: int, stop: int) -> None:
        begin, until = self._query.begin, self._query.until
        named = until is not None and queue_id in until.offsets.get(topic, {})
        if start > stop and named and begin is not None and begin.exact:
            raise OptionError(
                f"option 'consumeUntil' is {stop} for {topic}/{queue_id}, which begins at {start}"
            )

    def _queue_piece(
        self,
        scan: Scan,
        topic: str,
        queue_id: int,
        offsets: tuple[int, int],
        places: tuple[int, int],
    ) -> Iterator[Piece]:
        """Give the part of a queue's range whose records lie in a range of the log."""
        low, high = pushdown.range_of(self._bounds, "queue_offset")
        start, stop = max(offsets[0], low), min(offsets[1], high + 1)
        queue = Queue(self.store, topic, queue_id)
        if start < stop and places[0] > self._first:
            start = first_unit_at(queue, start, stop, places[0])
        if start < stop:
            stop = first_unit_at(queue, start, stop, places[1])
        if start < stop:
            yield self._piece(scan, "queue", start, stop, topics=(topic,), queue_id=queue_id)

    # Along the log, or where that is less

    def _of_scan(self, scan: Scan) -> Iterator[Piece]:
        topics, keys, queue_id = scan._topics, scan._keys, scan._queue_id
        start, stop = self._log_range(scan)
        if len(topics) == 1 and queue_id >= 0:
            low, high = self.store._bounds(topics[0], queue_id) or (0, 0)
            low = max(low, scan._start)
            high = high if scan._stop < 0 else min(high, scan._stop)
            yield from self._queue_piece(scan, topics[0], queue_id, (low, high), (start, stop))
            return
        if start >= stop:
            return
        if keys and self._query.way != "commitlog":
            found = self._by_index(scan, start, stop)
            if found is not None:
                yield from found
                return
        if keys and topics:  # a scan with both goes by the index
            self._also(Condition("is_in", "topic", topics))
            topics = ()
        elif not keys:
            along = self._by_queues(scan, start, stop)
            if along is not None:
                yield from along
                return
        yield self._piece(scan, "log", start, stop, topics=topics, queue_id=queue_id)

    def _log_range(self, scan: Scan) -> tuple[int, int]:
        """Return the range of the log that a scan's offsets and times leave."""
        start, stop = self._first, self._end
        if not (len(scan._topics) == 1 and scan._queue_id >= 0):
            start = max(start, scan._start)
            stop = stop if scan._stop < 0 else min(stop, scan._stop)
        if self._query.along_queues:
            low, high = pushdown.range_of(self._bounds, "physical_offset")
            start, stop = max(start, low), min(stop, high + 1)
        return times_range(self.store, (start, stop), scan._since, scan._until)

    def _by_queues(self, scan: Scan, start: int, stop: int) -> list[Piece] | None:
        """Return pieces of the topics' queues, and of the log behind; None: the log is less."""
        counted = self._selection.max_messages_per_partition is not None
        if self._query.way == "commitlog" or scan._queue_id >= 0:
            return None
        if not scan._topics and not counted:
            return None
        files = self.store._queue_files()
        topics = scan._topics or tuple(files)
        if any("\ufffd" in topic or self._was_deleted(topic) for topic in topics):
            return None
        upto = min(stop, self._queued())
        if upto <= start:
            return None
        pieces: list[Piece] = []
        for topic in topics:
            for queue_id in files.get(topic, ()):
                known = self.store._bounds(topic, queue_id) or (0, 0)
                pieces += self._queue_piece(scan, topic, queue_id, known, (start, upto))
        if not counted and sum(p.size for p in pieces) + _RECORD_COST * sum(
            p.stop - p.start for p in pieces
        ) >= (stop - start):
            return None
        if upto < stop:
            pieces.append(self._piece(scan, "log", upto, stop, topics=scan._topics))
        return pieces

    def _was_deleted(self, topic: str) -> bool:
        """Whether records of the log may be a topic's, but in none of its queues."""
        deleted: int = self.store._registry.deleted.get(topic, -1)
        return deleted > self._first

    def _by_index(self, scan: Scan, start: int, stop: int) -> list[Piece] | None:
        """Return what the index has of the keys, and the log behind; None: the log is less."""
        forced = self._query.way == "index"
        upto = stop
        topics = scan._topics
        if not topics:  # the index knows a key only together with its topic
            topics = tuple(self.store._queue_files())
            upto = min(stop, self._queued())
            if upto <= start or not topics or any("\ufffd" in topic for topic in topics):
                if forced and start < stop:
                    raise OptionError(
                        f"option 'scan' is 'index', but in {self.store.path} some messages are in "
                        "no queue: name the topics"
                    )
                return None
        covered = sum(
            max(0, min(last, self._end) - max(begin, self._first))
            for begin, last in self.store.index_coverage()
        )
        lookups = len(topics) * len(scan._keys)
        cost = lookups * (self._end - self._first - covered)
        if not forced and (lookups > _LOOKUPS or cost >= stop - start):
            return None
        hits = {
            topic: self.store.locate_many(topic, scan._keys, max_num=_HITS)[0] for topic in topics
        }
        count = sum(map(len, hits.values()))
        if not forced and (count >= _HITS or count * _RECORD_COST >= stop - start):
            return None
        topics = tuple(topic for topic, offsets in hits.items() if len(offsets))
        pieces = []
        if topics:
            pieces.append(
                self._piece(
                    scan,
                    "keys",
                    start,
                    upto,
                    topics=topics,
                    keys=scan._keys,
                    size=count * _RECORD_COST,
                )
            )
        if upto < stop:
            pieces.append(self._piece(scan, "log", upto, stop, keys=scan._keys))
        return pieces

    def _also(self, condition: Condition) -> None:
        if condition not in self.filters.conditions:
            self.filters = Filters((*self.filters.conditions, condition))

    def _piece(
        self, scan: Scan, kind: Literal["queue", "log", "keys"], start: int, stop: int, **more: Any
    ) -> Piece:
        """Make a piece with what a scan looks at itself."""
        size = stop - start
        if kind == "queue":
            queue = Queue(self.store, more["topics"][0], more["queue_id"])
            size = size_about(queue, start, stop)
        return Piece(
            kind,
            start,
            stop,
            since=None if scan._since == INT64_MIN else scan._since,
            until=None if scan._until == INT64_MAX else scan._until,
            tags=scan._tags,
            **{"keys": scan._keys, "size": size, **more},
        )

    # Sharing out

    def split(self, limit: int, most: int | None) -> Iterator[Piece]:
        """Go through pieces of no more bytes and messages, with their sizes.

        Parameters
        ----------
        limit : int
            Bytes.
        most : int, or None
            Messages.

        Yields
        ------
        Piece
        """
        for piece in self.pieces:
            if piece.kind == "queue" and _is_small(piece, limit, most):
                yield piece
                continue
            if piece.kind == "queue":
                parts = split_queue_range(
                    self.store,
                    piece.topics[0],
                    piece.queue_id,
                    piece.start,
                    piece.stop,
                    max_bytes=limit,
                    max_messages=most,
                )
            elif piece.kind == "keys" or most is not None:
                parts = list(hits_of(self.store, piece, limit, most))
            else:
                step = max(1, -(-piece.size // -(-piece.size // limit)))
                parts = [
                    (start, min(start + step, piece.stop), min(step, piece.stop - start))
                    for start in range(piece.start, piece.stop, step)
                ]
            for start, stop, size in parts:
                yield replace(piece, start=start, stop=stop, size=size)


def _is_small(piece: Piece, limit: int, most: int | None) -> bool:
    """Whether a piece of a queue needs no cutting; its size is no estimate."""
    count = piece.stop - piece.start
    return count <= COUNTED and piece.size <= limit and (most is None or count <= most)
