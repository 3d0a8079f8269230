"""Pieces of logs, copied by many tasks to their planned positions in one new log.

A piece stays within one file. A plan has only the sizes: each piece must come out exactly as
large.

Source: ``store/CommitLog.java`` DefaultAppendMessageCallback, for how a file ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqstore import _core
from rmqstore.base.layout import RECORD_BLANK_BYTES
from rmqstore.errors import StoreError
from rmqstore.files import paths

__all__ = [
    "Copied",
    "LogPiece",
    "LogSource",
    "Measured",
    "QueueNumbers",
    "assign_positions",
    "copy_pieces",
    "load_queue_numbers",
    "piece_bytes",
    "save_queue_numbers",
]

_PIECES_A_FILE = 16

QueueNumbers = Mapping[str, Mapping[int, int]]
"""A number for each queue, by topic and queue id."""


def piece_bytes(file_size: int) -> int:
    """Return the approximate size of a piece; the blank that ends a file is smaller."""
    return max(1, file_size // _PIECES_A_FILE)


@dataclass(frozen=True)
class LogSource:
    """A log to copy pieces from, and the changes to its records.

    Attributes
    ----------
    directory : str
        Directory of its files.
    file_size : int
        Bytes of a file.
    topics : tuple of str, optional
        Topics to copy; None: all.
    deleted : mapping of str to int
        Deleted topics: records below this log offset are not copied.
    first_offsets : str, optional
        A file of :func:`save_queue_numbers`: the number added to the queue offsets of each queue.
    """

    directory: str
    file_size: int
    topics: tuple[str, ...] | None = None
    deleted: Mapping[str, int] = field(default_factory=dict)
    first_offsets: str | None = None

    def measure(self, ranges: Iterable[tuple[int, int]], since: int) -> list[Measured]:
        """Count the records that begin in ranges of the log, each within one file.

        Parameters
        ----------
        ranges : iterable of (int, int)
            Physical offsets of begin and end.
        since : int
            Store time, in ms since the epoch.

        Raises
        ------
        StoreCorruptError
            A record is invalid.
        """
        with self._opened() as log:
            return [
                Measured(start, stop, *log.measure(start, stop, since)) for start, stop in ranges
            ]

    @contextlib.contextmanager
    def _opened(self) -> Iterator[_core.LogMove]:
        log = _core.LogMove(self.directory, self.file_size)
        if self.topics is not None:
            log.choose(self.topics)
        for topic, offset in self.deleted.items():
            log.drop_below(topic, offset)
        if self.first_offsets is not None:
            for topic, queues in load_queue_numbers(self.first_offsets).items():
                for queue_id, first in queues.items():
                    log.number(topic, queue_id, first)
        try:
            yield log
        finally:
            log.close()


@dataclass(frozen=True, slots=True)
class Measured:
    """Records that begin in a range of a log.

    Attributes
    ----------
    start, stop : int
        The range.
    first : int
        Offset of the first record, -1 if there is none.
    end : int
        End of the last record, or of the blank after it.
    found : int
        Records.
    size : int
        Bytes of the records to copy.
    since_first : int
        Offset of the first record not older than ``since``, -1 if there is none.
    since_size : int
        Bytes of the records to copy from there on.
    """

    start: int
    stop: int
    first: int
    end: int
    found: int
    size: int
    since_first: int
    since_size: int


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Range of a log whose records stay together.

    Attributes
    ----------
    source : int
        Number of the source.
    start, stop : int
        Offsets in its log: of the first record, and at or after the end of the last.
    size : int
        Bytes of the records to copy.
    position : int
        Offset in the new log, -1 until planned.
    ends_file : bool
        Last of its file in the new log, and another file follows.
    """

    source: int
    start: int
    stop: int
    size: int
    position: int = -1
    ends_file: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a copy task.

    Attributes
    ----------
    messages, size : int
        Records and their bytes.
    last_record : int
        Offset of the last record in the new log, -1 if there is none.
    store_timestamp : int
        Newest store time, in ms.
    process : int
        Id of the process.
    """

    messages: int
    size: int
    last_record: int
    store_timestamp: int
    process: int


def assign_positions(pieces: Iterable[LogPiece], file_size: int) -> list[LogPiece]:
    """Assign positions in the new log, in order of the pieces.

    Parameters
    ----------
    pieces : iterable of LogPiece
        None larger than a file can hold.
    file_size : int
        Bytes of a file of the new log.

    Returns
    -------
    list of LogPiece
        With their positions.

    Raises
    ------
    ValueError
        A piece does not fit into a file.

    Notes
    -----
    Source: ``store/CommitLog.java`` DefaultAppendMessageCallback.
    """
    planned: list[LogPiece] = []
    at = 0
    for piece in pieces:
        left = file_size - at % file_size
        if piece.size > file_size - RECORD_BLANK_BYTES:
            raise ValueError(f"a piece of {piece.size} bytes does not fit into {file_size} bytes")
        if piece.size + RECORD_BLANK_BYTES > left:
            planned[-1] = replace(planned[-1], ends_file=True)
            at += left
        planned.append(replace(piece, position=at))
        at += piece.size
    return planned


def copy_pieces(
    pieces: Sequence[LogPiece],
    sources: Mapping[int, LogSource],
    directory: str | os.PathLike[str],
    file_size: int,
    store_timestamp: int = -1,
) -> Copied:
    """Write pieces of a new log, and force them to the disk.

    Several tasks may write to one file; a repeated task writes the same bytes.

    Parameters
    ----------
    pieces : sequence of LogPiece
        From :func:`assign_positions`, all or some of them.
    sources : mapping of int to LogSource
        By ``LogPiece.source``.
    directory : path-like
        Of the new log; it exists.
    file_size : int
        Bytes of a file.
    store_timestamp : int, optional
        Store time for all records, in ms since the epoch; -1: each keeps its own.

    Raises
    ------
    StoreError
        A piece is not as large as planned: the log has changed.
    StoreCorruptError
        A record is invalid.
    OSError
        Reading or writing fails.
    """
    opened: dict[int, _core.LogMove] = {}
    files: dict[int, int] = {}
    messages = size = 0
    last_record = newest_time = -1
    with contextlib.ExitStack() as stack:
        for piece in pieces:
            source = sources[piece.source]
            if piece.source not in opened:
                opened[piece.source] = stack.enter_context(source._opened())
            start = piece.position - piece.position % file_size
            if start not in files:
                path = Path(directory, paths.offset_file_name(start))
                files[start] = stack.enter_context(_file(path, file_size))
            wrote, count, last, newest = opened[piece.source].copy(
                piece.start, piece.stop, files[start], start, piece.position, store_timestamp
            )
            if wrote != piece.size:
                raise StoreError(
                    f"{source.directory}: {wrote} bytes of records from offset {piece.start} on, "
                    f"not {piece.size}: the log was changed meanwhile; copy again while "
                    "nothing writes to it"
                )
            if piece.ends_file:
                end = piece.position + piece.size - start
                _core.write_blank(files[start], file_size, end)
            messages += count
            size += wrote
            last_record = max(last_record, last)
            newest_time = max(newest_time, newest)
    return Copied(messages, size, last_record, newest_time, os.getpid())


@contextlib.contextmanager
def _file(path: Path, file_size: int) -> Iterator[int]:
    """Open a file of the new log at its full length; synced on success."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(fd, file_size)
        yield fd
        os.fsync(fd)
    finally:
        os.close(fd)


def load_queue_numbers(path: str | os.PathLike[str]) -> dict[str, dict[int, int]]:
    """Read a file of :func:`save_queue_numbers`."""
    found: dict[str, dict[str, Any]] = json.loads(Path(path).read_text("ascii"))
    return {
        topic: {int(queue_id): int(number) for queue_id, number in queues.items()}
        for topic, queues in found.items()
    }


def save_queue_numbers(path: str | os.PathLike[str], values: QueueNumbers) -> None:
    """Write a number for each queue to a file, for other tasks."""
    # Attempts of a task run on several hosts, where processes may have the same number.
    temporary = Path(f"{os.fspath(path)}.{uuid.uuid4().hex}")
    temporary.write_text(json.dumps(values), "ascii")
    temporary.replace(path)
