"""Base of a store's services: clock, housekeeping, start and stop.

Source: ``store/DefaultMessageStore.java start``, ``shutdown``.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Mapping
from pathlib import Path

from rmqstore import _core
from rmqstore.errors import ForkedStoreError, StoreClosedError, StoreFailedError
from rmqstore.files import paths
from rmqstore.services.clock import Clock
from rmqstore.services.housekeeping import Housekeeper

__all__ = ["STORE_ENDED", "ServicedEngine"]

# After these nothing else works either, and the store's own calls raise them.
STORE_ENDED = (StoreClosedError, StoreFailedError, ForkedStoreError)

_REMOVED = 5016  # the core's status for a lost name
_NAMES = {
    "": "the directory was moved, removed or replaced while the store was open",
    paths.LOCK: "removed or replaced while the store was open, so that a second process could "
    "write to it",
}


class ServicedEngine(_core.Engine):
    """Base of the services of a store, each of which is a class of its own.

    A service overrides :meth:`_start_services` and :meth:`_stop_services`, and calls the next
    class's; ``MessageStore`` derives from all of them.
    """

    _housekeeper_made: Housekeeper | None = None
    _served_by = 0  # the process that the services run in
    _owned: Mapping[str, tuple[int, int] | None] = {}  # of an owner: what its names lead to

    @property
    def clock(self) -> Clock:
        """Clock of the store and its services."""
        return Clock(self.core.now, self._move_clock)

    @property
    def _housekeeper(self) -> Housekeeper:
        """Runner of the periodic tasks; its thread starts with the first one."""
        if self._housekeeper_made is None:
            self._housekeeper_made = Housekeeper(self.core.now)
            weakref.finalize(self, self._housekeeper_made.stop)
        return self._housekeeper_made

    def _read_files(self) -> None:
        """Read the services' files, lock held, so that a torn one is refused before any change."""

    def _start_services(self) -> None:
        """Start the services; called in each mode, once the store is open."""
        self._served_by = os.getpid()

    def _stop_services(self) -> None:
        """Stop the services, while the store still takes messages."""
        if self._housekeeper_made is not None:
            self._housekeeper_made.stop()

    def _undo_start(self) -> None:
        """Give up a store whose start failed: nothing is written, and it does not count as closed.

        A store that was closed and has not changed is left closed; a killed one stays killed.
        """
        if self._housekeeper_made is not None:
            self._housekeeper_made.stop()
        self.core.undo_opening()

    def _save_services(self) -> None:
        """Write to the disk the services' state in memory; called before a snapshot."""

    def _note_names(self) -> None:
        """Note which directory and ``lock`` are the owner's; the core has both open and locked."""
        owned: dict[str, tuple[int, int] | None] = {}
        for name in _NAMES:
            with contextlib.suppress(OSError):  # an inaccessible path shows nothing
                owned[name] = _identity(Path(self.path, name))
        self._owned = owned

    def _check_owned(self) -> None:
        """Fail the store if its directory or ``lock`` was replaced, as the core does soon after.

        Raises ``StoreFailedError``. Called before files are replaced by their paths: those of
        another store may lie there.
        """
        for name, owned in self._owned.items():
            found = owned
            with contextlib.suppress(OSError):
                found = _identity(Path(self.path, name))
            if found is None or found != owned:
                self.core.set_failed(_REMOVED, name, _NAMES[name])
                self.core.check_writable()

    def _is_here(self) -> bool:
        """Whether the store was opened in this process; if not, locks may be held for ever."""
        return self._served_by == os.getpid()

    def _check_here(self) -> None:
        """Raise ``ForkedStoreError`` in a child, before a lock is taken."""
        if not self._is_here():
            self.core.check_open()

    def _advance_clock(self, millis: int) -> None:
        """Move the store's clock forward or back."""
        self.core.advance_clock(millis)

    def _move_clock(self, millis: int) -> None:
        self._advance_clock(millis)
        self._clock_moved()

    def _clock_moved(self) -> None:
        """Check again for due tasks."""
        if self._housekeeper_made is not None:
            self._housekeeper_made.wake()

    def close(self) -> None:
        """Flush everything, close the store, and release the lock.

        Messages read from it stay valid. Closing again does nothing.

        Raises
        ------
        StoreFailedError, OSError
            Acknowledged messages could not be flushed; ``abort`` stays, and the next opening
            recovers.
        ForkedStoreError
            The store belongs to the parent process.
        RuntimeError
            A handler, a finalizer or an argument closes it within another call of its thread: the
            store goes on.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java shutdown``.
        """
        if self.closed or not self._is_here():
            super().close()
            return
        self.core.refuse_inner_close()  # before anything is stopped
        with contextlib.suppress(StoreFailedError):  # closing reports it
            self._check_owned()
        try:
            self._stop_services()
        finally:
            super().close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of what a path leads to, ``None`` if nothing is there."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
