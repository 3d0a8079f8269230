"""The lock of a store, examined and taken without opening the store.

The core does the same in ``_native/log/ownership.pxi``.

Source: ``store/DefaultMessageStore.java start``, which locks the first byte of ``lock``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqstore import opening
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.lock_owner import FLOCK, KEEP_LOCK, lock_openers, lock_owner
from rmqstore.errors import StoreLockedError
from rmqstore.files import paths
from rmqstore.store import MessageStore

__all__ = ["is_owned", "locked", "open_for_writing", "wait_until_free"]

_POLL_SECONDS = 0.01
_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def open_for_writing(path: str, config: StoreConfig | None, timeout: float) -> MessageStore:
    """Open a store with ``"a"`` within ``timeout`` seconds; an error names its owner."""
    while True:
        before = _identity(path)
        try:
            return opening.open(path, "a", config=config, timeout=timeout)
        except StoreLockedError:
            raise _held(path, timeout) from None
        except FileNotFoundError:
            if _identity(path) == before:
                raise  # else another store replaced it while the lock was waited for


def _identity(path: str) -> tuple[int, int] | None:
    """Return a directory's identity, independent of its name; None if there is none."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def is_owned(path: str) -> bool:
    """Whether another process has a store open for writing; takes no lock."""
    return lock_owner(path) is not None


def wait_until_free(path: str, timeout: float) -> None:
    """Wait up to ``timeout`` seconds until a store has no owner; takes no lock."""
    until = time.monotonic() + timeout
    while is_owned(path):
        _wait(path, timeout, until)


@contextlib.contextmanager
def locked(path: str, timeout: float) -> Iterator[None]:
    """Hold the locks of a store without opening it; does nothing without a directory.

    ``StoreLockedError`` if the store is open for writing elsewhere for ``timeout`` seconds.
    """
    until = time.monotonic() + timeout
    with contextlib.ExitStack() as held:
        try:
            directory = _opened(path, os.O_RDONLY | os.O_DIRECTORY, held)
        except FileNotFoundError:
            yield
            return
        held.callback(_unlock_directory, directory)
        while not _take(_lock_directory, directory):
            _wait(path, timeout, until)
        # Nobody can lock a directory of that name; a store with it is not opened.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            lock = _opened(Path(path, paths.LOCK), os.O_RDWR, held)
            while not _take(_lock_first_byte, lock, fcntl.F_WRLCK):
                _wait(path, timeout, until)
        yield


def _opened(path: str | Path, flags: int, held: contextlib.ExitStack) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC)
    held.callback(os.close, fd)
    return fd


def _take(lock: Callable[..., object], *arguments: int) -> bool:
    """Take a lock; False if it is held elsewhere."""
    try:
        lock(*arguments)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock_directory(fd: int) -> None:
    """Lock a directory, if the file system can, and mark it for queries of the owner."""
    with _where_supported():
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with _where_supported():
        _lock_first_byte(fd, fcntl.F_RDLCK)


def _unlock_directory(fd: int) -> None:
    """Release the lock explicitly: a forked child may share the descriptor."""
    with _where_supported():
        fcntl.flock(fd, fcntl.LOCK_UN)


@contextlib.contextmanager
def _where_supported() -> Iterator[None]:
    """Ignore the errors of a file system without locks on directories."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _lock_first_byte(fd: int, kind: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(FLOCK, kind, os.SEEK_SET, 0, 1, 0))


def _wait(path: str, timeout: float, until: float) -> None:
    if time.monotonic() >= until:
        raise _held(path, timeout)
    time.sleep(_POLL_SECONDS)


def _held(path: str, timeout: float) -> StoreLockedError:
    """Return the error for a store that is open elsewhere, naming its owner if known."""
    found = [*lock_openers(Path(path, paths.LOCK)), *lock_openers(Path(path))]
    holders = [f"{pid} ({name})" for pid, name in dict.fromkeys(found)]
    by = f" by process {', '.join(holders)}" if holders else ""
    waited = f", and was for {timeout:g} s; option 'lockTimeout' says how long to wait"
    return StoreLockedError(
        f"{path}: the store is open for writing elsewhere{by}{waited if timeout else ''}; "
        f"{KEEP_LOCK}"
    )
