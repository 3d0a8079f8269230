"""Identity of a store: one record by which a task recognises the planned store.

Inode numbers do not identify a store: a new directory gets those of a removed one, and some file
systems number files differently on each node. A record put later differs in offset or time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.errors import MessageNotFoundError, StoreCorruptError, StoreError
from rmqstore.files import paths

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["RecordIdentity", "StoreReplacedError", "cut_before", "identity_at", "last_identity"]

_LOOK_BYTES = 64 << 10  # first part searched for the last record
_LOOK_GROWTH = 16


class StoreReplacedError(StoreError):
    """The store of a query's plan was replaced by another."""


class RecordIdentity(NamedTuple):
    """A record: its position, and values that differ in another store."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    body_crc: int


def identity_at(store: MessageStore, physical_offset: int) -> RecordIdentity | None:
    """Return the record at a log offset; None if there is no valid one."""
    try:
        found = store.at(physical_offset)
    except (MessageNotFoundError, StoreCorruptError):
        return None
    return RecordIdentity(
        physical_offset,
        found.topic,
        found.queue_id,
        found.queue_offset,
        found.store_timestamp,
        found.body_crc,
    )


def cut_before(path: str, physical_offset: int) -> str:
    """Describe the log file that ends before an offset it had; "" if none does."""
    names = (file.name for file in Path(path, paths.COMMIT_LOG).iterdir())
    starts = map(paths.parse_offset_file_name, names)
    before = (start for start in starts if start is not None and start <= physical_offset)
    start = max(before, default=None)
    if start is None:
        return ""
    file = Path(path, paths.COMMIT_LOG, paths.offset_file_name(start))
    size = file.stat().st_size
    if start + size > physical_offset:
        return ""
    return f"{file} ends at offset {size}, before the record at {physical_offset - start}"


def last_identity(store: MessageStore, first: int, end: int) -> RecordIdentity | None:
    """Return the last record of a log range, or None: retention removes it last."""
    size = _LOOK_BYTES
    file_size = store.config.mapped_file_size_commit_log
    newest = (end - 1) // file_size * file_size  # a record begins here, if any
    while first < end:
        start = max(first, end - size)
        if start < newest:
            start, newest = max(first, newest), first
        last = -1
        tail = store.scan(
            columns=("physical_offset",),
            start=start,
            stop=end,
            on_corruption="skip",
            on_removed="skip",
        )
        for batch in tail.to_batches():
            last = batch.column(0)[-1].as_py()
        if last >= 0:
            return identity_at(store, last)
        if start == first:
            break
        size *= _LOOK_GROWTH
    return None
