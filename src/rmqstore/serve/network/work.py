"""Tasks and timers of a gateway, in its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rmqstore.base.warn import Log
from rmqstore.serve.network.turns import Turns

__all__ = ["Work"]


class Work:
    """Loop of a gateway, with the turns, tasks and timers that end with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.log = Log("rmqstore.serve")
        self.turns = Turns(loop, self.log)
        self.closing: list[Callable[[], object]] = []  # called before connections are closed
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends or the gateway stops."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def every(self, seconds: float, method: Callable[[], object], name: str) -> None:
        """Call a method every so many seconds, until the gateway stops."""
        at = len(self._timers)

        def run() -> None:
            self._timers[at] = self.loop.call_later(seconds, run)
            try:
                method()
            except Exception as error:
                self.log.warning("%s failed, and will be tried again: %s", name, error)

        self._timers.append(self.loop.call_later(seconds, run))

    def stop_timers(self) -> None:
        """Stop the periodic calls."""
        for timer in self._timers:
            timer.cancel()

    def close_parts(self) -> None:
        """Call back the parts registered in ``closing``."""
        for callback in self.closing:
            try:
                callback()
            except Exception as error:  # such as a failing disk: the others still save theirs
                self.log.exception("a part of the gateway did not stop", error=error)

    async def end_tasks(self) -> None:
        """Cancel the tasks, and wait for their ends."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
