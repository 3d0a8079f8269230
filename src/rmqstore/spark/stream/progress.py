"""Driver side of a stream: its start, the ends of batches, the lag.

Source: pyspark, ``sql/datasource.py`` DataSourceStreamReader; the options mean what those of
Spark's Kafka source do.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqstore.base.arrays import sizes_of
from rmqstore.base.warn import Log
from rmqstore.errors import StoreCorruptError
from rmqstore.spark.read.cutting import units_of
from rmqstore.spark.read.options import check_names
from rmqstore.spark.stream.admission import admitted, bytes_of
from rmqstore.spark.stream.groups import keep_progress
from rmqstore.spark.stream.heads import Heads
from rmqstore.spark.stream.offsets import (
    DataLossError,
    Deletions,
    QueueName,
    QueueOffsets,
    StreamOffset,
    nested,
)
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqstore.spark.stream.heads import Bounds
    from rmqstore.spark.stream.options import StreamOptions

__all__ = ["StreamProgress"]

_log = Log("rmqstore")

_COUNTED = 1 << 18  # messages whose bytes are counted for the lag; beyond they are estimated
_TRIES = 3  # to plan a batch while retention removes messages


class StreamProgress:
    """State of a stream between two batches."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._heads = Heads(options.selection, options.discovery)
        self._target: Bounds | None = None
        self._target_deletions: Deletions = {}
        self._looked = False
        self._turn = 0
        self._last_batch = float("-inf")
        self._idle: tuple[Any, int] | None = None  # start and version of the heads without work
        self._planned: StreamOffset | None = None
        self._reported: tuple[tuple[Any, int], dict[str, Any]] | None = None
        self._warned = False

    def close(self) -> None:
        """Close the stores."""
        self._heads.close()

    def initial(self) -> StreamOffset:
        """Return the start of a new query.

        Raises ``TopicNotFoundError``, ``OptionError`` or ``MessagesRemovedError`` if the options
        have a topic, queue or offset that does not exist.
        """
        self._look(everything=True)
        start = self._options.start
        known: dict[str, set[int]] = {}
        positions: QueueOffsets = {}
        for store_name, store in self._heads.stores():
            for topic, queues in store.topics.items():
                known.setdefault(topic, set()).update(queues)
            progress = start.progress(store)
            for name, bounds in self._heads.bounds.items():
                if name.store == store_name:
                    positions[name] = start.resolve(
                        store, name.topic, name.queue_id, bounds=bounds, progress=progress
                    )
        check_names(self._options.selection, known, positions=start.topics)
        logs, _ = self._heads.log_starts({})
        return StreamOffset(positions, {}, self._heads.deletions(), logs)

    def freeze(self) -> None:
        """Fix the end of the stream at the present one."""
        self._look(everything=True)
        self._target = dict(self._heads.bounds)
        self._target_deletions = self._heads.deletions()

    def latest(
        self,
        start: dict[str, Any],
        *,
        everything: bool = False,
        max_messages: int | None = None,
        max_bytes: int | None = None,
    ) -> dict[str, Any]:
        """Return the end of the next batch as JSON; ``start`` itself if there is none.

        ``everything`` ignores the options' limits, ``max_messages`` and ``max_bytes`` replace them.
        Raises ``DataLossError`` if the next messages are gone, and ``failOnDataLoss`` is set.
        """
        if self._target is None:
            self._look()
        if self._idle == (start, self._heads.version):
            return start
        offset = StreamOffset.from_json(start)
        self._planned = offset
        if max_messages is None and not everything:
            max_messages = self._options.max_messages
        if max_bytes is None and not everything:
            max_bytes = self._options.max_bytes
        for last_try in (*([False] * (_TRIES - 1)), True):
            try:
                batch = self._batch(offset, max_messages, max_bytes, everything)
                break
            except FileNotFoundError:  # retention removed messages of the batch
                if last_try:
                    raise
                self._look(everything=True)
        if batch is None:
            return start
        self._planned = batch
        self._last_batch = time.monotonic()
        self._turn += 1
        return batch.to_json()

    def _look(self, *, everything: bool = False) -> None:
        self._heads.look(everything=everything or not self._looked)
        self._looked = True

    def _batch(
        self,
        offset: StreamOffset,
        max_messages: int | None,
        max_bytes: int | None,
        everything: bool,
    ) -> StreamOffset | None:
        """Return the end of a batch that begins at an offset; None if there is none."""
        frozen = self._target is not None
        bounds = self._target if self._target is not None else self._heads.bounds
        deletions = self._target_deletions if frozen else self._heads.deletions()
        logs, replaced = self._heads.log_starts(offset.logs)
        positions, moved = self._surviving(offset, bounds, deletions, replaced)
        backlog = []
        for name in sorted(bounds):
            low, high = bounds[name]
            at = positions.setdefault(name, low) if high else 0  # a new queue: all of it
            if at < high:
                backlog.append((name, at, high))
        if not moved and not backlog and positions == offset.positions:
            if not frozen:
                self._idle = (offset.to_json(), self._heads.version)
            return None
        if not (everything or frozen or moved) and self._waits(backlog):
            return None
        ends = admitted(
            backlog,
            self._sizes,
            max_messages=max_messages,
            max_bytes=max_bytes,
            turn=self._turn,
        )
        self._heads.recreated.clear()
        begins = {name: positions[name] for name in ends}
        return StreamOffset({**positions, **ends}, begins, deletions, logs)

    def _waits(self, backlog: list[tuple[QueueName, int, int]]) -> bool:
        """Whether there is too little for a batch, and the wait is not over."""
        least = self._options.min_messages
        if least is None or sum(stop - start for _, start, stop in backlog) >= least:
            return False
        return time.monotonic() - self._last_batch < self._options.max_delay

    def _surviving(
        self, offset: StreamOffset, bounds: Bounds, deletions: Deletions, replaced: set[str]
    ) -> tuple[QueueOffsets, bool]:
        """Return the positions to continue from, and whether some were lost."""
        positions = dict(offset.positions)
        lost: list[str] = []
        for name, at in sorted(offset.positions.items()):
            if not self._heads.selects(name):
                continue
            low, high = bounds.get(name, (0, 0))
            before = offset.deletions.get(name.store, {}).get(name.topic, -1)
            deleted = deletions.get(name.store, {}).get(name.topic, -1) > before
            another = name.store in replaced
            recreated = deleted or another or name in self._heads.recreated
            if not recreated and low <= at <= high:
                continue
            what = "store" if another else "topic"
            why = f", of a {what} made again" if low <= at <= high else ""
            there = f"the queue has {low} to {high} now{why}" if high else "it has no messages now"
            lost.append(f"{self._where(name)}: offset {at} comes next, {there}")
            if high:
                positions[name] = low
            else:
                del positions[name]
        if lost:
            more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
            if self._options.selection.fail_on_data_loss:
                raise DataLossError(
                    f"{lost[0]}{more}: messages may be lost; failOnDataLoss=false goes on from "
                    "the first that is there"
                )
            _log.warning("%s%s: messages may be lost", lost[0], more)
        return positions, bool(lost)

    def still_there(self, batch: StreamOffset) -> StreamOffset:
        """Return a batch without ranges of stores replaced since it was planned.

        It may have been planned before a restart of the query. Raises ``DataLossError`` if a store
        was replaced, and ``failOnDataLoss`` is set.
        """
        _, replaced = self._heads.log_starts(batch.logs)
        if not replaced:
            return batch
        gone = sorted(name for name in batch.begins if name.store in replaced)
        if gone and self._options.selection.fail_on_data_loss:
            raise DataLossError(
                f"{self._where(gone[0])}: the batch has messages from offset "
                f"{batch.begins[gone[0]]} on, of a store that was replaced by another; "
                "failOnDataLoss=false goes on without them"
            )
        begins = {name: at for name, at in batch.begins.items() if name not in gone}
        return replace(batch, begins=begins)

    def _where(self, name: QueueName) -> str:
        stores = self._options.selection.stores
        path = stores[0] if len(stores) == 1 else name.store
        return f"{path}: {name.topic}/{name.queue_id}"

    def _sizes(self, name: QueueName, start: int, stop: int) -> NDArray[Any]:
        store = self._heads.store(name.store)
        assert store is not None
        return sizes_of(units_of(Queue(store, name.topic, name.queue_id), start, stop))

    def report(self) -> dict[str, Any]:
        """Return the ends of the queues, and the lag of the batch just planned.

        ``q`` has the ends as in an offset; for queues with a lag, ``at`` has their positions, and
        ``bytes`` the bytes from there on.
        """
        if self._target is not None:
            self._look()
        planned = self._planned
        seen = (planned, self._heads.version)
        if self._reported is None or self._reported[0] != seen:
            self._reported = (seen, self._report(planned.positions if planned else {}))
        return self._reported[1]

    def _report(self, positions: QueueOffsets) -> dict[str, Any]:
        heads = {name: high for name, (_, high) in self._heads.bounds.items() if high}
        behind = {}
        for name, (low, high) in self._heads.bounds.items():
            at = max(positions.get(name, low), low)
            if at < high:
                behind[name] = at
        counted = _COUNTED // max(len(behind), 1)
        found: QueueOffsets = {}
        for name, at in behind.items():
            try:
                found[name] = bytes_of(self._sizes, name, at, heads[name], counted)
            except FileNotFoundError:  # retention removed some of them
                found[name] = 0
        return {"v": 1, "q": nested(heads), "at": nested(behind), "bytes": nested(found)}

    def commit(self, end: StreamOffset) -> None:
        """Commit all before an offset as the group's progress, if the options name a group."""
        group = self._options.group
        if group is None:
            return
        self._look()
        stores = self._options.selection.stores
        for watched, path in zip(self._heads.names(), stores, strict=True):
            progress = {
                (name.topic, name.queue_id): (at, self._heads.bounds.get(name, (0, at))[1])
                for name, at in end.positions.items()
                if name.store == watched
            }
            try:
                kept = keep_progress(path, group, progress)
            except (OSError, ValueError, StoreCorruptError) as error:
                _log.warning("%s: the progress of group %r is not kept: %s", path, group, error)
                continue
            if not kept and not self._warned:
                self._warned = True
                _log.warning(
                    "%s: the progress of group %r is not kept while another process has the store "
                    "open for writing; rmqstore lag --checkpoint reads that of the checkpoint",
                    path,
                    group,
                )
