"""Bytes that clients have not taken: one count of all, shared among owners.

A connection's first bytes are not counted: the transport reports only more. Room for a look-up or
a long answer is counted from before it is read until it is written.

Source: none in 4.9.3, whose channels keep what is written to them, without a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from rmqstore.serve.shares import Shares, largest_of_largest

if TYPE_CHECKING:
    from rmqstore.base.warn import Log
    from rmqstore.serve.network.channel import Channel
    from rmqstore.serve.shares import Owners

__all__ = ["Unread"]

_BUFFERS = 16  # write buffers that all clients have together
_OWN = 64 << 10
_CLOSED_ABOVE = 2  # times the limit: then the largest owner pays
_LOOK_SECONDS = 0.05  # until the next check of what clients have taken
_SOON_SECONDS = 0.002  # the same, after some was taken


class _Count:
    __slots__ = ("owners", "reserved", "written")

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self.written = 0
        self.reserved = 0  # for answers that are being read


class _Waiting:
    """A start that waits for room for its answer."""

    __slots__ = ("begin", "connection", "size")

    def __init__(self, connection: Channel, size: int, begin: Callable[[], object]) -> None:
        self.connection = connection
        self.size = size
        self.begin = begin


class Unread:
    """Bytes that clients have not taken; used in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log, write_buffer: int) -> None:
        # Bytes of each connection that are always allowed, and not counted.
        self.own = min(_OWN, write_buffer)
        self.most = _BUFFERS * write_buffer  # bytes of all connections
        self.taken = 0  # bytes of all connections, including reserved ones
        self._most_of_one = write_buffer  # bytes; the answer that reaches the limit may exceed it
        self._loop = loop
        self._log = log
        self._shares = Shares(self.most)
        self._of: dict[Channel, _Count] = {}
        self._reserved = 0
        self._waiting: dict[_Waiting, None] = {}
        self._look_at: float | None = None  # time of the next check, if anything waits

    def of(self, connection: Channel) -> int:
        """Bytes of a connection, including reserved ones."""
        one = self._of.get(connection)
        return 0 if one is None else one.written + one.reserved

    def has_room(self, connection: Channel, size: int) -> bool:
        """Whether so many bytes may be sent to a connection.

        If it has none pending, they may if its owner has none either or stays within the bound of
        all.
        """
        if not self.taken:
            return True
        one = self._of.get(connection)
        own = 0 if one is None else one.written + one.reserved
        if own + size <= self.own:
            return True
        if own > self._most_of_one:
            return False
        owners = connection.owners if one is None else one.owners
        if self._shares.has_room(owners, size):
            return True
        others = self._shares.of(owners[0])
        return not own and (not others or others + size <= self.most)

    def fits(self, connection: Channel, size: int) -> bool:
        """Whether an answer may be written; room for it may be reserved."""
        one = self._of.get(connection)
        return (one is not None and size <= one.reserved) or self.has_room(connection, size)

    def note(self, connection: Channel, written: int) -> bool:
        """Count a connection's written, untaken bytes; return whether they are too many."""
        one = self._of.get(connection)
        if one is None:
            if not written:
                return False
            one = self._of[connection] = _Count(connection.owners)
        change = written - one.written
        if change:
            one.written = written
            self._count(connection, one, change)
            if change > 0 and self.taken - self._reserved > _CLOSED_ABOVE * self.most:
                self._close_largest()
        return one.written > self.own and (
            one.written > self._most_of_one or not self._shares.has_room(one.owners, 0)
        )

    def forget(self, connection: Channel) -> int:
        """Drop the count of a closed connection; return its written bytes."""
        one = self._of.get(connection)
        if one is None:
            return 0
        gone = one.written
        one.written = 0
        self._count(connection, one, -gone)  # reserved bytes are given back by their reader
        return gone

    def measure(self) -> None:
        """Recount what clients have taken since they were last written to."""
        for connection in list(self._of):
            if connection.is_open:
                self.note(connection, connection.unwritten)

    def _count(self, connection: Channel, one: _Count, change: int) -> None:
        self.taken += change
        if change > 0:
            self._shares.take(one.owners, change)
        else:
            self._shares.give(one.owners, -change)
            if self._waiting:
                self._look_in(_SOON_SECONDS)
        if not one.written and not one.reserved:
            self._of.pop(connection, None)

    def _close_largest(self) -> None:
        """Close connections of the largest owner, the largest first, down to the limit."""
        while self.taken - self._reserved > _CLOSED_ABOVE * self.most:
            found = largest_of_largest(
                (connection, one.owners[0], one.written) for connection, one in self._of.items()
            )
            assert found is not None  # written bytes belong to a connection
            most, written = found
            self._log.warning(
                "%s: closed: clients have not read %d bytes, %d of them it",
                most.peer, self.taken - self._reserved, written,
            )  # fmt: skip
            most.abort()
            self.forget(most)

    # Answers that are not read yet

    def when_room(
        self,
        connection: Channel,
        size: int,
        done: asyncio.Future[None],
        begin: Callable[[], object],
    ) -> None:
        """Begin once so many bytes may be sent, which are counted until a future is done.

        Also begins if the connection is gone meanwhile.
        """

        def reserved() -> None:
            done.add_done_callback(lambda _: self._reserve(connection, -size))
            begin()

        self._when_room(_Waiting(connection, size, reserved))

    @asynccontextmanager
    async def room(self, connection: Channel, size: int) -> AsyncIterator[None]:
        """Wait until so many bytes may be sent, and count them for the ``with`` block.

        ``ConnectionResetError`` if the connection is gone.
        """
        begun: asyncio.Future[None] = self._loop.create_future()
        waiting = _Waiting(connection, size, partial(_end, begun))
        self._when_room(waiting)
        try:
            await begun
            if not connection.is_open:
                raise ConnectionResetError(f"{connection.peer} is gone")
            yield
        finally:
            if waiting in self._waiting:  # cancelled
                del self._waiting[waiting]
            else:
                self._reserve(connection, -size)

    async def reserve(self, connection: Channel, size: int) -> None:
        """Wait as ``room``, and count the bytes until the current task is done."""
        task = asyncio.current_task()
        assert task is not None
        done: asyncio.Future[None] = self._loop.create_future()
        task.add_done_callback(lambda _: _end(done))
        begun: asyncio.Future[None] = self._loop.create_future()
        self.when_room(connection, size, done, partial(_end, begun))
        await begun
        if not connection.is_open:
            raise ConnectionResetError(f"{connection.peer} is gone")

    def _when_room(self, waiting: _Waiting) -> None:
        if self.has_room(waiting.connection, waiting.size):
            self._begin(waiting)
        else:
            self._waiting[waiting] = None
            waiting.connection.lacks_room()
            self._look_in(_LOOK_SECONDS)

    def _begin(self, waiting: _Waiting) -> None:
        self._reserve(waiting.connection, waiting.size)
        waiting.begin()

    def _reserve(self, connection: Channel, size: int) -> None:
        one = self._of.get(connection)
        if one is None:
            one = self._of[connection] = _Count(connection.owners)
        one.reserved += size
        self._reserved += size
        self._count(connection, one, size)

    def _look_in(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if self._look_at is None or at < self._look_at:
            self._look_at = at
            self._loop.call_at(at, self._look, at)

    def _look(self, at: float) -> None:
        """Begin what has room, in the order of the requests."""
        if at != self._look_at:  # an earlier check took place
            return
        self._look_at = None
        self.measure()
        for waiting in list(self._waiting):
            connection = waiting.connection
            if not connection.is_open or self.has_room(connection, waiting.size):
                del self._waiting[waiting]
                self._begin(waiting)
        if self._waiting:
            self._look_in(_LOOK_SECONDS)


def _end(future: asyncio.Future[None]) -> None:
    """End a wait unless it was cancelled."""
    if not future.done():
        future.set_result(None)
