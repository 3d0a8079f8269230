"""The lock of a store, seen and taken without opening the store.

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
from rmqstore.store import MessageStore

__all__ = ["is_owned", "locked", "open_for_writing", "wait_until_free"]

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
_POLL_SECONDS = 0.01


def open_for_writing(path: str, config: StoreConfig | None, timeout: float) -> MessageStore:
    """Open a store with ``"a"``; an error names who has it.

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
        It is open for writing elsewhere, and was until the timeout.
    StoreError, OSError
        As :func:`rmqstore.open`.

    Notes
    -----
    Source: none.
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
        store.close()  # another store took its place while the lock was waited for


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells a directory from another of its name, None if there is none."""
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
    Asks for the owner of the lock, and takes it from nobody.
    Source: ``store/DefaultMessageStore.java start``.
    """
    try:
        fd = os.open(Path(path, paths.LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return _call(fd, fcntl.F_OFD_GETLK)[0] != fcntl.F_UNLCK
    finally:
        os.close(fd)


def wait_until_free(path: str, timeout: float) -> None:
    """Return once nobody has a store open for writing; nothing is taken.

    Parameters
    ----------
    path : str
    timeout : float
        Seconds to wait.

    Raises
    ------
    StoreLockedError
        It is open for writing elsewhere, and was until the timeout.

    Notes
    -----
    Source: none.
    """
    until = time.monotonic() + timeout
    while is_owned(path):
        _wait(path, timeout, until)


@contextlib.contextmanager
def locked(path: str, timeout: float) -> Iterator[None]:
    """Hold the lock of a store that is not opened; where there is no lock file, nothing is done.

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
        The store is open for writing elsewhere, and was until the timeout.

    Notes
    -----
    Source: none.
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
    """Ask for, or about, a write lock on the first byte."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    return struct.unpack(_FLOCK, fcntl.fcntl(fd, command, asked))


def _wait(path: str, timeout: float, until: float) -> None:
    if time.monotonic() >= until:
        raise _held(path, timeout)
    time.sleep(_POLL_SECONDS)


def _held(path: str, timeout: float) -> StoreLockedError:
    """Return the error that a store is open elsewhere, with the process as far as Linux tells."""
    lock = Path(path, paths.LOCK)
    holders = [f"{pid} ({name})" for pid, name in _openers(lock)]
    by = f" by process {', '.join(holders)}" if holders else ""
    return StoreLockedError(
        f"{path}: the store is open for writing elsewhere{by}, and was for {timeout:g} s; "
        "option 'lockTimeout' says how long to wait"
    )


def _openers(lock: Path) -> Iterator[tuple[int, str]]:
    """Give the processes of this user that have a file open."""
    try:
        wanted = lock.stat()
    except OSError:
        return
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found = link.stat()
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) and (
                        not _is_waiting(process, link)
                    ):
                        yield int(process.name), (process / "comm").read_text().strip()
                        break


def _is_waiting(process: Path, link: Path) -> bool:
    """Tell whether a descriptor has no lock: its process looks at the file, or waits."""
    try:
        return "lock:" not in (process / "fdinfo" / link.name).read_text()
    except OSError:
        return False
