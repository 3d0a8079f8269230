"""Parts of files, copied and zeroed; zeros take no space."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rmqstore.base.syncing import sync_file

__all__ = ["copy_range", "used_pieces", "zero"]

_PIECE = 1 << 20
_BLOCK = 4096


def used_pieces(file: BinaryIO, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a part of a file that are not zeros, by their place in the part."""
    at = 0
    zeros = bytes(_PIECE)
    while at < size:
        try:
            data_at = os.lseek(file.fileno(), start + at, os.SEEK_DATA) - start
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            data_at = at
        at = max(at, min(data_at, size))
        data = os.pread(file.fileno(), min(_PIECE, size - at), start + at)
        if not data:
            return
        if data != zeros[: len(data)]:
            yield at, data
        at += len(data)


def copy_range(source: BinaryIO, start: int, target: Path, at: int, size: int) -> None:
    """Copy a part of a file to a new one, durably; zeros take no space."""
    with target.open("xb") as file:
        for place, data in used_pieces(source, start, size):
            file.seek(at + place)
            file.write(data)
        file.truncate(at + size)
        sync_file(file.fileno(), file.name)


def zero(file: BinaryIO, start: int, stop: int) -> None:
    """Zero a part of a file, as far as it is not zeros already."""
    for at, data in used_pieces(file, start, stop - start):
        for block in range(0, len(data), _BLOCK):
            length = min(_BLOCK, len(data) - block)
            if data[block : block + length].strip(b"\0"):
                file.seek(start + at + block)
                file.write(bytes(length))
    file.flush()
