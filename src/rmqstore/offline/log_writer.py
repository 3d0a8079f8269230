"""A log alone, written by one task; and the sealing of a log with its queues as a store.

Source: ``store/CommitLog.java``, ``store/StoreCheckpoint.java``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rmqstore import _core
from rmqstore.base.closing import Closing
from rmqstore.config.store_config import StoreConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqstore.store import MessageStore

__all__ = ["SCHEDULE_TOPIC", "LogWriter", "check_table", "seal_store"]

SCHEDULE_TOPIC = _core.SCHEDULE_TOPIC_NAME
"""Topic where delayed messages wait."""


class LogWriter(Closing):
    """A commit log without a store, for appending rows.

    No queues, no index, no checkpoint, and nothing durable until
    :func:`rmqstore.offline.copy_pieces` copies it: a log for one task of a job.

    Parameters
    ----------
    directory : path-like
        An empty directory; the log's files go into ``commitlog`` below it.
    config : StoreConfig
        File size, limits, store host.
    """

    def __init__(self, directory: str | os.PathLike[str], config: StoreConfig) -> None:
        unindexed = config.replace(message_index_enable=False, flush_disk_type="ASYNC_FLUSH")
        self._engine = _log_engine(os.fspath(directory), unindexed)

    def append(self, table: Any) -> NDArray[np.int64]:
        """Append the rows of a table.

        Parameters
        ----------
        table : object with ``__arrow_c_stream__``
            As :meth:`MessageStore.put_table` takes it.

        Returns
        -------
        numpy.ndarray
            Physical offset of each record.

        Raises
        ------
        TypeError, ValueError, StoreError, OSError
            As :meth:`MessageStore.put_table`.
        """
        return self._engine.put_table(table, wait=False).physical_offset

    @property
    def end(self) -> int:
        """End of the last record."""
        return self._engine.core.stats()["wrote_position"]

    def record_size(self, physical_offset: int) -> int:
        """Return the size in bytes of the record at an offset."""
        return self._engine.at(physical_offset).store_size

    def message_counts(self) -> dict[str, dict[int, int]]:
        """Return the number of messages of each queue, by topic and queue id."""
        return _core.queue_ends(self._engine.core)

    def close(self) -> None:
        """Close the log."""
        self._engine.close()
        self._engine.core.make_topic = None  # it refers to the core


def _log_engine(directory: str, config: StoreConfig) -> _core.Engine:
    """Return an engine without dispatch: puts go to the log only."""
    engine = _core.Engine()
    core = engine.core
    core.make_topic = lambda topic: core.set_topic(topic, 1)
    core.open(directory, "a", config, 0.0, _no_topics, log_only=True)
    return engine


def _no_topics() -> tuple[dict[str, int], list[str] | None]:
    return {}, None


def check_table(
    table: Any,
    *,
    max_message_size: int,
    file_size: int,
    record_checksum: bool = False,
    store_host_v6: bool = False,
) -> int:
    """Check rows as a put does, without a store.

    Parameters
    ----------
    table : object with ``__arrow_c_stream__``
        As :meth:`MessageStore.put_table` takes it.
    max_message_size, file_size : int
        Limit of a record, and size of a log file, in bytes.
    record_checksum : bool, optional
        Whether records carry ``__CRC32#``.
    store_host_v6 : bool, optional
        Whether the store's host is an IPv6 address.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    MessageIllegalError, ValueError, TypeError
        A row cannot be put; the message names column and row.
    """
    return _core.check_table(
        table,
        max_message_size=max_message_size,
        file_size=file_size,
        record_checksum=record_checksum,
        store_host_v6=store_host_v6,
    )


def seal_store(store: MessageStore, last_record: int, store_timestamp: int) -> int:
    """Write the checkpoint of a store whose log, queues and index are complete and on the disk.

    The next opening for writing finds a clean exit.

    Parameters
    ----------
    store : MessageStore
        Open with ``"r"``.
    last_record : int
        Physical offset of the log's last record, -1 if there is none.
    store_timestamp : int
        Newest store time, in ms since the epoch.

    Returns
    -------
    int
        End of the log.

    Raises
    ------
    StoreError, OSError
        Reading or writing fails.
    """
    return _core.seal_store(store.core, last_record, store_timestamp)
