"""A log by itself, written by one task; and the sealing of a log with its queues as a store.

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
"""The topic that delayed messages wait in."""


class LogWriter(Closing):
    """A commit log that rows are appended to as to a store.

    It has no queues, no index and no checkpoint, and nothing in it is durable before
    :func:`rmqstore.offline.copy_pieces` has copied it: a log for one task of a job.

    Parameters
    ----------
    directory : path-like
        An empty directory; the log's files are in ``commitlog`` below it.
    config : StoreConfig
        Size of the files, limits, the store host.
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
            Where each record begins.

        Raises
        ------
        TypeError, ValueError, StoreError, OSError
            As :meth:`MessageStore.put_table`.
        """
        return self._engine.put_table(table, wait=False).physical_offset

    @property
    def end(self) -> int:
        """Where the last record ends."""
        return self._engine.core.stats()["wrote_position"]

    def record_size(self, physical_offset: int) -> int:
        """Return the bytes of the record that begins there."""
        return self._engine.at(physical_offset).store_size

    def message_counts(self) -> dict[str, dict[int, int]]:
        """Return the messages of each queue, by topic and queue id."""
        return _core.queue_ends(self._engine.core)

    def close(self) -> None:
        """Close the log."""
        self._engine.close()
        self._engine.core.make_topic = None  # it refers to the core


def _log_engine(directory: str, config: StoreConfig) -> _core.Engine:
    """Return an engine without dispatch: puts go to the log, and nowhere else."""
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
        Bytes that a record may take, and that a file of the log has.
    record_checksum : bool, optional
        Whether records carry ``__CRC32#``.
    store_host_v6 : bool, optional
        Whether the store's host is an IPv6 address.

    Returns
    -------
    int
        The rows.

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

    The next opening for writing takes it as closed in good order.

    Parameters
    ----------
    store : MessageStore
        Open with ``"r"``.
    last_record : int
        Where the last record of its log begins, -1 if there is none.
    store_timestamp : int
        The newest store time, in ms since the epoch.

    Returns
    -------
    int
        Where its log ends.

    Raises
    ------
    StoreError, OSError
        A file cannot be read or written.
    """
    return _core.seal_store(store.core, last_record, store_timestamp)
