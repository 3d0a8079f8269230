"""Bytes sent over many connections at once, as fast as the server takes them."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Load", "Out", "pump"]

_CHUNK = 1 << 18


@dataclass
class Out:
    """Some bytes, and zeros behind them."""

    begin: bytes
    zeros: int = 0
    sent: int = 0

    def next(self) -> bytes | memoryview:
        """Return the next bytes to send, empty at the end."""
        if self.sent < len(self.begin):
            return memoryview(self.begin)[self.sent : self.sent + _CHUNK]
        return bytes(min(_CHUNK, len(self.begin) + self.zeros - self.sent))


@dataclass(frozen=True)
class Load:
    """Sending of a load.

    Attributes
    ----------
    seconds : float
        After which it ends, whatever has come of it.
    stopped : threading.Event
        With which it ends as well.
    reads : bool
        Whether what comes is read; otherwise it stays until all is closed.
    quiet : float
        Seconds in which nothing comes, and nothing is sent, after which it ends.
    """

    seconds: float
    stopped: threading.Event
    reads: bool = True
    quiet: float = 0.3


def pump(address: tuple[str, int], loads: Sequence[bytes | Out], how: Load) -> int:
    """Send each over a connection of its own, and close them; return how many bytes came.

    It ends once nothing comes any more and all is sent, or nothing is taken.
    """
    until = time.monotonic() + how.seconds
    outs: dict[socket.socket, Out] = {}
    came, busy = 0, time.monotonic()
    try:
        for load in loads:
            if how.stopped.is_set():
                break
            made = socket.create_connection(address, 10)
            made.setblocking(False)
            outs[made] = load if isinstance(load, Out) else Out(load)
        while outs and not how.stopped.is_set() and time.monotonic() < until:
            writing = [one for one, out in outs.items() if out.next()]
            reading = list(outs) if how.reads else []
            readable, writable, _ = select.select(reading, writing, [], 0.05)
            for one in writable:
                if one in outs and not _write(one, outs[one]):
                    del outs[one]
                    one.close()
            for one in readable:
                if one in outs:
                    got = _read(one)
                    came += got
                    if got == 0:
                        del outs[one]
                        one.close()
            if readable or writable:
                busy = time.monotonic()
            elif time.monotonic() - busy > how.quiet:
                break
    finally:
        for one in outs:
            one.close()
    return came


def _write(one: socket.socket, out: Out) -> bool:
    """Return whether the connection goes on."""
    try:
        out.sent += one.send(out.next())
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def _read(one: socket.socket) -> int:
    """Return the number of received bytes; none at its end."""
    try:
        return len(one.recv(_CHUNK))
    except BlockingIOError:
        return 1
    except OSError:
        return 0
