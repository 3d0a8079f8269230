"""One directory takes the place of another, and whoever dies in between is made good.

Source: Linux, ``renameat2``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from pathlib import Path

from rmqstore.syncing import sync_path

__all__ = ["recover", "swap"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_MAKING = ".making-"
_REPLACED = ".replaced-"


def swap(made: Path, path: Path) -> None:
    """Put a directory in the place of another; what was there is at ``made`` afterwards.

    Parameters
    ----------
    made : Path
        ``<path>.making-<name>``, complete and on the disk.
    path : Path
        A directory beside it, or nothing.

    Raises
    ------
    OSError
        The system refuses; nothing has changed.

    Notes
    -----
    Where the file system cannot exchange two names there is a moment without ``path``:
    :func:`recover` ends it after a crash.
    Source: none.
    """
    if not os.path.lexists(path):
        made.rename(path)
    elif not _exchange(made, path):
        aside = _aside(made)
        path.rename(aside)
        with contextlib.suppress(FileNotFoundError):  # a recovery was faster
            made.rename(path)
        with contextlib.suppress(FileNotFoundError):
            aside.rename(made)
    sync_path(path.parent)


def recover(path: Path) -> None:
    """End an exchange that a crash has left in the middle, if there is one.

    Parameters
    ----------
    path : Path
        What was to be replaced.

    Notes
    -----
    Source: none.
    """
    for aside in sorted(path.parent.glob(f"{_escaped(path.name)}{_REPLACED}*")):
        made = path.with_name(aside.name.replace(_REPLACED, _MAKING, 1))
        if not os.path.lexists(path):
            (made if made.exists() else aside).rename(path)
            sync_path(path.parent)
        if aside.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _aside(made: Path) -> Path:
    return made.with_name(made.name.replace(_MAKING, _REPLACED, 1))


def _escaped(name: str) -> str:
    """Return a name as a pattern that means it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; False where the system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    if call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), os.fspath(one), None, os.fspath(other))
