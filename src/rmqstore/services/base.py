"""What every service of a store builds on: its clock, its housekeeping, its start and end.

Source: ``store/DefaultMessageStore.java start``, ``shutdown``.
"""

from __future__ import annotations

import os
import weakref

from rmqstore import _core
from rmqstore.errors import ForkedStoreError, StoreClosedError, StoreFailedError
from rmqstore.services.clock import Clock
from rmqstore.services.housekeeping import Housekeeper

__all__ = ["STORE_ENDED", "ServicedEngine"]

# After these nothing else works either, and the store's own calls raise them.
STORE_ENDED = (StoreClosedError, StoreFailedError, ForkedStoreError)


class ServicedEngine(_core.Engine):
    """A store with services: each is a class of its own that derives from this one.

    A service overrides :meth:`_start_services` and :meth:`_stop_services`, and calls the next
    class's; ``MessageStore`` derives from all of them.
    """

    _housekeeper_made: Housekeeper | None = None
    _served_by = 0  # the process that the services run in

    @property
    def clock(self) -> Clock:
        """The clock that the store and its services go by."""
        return Clock(self)

    @property
    def _housekeeper(self) -> Housekeeper:
        """What is done every few seconds; its thread starts with the first task."""
        if self._housekeeper_made is None:
            self._housekeeper_made = Housekeeper(self._now)
            weakref.finalize(self, self._housekeeper_made.stop)
        return self._housekeeper_made

    def _read_files(self) -> None:
        """Read the files that services go by, so that a torn one is refused before any change.

        Called for a store that is about to be opened for writing: its lock is held.
        """

    def _start_services(self) -> None:
        """Start what runs while the store is open; called in each mode, once it is."""
        self._served_by = os.getpid()

    def _stop_services(self) -> None:
        """End it, while the store still takes messages."""
        if self._housekeeper_made is not None:
            self._housekeeper_made.stop()

    def _undo_start(self) -> None:
        """Give up a store whose start failed: nothing is written, and it does not count as closed.

        A store that was closed and has not changed is left closed; a killed one stays killed.
        """
        if self._housekeeper_made is not None:
            self._housekeeper_made.stop()
        self._undo_opening()

    def _save_services(self) -> None:
        """Write to the disk what services hold in memory; called before a snapshot."""

    def _is_here(self) -> bool:
        """Tell whether it was opened in this process; if not, locks may be held for ever."""
        return self._served_by == os.getpid()

    def _check_here(self) -> None:
        """Raise ``ForkedStoreError`` in a child, before a lock is taken."""
        if not self._is_here():
            self._check_open()

    def _clock_moved(self) -> None:
        """Look again at what is due."""
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
        self._refuse_inner_close()  # before anything is stopped
        try:
            self._stop_services()
        finally:
            super().close()
