"""Clock of an open store, for store times and services.

Source: ``store/DefaultMessageStore.java now``.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Clock of a store: the machine's, unless it was moved; ``store.clock``.

    Store times, delays, retention and time-outs of a store all follow it, so that tests and
    simulations pass days in a moment.
    """

    def __init__(self, now: Callable[[], int], advance: Callable[[int], None]) -> None:
        self._now = now
        self._advance = advance

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._now()

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
        self._advance(round(millis))


_MOST_MILLIS = 3.2e12
