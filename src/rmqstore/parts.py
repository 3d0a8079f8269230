"""The parts of a store on their own: an index file, a consume queue, a commit log.

None takes a lock, as jobs share them: a writer must own the directory.
Source: ``store/index/IndexFile.java``, ``store/ConsumeQueue.java``, ``store/CommitLog.java``.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmqstore import _core
from rmqstore.base import arrays, layout
from rmqstore.base.arguments import buffer_of, integer_within, wrong_type, wrong_value
from rmqstore.base.closing import Closing
from rmqstore.base.times import TimeLike, to_millis

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqstore.store import Mode

__all__ = ["CommitLog", "ConsumeQueue", "IndexFile"]

_MOST = 1 << 60
_SLOTS, _ENTRIES = 5_000_000, 20_000_000
_QUEUE_FILE, _LOG_FILE = 6_000_000, 1 << 30


class IndexFile(Closing):
    """One index file.

    Parameters
    ----------
    path : path-like
    hash_slot_num, index_num : int, optional
        Slots and entries; one entry fewer can be used.
    mode : str, optional
        ``"r"`` reads, ``"r+"`` writes an existing file, ``"a"`` creates it if there is none.

    Attributes
    ----------
    begin_timestamp, end_timestamp : int
        Store time of the first and of the last key, ms.
    begin_phy_offset, end_phy_offset : int
        Physical offset of the first and of the last key's record.
    hash_slot_count : int
        Slots in use.
    index_count : int
        Number of the next entry; 1 in an empty file.

    Raises
    ------
    StoreNotFoundError
        There is no such file.
    IncompatibleStoreError
        The file has another size. With the default numbers and mode ``"r"``, they are inferred
        from its size.
    ValueError
        An argument is out of range.

    Notes
    -----
    ``key`` is the text that is hashed: ``topic + "#" + key`` in a store.
    Source: ``store/index/IndexFile.java``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        hash_slot_num: int = _SLOTS,
        index_num: int = _ENTRIES,
        mode: Mode = "r",
    ) -> None:
        integer_within("hash_slot_num", hash_slot_num, 1, layout.INT32_MAX // 4)
        integer_within("index_num", index_num, 2, layout.INT32_MAX // layout.INDEX_ENTRY_BYTES)
        if layout.index_file_bytes(hash_slot_num, index_num) > layout.INT32_MAX:
            raise ValueError(
                f"{hash_slot_num} slots and {index_num} entries take more than "
                f"{layout.INT32_MAX} bytes"
            )
        infer_sizes = (hash_slot_num, index_num) == (_SLOTS, _ENTRIES) and mode == "r"
        self._part = _core.IndexPart(path, hash_slot_num, index_num, mode, infer_sizes)

    def put_key(self, key: str, physical_offset: int, store_timestamp: TimeLike) -> bool:
        """Enter a key.

        Parameters
        ----------
        key : str
        physical_offset : int
            Bytes.
        store_timestamp : time
            Milliseconds since the epoch, an aware datetime, or ISO-8601 text with a zone.

        Returns
        -------
        bool
            False if the file is full.

        Raises
        ------
        TypeError, ValueError
            An argument has a wrong type or is out of range.
        ReadOnlyStoreError, StoreClosedError
            The file is not open for writing.

        Notes
        -----
        Source: ``store/index/IndexFile.java putKey``.
        """
        if not isinstance(key, str):
            raise wrong_type("key", "str", key)
        return self._part.put(
            key,
            integer_within("physical_offset", physical_offset, layout.INT64_MIN, layout.INT64_MAX),
            to_millis(store_timestamp, name="store_timestamp"),
        )

    def put_keys(
        self, keys: Sequence[str] | Any, physical_offsets: Any, store_timestamps: Any
    ) -> int:
        """Enter many keys.

        Parameters
        ----------
        keys : sequence, NumPy or Arrow array of str
        physical_offsets, store_timestamps : int, or a column of int as long as ``keys``

        Returns
        -------
        int
            How many were entered before the file was full.

        Raises
        ------
        TypeError, ValueError
            A row has a wrong type or value, or columns differ in length; nothing was entered.
        ReadOnlyStoreError, StoreClosedError
            The file is not open for writing.

        Notes
        -----
        Source: ``store/index/IndexFile.java putKey``.
        """
        return self._part.put_many(keys, physical_offsets, store_timestamps)

    def select_phy_offset(
        self, key: str, max_num: int = 64, begin: TimeLike = 0, end: TimeLike | None = None
    ) -> list[int]:
        """Return the physical offsets of the entries with the key's hash, newest first.

        Parameters
        ----------
        key : str
        max_num : int, optional
            Offsets, at most.
        begin, end : time, optional
            Store times, both inclusive, compared to the second.

        Returns
        -------
        list of int

        Raises
        ------
        StoreCorruptError
            The chain does not lead to older entries.

        Notes
        -----
        Source: ``store/index/IndexFile.java selectPhyOffset``.
        """
        if not isinstance(key, str):
            raise wrong_type("key", "str", key)
        return self._part.select(
            key,
            integer_within("max_num", max_num, 0, _MOST),
            to_millis(begin, name="begin"),
            layout.INT64_MAX if end is None else to_millis(end, name="end"),
        )

    def select_many(
        self, keys: Sequence[str] | Any, max_num: int = 64
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the physical offsets of many keys, newest first for each.

        Parameters
        ----------
        keys : sequence, NumPy or Arrow array of str
        max_num : int, optional
            Offsets for each key, at most.

        Returns
        -------
        physical_offsets, starts : numpy.ndarray
            int64; the hits of key ``i`` are ``physical_offsets[starts[i]:starts[i + 1]]``.

        Raises
        ------
        StoreCorruptError
            A chain does not lead to older entries.

        Notes
        -----
        Source: ``store/index/IndexFile.java selectPhyOffset``.
        """
        integer_within("max_num", max_num, 0, _MOST)
        hits, count, starts = self._part.select_many(keys, max_num)
        return arrays.int64_array(hits, count), arrays.int64_array(starts, len(starts) // 8)

    @property
    def begin_timestamp(self) -> int:
        """Store time of the first key, ms."""
        return self._part.header()[0]

    @property
    def end_timestamp(self) -> int:
        """Store time of the last key, ms."""
        return self._part.header()[1]

    @property
    def begin_phy_offset(self) -> int:
        """Physical offset of the first key's record."""
        return self._part.header()[2]

    @property
    def end_phy_offset(self) -> int:
        """Physical offset of the last key's record."""
        return self._part.header()[3]

    @property
    def hash_slot_count(self) -> int:
        """Slots in use."""
        return self._part.header()[4]

    @property
    def index_count(self) -> int:
        """Number of the next entry; 1 in an empty file."""
        return self._part.header()[5]

    def flush(self) -> None:
        """Force the file to the disk."""
        self._part.flush()

    def close(self) -> None:
        """Flush if open for writing, and close; closing again does nothing."""
        self._part.close()


class ConsumeQueue(Closing):
    """The files of one queue.

    Parameters
    ----------
    directory : path-like
        ``consumequeue/<topic>/<queue id>`` of a store.
    file_size : int, optional
        Bytes, a multiple of 20. By default inferred from the files with mode ``"r"``.
    mode : str, optional
        ``"r"`` reads, ``"r+"`` writes an existing queue, ``"a"`` creates it if there is none.

    Attributes
    ----------
    min_offset, max_offset : int
        First queue offset whose unit is not blank, and the one after the last unit.

    Raises
    ------
    StoreNotFoundError
        There is no such directory, or (``"r+"``) no file in it.
    IncompatibleStoreError
        Writing: a file has another size, is foreign, or is missing in the middle.
    ValueError
        An argument is out of range.

    Notes
    -----
    Source: ``store/ConsumeQueue.java``.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, file_size: int = _QUEUE_FILE, mode: Mode = "r"
    ) -> None:
        integer_within("file_size", file_size, layout.UNIT_BYTES, layout.INT32_MAX)
        if file_size % layout.UNIT_BYTES:
            raise wrong_value("file_size", "a multiple of 20", file_size)
        infer_sizes = file_size == _QUEUE_FILE
        self._part = _core.QueuePart(directory, file_size, mode, infer_sizes)

    def put_unit(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> bool:
        """Write a unit in its position.

        Parameters
        ----------
        physical_offset, size : int
            Offset of the record in the commit log, 0 or more, and its bytes, 1 or more.
        tags_code : int
            Hash of the tag, 64 bits.
        queue_offset : int
            Position in the queue; a gap after the last unit is filled with blank units.

        Returns
        -------
        bool
            True if it is there now; False if its position has a different unit.

        Raises
        ------
        ValueError
            An argument is out of range.
        ReadOnlyStoreError, StoreClosedError
            The queue is not open for writing.

        Notes
        -----
        Source: ``store/ConsumeQueue.java putMessagePositionInfo``.
        """
        return self._part.put(
            integer_within("physical_offset", physical_offset, layout.INT64_MIN, layout.INT64_MAX),
            integer_within("size", size, layout.INT64_MIN, layout.INT64_MAX),
            integer_within("tags_code", tags_code, layout.INT64_MIN, layout.INT64_MAX),
            integer_within("queue_offset", queue_offset, layout.INT64_MIN, layout.INT64_MAX),
        )

    def units(self, start: int | None = None, stop: int | None = None) -> NDArray[Any]:
        """Return units as a structured array.

        Parameters
        ----------
        start, stop : int, optional
            Queue offsets; by default all that exist.

        Returns
        -------
        numpy.ndarray
            Shape ``(stop - start,)``; fields ``physical_offset`` (>i8), ``size`` (>i4),
            ``tags_code`` (>i8), as stored.

        Raises
        ------
        IndexError
            Some do not exist; the message names min and max.

        Notes
        -----
        Source: ``store/ConsumeQueue.java getIndexBuffer``.
        """
        low, high = self._part.bounds()
        start = low if start is None else operator.index(start)
        stop = high if stop is None else operator.index(stop)
        if start < 0 or start > stop or stop > high:
            raise IndexError(
                f"units {start} to {stop} are not all there; min is {low}, max is {high}"
            )
        return arrays.unit_array(self._part.units(start, stop))

    @property
    def min_offset(self) -> int:
        """First queue offset whose unit is not blank."""
        return self._part.bounds()[0]

    @property
    def max_offset(self) -> int:
        """Queue offset after the last unit."""
        return self._part.bounds()[1]

    def flush(self) -> None:
        """Force the units to the disk."""
        self._part.flush()

    def close(self) -> None:
        """Flush if open for writing, and close; closing again does nothing."""
        self._part.close()


class CommitLog(Closing):
    """The files of a commit log.

    Parameters
    ----------
    directory : path-like
        A store's ``commitlog``; a torn tail is saved in ``rmqstore-quarantine`` beside it.
    file_size : int, optional
        Bytes, 1,024 or more. By default inferred from the files with mode ``"r"``.
    mode : str, optional
        ``"r"`` reads, ``"r+"`` writes an existing log, ``"a"`` creates it if there is none.

    Attributes
    ----------
    min_offset, max_offset : int
        First byte of the first file, and the byte after the last record.
    flushed_offset : int
        Byte up to which the log is on the disk, as far as this object knows.

    Raises
    ------
    StoreNotFoundError
        There is no such directory, or (``"r+"``) no file in it.
    IncompatibleStoreError
        Writing: a file has another size, is foreign, or is missing in the middle.
    ValueError
        An argument is out of range.

    Notes
    -----
    Source: ``store/CommitLog.java``.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, file_size: int = _LOG_FILE, mode: Mode = "r"
    ) -> None:
        integer_within("file_size", file_size, layout.LOG_FILE_LEAST, layout.INT32_MAX)
        self._part = _core.LogPart(directory, file_size, mode, file_size == _LOG_FILE)

    def append(self, records: Iterable[bytes]) -> list[int]:
        """Append encoded records, setting the physical offset in each.

        Parameters
        ----------
        records : iterable of bytes-like
            As from :func:`rmqstore.encode_record`; each is checked.

        Returns
        -------
        list of int
            Their physical offsets.

        Raises
        ------
        ValueError, MessageIllegalError
            A record is invalid, or too large for a file; those before it are in the log.
        ReadOnlyStoreError, StoreClosedError
            The log is not open for writing.

        Notes
        -----
        Source: ``store/CommitLog.java``.
        """
        if isinstance(records, (bytes, bytearray, memoryview)):
            raise wrong_type("records", "an iterable of records", records)
        return [self._part.append(buffer_of("records", record)) for record in records]

    def records(
        self, start: int | None = None, stop: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Iterate over the good records that begin in a range.

        Parameters
        ----------
        start, stop : int, optional
            Physical offsets, by default all that exist; ``start`` must be a record's.

        Returns
        -------
        iterator of (int, int)
            Physical offset and size, bytes.

        Notes
        -----
        Damaged bytes are skipped, up to the next record that names its own offset.
        Source: ``store/CommitLog.java checkMessageAndReturnSize``.
        """
        low, high, _ = self._part.bounds()
        at = low if start is None else max(low, operator.index(start))
        end = high if stop is None else min(high, operator.index(stop))
        while at < end:
            found = self._part.next(at, end)
            if not found:
                return
            yield from found
            at = sum(found[-1])

    @property
    def min_offset(self) -> int:
        """First byte of the first file."""
        return self._part.bounds()[0]

    @property
    def max_offset(self) -> int:
        """Byte after the last record."""
        return self._part.bounds()[1]

    @property
    def flushed_offset(self) -> int:
        """Byte up to which the log is on the disk, as far as this object knows."""
        return self._part.bounds()[2]

    def flush(self) -> None:
        """Force the log to the disk."""
        self._part.flush()

    def close(self) -> None:
        """Flush if open for writing, and close; closing again does nothing."""
        self._part.close()
