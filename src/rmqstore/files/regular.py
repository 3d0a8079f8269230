"""Regular files of a store, opened without blocking: a FIFO may have no other end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["kind_of", "not_regular", "open_regular", "require_parent"]

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str:
    """Return the kind of a file by its ``st_mode``, such as ``"a FIFO"``."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def not_regular(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a non-regular file, as ``"a FIFO, not a regular file"``, for errors.

    Links are followed; ``None`` for a regular file, or if there is nothing.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError:
        return None
    return None if stat.S_ISREG(mode) else f"{kind_of(mode)}, not a regular file"


def require_parent(path: str | os.PathLike[str]) -> None:
    """Raise ``FileNotFoundError`` unless the directory of a file to be made exists."""
    parent = Path(path).parent
    if not parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such directory: make it first", str(parent))


def open_regular(path: str | os.PathLike[str], *, write: bool = False) -> BinaryIO:
    """Open a regular file for reading, with ``write`` also for writing.

    Links are followed; other kinds raise an ``OSError`` with ``EINVAL``.
    """
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            text = f"{kind_of(mode)}, not a regular file: move it away"
            raise OSError(errno.EINVAL, text, os.fspath(path))
        return os.fdopen(fd, "r+b" if write else "rb")
    except BaseException:
        os.close(fd)
        raise
