"""Check that a task sees the planned store at its path on its own host.

Compared with the planner's view: the store's directories, whether they are empty (as is a mount
point without its disk), and the first records of the last two log files. Nothing is written;
device and inode numbers differ between the hosts of a shared file system.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rmqstore.base.layout import RECORD_FIXED_BYTES, RECORD_START
from rmqstore.errors import StoreNotFoundError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular

__all__ = ["SeenStore", "StoreNotVisibleError", "check_all", "check_directory", "note_host", "seen"]

_MAX_READ = 4096  # bytes
_MAX_RECORDS = 2


class StoreNotVisibleError(StoreNotFoundError):
    """A task does not see the planner's store at its path."""


@dataclass(frozen=True)
class SeenStore:
    """A store as the planner saw it; plain data."""

    path: str
    directories: tuple[str, ...] = ()  # existing directories of a store
    filled: tuple[str, ...] = ()  # the non-empty ones
    # up to two log files, each with a digest of its first record's first bytes
    records: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """Raise ``StoreNotVisibleError`` unless this host sees the same."""
        check_directory(self.path)
        for name in self.directories:
            if not Path(self.path, name).is_dir():
                raise _not_visible(self.path, f"it sees no {name}/ in it")
        for file, record in self.records:
            if (found := _first_record(Path(self.path, file))) != record:
                what = "another store there" if found else f"no record in {file} of it"
                raise _not_visible(self.path, f"it sees {what}")
        for name in self.filled:
            if not _is_filled(Path(self.path, name)):
                raise _not_visible(self.path, f"it sees nothing in {name}/ of it")


def seen(path: str) -> SeenStore:
    """Describe a store as seen from this host, for tasks to compare; ``path`` is absolute."""
    parts = (paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.INDEX)
    there = tuple(name for name in parts if Path(path, name).is_dir())
    filled = tuple(name for name in there if _is_filled(Path(path, name)))
    names = sorted(
        file.name
        for file in Path(path, paths.COMMIT_LOG).glob("[0-9]*")
        if paths.parse_offset_file_name(file.name) is not None
    )
    # Last file first, which may be about to get its first record: retention removes earlier ones.
    records: list[tuple[str, str]] = []
    for name in reversed(names):
        file = f"{paths.COMMIT_LOG}/{name}"
        if record := _first_record(Path(path, file)):
            records.append((file, record))
            if len(records) == _MAX_RECORDS:
                break
    return SeenStore(path, there, filled, tuple(records))


def check_all(planned: Iterable[SeenStore]) -> None:
    """Raise ``StoreNotVisibleError`` unless this host sees all these stores and directories."""
    for one in planned:
        one.check()


def check_directory(path: str) -> None:
    """Raise ``StoreNotVisibleError`` unless this host sees a directory of the planner's."""
    if not Path(path).is_dir():
        raise _not_visible(path)


def note_host(error: BaseException) -> None:
    """Add a task's host to its error."""
    note = f"on host {socket.gethostname()}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _not_visible(path: str, what: str = "") -> StoreNotVisibleError:
    return StoreNotVisibleError(
        f"host {socket.gethostname()} does not see {path}{f' as planned: {what}' if what else ''}; "
        "driver and executors need the same files under the same path"
    )


def _is_filled(directory: Path) -> bool:
    """Whether a directory has entries; an unreadable one counts as filled."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is not None
    except PermissionError:
        return True
    except OSError:
        return False


def _first_record(file: Path) -> str:
    """Return a digest of a file's first record; "" if there is none."""
    import xxhash

    try:
        with open_regular(file) as opened:
            data = opened.read(_MAX_READ)
    except OSError:
        return ""
    size = RECORD_START.unpack_from(data)[0] if len(data) >= RECORD_FIXED_BYTES else 0
    return str(xxhash.xxh3_64_hexdigest(data[:size])) if size >= RECORD_FIXED_BYTES else ""
