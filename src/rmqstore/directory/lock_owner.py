"""The process that has a store open for writing, found without taking a lock.

An owner holds two locks: on the first byte of ``lock``, as a broker does, and on the directory,
which remains if ``lock`` is removed.

Source: ``store/DefaultMessageStore.java start``, which locks the first byte of ``lock``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.files import paths

__all__ = ["FLOCK", "KEEP_LOCK", "LockOwner", "lock_openers", "lock_owner"]

FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
KEEP_LOCK = "do not delete 'lock': its owner stays, and a second one ruins the store"
_LOCKS = Path("/proc/locks")
_PROCESSES = Path("/proc")
_WORD_LENGTH = 80  # an argument may be a whole program
_CLASS_PATH = {"-cp", "-classpath", "--class-path"}  # Java's options with a value of their own


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Process that has a store open for writing."""

    pid: int | None  # ``None`` if unknown: another user's, or in another container
    command: str | None  # such as ``java org.apache.rocketmq.broker.BrokerStartup``

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that the system does not name"
        return f"process {self.pid}" + (f" ({self.command})" if self.command else "")


def lock_owner(path: str | os.PathLike[str]) -> LockOwner | None:
    """Return the process that has a store open for writing, ``None`` if there is none.

    If the lock file is unreadable, the system's list of locks is searched; ``PermissionError`` if
    there is no such list.
    """
    lock = Path(path, paths.LOCK)
    pid = _holder(lock, readable=False)
    if pid is None:
        lock = Path(path)
        pid = _holder(lock, readable=True)
    if pid is None:
        return None
    if pid <= 0:  # an open file's lock, not a process's: find who has it open
        pid = next((number for number, _ in lock_openers(lock)), 0)
    return LockOwner(pid, _command(pid)) if pid > 0 else LockOwner(None, None)


def _holder(locked: Path, *, readable: bool) -> int | None:
    """Return the process that has a file or directory locked, 0 or less if unnamed.

    ``None`` if unlocked; with ``readable``, an unreadable file counts as unlocked.
    """
    try:
        fd = os.open(locked, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a FIFO
    except FileNotFoundError:
        return None
    except PermissionError:
        return None if readable else _listed(locked)
    try:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, *_, pid = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)


def lock_openers(lock: Path) -> Iterator[tuple[int, str]]:
    """Yield the processes with a file open and locked, as far as visible to this user."""
    try:
        wanted = lock.stat()
    except OSError:
        return
    for process in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found = link.stat()
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) and (
                        "lock:" in (process / "fdinfo" / link.name).read_text()
                    ):
                        yield int(process.name), (process / "comm").read_text().strip()
                        break


def _listed(lock: Path) -> int | None:
    """Return the process of a file's lock in the system's list, ``None`` if it is not locked.

    0 if the list has the inode on another device: some file systems show two device numbers.
    """
    status = lock.stat()
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    elsewhere = False
    # 1: OFDLCK ADVISORY  WRITE -1 fe:00:11854654 0 0
    for line in _LOCKS.read_text().splitlines():
        words = line.split()
        if "->" not in words and wanted in words:
            return int(words[words.index(wanted) - 1])
        elsewhere |= any(word.endswith(f":{status.st_ino}") for word in words)
    return 0 if elsewhere else None


def _command(pid: int) -> str | None:
    """Return a process's program and its first argument, without the options before that."""
    try:
        words = (_PROCESSES / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace")
        program, *rest = words.rstrip("\0").split("\0")
    except OSError:
        return None
    before = ""
    for word in rest:
        if not word.startswith("-") and before not in _CLASS_PATH:
            return f"{Path(program).name} {' '.join(word.split())[:_WORD_LENGTH]}"
        before = word
    return Path(program).name or None
