"""One record by which a task tells that the store it opened is the one that was planned.

The numbers of files tell it of no store: a new directory gets those of one that was removed, and
some file systems number files on each node in their own way. A record that was put later differs
in place or time.

Source: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqstore.errors import MessageNotFoundError, StoreCorruptError, StoreError

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["Landmark", "StoreReplacedError", "landmark_at", "landmark_before"]

_LOOK_BYTES = 64 << 10  # in which the last record is looked for first
_LOOK_GROWTH = 16


class StoreReplacedError(StoreError):
    """Another store is where the one was that a query was planned with."""


class Landmark(NamedTuple):
    """A record, by its place and what tells it from one of another store."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    body_crc: int


def landmark_at(store: MessageStore, place: int) -> Landmark | None:
    """Return the record that begins at a place of the log; None where no good one does."""
    try:
        found = store.at(place)
    except (MessageNotFoundError, StoreCorruptError):
        return None
    return Landmark(
        place,
        found.topic,
        found.queue_id,
        found.queue_offset,
        found.store_timestamp,
        found.body_crc,
    )


def landmark_before(store: MessageStore, first: int, end: int) -> Landmark | None:
    """Return the last record of a range of the log: retention takes it last.

    Parameters
    ----------
    store : MessageStore
    first, end : int
        Physical offsets.

    Returns
    -------
    Landmark, or None
        None: there is no good record.

    Notes
    -----
    Source: none.
    """
    size = _LOOK_BYTES
    while first < end:
        start = max(first, end - size)
        place = -1
        tail = store.scan(
            columns=("physical_offset",),
            start=start,
            stop=end,
            on_corruption="skip",
            on_removed="skip",
        )
        for batch in tail.to_batches():
            place = batch.column(0)[-1].as_py()
        if place >= 0:
            return landmark_at(store, place)
        if start == first:
            break
        size *= _LOOK_GROWTH
    return None
