"""A loop that stays awake for a moment after a request, if the next one usually follows.

A client that sends one message after another waits for each answer, and the loop for the next
request: some 30 us, much of it for putting a processor to sleep and waking it.  Polling makes a
send of one client 52 us instead of 65, of 100 bytes on two cores.
``net.core.busy_poll`` of Linux is the same idea, but has no effect on the loopback device.

Source: none in 4.9.3, whose requests go from thread to thread.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from time import perf_counter

__all__ = ["BusyPoll"]

_SECONDS = 50e-6  # how long the loop stays awake: a client's time from an answer to a request
_MAX_WORTH = 16
_LOSS = 2  # of worth, if nothing arrived: polling continues while two of three tries succeed
_TRY_EACH = 64  # requests, while it does not pay


class BusyPoll:
    """Keeps a loop from sleeping after requests, as long as that pays; used in the loop.

    Other threads and processes go first at every turn, so only a processor that would sleep is
    kept busy. Does nothing on a single processor.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._several = len(os.sched_getaffinity(0)) > 1
        self._awake = False
        self._until = 0.0
        self._worth = 0
        self._since = 0  # requests since the last try
        self._last: object = None

    def came(self, client: object) -> None:
        """Note arrivals, and stay awake for the client's next request if that pays.

        Another client's request does not count: many clients with rare requests come in crowds.
        """
        same = client is self._last
        self._last = client
        if self._awake:
            if same:
                self._worth = min(_MAX_WORTH, self._worth + 1)
                self._until = perf_counter() + _SECONDS
            return
        if not self._several:
            return
        if not self._worth:
            self._since += 1
            if self._since < _TRY_EACH:
                return
            self._since = 0
        self._awake = True
        self._until = perf_counter() + _SECONDS
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Have the loop poll its sockets once more, without waiting."""
        if perf_counter() < self._until:
            os.sched_yield()
            self._loop.call_soon(self._turn)
        else:
            self._awake = False
            self._worth = max(0, self._worth - _LOSS)
