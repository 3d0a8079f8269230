"""Pieces of one store for a batch query: along the log, along queues, or by the index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.columns import pushdown
from rmqstore.spark.common.options import OptionError
from rmqstore.spark.read.cutting import split_queue_range
from rmqstore.spark.read.filters import Condition, Filters
from rmqstore.spark.read.lookups import (
    COUNTED,
    estimated_size,
    first_unit_at,
    split_scan,
)
from rmqstore.spark.read.options import selected_queues, selected_topics
from rmqstore.spark.read.partitions import Piece
from rmqstore.spark.read.store_identity import last_identity
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from rmqstore.columns.scan import Scan
    from rmqstore.spark.read.query import Query
    from rmqstore.spark.read.store_identity import RecordIdentity
    from rmqstore.store import MessageStore

__all__ = ["StorePlan"]

_RECORD_COST = 4096  # bytes read in sequence at the cost of reading a record by its offset
_LOOKUPS = 4096  # limit of key look-ups in the index
_HITS = 16384  # limit of key hits; above, the log is read


class StorePlan:
    """Pieces of one store, as large as possible."""

    def __init__(self, store: MessageStore, query: Query) -> None:
        self.store = store
        # including conditions that a scan along the log does not check itself
        self.filters = query.filters
        self.pieces: list[Piece] = []
        self._query = query
        self._selection = query.selection
        expression = query.filters.expression()
        self._bounds = {} if expression is None else pushdown.bounds_of(expression)
        scan = self._scan()
        self._first, _, self._end = scan.extent(queued=False)
        self._known_queued: int | None = None
        if scan.is_empty or pushdown.is_never(self._bounds):
            return
        if query.along_queues:
            self.pieces += self._of_queues(pushdown.with_tags_and_times(scan, self._bounds))
            return
        bounds = dict(self._bounds)
        if query.way == "commitlog":
            for name in ("uniq_key", "queue_id", "queue_offset"):
                bounds.pop(name, None)
        for narrow in pushdown.narrowed(scan, bounds):
            self.pieces += self._of_scan(narrow)

    @cached_property
    def known_record(self) -> RecordIdentity | None:
        """Last record that may be read."""
        return last_identity(self.store, self._first, self._end)

    def _scan(self) -> Scan:
        """Return the scan of the same rows, without filters and queues."""
        selection = self._selection
        topics = selection.topics
        if selection.topic_pattern is not None:
            topics = selected_topics(tuple(self.store.topics), selection)
        every = self.store.scan(
            columns=("queue_id",),
            tags=selection.tags,
            sql=selection.sql,
            keys=selection.keys,
            on_corruption=selection.on_corrupt,
            on_removed=selection.on_removed,
        )
        return every.replace(topic=topics)  # a stream's topic may come later: no warning

    def _queued(self) -> int:
        """End of the log range whose records have units in queues."""
        if self._known_queued is None:
            self._known_queued = min(self._scan().extent().queued, self._end)
        return self._known_queued

    # Along queues

    def _of_queues(self, scan: Scan) -> Iterator[Piece]:
        query = self._query
        topics = pushdown.texts_of(self._bounds, "topic")
        low, high = pushdown.range_of(self._bounds, "queue_id")
        progress = query.begin.progress(self.store) if query.begin else None
        log_range = self._log_range(scan)
        for topic, queue_ids in selected_queues(self.store, self._selection).items():
            for queue_id in queue_ids:
                known = self.store.queue_bounds(topic, queue_id)
                start, stop = known
                if query.begin is not None:
                    start = query.begin.resolve(
                        self.store, topic, queue_id, bounds=known, progress=progress
                    )
                if query.until is not None:
                    stop = query.until.resolve(self.store, topic, queue_id, bounds=known)
                    self._check_order(topic, queue_id, start, stop)
                timed = self._within_times(scan, topic, queue_id)
                if (topics is None or topic in topics) and low <= queue_id <= high:
                    yield from self._queue_piece(timed, topic, queue_id, (start, stop), log_range)

    def _within_times(self, scan: Scan, topic: str, queue_id: int) -> Scan:
        """Return a scan of a queue's store times: a clock may have been set."""
        begin, until = self._query.begin, self._query.until
        since = None if begin is None else begin.time_of(topic, queue_id)
        before = None if until is None else until.time_of(topic, queue_id)
        changes = {}
        if since is not None:
            changes["since"] = since if scan.since is None else max(scan.since, since)
        if before is not None:
            changes["until"] = before if scan.until is None else min(scan.until, before)
        return scan.replace(**changes) if changes else scan

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
        log_range: tuple[int, int],
    ) -> Iterator[Piece]:
        """Yield the part of a queue's range whose records are in a log range."""
        low, high = pushdown.range_of(self._bounds, "queue_offset")
        start, stop = max(offsets[0], low), min(offsets[1], high + 1)
        queue = Queue(self.store, topic, queue_id)
        if start < stop and log_range[0] > self._first:
            start = first_unit_at(queue, start, stop, log_range[0])
        if start < stop:
            stop = first_unit_at(queue, start, stop, log_range[1])
        if start < stop:
            yield self._piece(scan, "queue", start, stop, topics=(topic,), queue_id=queue_id)

    # Along the log, or by queues or index if that reads less

    def _of_scan(self, scan: Scan) -> Iterator[Piece]:
        topics, keys, queue_id = scan.topics, scan.keys, scan.queue_id
        start, stop = self._log_range(scan)
        if len(topics) == 1 and queue_id is not None:
            low, high = self.store.queue_bounds(topics[0], queue_id)
            low = max(low, scan.start or 0)
            high = high if scan.stop is None else min(high, scan.stop)
            yield from self._queue_piece(scan, topics[0], queue_id, (low, high), (start, stop))
            return
        if start >= stop:
            return
        if keys and self._query.way != "commitlog":
            found = self._by_index(scan, start, stop)
            if found is not None:
                yield from found
                return
        if keys and topics:  # a scan with both would use the index
            self._also(Condition("is_in", "topic", topics))
            topics = ()
        elif not keys:
            along = self._by_queues(scan, start, stop)
            if along is not None:
                yield from along
                return
        one = -1 if queue_id is None else queue_id
        yield self._piece(scan, "log", start, stop, topics=topics, queue_id=one)

    def _log_range(self, scan: Scan) -> tuple[int, int]:
        """Return the log range within a scan's offsets and times."""
        start, stop = self._first, self._end
        if not scan.is_along_queue:
            start = max(start, scan.start or 0)
            stop = stop if scan.stop is None else min(stop, scan.stop)
        if self._query.along_queues:
            low, high = pushdown.range_of(self._bounds, "physical_offset")
            start, stop = max(start, low), min(stop, high + 1)
        return scan.narrowed(start, max(start, stop))

    def _by_queues(self, scan: Scan, start: int, stop: int) -> list[Piece] | None:
        """Return pieces of the topics' queues, and of the log after them; None: the log is less."""
        counted = self._selection.max_messages_per_partition is not None
        if self._query.way == "commitlog" or scan.queue_id is not None:
            return None
        if not scan.topics and not counted:
            return None
        files = self.store.queue_ids()
        topics = scan.topics or tuple(files)
        if any("\ufffd" in topic or self._was_deleted(topic) for topic in topics):
            return None
        upto = min(stop, self._queued())
        if upto <= start:
            return None
        pieces: list[Piece] = []
        for topic in topics:
            for queue_id in files.get(topic, ()):
                known = self.store.queue_bounds(topic, queue_id)
                pieces += self._queue_piece(scan, topic, queue_id, known, (start, upto))
        if not counted and sum(p.size for p in pieces) + _RECORD_COST * sum(
            p.stop - p.start for p in pieces
        ) >= (stop - start):
            return None
        if upto < stop:
            pieces.append(self._piece(scan, "log", upto, stop, topics=scan.topics))
        return pieces

    def _was_deleted(self, topic: str) -> bool:
        """Whether the log may have records of a topic that are in none of its queues."""
        return self.store.deleted_topics.get(topic, -1) > self._first

    def _by_index(self, scan: Scan, start: int, stop: int) -> list[Piece] | None:
        """Return pieces of the keys' index hits, and of the log after; None: the log is less."""
        forced = self._query.way == "index"
        upto = stop
        topics = scan.topics
        if not topics:  # the index has keys only together with topics
            topics = tuple(self.store.queue_ids())
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
        lookups = len(topics) * len(scan.keys)
        cost = lookups * (self._end - self._first - covered)
        if not forced and (lookups > _LOOKUPS or cost >= stop - start):
            return None
        hits = {
            topic: self.store.locate_many(topic, scan.keys, max_num=_HITS)[0] for topic in topics
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
                    keys=scan.keys,
                    size=count * _RECORD_COST,
                )
            )
        if upto < stop:
            pieces.append(self._piece(scan, "log", upto, stop, keys=scan.keys))
        return pieces

    def _also(self, condition: Condition) -> None:
        if condition not in self.filters.conditions:
            self.filters = Filters((*self.filters.conditions, condition))

    def _piece(
        self, scan: Scan, kind: Literal["queue", "log", "keys"], start: int, stop: int, **more: Any
    ) -> Piece:
        """Make a piece, with the conditions that a scan checks itself."""
        size = stop - start
        if kind == "queue":
            queue = Queue(self.store, more["topics"][0], more["queue_id"])
            size = estimated_size(queue, start, stop)
        return Piece(
            kind,
            start,
            stop,
            since=scan.since,
            until=scan.until,
            tags=scan.tags,
            sql=scan.sql,
            **{"keys": scan.keys, "size": size, **more},
        )

    # Division into tasks

    def split(self, limit: int, most: int | None) -> Iterator[Piece]:
        """Yield pieces, with sizes, of at most ``limit`` bytes and ``most`` messages."""
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
                parts = list(split_scan(self.store, piece, limit, most))
            else:
                step = max(1, -(-piece.size // -(-piece.size // limit)))
                parts = [
                    (start, min(start + step, piece.stop), min(step, piece.stop - start))
                    for start in range(piece.start, piece.stop, step)
                ]
            for start, stop, size in parts:
                yield replace(piece, start=start, stop=stop, size=size)


def _is_small(piece: Piece, limit: int, most: int | None) -> bool:
    """Whether a piece of a queue needs no division; its size is exact."""
    count = piece.stop - piece.start
    return count <= COUNTED and piece.size <= limit and (most is None or count <= most)
