"""Clock of an open store, for store times and services.

Source: ``store/DefaultMessageStore.java now``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore._core import Core
    from rmqstore.services.housekeeping import Housekeeper
    from rmqstore.services.retention import Retention
    from rmqstore.services.schedule import Schedule

__all__ = ["Clock"]


class Clock:
    """Clock of a store: the machine's, unless it was moved; ``store.clock``.

    Store times, delays, retention and time-outs of a store all follow it, so that tests and
    simulations pass days in a moment.
    """

    def __init__(
        self, core: Core, schedule: Schedule, retention: Retention, housekeeper: Housekeeper
    ) -> None:
        self._core = core
        self._schedule = schedule
        self._retention = retention
        self._housekeeper = housekeeper

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._core.now()

    def advance(self, seconds: float) -> None:
        """Move the clock forward; services handle at once everything due by then.

        Parameters
        ----------
        seconds : float
            May be negative; even then store times do not go back.

        Raises
        ------
        ValueError
            ``seconds`` is not a number of up to 100 years.
        """
        millis = float(seconds) * 1000
        if not abs(millis) <= _MOST_MILLIS:  # nor is NaN
            raise ValueError(f"seconds must be -3.2e9 to 3.2e9, got {seconds!r}")
        self._schedule.note_clock()  # before and after: delay levels note whether it has gone back
        self._core.advance_clock(round(millis))
        self._retention.advance_clock(round(millis))
        self._schedule.note_clock()
        self._housekeeper.wake()
        self._schedule.wake()


_MOST_MILLIS = 3.2e12
