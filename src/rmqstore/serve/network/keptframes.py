"""Bytes of requests that are kept: of frames that are not complete, and until they are answered.

An owner that has its share of incomplete frames is read on with one connection at a time; beyond
the total it is the largest owner that pays, not who comes last.

Source: none in 4.9.3, which keeps what comes, without a bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from rmqstore.serve.shares import Shares

if TYPE_CHECKING:
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.shares import Owners
    from rmqstore.warn import Log

__all__ = ["KeptFrames"]

_OWN = 64 << 10  # bytes of each connection that are in no share
_TURN_SECONDS = 1.0  # of a connection that sends nothing, until the next one of its owner is read


class _Large:
    """A connection that keeps more than its own."""

    __slots__ = ("before", "frames", "owners")

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self.frames = 0
        self.before = 0  # at the last look


class KeptFrames:
    """The bytes of requests that connections keep; used in the loop.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
    log : Log
        For connections that are closed.
    connections : collection of Connection
        Those that are open.
    most : int
        Bytes of all.

    Attributes
    ----------
    taken : int
        Bytes of all connections.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: Log,
        connections: Iterable[Connection],
        most: int,
    ) -> None:
        self.taken = 0
        self._loop = loop
        self._log = log
        self._connections = connections
        self._shares = Shares(most)
        self._large: dict[Connection, _Large] = {}
        # By owner those that are over its share, in turn: only the first one is read.
        self._over: dict[Hashable, dict[Connection, None]] = {}
        self._look_due = False

    def note(self, connection: Connection, kept: int, frames: int) -> None:
        """Note what a connection keeps, and how much of it are frames that nobody has handled."""
        self.taken += kept - connection.kept
        connection.kept = kept
        if frames > _OWN or connection in self._large:
            self._note_frames(connection, frames if frames > _OWN else 0)
        if self.taken > self._shares.most and kept:
            self._close_largest()

    def forget(self, connection: Connection) -> int:
        """Keep nothing more of a connection that is gone; return how much it had."""
        kept = connection.kept
        self.note(connection, 0, 0)
        return kept

    def _note_frames(self, connection: Connection, frames: int) -> None:
        large = self._large.get(connection)
        if large is None:
            large = self._large[connection] = _Large((connection.owner, connection.peer))
        change = frames - large.frames
        large.frames = frames
        owner = large.owners[0]
        if change > 0:
            self._shares.take(large.owners, change)
            if not self._shares.has_room(large.owners, 0):
                self._wait(owner, connection)
            return
        self._shares.give(large.owners, -change)
        if not frames:
            del self._large[connection]
            self._read_on(owner, connection)
        self._read_first(owner)

    def _wait(self, owner: Hashable, connection: Connection) -> None:
        """Read a connection when its turn comes, which may be now."""
        over = self._over.setdefault(owner, {})
        if connection not in over:
            over[connection] = None
            connection.read_no_further(len(over) > 1)
            if not self._look_due:
                self._look_due = True
                self._loop.call_later(_TURN_SECONDS, self._look)

    def _read_on(self, owner: Hashable, connection: Connection) -> None:
        over = self._over.get(owner)
        if over is not None and connection in over:
            del over[connection]
            if not over:
                del self._over[owner]
            connection.read_no_further(False)

    def _read_first(self, owner: Hashable) -> None:
        """Read the first one of an owner, and those for which there is room by now."""
        while owner in self._over:
            first = next(iter(self._over[owner]))
            if not self._shares.has_room(self._large[first].owners, 0):
                first.read_no_further(False)
                return
            self._read_on(owner, first)

    def _look(self) -> None:
        """Read the next one of each owner where little comes of the first one."""
        self._look_due = False
        for owner, over in list(self._over.items()):
            first = next(iter(over))
            large = self._large[first]
            if large.frames - large.before < _OWN and len(over) > 1:
                over[first] = over.pop(first)
                first.read_no_further(True)
            large.before = large.frames
            self._read_first(owner)
        if self._over:
            self._look_due = True
            self._loop.call_later(_TURN_SECONDS, self._look)

    def _close_largest(self) -> None:
        """Close connections of the largest owner, the largest first, until it is not too much."""
        while self.taken > self._shares.most:
            owners: Counter[str] = Counter()
            for one in self._connections:
                owners[one.owner] += one.kept
            [(owner, kept)] = owners.most_common(1)
            if not kept:  # it is of those that are gone meanwhile
                return
            most = max(
                (one for one in self._connections if one.owner == owner), key=lambda one: one.kept
            )
            self._log.warning(
                "%s: closed: %d bytes of frames are not complete, %d of them its own",
                most.peer, self.taken, most.kept,
            )  # fmt: skip
            most.abort()
            self.forget(most)
