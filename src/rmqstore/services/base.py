"""Base of a store's services: their order, and the ownership of the store.

Source: ``store/DefaultMessageStore.java start``, ``shutdown``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Never

from rmqstore._core import Core
from rmqstore.base.syncing import SyncError
from rmqstore.errors import ForkedStoreError, StoreClosedError, StoreFailedError
from rmqstore.files import paths

__all__ = ["STORE_ENDED", "Ownership", "Service", "Services"]

# After these nothing else works; the store's own calls raise them.
STORE_ENDED = (StoreClosedError, StoreFailedError, ForkedStoreError)

_REMOVED = 5016  # the core's status for a lost name
_NAMES = {
    "": "the directory was moved, removed or replaced while the store was open",
    paths.LOCK: "removed or replaced while the store was open, so that a second process could "
    "write to it",
}


class Service:
    """A part of a store that is active while it is open; each method may be left out."""

    def start(self) -> None:
        """Start; called in each mode, once the store is open."""

    def save(self) -> object:
        """Write the state in memory to the disk; called before a snapshot."""

    def stop(self) -> None:
        """Stop, while the store still takes messages."""

    def closed(self) -> None:
        """Raise the error of a failed write; called once the store is closed."""

    def abandon(self) -> None:
        """Stop whatever has started, without writing: the store is given up."""


class Services:
    """The services of a store in their start order; everything else is in reverse."""

    def __init__(self, core: Core, ownership: Ownership, *services: Service) -> None:
        self._core = core
        self._ownership = ownership
        self._services = services

    def start(self) -> None:
        """Start the services."""
        for service in self._services:
            service.start()

    def save(self) -> None:
        """Write the services' state in memory to the disk."""
        for service in reversed(self._services):
            service.save()

    def stop(self) -> None:
        """Stop the services."""
        for service in reversed(self._services):
            service.stop()

    def close(self) -> None:
        """Stop the services, and close the store."""
        if self._core.closed or not self._ownership.is_here():
            self._core.close()
        else:
            self._close_here()
        for service in reversed(self._services):
            service.closed()

    def _close_here(self) -> None:
        self._core.refuse_inner_close()  # before anything is stopped
        with contextlib.suppress(StoreFailedError):  # closing reports it
            self._ownership.check()
        try:
            self.stop()
        finally:
            self._core.close()

    def abandon(self) -> None:
        """Give up a store whose start failed: write nothing, and do not count it as closed.

        A store that was closed and has not changed is left closed; a killed one stays killed.
        """
        try:
            for service in reversed(self._services):
                service.abandon()
        finally:
            self._core.undo_opening()


class Ownership(Service):
    """Ownership of an open store: this process's, while its names lead to the owned files."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._process = 0  # in which the services run
        # Of an owner: identities of the files to which its names lead.
        self._owned: Mapping[str, tuple[int, int] | None] = {}

    def start(self) -> None:
        """Note the process."""
        self._process = os.getpid()

    def is_here(self) -> bool:
        """Whether this process opened the store; if not, locks may be held for ever."""
        return self._process == os.getpid()

    def check_here(self) -> None:
        """Raise ``ForkedStoreError`` in a child, before a lock is taken."""
        if not self.is_here():
            self._core.check_open()

    def note_names(self) -> None:
        """Note the owner's directory and ``lock``; the core has both open and locked."""
        owned: dict[str, tuple[int, int] | None] = {}
        for name in _NAMES:
            with contextlib.suppress(OSError):  # an inaccessible path shows nothing
                owned[name] = _identity(Path(self._core.path, name))
        self._owned = owned

    def check(self) -> None:
        """Fail the store if its directory or ``lock`` was replaced, as the core does soon after.

        Raises ``StoreFailedError``. Called before files are replaced by their paths, which may
        lead into another store.
        """
        for name, owned in self._owned.items():
            found = owned
            with contextlib.suppress(OSError):
                found = _identity(Path(self._core.path, name))
            if found is None or found != owned:
                self._core.set_failed(_REMOVED, name, _NAMES[name])
                self._core.check_writable()

    def sync_failed(self, error: SyncError) -> Never:
        """Fail the store, and raise the reason."""
        core = self._core
        path = os.path.relpath(error.filename, core.path)
        core.set_failed(error.errno or errno.EIO, path, "cannot be forced to the disk")
        core.check_writable()
        raise error  # not reached: check_writable raises


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a path's target, ``None`` if there is none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
