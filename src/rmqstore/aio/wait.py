"""Waiting for the disk in asyncio: one eventfd per store and loop, for any number of waiters.

The core's flush thread writes to the eventfd, without the GIL, when the log is on the disk up to
the first waiter's position, or never will be.

Source: ``store/CommitLog.java GroupCommitService``, for what is waited for.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from rmqstore import _core
from rmqstore.bodies import deflate

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DurableWaits", "deflated", "put_at_once", "put_durable"]

_Put = Callable[[], _core.PutResult]


class DurableWaits:
    """Puts of one loop that wait for one store's disk; used only in the loop's thread.

    It exists, with its descriptor in the loop's selector, from the first put's :meth:`enter`
    to the last one's :meth:`leave`, so that neither loop nor store is kept alive without waiters.
    A message may wait ``timeout`` seconds for the disk.
    """

    def __init__(self, core: _core.Core, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._core = core
        self._loop = loop
        self._timeout = timeout
        self._inside = 0
        self._wakeup: _core.LogWakeup | None = None
        self._timer: asyncio.TimerHandle | None = None
        # By wanted end in the log, which is unique: end, deadline, result, future.
        self._heap: list[tuple[int, float, _core.PutResult, asyncio.Future[_core.PutResult]]] = []

    def enter(self) -> None:
        """Prepare to wait, before anything is stored."""
        if self._wakeup is None:
            wakeup = self._core.log_wakeup()
            try:
                self._loop.add_reader(wakeup.fileno(), self._woken)
            except BaseException:
                wakeup.close()
                raise
            self._wakeup = wakeup
        self._inside += 1

    def leave(self) -> None:
        """Balance :meth:`enter`; the last one releases everything."""
        self._inside -= 1
        if self._inside:
            return
        self._heap.clear()  # cancelled ones
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._wakeup is not None:
            if self._wakeup.ours():
                self._loop.remove_reader(self._wakeup.fileno())
            self._wakeup.close()
            self._wakeup = None

    def durable(self, done: _core.PutResult) -> asyncio.Future[_core.PutResult]:
        """Return a future for a put, done when its message is on the disk."""
        future: asyncio.Future[_core.PutResult] = self._loop.create_future()
        # Records are flushed whole: the byte after its first one is enough.
        wanted = done.physical_offset + 1
        deadline = self._loop.time() + self._timeout
        heapq.heappush(self._heap, (wanted, deadline, done, future))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)
        if self._heap[0][0] == wanted:
            self._settle()
        return future

    def _woken(self) -> None:
        if self._wakeup is not None:
            self._wakeup.drain()
            self._settle()

    def _settle(self) -> None:
        """Wake waiters whose messages are on the disk, or all once the log cannot be flushed.

        The core gets the next waiter's position before the flushed position is read, so that no
        flush is missed.
        """
        heap = self._heap
        wakeup = self._wakeup
        while heap and wakeup is not None:
            reached = wakeup.reached(heap[0][0])
            if 0 <= reached < heap[0][0]:
                return
            while heap and (reached < 0 or heap[0][0] <= reached):
                _, _, done, future = heapq.heappop(heap)
                if future.done():
                    continue
                if reached < 0:
                    future.set_exception(wakeup.error())
                else:
                    future.set_result(done)

    def _expire(self) -> None:
        self._timer = None
        self._settle()
        now = self._loop.time()
        wakeup = self._wakeup
        late = [entry for entry in self._heap if entry[1] <= now]
        if late and wakeup is not None:
            self._heap = [entry for entry in self._heap if entry[1] > now]
            heapq.heapify(self._heap)
            for _, _, done, future in late:
                if not future.done():
                    future.set_exception(wakeup.timed_out(done))
        if self._heap:
            self._timer = self._loop.call_at(min(entry[1] for entry in self._heap), self._expire)


# Shared by the calls of one loop and store, or of one topic, keyed by their ids and its name: kept
# alive by the coroutines that use them, and removed with the last of these.
_waits: WeakValueDictionary[tuple[int, int], DurableWaits] = WeakValueDictionary()
_making: WeakValueDictionary[tuple[int, int, str], asyncio.Event] = WeakValueDictionary()
_tables_lock = threading.Lock()


async def put_at_once(core: _core.Core, topic: str, put: _Put) -> _core.PutResult:
    """Put in the loop's thread, unless the topic must be created.

    Later puts to the topic wait, to keep their order.
    """
    loop = asyncio.get_running_loop()
    name = str.__str__(topic) if isinstance(topic, str) else ""  # else the put refuses it
    key = (id(loop), id(core), name)
    while (making := _making.get(key)) is not None:
        await making.wait()
    if core.knows_topic(topic):
        return put()
    made = asyncio.Event()
    with _tables_lock:
        _making[key] = made
    try:
        return await asyncio.to_thread(put)
    finally:
        with _tables_lock:
            _making.pop(key, None)
        if not loop.is_closed():
            made.set()


async def put_durable(core: _core.Core, topic: str, put: _Put) -> _core.PutResult:
    """Put, and wait for the disk."""
    loop = asyncio.get_running_loop()
    key = (id(loop), id(core))
    waits = _waits.get(key)
    if waits is None:
        waits = DurableWaits(core, loop, core.config.sync_flush_timeout / 1000)
        with _tables_lock:
            _waits[key] = waits
    waits.enter()
    try:
        return await waits.durable(await put_at_once(core, topic, put))
    finally:
        waits.leave()


async def deflated(above: int, most: int, body: Buffer) -> Buffer:
    """Return a body, deflated in a thread of the loop's executor if long enough.

    A body of more than ``most`` bytes, or one that is no buffer, is left for the put to refuse.
    """
    try:
        if not above <= memoryview(body).nbytes <= most:
            return body
    except TypeError:
        return body
    return await asyncio.get_running_loop().run_in_executor(None, deflate, body)
