"""Waiting for messages, in a thread or in asyncio, which is imported on first use.

In a store opened for writing, dispatch writes to an eventfd, without the GIL, once it is past the
position looked at; so do the group's other consumers when queues change hands.

Source: ``client/impl/consumer/PullMessageService.java``,
``broker/longpolling/PullRequestHoldService.java``.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from rmqstore._core import CallLock
from rmqstore.base.layout import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqstore._core import LogWakeup, Message
    from rmqstore.consume.sharing import Member
    from rmqstore.consume.state import ConsumerState

__all__ = ["Follower"]

_NOTHING = INT64_MAX
_LOOK_SECONDS = 0.1  # in "r": as often as a reader lists files
_CHECK_SECONDS = 1.0  # else: for new queues
_FAIR = 64  # messages in a row until other tasks of the loop may run


class Follower:
    """Iterator over a consumer's messages as they arrive; for one thread or one task."""

    def __init__(
        self,
        state: ConsumerState,
        member: Member,
        take: Callable[[], Message | None],
        is_closed: Callable[[], bool],
    ) -> None:
        self._core = state.core
        self._ownership = state.ownership
        self._take = take  # the next message of the consumer, None if there is none now
        self._is_closed = is_closed  # whether the consumer is
        self._polls = state.core.mode == "r"
        self._lock = CallLock()  # keeps a ring from a closed descriptor
        self._wakeup: LogWakeup | None = None
        # Unlike an event, it can be filled by a signal handler that interrupts its own wait.
        self._rung: SimpleQueue[None] = SimpleQueue()
        self._in_row = 0
        member.add_wake(self._ring)

    def __iter__(self) -> Follower:
        return self

    def __aiter__(self) -> Follower:
        return self

    def __next__(self) -> Message:
        """Return the next message, as soon as there is one; end when the consumer is closed."""
        while not self._is_closed():
            message = self._look()
            if message is not None:
                return message
            self._sleep()
        self._close()
        raise StopIteration

    async def __anext__(self) -> Message:
        """Return the next message, without blocking the loop."""
        await self._let_others()  # before taking one: a cancelled call loses none
        while not self._is_closed():
            message = self._look()
            if message is not None:
                return message
            await self._sleep_async()
        self._close()
        raise StopAsyncIteration

    def _ring(self) -> None:
        """Wake the waiter; called by other threads, under their locks."""
        with self._lock:
            if self._wakeup is not None and self._wakeup.ours():
                os.eventfd_write(self._wakeup.fileno(), 1)
        if self._polls:
            self._rung.put(None)

    def _close(self) -> None:
        with self._lock:
            if self._wakeup is not None:
                self._wakeup.close()
                self._wakeup = None

    def _look(self) -> Message | None:
        """Return a message; if there is none, the next one ends ``_sleep``."""
        self._ownership.check_here()
        if self._polls:
            with suppress(Empty):
                while True:
                    self._rung.get_nowait()
            return self._take()
        if self._wakeup is None:
            with self._lock:
                self._wakeup = self._core.dispatch_wakeup()
        while not self._is_closed():
            self._wakeup.drain()
            seen = self._wakeup.reached(_NOTHING)
            message = self._take()
            if message is not None:
                return message
            reached = self._wakeup.reached(max(seen, 0) + 1)
            if reached < 0:
                raise self._wakeup.error()
            if reached <= seen:
                return None
        return None

    def _sleep(self) -> None:
        if self._polls or self._wakeup is None:
            with suppress(Empty):
                self._rung.get(timeout=_LOOK_SECONDS)
            return
        poll = select.poll()
        poll.register(self._wakeup.fileno(), select.POLLIN)
        poll.poll(_CHECK_SECONDS * 1000)

    async def _sleep_async(self) -> None:
        import asyncio

        if self._polls or self._wakeup is None:
            await asyncio.sleep(_LOOK_SECONDS)
            return
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        descriptor = self._wakeup.fileno()
        loop.add_reader(descriptor, readable.set)
        try:
            await asyncio.wait_for(readable.wait(), _CHECK_SECONDS)
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)

    async def _let_others(self) -> None:
        self._in_row += 1
        if self._in_row % _FAIR == 0:
            import asyncio

            await asyncio.sleep(0)
