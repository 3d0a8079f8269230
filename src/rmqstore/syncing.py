"""Forcing what was written to the disk.

Source: none.
"""

from __future__ import annotations

import os

__all__ = ["sync_path"]


def sync_path(path: str | os.PathLike[str]) -> None:
    """Force a file's bytes, or the names in a directory, to the disk; an error names the path."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        os.close(descriptor)
