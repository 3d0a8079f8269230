"""Forcing written data to the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["SyncError", "make_directories", "sync_file", "sync_path"]


class SyncError(OSError):
    """Failed sync: the data may be lost, even if a later sync succeeds."""


def sync_file(descriptor: int, path: str | os.PathLike[str]) -> None:
    """Force an open file's bytes, or a directory's names, to the disk; ``SyncError`` on failure."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncError(error.errno, error.strerror, os.fspath(path)) from error


def sync_path(path: str | os.PathLike[str]) -> None:
    """Force a file's bytes, or a directory's names, to the disk; ``SyncError`` on failure.

    Any other ``OSError``: opening failed, and no sync was attempted.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        sync_file(descriptor, path)
    finally:
        os.close(descriptor)


def make_directories(path: str | os.PathLike[str], *, sync_parent: bool) -> None:
    """Create a directory and its missing parents, and make their names durable.

    ``sync_parent``: sync the parent even if the directory exists, as its creator may have been
    killed before its sync. Directories created before an error stay.
    """
    missing = []
    at = Path(path)
    while not at.exists():
        missing.append(at)
        at = at.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        _sync_name(directory)
    if not missing:
        if not at.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", os.fspath(path))
        if sync_parent:
            _sync_name(at)


def _sync_name(directory: Path) -> None:
    try:
        sync_path(directory.parent)
    except PermissionError:
        os.sync()  # a parent that may be written but not read
