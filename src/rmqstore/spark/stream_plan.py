"""What the tasks of one batch of a stream read.

Source: none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqstore.spark.landmarks import Landmark, landmark_at
from rmqstore.spark.reading import (
    Piece,
    StorePartition,
    merged,
    opened,
    queue_piece,
    split_queue_range,
    units_of,
)
from rmqstore.spark.stream_offsets import DataLossError, OffsetError, QueueName, StreamOffset
from rmqstore.topic import Queue

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from rmqstore.spark.read_options import Selection
    from rmqstore.store import MessageStore

__all__ = ["plan_batch", "reaching"]

_APPEAR_SECONDS = 2.0  # until one process sees what another has seen
_TASK_BYTES = 4 << 20  # a task of less costs more to start than to run
_TASKS = 8  # of a batch that is larger than so many of these


def plan_batch(batch: StreamOffset, selection: Selection) -> list[InputPartition]:
    """Return the partitions of a batch.

    Parameters
    ----------
    batch : StreamOffset
        The end of the batch, which tells its beginning as well.
    selection : Selection

    Returns
    -------
    list of InputPartition

    Raises
    ------
    DataLossError
        Messages of the batch are not there any more, and ``failOnDataLoss`` is set.
    OffsetError
        It has a store that is not read.

    Notes
    -----
    A queue's part of the batch is cut only where it is larger than ``maxPartitionBytes``, has
    more than ``maxMessagesPerPartition``, or ``minPartitions`` asks for more.
    Source: none.
    """
    ranges = [_there(*each, selection) for each in batch.ranges()]
    most = selection.max_partition_bytes
    landmarks = _landmarks(ranges)  # first: what is replaced later is told by the tasks
    by_path = _pieces(ranges, selection, most)
    total = sum(piece.size for pieces in by_path.values() for piece in pieces)
    together = min(most, max(_TASK_BYTES, total // _TASKS))
    if selection.min_partitions is not None:
        part = max(1, total // selection.min_partitions)
        if part < together:
            together = part
            by_path = _pieces(ranges, selection, part)
    return [
        StorePartition(
            path,
            group,
            on_corrupt=selection.on_corrupt,
            on_removed=selection.on_removed,
            landmark=landmarks[path],
        )
        for path, pieces in by_path.items()
        for group in _grouped(pieces, together, selection.max_messages_per_partition)
    ]


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
                keys=selection.keys or (),
                size=size,
            )
            for first, last, size in parts
        )
    return by_path


def _landmarks(ranges: list[tuple[str, QueueName, int, int]]) -> dict[str, Landmark | None]:
    """Return of each store the last record of the log that one of its ranges ends with."""
    places: dict[str, int] = {}
    for path, name, start, stop in ranges:
        place = 0
        if start < stop:
            queue = Queue(opened(path), name.topic, name.queue_id)
            place = int(units_of(queue, stop - 1, stop)["physical_offset"][0])
        places[path] = max(places.get(path, 0), place)
    return {path: landmark_at(opened(path), place) for path, place in places.items()}


def _there(
    name: QueueName, start: int, stop: int, selection: Selection
) -> tuple[str, QueueName, int, int]:
    """Return path and range of a queue, as far as it is there."""
    path = _path_of(name.store, selection)
    store = reaching(path, name.topic, name.queue_id, stop)
    low, high = store._bounds(name.topic, name.queue_id) or (0, 0)
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


def reaching(path: str, topic: str, queue_id: int, stop: int) -> MessageStore:
    """Return a store, opened anew where the one at hand does not see a queue's newest messages.

    Parameters
    ----------
    path : str
    topic : str
    queue_id : int
    stop : int
        The offset after a message that the driver has seen.

    Returns
    -------
    MessageStore
        Not to be closed. Where the message does not appear, as it is after some seconds.

    Notes
    -----
    A store that is open for reading looks for new queues ten times a second, and does not see
    what became of a topic that was deleted.
    Source: none.
    """
    until = time.monotonic() + _APPEAR_SECONDS
    while True:
        store = opened(path)
        if (store._bounds(topic, queue_id) or (0, 0))[1] >= stop or time.monotonic() > until:
            return store
        store.close()
        store = opened(path)
        if (store._bounds(topic, queue_id) or (0, 0))[1] >= stop:
            return store
        time.sleep(0.05)
