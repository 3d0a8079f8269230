"""Bytes that clients have not taken: one count of all, of which each owner has a share.

The first bytes of a connection are not counted: the transport tells of more. What a look-up or a
long answer may have is counted from before it is read until it is written.

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

_BUFFERS = 16  # as many write buffers as all clients have
_OWN = 64 << 10
_CLOSED_ABOVE = 2  # times as much: then the largest owner pays
_LOOK_SECONDS = 0.05  # until it is looked again who has taken something
_SOON_SECONDS = 0.002  # the same, where somebody has


class _Count:
    """The count of one connection."""

    __slots__ = ("owners", "reserved", "written")

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self.written = 0
        self.reserved = 0  # for answers that are being read


class _Waiting:
    """Something that begins once there is room for its answer."""

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
        self.taken = 0  # of them, with reserved ones
        self._most_of_one = write_buffer  # bytes; the answer that reaches them may exceed them
        self._loop = loop
        self._log = log
        self._shares = Shares(self.most)
        self._of: dict[Channel, _Count] = {}
        self._reserved = 0
        self._waiting: dict[_Waiting, None] = {}
        self._look_at: float | None = None  # when it is looked next, if anything waits

    def of(self, connection: Channel) -> int:
        """Bytes of a connection, with those that are reserved."""
        one = self._of.get(connection)
        return 0 if one is None else one.written + one.reserved

    def has_room(self, connection: Channel, size: int) -> bool:
        """Whether a connection may be sent so much.

        With nothing of its own it may, if its owner has nothing either or stays within the bound of
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
        """Whether an answer may be written, for which room may be reserved."""
        one = self._of.get(connection)
        return (one is not None and size <= one.reserved) or self.has_room(connection, size)

    def note(self, connection: Channel, written: int) -> bool:
        """Count what is written to a connection and not taken; return whether it is too much."""
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
        """Count nothing more of a connection that is gone; return how much it had."""
        one = self._of.get(connection)
        if one is None:
            return 0
        gone = one.written
        one.written = 0
        self._count(connection, one, -gone)  # what is reserved is given back by whoever reads it
        return gone

    def measure(self) -> None:
        """Count anew what clients have taken since they were last written to."""
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
        """Close connections of the largest owner, the largest first, until it is not too much."""
        while self.taken - self._reserved > _CLOSED_ABOVE * self.most:
            found = largest_of_largest(
                (connection, one.owners[0], one.written) for connection, one in self._of.items()
            )
            assert found is not None  # what is written is somebody's
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
        """Begin once a connection may be sent so much, which is counted until a future is done.

        It begins as well if the connection is gone meanwhile.
        """

        def reserved() -> None:
            done.add_done_callback(lambda _: self._reserve(connection, -size))
            begin()

        self._when_room(_Waiting(connection, size, reserved))

    @asynccontextmanager
    async def room(self, connection: Channel, size: int) -> AsyncIterator[None]:
        """Wait until a connection may be sent so much, and count it for the ``with`` block.

        ``ConnectionResetError`` if it is gone.
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
            if waiting in self._waiting:  # nobody wants it any more
                del self._waiting[waiting]
            else:
                self._reserve(connection, -size)

    async def reserve(self, connection: Channel, size: int) -> None:
        """Wait as ``room`` does, and count it until the task that answers is done."""
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
        """Begin what there is room for, in the order in which it was asked for."""
        if at != self._look_at:  # it was looked earlier
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
    """End a wait that may be cancelled already."""
    if not future.done():
        future.set_result(None)
