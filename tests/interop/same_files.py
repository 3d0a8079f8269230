"""Two files byte for byte, however large; what is a hole in both is not read."""

from __future__ import annotations

import os
from pathlib import Path

CHUNK = 1 << 20


def extents(path: Path) -> list[tuple[int, int]]:
    """Parts of a file that are no holes: where each begins, and where it ends."""
    found, at = [], 0
    with path.open("rb") as file:
        size = path.stat().st_size
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole from there on
                break
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            found.append((at, end))
            at = end
    return found


def first_difference(ours: Path, theirs: Path) -> int:
    """The first byte in which two files differ, -1 if none; a hole is zeros, and is not read."""
    a, b = ours.stat().st_size, theirs.stat().st_size
    if a != b:
        return min(a, b)
    with ours.open("rb") as left, theirs.open("rb") as right:
        for start, end in sorted(extents(ours) + extents(theirs)):
            for at in range(start, end, CHUNK):
                left.seek(at)
                right.seek(at)
                mine, real = left.read(min(CHUNK, end - at)), right.read(min(CHUNK, end - at))
                if mine != real:
                    pairs = enumerate(zip(mine, real, strict=True))
                    return at + next(i for i, (x, y) in pairs if x != y)
    return -1


def read_at(path: Path, at: int, count: int) -> str:
    """Some of a file's bytes in hex."""
    with path.open("rb") as file:
        file.seek(at)
        return file.read(count).hex()


def assert_same_files(ours: Path, theirs: Path, first: int = 0, step: int = 1) -> None:
    """Compare two files byte for byte; what differs is shown in steps that begin at ``first``."""
    at = first_difference(ours, theirs)
    if at >= 0:
        at = first + (at - first) // step * step if at >= first else 0
        raise AssertionError(
            f"{ours} has {ours.stat().st_size} bytes, the real {theirs} {theirs.stat().st_size}; "
            f"at {at}: {read_at(ours, at, 40)} is {read_at(theirs, at, 40)} in the real one"
        )
