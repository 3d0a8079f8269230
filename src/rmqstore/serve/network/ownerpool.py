"""Thread pool shared by owners: at most half for one, in turns.

Source: the pools of ``broker/BrokerController.java``, one for each kind of request.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.network.channel import Channel
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.wire.frames import Request

__all__ = ["OwnerPool", "Pools"]

T = TypeVar("T")


class OwnerPool:
    """Pool of threads; used in the loop."""

    def __init__(self, name: str, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        self._free = threads
        self._most_of_one = max(1, threads // 2)
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # next owner first

    async def run(
        self,
        connection: Channel,
        call: Callable[..., T],
        *arguments: object,
        check: Callable[[], object] = lambda: None,
        anyway: bool = False,
    ) -> T:
        """Call a function in a thread, for a connection, when its owner's turn comes.

        ``check`` is called in the loop just before, and may raise. ``ConnectionResetError`` if the
        connection is gone, unless ``anyway``.
        """
        loop = asyncio.get_running_loop()
        owner = connection.owner
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._begin()
        try:
            await turn
            if not (anyway or connection.is_open):
                raise ConnectionResetError(f"{connection.peer} is gone")
            check()
            return await loop.run_in_executor(self._executor, call, *arguments)
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._running[owner] -= 1
                if not self._running[owner]:
                    del self._running[owner]
                self._begin()

    def _begin(self) -> None:
        """Give free threads to owners below their share, in turns."""
        begun = True
        while self._free and begun:
            begun = False
            for owner, turns in list(self._waiting.items()):
                if self._free and self._running[owner] < self._most_of_one:
                    del self._waiting[owner]
                    begun = self._take(owner, turns) or begun
                    if turns:
                        self._waiting[owner] = turns

    def _take(self, owner: str, turns: deque[asyncio.Future[None]]) -> bool:
        """Begin an owner's next call; False if all were cancelled."""
        while turns:
            turn = turns.popleft()
            if not turn.cancelled():
                self._free -= 1
                self._running[owner] += 1
                turn.set_result(None)
                return True
        return False

    def close(self) -> None:
        """Begin no more calls; running ones are not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Pools:
    """Threads of a gateway by kind of work; permission is checked again in a client's turn."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.lookups = OwnerPool("rmq-serve-lookups", 4)
        # Changes get many threads: one writes, the others wait and share its write.
        self._changes = OwnerPool("rmq-serve-changes", 16)
        # These first read the queues of all topics, holding the interpreter's lock.
        self._removals = OwnerPool("rmq-serve-removals", 2)
        self._ends = OwnerPool("rmq-serve-ends", 2)

    async def change(self, connection: Connection, request: Request, call: Callable[[], T]) -> T:
        """Change files for a client in its turn, if it is still connected and allowed to."""
        return await self._changes.run(connection, call, check=self._check_of(connection, request))

    async def remove(self, connection: Connection, request: Request, call: Callable[[], T]) -> T:
        """Remove queues for a client, as ``change``; one call of an owner at a time."""
        return await self._removals.run(connection, call, check=self._check_of(connection, request))

    async def end(self, connection: Connection, request: Request, call: Callable[[], T]) -> T:
        """End a transaction for a producer in its turn, even if it has disconnected."""
        check = self._check_of(connection, request)
        return await self._ends.run(connection, call, check=check, anyway=True)

    def _check_of(self, connection: Connection, request: Request) -> Callable[[], None]:
        return partial(self._access.ask_again, connection, request, self._access.version)

    def close(self) -> None:
        """Begin no more calls; running ones are not waited for."""
        for pool in (self.lookups, self._changes, self._removals, self._ends):
            pool.close()
