"""Shares of the connection table by address.

Many honest clients may share one address, which may have all places while nobody else wants one. A
sixteenth of a full table is for the others: each of them makes the address with the most
connections lose its longest silent one.

Source: none in 4.9.3, whose broker accepts until it has no descriptor left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.serve.network.descriptors import leaves_room

if TYPE_CHECKING:
    import asyncio

    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.connections import Connections
    from rmqstore.serve.network.work import Work

__all__ = ["Places"]

_OF_OTHERS = 16  # the others have one place in this many
_WARN_SECONDS = 60.0  # between warnings about too few file descriptors


class Places:
    """Connections by address, open or being set up."""

    def __init__(self, work: Work, connections: Connections[Connection], most: int) -> None:
        self._work = work
        self._connections = connections
        self._most = most
        self._of: dict[str, dict[Connection, asyncio.Task[None]]] = {}
        self._warn_again = 0.0
        connections.lost.append(self.leave)

    def has_room(self, descriptor: int, origin: str) -> bool:
        """Whether an address may have another connection; another's may be closed for it."""
        taken = len(self._connections.open) + len(self._connections.connecting)
        if taken >= self._most:
            return self._is_given_one(origin, taken)
        if leaves_room(descriptor):
            return True
        now = self._work.loop.time()
        if now >= self._warn_again:
            self._warn_again = now + _WARN_SECONDS
            self._work.log.warning(
                "no more than %d connections: the limit of open files (ulimit -n) is low", taken
            )
        return self._is_given_one(origin, taken)

    def _is_given_one(self, origin: str, taken: int) -> bool:
        """Close a connection of the address with the most, down to the share of the others."""
        has = len(self._of.get(origin, ()))
        left = taken // _OF_OTHERS
        if has >= left:
            return False
        most = max(self._of.values(), key=len)
        left -= taken - len(most)
        if has >= left:  # as in any table: as many as are free
            return False
        silent = min(most, key=lambda one: one.last_used)
        self._work.log.warning(
            "%s: closed: %d of %d connections are of its address, and another one's client came",
            silent.peer or silent.origin, len(most), taken,
        )  # fmt: skip
        if silent.is_open:
            silent.abort()
        else:
            most[silent].cancel()
        self.leave(silent)
        return True

    def take(self, connection: Connection, connecting: asyncio.Task[None]) -> None:
        """Enter a connection."""
        self._of.setdefault(connection.origin, {})[connection] = connecting

    def leave(self, connection: Connection) -> None:
        """Remove a connection that is closed, or was never set up."""
        left = self._of.get(connection.origin)
        if left is not None:
            left.pop(connection, None)
            if not left:
                del self._of[connection.origin]
