"""Atomic exchange of two directories, and recovery of an interrupted replacement.

Source: Linux, ``renameat2``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from pathlib import Path

from rmqstore.base.syncing import sync_path
from rmqstore.spark.common.side_files import MAKING, REPLACED, is_job_directory

__all__ = ["job_names", "recover", "swap"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def swap(made: Path, path: Path) -> None:
    """Replace ``path`` by ``made``, complete and on the disk; the old one goes to ``made``.

    ``made`` is ``<path>.making-<name>``. Nothing changes on ``OSError``. If names cannot be
    exchanged, ``path`` is missing for a moment; :func:`recover` repairs that after a crash.
    """
    if not os.path.lexists(path):
        made.rename(path)
    elif not _exchange(made, path):
        name = made.name.removeprefix(f"{path.name}{MAKING}")
        aside = path.with_name(f"{path.name}{REPLACED}{name}")
        path.rename(aside)
        with contextlib.suppress(FileNotFoundError):  # a recovery was faster
            made.rename(path)
        with contextlib.suppress(FileNotFoundError):
            aside.rename(made)
    sync_path(path.parent)


def recover(path: Path) -> None:
    """Recover an interrupted replacement of a path, if there is one."""
    for name in job_names(path, REPLACED):
        aside = path.with_name(f"{path.name}{REPLACED}{name}")
        made = path.with_name(f"{path.name}{MAKING}{name}")
        if not os.path.lexists(path):
            (made if made.exists() else aside).rename(path)
            sync_path(path.parent)
        if aside.exists():
            shutil.rmtree(aside, ignore_errors=True)


def job_names(path: Path, marker: str) -> list[str]:
    """Return the job names of the sink's own directories next to a path that is no link.

    ``marker`` is between the path's name and the job's. Others' directories are left out.
    """
    if not path.parent.is_dir():
        return []
    start = f"{path.name}{marker}"
    names = (
        entry.name.removeprefix(start)
        for entry in path.parent.iterdir()
        if entry.name.startswith(start)
    )
    return sorted(filter(is_job_directory, names))


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; False if the system cannot."""
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
