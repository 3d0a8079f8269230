"""Files of a log: the file of an offset; missing and short files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from rmqstore.files.paths import offset_file_name, parse_offset_file_name
from rmqstore.files.regular import kind_of

__all__ = ["NO_FILE", "damaged_log_files", "log_file"]

NO_FILE = "<record>"
"""Path in an error about a record of no store."""


def log_file(directories: tuple[str, ...] | None, offset: int) -> str:
    """Return the path of the log file with a physical offset, by file names."""
    if directories is None:
        return NO_FILE
    starts = {start: place for place in directories for start in _starts(Path(place))}
    start = max((one for one in starts if one <= offset), default=None)
    return directories[0] if start is None else str(Path(starts[start], offset_file_name(start)))


def _starts(directory: Path) -> list[int]:
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError:
        return []  # it is not mounted
    return [start for name in names if (start := parse_offset_file_name(name)) is not None]


def damaged_log_files(directories: Iterable[Path], size: int, end: int) -> list[str]:
    """Return the faults of a log's files, a text for each, in log order.

    ``size`` is a file's, ``end`` the last record's: files beyond it may be missing or unfinished.
    Files before the first one count as removed.
    """
    places = list(directories)
    if not (found := _damaged(places, size, end)):
        return []
    # An owner may have removed files while they were listed.
    again = _damaged(places, size, end)
    return [text for text in again if text in found]


def _damaged(directories: list[Path], size: int, end: int) -> list[str]:
    listed = sorted(_statuses(directories), key=lambda one: one[0])
    lengths = {start: status.st_size for start, status in listed if stat.S_ISREG(status.st_mode)}
    found = [
        (
            start,
            f"{offset_file_name(start)} is {kind_of(status.st_mode)}, not a regular file: move it "
            "out of the directory, and put the file of the log back",
        )
        for start, status in listed
        if start not in lengths
    ]
    found += [
        (start, f"short {offset_file_name(start)}: {length:,} of {size:,} bytes")
        for start, length in lengths.items()
        if length < size and start < end
    ]
    for before, after in pairwise(dict(listed)):
        first, stop = before + size, min(after, end)
        if first < stop:
            count = -(-(stop - first) // size)
            last = first + (count - 1) * size
            more = f" to {offset_file_name(last)}, {count:,} files" if count > 1 else ""
            found.append((first, f"missing {offset_file_name(first)}{more}"))
    return [text for _, text in sorted(found)]


def _statuses(directories: list[Path]) -> Iterable[tuple[int, os.stat_result]]:
    """Iterate over entries named like log files: physical offset and status."""
    for directory in directories:
        try:
            paths = list(directory.iterdir())
        except OSError:
            continue  # it is not mounted
        for path in paths:
            start = parse_offset_file_name(path.name)
            if start is None:
                continue
            try:
                yield start, path.stat()
            except OSError:
                continue  # removed meanwhile
