"""Clock of an open store, for store times and services.

Source: ``store/DefaultMessageStore.java now``.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """The clock of a store: the machine's, unless it was put forward or back.

    Store times, delays, retention and time-outs of a store all go by it, so that tests and
    simulations pass days in a moment.  It is ``store.clock``.
    """

    def __init__(self, now: Callable[[], int], advance: Callable[[int], None]) -> None:
        self._now = now
        self._advance = advance

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._now()

    def advance(self, seconds: float) -> None:
        """Put the clock forward; services do at once what is due by then.

        Parameters
        ----------
        seconds : float
            May be negative: store times do not go back all the same.

        Raises
        ------
        ValueError
            It is not a number of seconds up to 100 years.
        """
        millis = float(seconds) * 1000
        if not abs(millis) <= _MOST_MILLIS:  # nor is NaN
            raise ValueError(f"seconds must be -3.2e9 to 3.2e9, got {seconds!r}")
        self._advance(round(millis))


_MOST_MILLIS = 3.2e12
