"""Bytes of requests: of incomplete frames, and of requests until they are answered.

An owner at its share of incomplete frames is read from one connection at a time; beyond the total
the largest owner pays, not the latest.

Source: none in 4.9.3, which keeps what comes, without a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from rmqstore.serve.shares import Shares, largest_of_largest

if TYPE_CHECKING:
    from rmqstore.base.warn import Log
    from rmqstore.serve.network.channel import Channel
    from rmqstore.serve.shares import Owners

__all__ = ["KeptFrames"]

_OWN = 64 << 10  # bytes of each connection outside of shares
_TURN_SECONDS = 1.0  # of a silent connection, until its owner's next one is read


class _Large:
    """A connection with more than ``_OWN`` bytes."""

    __slots__ = ("before", "frames", "owners")

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self.frames = 0
        self.before = 0  # at the last check


class KeptFrames:
    """Request bytes kept by connections; used in the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: Log,
        connections: Iterable[Channel],
        most: int,
    ) -> None:
        self.taken = 0  # bytes of all connections
        self._loop = loop
        self._log = log
        self._connections = connections  # open ones
        self._shares = Shares(most)  # bytes
        self._large: dict[Channel, _Large] = {}
        # Connections over their owner's share, by owner, in turn: only the first is read.
        self._over: dict[Hashable, dict[Channel, None]] = {}
        self._look_due = False

    def note(self, connection: Channel, kept: int, frames: int) -> None:
        """Set a connection's kept bytes, and its bytes in frames not yet handled."""
        self.taken += kept - connection.kept
        connection.kept = kept
        if frames > _OWN or connection in self._large:
            self._note_frames(connection, frames if frames > _OWN else 0)
        if self.taken > self._shares.most and kept:
            self._close_largest()

    def forget(self, connection: Channel) -> int:
        """Forget a closed connection; return its bytes."""
        kept = connection.kept
        self.note(connection, 0, 0)
        return kept

    def _note_frames(self, connection: Channel, frames: int) -> None:
        large = self._large.get(connection)
        if large is None:
            large = self._large[connection] = _Large(connection.owners)
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

    def _wait(self, owner: Hashable, connection: Channel) -> None:
        """Read a connection in its turn, possibly now."""
        over = self._over.setdefault(owner, {})
        if connection not in over:
            over[connection] = None
            connection.read_no_further(len(over) > 1)
            if not self._look_due:
                self._look_due = True
                self._loop.call_later(_TURN_SECONDS, self._look)

    def _read_on(self, owner: Hashable, connection: Channel) -> None:
        over = self._over.get(owner)
        if over is not None and connection in over:
            del over[connection]
            if not over:
                del self._over[owner]
            connection.read_no_further(False)

    def _read_first(self, owner: Hashable) -> None:
        """Read an owner's first connection, and further ones while there is room."""
        while owner in self._over:
            first = next(iter(self._over[owner]))
            if not self._shares.has_room(self._large[first].owners, 0):
                first.read_no_further(False)
                return
            self._read_on(owner, first)

    def _look(self) -> None:
        """Advance to an owner's next connection if the first sends little."""
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
        """Close connections of the largest owner, the largest first, down to the limit."""
        while self.taken > self._shares.most:
            found = largest_of_largest((one, one.owner, one.kept) for one in self._connections)
            if found is None:  # kept for closed connections
                return
            most, kept = found
            self._log.warning(
                "%s: closed: %d bytes of frames are not complete, %d of them its own",
                most.peer, self.taken, kept,
            )  # fmt: skip
            most.abort()
            self.forget(most)
