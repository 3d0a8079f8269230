"""The lock of a store, examined and taken without opening the store.

Source: ``store/DefaultMessageStore.java start``, which locks the first byte of ``lock``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from rmqstore import opening, paths
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreLockedError
from rmqstore.lock_owner import FLOCK, lock_openers, lock_owner
from rmqstore.store import MessageStore

__all__ = ["is_owned", "locked", "open_for_writing", "wait_until_free"]

_POLL_SECONDS = 0.01


def open_for_writing(path: str, config: StoreConfig | None, timeout: float) -> MessageStore:
    """Open a store with ``"a"``; an error names the process that has it open.

    Parameters
    ----------
    path : str
    config : StoreConfig or None
    timeout : float
        Seconds to wait for the lock.

    Returns
    -------
    MessageStore

    Raises
    ------
    StoreLockedError
        It was open for writing elsewhere until the timeout.
    StoreError, OSError
        As :func:`rmqstore.open`.
    """
    while True:
        before = _identity(path)
        try:
            store = opening.open(path, "a", config=config, timeout=timeout)
        except StoreLockedError:
            raise _held(path, timeout) from None
        except FileNotFoundError:
            if _identity(path) == before:
                raise
            continue
        if before in (None, _identity(path)):
            return store
        store.close()  # another store replaced it while the lock was waited for


def _identity(path: str) -> tuple[int, int] | None:
    """Return the identity of a directory, whatever its name; None if there is none."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def is_owned(path: str) -> bool:
    """Tell whether another process has a store open for writing.

    Parameters
    ----------
    path : str

    Returns
    -------
    bool

    Notes
    -----
    Queries the owner of the lock, without taking it.
    Source: ``store/DefaultMessageStore.java start``.
    """
    return lock_owner(path) is not None


def wait_until_free(path: str, timeout: float) -> None:
    """Return once no process has a store open for writing; takes no lock.

    Parameters
    ----------
    path : str
    timeout : float
        Seconds to wait.

    Raises
    ------
    StoreLockedError
        It was open for writing elsewhere until the timeout.
    """
    until = time.monotonic() + timeout
    while is_owned(path):
        _wait(path, timeout, until)


@contextlib.contextmanager
def locked(path: str, timeout: float) -> Iterator[None]:
    """Hold the lock of a store that is not opened; does nothing without a lock file.

    Parameters
    ----------
    path : str
    timeout : float
        Seconds to wait.

    Yields
    ------
    None

    Raises
    ------
    StoreLockedError
        The store was open for writing elsewhere until the timeout.
    """
    try:
        fd = os.open(Path(path, paths.LOCK), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        until = time.monotonic() + timeout
        while True:
            try:
                _call(fd, fcntl.F_OFD_SETLK)
                break
            except (BlockingIOError, PermissionError):
                _wait(path, timeout, until)
        yield
    finally:
        os.close(fd)


def _call(fd: int, command: int) -> tuple[int, ...]:
    """Take, release or query a write lock on the first byte."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    return struct.unpack(FLOCK, fcntl.fcntl(fd, command, asked))


def _wait(path: str, timeout: float, until: float) -> None:
    if time.monotonic() >= until:
        raise _held(path, timeout)
    time.sleep(_POLL_SECONDS)


def _held(path: str, timeout: float) -> StoreLockedError:
    """Return the error that a store is open elsewhere, naming the process if Linux does."""
    lock = Path(path, paths.LOCK)
    holders = [f"{pid} ({name})" for pid, name in lock_openers(lock)]
    by = f" by process {', '.join(holders)}" if holders else ""
    return StoreLockedError(
        f"{path}: the store is open for writing elsewhere{by}, and was for {timeout:g} s; "
        "option 'lockTimeout' says how long to wait"
    )
