"""Partitions of one batch of a stream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqstore.spark.read.cutting import (
    at_least,
    merged,
    split_queue_range,
    units_of,
    warn_of_many,
)
from rmqstore.spark.read.partitions import Piece, StorePartition, opened, queue_piece
from rmqstore.spark.read.store_identity import RecordIdentity, identity_at
from rmqstore.spark.stream.offsets import DataLossError, OffsetError, QueueName, StreamOffset
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from rmqstore.spark.read.options import Selection
    from rmqstore.store import MessageStore

__all__ = ["opened_when_visible", "plan_batch"]

_APPEAR_SECONDS = 2.0  # until a process sees another's messages
_TASK_BYTES = 4 << 20  # a smaller task costs more to start than to run
_TASKS = 8  # of a batch larger than so many of these


def plan_batch(batch: StreamOffset, selection: Selection) -> list[InputPartition]:
    """Return the partitions of a batch, from its end, which includes its beginning.

    Raises ``DataLossError`` if messages are gone and ``failOnDataLoss`` is set, ``OffsetError`` for
    a store that is not read.
    """
    ranges = [_there(*each, selection) for each in batch.ranges()]
    most = selection.max_partition_bytes
    known_records = _known_records(ranges)  # first, so that tasks notice a later replacement
    by_path = _pieces(ranges, selection, most)
    total = sum(piece.size for pieces in by_path.values() for piece in pieces)
    if (least := at_least(most, total)) > most:
        most = least
        by_path = _pieces(ranges, selection, most)
    together = min(most, max(_TASK_BYTES, total // _TASKS))
    if selection.min_partitions is not None:
        part = max(1, total // selection.min_partitions)
        if part < together:
            together = part
            by_path = _pieces(ranges, selection, part)
    found: list[InputPartition] = [
        StorePartition(
            path,
            group,
            on_corrupt=selection.on_corrupt,
            on_removed=selection.on_removed,
            known_record=known_records[path],
        )
        for path, pieces in by_path.items()
        for group in _grouped(pieces, together, selection.max_messages_per_partition)
    ]
    warn_of_many(len(found), total)
    return found


def _grouped(
    pieces: list[Piece], together: int, max_messages: int | None
) -> list[tuple[Piece, ...]]:
    if max_messages is not None:
        return [(piece,) for piece in pieces]
    return merged(pieces, together)


def _pieces(
    ranges: list[tuple[str, QueueName, int, int]], selection: Selection, max_bytes: int
) -> dict[str, list[Piece]]:
    by_path: dict[str, list[Piece]] = {}
    for path, name, start, stop in ranges:
        parts = split_queue_range(
            opened(path),
            name.topic,
            name.queue_id,
            start,
            stop,
            max_bytes=max_bytes,
            max_messages=selection.max_messages_per_partition,
        )
        by_path.setdefault(path, []).extend(
            queue_piece(
                name.topic,
                name.queue_id,
                first,
                last,
                tags=selection.tags,
                sql=selection.sql,
                keys=selection.keys or (),
                size=size,
            )
            for first, last, size in parts
        )
    return by_path


def _known_records(
    ranges: list[tuple[str, QueueName, int, int]],
) -> dict[str, RecordIdentity | None]:
    """Return, by store, the last record in the log among the ends of its ranges."""
    offsets: dict[str, int] = {}
    for path, name, start, stop in ranges:
        offset = 0
        if start < stop:
            queue = Queue(opened(path), name.topic, name.queue_id)
            offset = int(units_of(queue, stop - 1, stop)["physical_offset"][0])
        offsets[path] = max(offsets.get(path, 0), offset)
    return {path: identity_at(opened(path), offset) for path, offset in offsets.items()}


def _there(
    name: QueueName, start: int, stop: int, selection: Selection
) -> tuple[str, QueueName, int, int]:
    """Return path and range of a queue, as far as it exists."""
    path = _path_of(name.store, selection)
    store = opened_when_visible(path, name.topic, name.queue_id, stop)
    low, high = store.queue_bounds(name.topic, name.queue_id)
    if selection.fail_on_data_loss and (start < low or stop > high):
        raise DataLossError(
            f"{path}: {name.topic}/{name.queue_id}: the batch has offsets {start} to {stop}, the "
            f"queue has {low} to {high} now; failOnDataLoss=false goes on without them"
        )
    start = max(start, low)
    return path, name, start, max(start, min(stop, high))


def _path_of(store: str, selection: Selection) -> str:
    if store == "." and len(selection.stores) == 1:
        return selection.stores[0]
    if store not in selection.stores:
        raise OffsetError(f"the checkpoint has a batch of the store {store!r}, which is not read")
    return store


def opened_when_visible(path: str, topic: str, queue_id: int, stop: int) -> MessageStore:
    """Return a store where a queue's messages up to ``stop`` are visible, waiting some seconds.

    Callers do not close it. Reopened if needed: a store open for reading checks for new queues ten
    times a second, and misses a recreated topic. Returned unchanged if they do not appear.
    """
    until = time.monotonic() + _APPEAR_SECONDS
    while True:
        store = opened(path)
        if store.queue_bounds(topic, queue_id)[1] >= stop or time.monotonic() > until:
            return store
        store.close()
        store = opened(path)
        if store.queue_bounds(topic, queue_id)[1] >= stop:
            return store
        time.sleep(0.05)
