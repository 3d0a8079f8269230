"""Pieces of logs, written by many tasks into one new log, each at the place that was planned.

A piece stays together in one file. Who plans knows the pieces' sizes only: what is written must
come out exactly as large.

Source: ``store/CommitLog.java`` DefaultAppendMessageCallback, for how a file ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqstore import _core, paths
from rmqstore.errors import StoreError
from rmqstore.spark.jobs import runs

__all__ = [
    "Copied",
    "CopyTask",
    "Numbers",
    "Piece",
    "Source",
    "copy_tasks",
    "load_numbers",
    "piece_bytes",
    "place",
    "save_numbers",
]

_FILLER_BYTES = 8  # the least that a file ends with
_PIECES_A_FILE = 16

Numbers = Mapping[str, Mapping[int, int]]  # topic -> queue -> number


def piece_bytes(file_size: int) -> int:
    """Return how large pieces shall be, about: what is left empty in a file is less."""
    return max(1, file_size // _PIECES_A_FILE)


@dataclass(frozen=True)
class Source:
    """A log that pieces are taken from, and what becomes of its records.

    Attributes
    ----------
    directory : str
        Its files.
    file_size : int
        Bytes of each.
    topics : tuple of str, optional
        Only records of these topics; None: of any.
    deleted : mapping of str to int
        Topics that were deleted: their records below a log offset stay behind.
    numbers : str, optional
        A file with what is added to the queue offsets of each queue.
    """

    directory: str
    file_size: int
    topics: tuple[str, ...] | None = None
    deleted: Mapping[str, int] = field(default_factory=dict)
    numbers: str | None = None

    def open(self) -> _core.LogMove:
        """Return the log, opened for reading."""
        log = _core.LogMove(self.directory, self.file_size)
        if self.topics is not None:
            log.choose(self.topics)
        for topic, offset in self.deleted.items():
            log.drop_below(topic, offset)
        if self.numbers is not None:
            for topic, queues in load_numbers(self.numbers).items():
                for queue_id, first in queues.items():
                    log.number(topic, queue_id, first)
        return log


@dataclass(frozen=True, slots=True)
class Piece:
    """Records that lie together in a log.

    Attributes
    ----------
    source : int
        Number of the source.
    start, stop : int
        Offsets in its log: the first record's, and where the last one ends at most.
    size : int
        Bytes of those that are copied.
    position : int
        Where they begin in the new log, -1 as long as that is not planned.
    ends_file : bool
        Nothing follows in this file of the new log, and another one comes.
    """

    source: int
    start: int
    stop: int
    size: int
    position: int = -1
    ends_file: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """What a task copied.

    Attributes
    ----------
    messages, size : int
        Records and their bytes.
    last_record : int
        Where the last one begins in the new log, -1 if there is none.
    store_timestamp : int
        The newest store time, in ms.
    process : int
        Whose work it was.
    """

    messages: int
    size: int
    last_record: int
    store_timestamp: int
    process: int


def place(pieces: Iterable[Piece], file_size: int) -> list[Piece]:
    """Plan where pieces go, in their order.

    Parameters
    ----------
    pieces : iterable of Piece
        None larger than a file holds.
    file_size : int
        Bytes of a file of the new log.

    Returns
    -------
    list of Piece
        With their positions.

    Raises
    ------
    ValueError
        A piece does not fit into any file.

    Notes
    -----
    Source: ``store/CommitLog.java`` DefaultAppendMessageCallback.
    """
    planned: list[Piece] = []
    at = 0
    for piece in pieces:
        left = file_size - at % file_size
        if piece.size > file_size - _FILLER_BYTES:
            raise ValueError(f"a piece of {piece.size} bytes does not fit into {file_size} bytes")
        if piece.size + _FILLER_BYTES > left:
            planned[-1] = replace(planned[-1], ends_file=True)
            at += left
        planned.append(replace(piece, position=at))
        at += piece.size
    return planned


def copy_tasks(
    planned: Sequence[Piece],
    sources: Mapping[int, Source],
    directory: str,
    file_size: int,
    store_timestamp: int = -1,
) -> list[CopyTask]:
    """Divide what was planned into tasks.

    Parameters
    ----------
    planned : sequence of Piece
        From :func:`place`.
    sources : mapping of int to Source
        By the number that the pieces have.
    directory : str
        Of the new log; it is there.
    file_size : int
        Bytes of its files.
    store_timestamp : int, optional
        Store time of all records, in ms; -1: each keeps its own.

    Returns
    -------
    list of CopyTask

    Notes
    -----
    Source: none.
    """
    tasks = []
    for run in runs(piece.size for piece in planned):
        mine = tuple(planned[run])
        wanted = {piece.source: sources[piece.source] for piece in mine}
        tasks.append(CopyTask(mine, wanted, directory, file_size, store_timestamp))
    return tasks


@dataclass(frozen=True)
class CopyTask:
    """Writes some pieces of the new log, and forces them to the disk.

    Several tasks may write to one file; one that runs again writes the same bytes.
    """

    pieces: tuple[Piece, ...]
    sources: Mapping[int, Source]
    directory: str
    file_size: int
    store_timestamp: int

    def run(self) -> Copied:
        """Copy the records."""
        opened: dict[int, _core.LogMove] = {}
        files: dict[int, int] = {}
        messages = size = 0
        last_record = store_timestamp = -1
        with contextlib.ExitStack() as stack:
            for piece in self.pieces:
                if piece.source not in opened:
                    opened[piece.source] = self.sources[piece.source].open()
                    stack.callback(opened[piece.source].close)
                start = piece.position - piece.position % self.file_size
                if start not in files:
                    files[start] = stack.enter_context(self._file(start))
                wrote, count, last, newest = opened[piece.source].copy(
                    piece.start,
                    piece.stop,
                    files[start],
                    start,
                    piece.position,
                    self.store_timestamp,
                )
                if wrote != piece.size:
                    raise StoreError(
                        f"{self.sources[piece.source].directory}: {wrote} bytes of records from "
                        f"offset {piece.start} on, not {piece.size}: the log was changed meanwhile"
                    )
                if piece.ends_file:
                    end = piece.position + piece.size - start
                    _core.write_filler(files[start], self.file_size, end)
                messages += count
                size += wrote
                last_record = max(last_record, last)
                store_timestamp = max(store_timestamp, newest)
        return Copied(messages, size, last_record, store_timestamp, os.getpid())

    @contextlib.contextmanager
    def _file(self, start: int) -> Iterator[int]:
        """Open a file of the new log, in its full length; it is on the disk at the end."""
        path = Path(self.directory, paths.offset_file_name(start))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(fd, self.file_size)
            yield fd
            os.fsync(fd)
        finally:
            os.close(fd)


def load_numbers(path: str | os.PathLike[str]) -> dict[str, dict[int, int]]:
    """Read numbers of queues from a file."""
    import json

    found: dict[str, dict[str, Any]] = json.loads(Path(path).read_text("ascii"))
    return {
        topic: {int(queue_id): int(number) for queue_id, number in queues.items()}
        for topic, queues in found.items()
    }


def save_numbers(path: str | os.PathLike[str], numbers: Numbers) -> None:
    """Write numbers of queues into a file, for other tasks to read."""
    import json

    temporary = Path(f"{os.fspath(path)}.{os.getpid()}")
    temporary.write_text(json.dumps(numbers), "ascii")
    temporary.replace(path)
