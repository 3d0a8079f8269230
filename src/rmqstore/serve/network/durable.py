"""Answers that wait for the disk: one eventfd for all, and one sync per turn of the loop.

Source: ``store/CommitLog.java GroupCommitService``, for what is waited for.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Literal

from rmqstore.serve.network.turns import Steps, ended
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import with_code

if TYPE_CHECKING:
    from rmqstore._core import ClientSends, LogWakeup
    from rmqstore.serve.network.channel import Channel
    from rmqstore.serve.network.work import Work
    from rmqstore.store import MessageStore

__all__ = ["DurableAnswers", "LateAnswers", "Outcome"]

# On the disk; not in time; never.
Outcome = Literal["durable", "late", "failed"]


class DurableAnswers:
    """Answers waiting until the log is on the disk; used in the loop."""

    def __init__(self, store: MessageStore, work: Work, sends: ClientSends) -> None:
        self._store = store
        self._work = work
        self._sends = sends  # forces the log to the disk
        self._timeout = store.config.sync_flush_timeout / 1000
        self._wakeup: LogWakeup | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
        self._settling = False
        self._order = count()
        # Log offset wanted, order, deadline, callback.
        self._heap: list[tuple[int, int, float, Callable[[Outcome], object]]] = []
        work.closing.append(self.close)

    def hold(self, stop: int, callback: Callable[[Outcome], object]) -> None:
        """Call back once the log is on the disk up to ``stop``, or too late, or never will be."""
        if self._wakeup is None:
            self._wakeup = self._store.core.log_wakeup()
            self._work.loop.add_reader(self._wakeup.fileno(), self._woken)
        deadline = self._work.loop.time() + self._timeout
        heapq.heappush(self._heap, (stop, next(self._order), deadline, callback))
        if self._timer is None:
            self._timer = self._work.loop.call_at(deadline, self._expire)
        self.ask()

    def ask(self) -> None:
        """Have the log forced to the disk once, at the end of this turn of the loop."""
        if not self._asked:
            self._asked = True
            self._work.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._asked = False
        try:
            self._sends.flush()
        except Exception as error:  # closed or failed store: those waiting are told
            self._work.log.warning("the log cannot be forced to the disk: %s", error)
        self._settle()

    def _woken(self) -> None:
        if self._wakeup is not None:
            self._wakeup.drain()
            self._settle()

    def _settle(self) -> None:
        """Call back for offsets on the disk, or for all once the log cannot be flushed."""
        if self._heap and not self._settling:
            self._settling = True
            self._work.turns.start(self._settled())

    def _settled(self) -> Steps:
        try:
            while self._heap and self._wakeup is not None:
                # The core gets the wanted offset before the position is read: no flush is missed.
                reached = self._wakeup.reached(self._heap[0][0])
                if 0 <= reached < self._heap[0][0]:
                    return
                while self._heap and (reached < 0 or self._heap[0][0] <= reached):
                    heapq.heappop(self._heap)[3]("failed" if reached < 0 else "durable")
                    yield
        finally:
            self._settling = False

    def _expire(self) -> None:
        self._work.turns.add(self._expired())

    def _expired(self) -> Steps:
        yield from self._settled()
        now = self._work.loop.time()
        late = [entry for entry in self._heap if entry[2] <= now]
        if late:
            self._heap = [entry for entry in self._heap if entry[2] > now]
            heapq.heapify(self._heap)
        self._timer = None
        if self._heap:
            self._timer = self._work.loop.call_at(
                min(entry[2] for entry in self._heap), self._expire
            )
        for entry in late:
            entry[3]("late")
            yield

    def close(self) -> None:
        """Answer those on the disk, and stop."""
        if self._heap:
            self._store.core.flush_log()
            ended(self._settled())
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wakeup is not None:
            self._work.loop.remove_reader(self._wakeup.fileno())
            self._wakeup.close()
            self._wakeup = None


class LateAnswers:
    """A connection's answers that wait for the disk; dropped when its client is gone."""

    def __init__(self, connection: Channel, durable: DurableAnswers) -> None:
        self.size = 0  # bytes
        self._connection = connection
        self._durable = durable
        self._order = count()
        self._waiting: dict[int, bytes] = {}

    def hold(self, stop: int, frames: bytes) -> None:
        """Write answers to sends once the log is on the disk up to ``stop``."""
        number = next(self._order)
        self._waiting[number] = frames
        self._count(len(frames))
        self._durable.hold(stop, partial(self._write, number))

    def forget(self) -> None:
        """Drop all, and hold no more; waits do not keep the connection alive."""
        self._waiting.clear()
        self._count(-self.size)
        del self._connection

    def _write(self, number: int, outcome: Outcome) -> None:
        frames = self._waiting.pop(number, b"")
        if not frames:
            return
        self._count(-len(frames))
        if outcome == "late":
            frames = with_code(frames, ResponseCode.FLUSH_DISK_TIMEOUT)
        elif outcome == "failed":
            frames = with_code(frames, ResponseCode.SERVICE_NOT_AVAILABLE)
        self._connection.write(frames)
        self._connection.settled()

    def _count(self, size: int) -> None:
        self.size += size
        self._connection.hold(size)
