"""Quarantine: bytes that recovery took out of the log, and their restoration.

Each file in ``rmqstore-quarantine/`` holds bytes of one commit log file and is named by their log
offset and the time in ms. They are restorable where a filler replaces them, or at the log's end if
nothing was written since. No file is ever deleted.

RocketMQ's store cuts and unlinks instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from rmqstore import opening
from rmqstore._core import filler_record, log_pieces
from rmqstore.base import layout
from rmqstore.base.syncing import sync_path
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import log_file
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.locking import locked

__all__ = ["SavedRange", "restore", "saved_ranges"]

Piece = tuple[int, int, str]

_NAME = re.compile(r"([0-9]{20})-([0-9]+)")


@dataclass(frozen=True, slots=True)
class SavedRange:
    """A file of the quarantine."""

    path: str
    offset: int  # physical, of its first byte
    saved_at: int  # ms
    size: int  # bytes
    records: int  # valid ones
    # Log contents at the offset: "filler"; "empty": the log ends there or before; "same": the same
    # bytes; "written": other records; "gone": no file.
    place: str
    restorable: bool  # it has valid records, and the log has room for them


@dataclass
class _Log:
    """The commit log, to compare saved bytes with."""

    root: Path
    config: StoreConfig | None
    file_size: int
    end: int  # end of its records

    def file_stop(self, offset: int) -> int:
        return offset - offset % self.file_size + self.file_size

    def path(self, offset: int) -> Path:
        return log_file(os.fspath(self.root), self.config, offset - offset % self.file_size)

    def read(self, offset: int, size: int) -> bytes:
        with open_regular(self.path(offset)) as file:
            file.seek(offset % self.file_size)
            return file.read(size)

    def write(self, offset: int, data: bytes | bytearray) -> None:
        with open_regular(self.path(offset), write=True) as file:
            file.seek(offset % self.file_size)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def saved_ranges(
    path: str | os.PathLike[str], *, config: StoreConfig | None = None
) -> list[SavedRange]:
    """Return the contents of a store's quarantine, in log order."""
    return [found for found, _ in _walk(_log_of(path, config))]


def restore(path: str | os.PathLike[str], *, config: StoreConfig | None = None) -> list[SavedRange]:
    """Restore the bytes that the log has room for, and complete queues and index.

    REQUIRES: no process has the store open for writing. Returns the state before; ranges with
    ``restorable`` are now in the log.
    """
    with opening.open(path, "r+", config=config):
        pass  # recovered and closed: the log now ends with its last record
    log = _log_of(path, config)
    with locked(os.fspath(path), 0.0):
        found: list[SavedRange] = []
        for each, pieces in _walk(log):
            if each.restorable and not any(done.restorable for done in found):
                _distrust(log.root)
            if each.restorable:
                _put_back(log, each, pieces)
            found.append(each)
    if any(each.restorable for each in found):
        with opening.open(path, "r+", config=config, verify="full"):
            pass
    return found


def _log_of(path: str | os.PathLike[str], config: StoreConfig | None) -> _Log:
    with opening.open(path, "r", config=config) as store:
        size = store.config.mapped_file_size_commit_log
        return _Log(Path(store.path), store.config, size, store.recovery.log_end)


def _walk(log: _Log) -> Iterator[tuple[SavedRange, list[Piece]]]:
    """Examine each saved file, as if the restorable ones before it had been restored."""
    directory = log.root / paths.QUARANTINE
    names = sorted(os.listdir(directory)) if directory.is_dir() else []  # noqa: PTH208
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or not (directory / name).is_file():
            continue
        offset, size = int(match[1]), (directory / name).stat().st_size
        with ExitStack() as stack:
            data: bytes | mmap = b""
            if size:
                file = stack.enter_context(open_regular(directory / name))
                data = stack.enter_context(mmap(file.fileno(), 0, access=ACCESS_READ))
            pieces = log_pieces(data, offset, log.file_stop(offset))
            place = _place(log, offset, data)
        records = sum(kind == "message" for _, _, kind in pieces)
        fits = place == "filler" or (place == "empty" and offset == log.end)
        restorable = records > 0 and fits and _gaps_can_be_filled(log, offset, size, pieces)
        if restorable and place == "empty":
            log.end = _stop_of(log, offset, size, place, pieces)
        yield (
            SavedRange(
                str(directory / name), offset, int(match[2]), size, records, place, restorable
            ),
            pieces,
        )


def _place(log: _Log, offset: int, data: bytes | mmap) -> str:
    """Classify the log's present contents at the offset of ``data``, as ``SavedRange.place``."""
    size = min(len(data), log.file_stop(offset) - offset)
    try:
        now = log.read(offset, size)
    except FileNotFoundError:
        return "gone"
    if now == data[:size]:
        return "same"
    if offset >= log.end:
        return "empty" if not now.strip(b"\0") else "written"
    at = offset
    for start, length, kind in log_pieces(now, offset, log.file_stop(offset)):
        if start != at or kind == "message":
            return "written"
        at = start + length
    return "filler" if at in (offset + size, log.file_stop(offset)) else "written"


def _stop_of(log: _Log, offset: int, size: int, place: str, pieces: list[Piece]) -> int:
    """Return the end of the restored range: the filler's, or the last valid record's."""
    stop = log.file_stop(offset)
    if place == "filler":
        [*_, last] = log_pieces(log.read(offset, size), offset, stop)
        return last[0] + last[1]
    if offset + size == stop:
        return stop
    return pieces[-1][0] + pieces[-1][1]


def _gaps_can_be_filled(log: _Log, offset: int, size: int, pieces: list[Piece]) -> bool:
    """Whether each gap between valid records has room for a filler."""
    try:
        for start, stop in _gaps(offset, offset + size, pieces):
            if stop < log.file_stop(offset):
                filler_record(start, stop - start)
    except ValueError:
        return False
    return True


def _gaps(offset: int, stop: int, pieces: list[Piece]) -> Iterator[tuple[int, int]]:
    at = offset
    for start, length, _ in pieces:
        if start > at:
            yield at, start
        at = start + length
    if stop > at:
        yield at, stop


def _put_back(log: _Log, saved: SavedRange, pieces: list[Piece]) -> None:
    """Write valid records back, and fillers between them."""
    offset = saved.offset
    stop = _stop_of(log, offset, saved.size, saved.place, pieces)
    into = bytearray(stop - offset)
    with open_regular(saved.path) as file:
        data = file.read()
    for start, length, kind in pieces:
        used = layout.RECORD_BLANK_BYTES if kind == "blank" else length
        into[start - offset : start - offset + used] = data[start - offset : start - offset + used]
    for start, end in _gaps(offset, stop, pieces):
        if end == log.file_stop(offset):
            filler = layout.RECORD_START.pack(end - start, layout.MAGIC_BLANK)
        else:
            filler = filler_record(start, end - start)
        into[start - offset : start - offset + len(filler)] = filler
    log.write(offset, into)


def _distrust(root: Path) -> None:
    """Make the next opening recover from the whole log, even if this process dies."""
    (root / paths.ABORT).touch()
    sync_path(root)
    with open_regular(root / paths.CHECKPOINT, write=True) as file:
        file.seek(layout.WATERMARK_AT)
        file.write(bytes(layout.WATERMARK_BYTES))
        file.flush()
        os.fsync(file.fileno())
