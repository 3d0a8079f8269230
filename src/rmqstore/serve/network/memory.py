"""Free memory: given back to the system once clients with large buffers are gone.

glibc keeps free memory below anything in use: 430 MiB after a hundred clients that did not read
their answers.

Source: malloc_trim(3).
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet

__all__ = ["LARGE", "OF_TLS", "give_back_soon"]

LARGE = 1 << 20  # bytes, of one client or several
OF_TLS = 256 << 10  # least bytes of a client's TLS, which are not counted: its longest read
_SECONDS = 1.0  # delay, to give back once for several clients

_trim: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
_due: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def give_back_soon(loop: asyncio.AbstractEventLoop) -> None:
    """Give free memory back, in a thread: much of it takes a while."""
    if _trim is not None and loop not in _due:
        _due.add(loop)
        loop.call_later(_SECONDS, _give_back, loop)


def _give_back(loop: asyncio.AbstractEventLoop) -> None:
    _due.discard(loop)
    if _trim is not None:
        with suppress(RuntimeError):  # the server stops
            loop.run_in_executor(None, _trim, 0)
