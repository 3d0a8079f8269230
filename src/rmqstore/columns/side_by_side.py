"""Parts of a scan read side by side by threads, and put together in order.

A part is read by one thread at a time, which lets go of it when it is far ahead of the consumer:
no thread waits for a consumer, and the consumer waits only for a part that a thread has or will
take. What is in memory is bounded by the parts that are ahead, and by the bytes kept of each.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore._core import ColumnBatch, ScanPass

__all__ = ["batches", "cores"]

PART_BYTES = 16 << 20  # of the records of a part
PART_LEAST = 1 << 20  # of a short scan, so that each thread has a part
KEPT_BYTES = 16 << 20  # of columns, ahead of the consumer, until a part is let go
_BATCH_COST = 4096  # bytes of a batch besides its columns
_PARTS_MORE = 1  # ahead of the consumer, besides one for each thread
_ALONE = 2  # first batches, read by the consumer: a query of a few rows reads no more
_THREADS_MOST = 8  # on fewer cores: more threads than cores hide latency of a disk


class _Part:
    """A range of the scan, and its batches that were not taken yet."""

    def __init__(self, running: ScanPass) -> None:
        self.running = running
        # Batches; then None at its end or a failure, or a _Pause.
        self.found: SimpleQueue[ColumnBatch | BaseException | _Pause | None] = SimpleQueue()
        self.put = self.taken = 0  # bytes; each is written by one thread
        self.closed = False

    def read(self) -> None:
        """Read until the end, or until so much is kept that the consumer has to catch up."""
        try:
            while not self.closed:
                batch = self.running.next_batch()
                if batch is not None:
                    self.put += _cost(batch)
                self.found.put(batch)
                if batch is None:
                    return
                if self.put - self.taken > KEPT_BYTES:
                    self.found.put(_Pause())
                    return
        except BaseException as error:  # raised in order, by the consumer
            self.found.put(error)


class _Pause:
    """Mark after the batches of a part that was let go."""


class _Readers:
    """Threads that read parts as they are handed in, until they are closed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._work: SimpleQueue[_Part | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def hand_in(self, part: _Part) -> None:
        """Have a part read; here and now if there can be no thread."""
        if len(self._threads) < self._most:
            thread = threading.Thread(
                target=_read_parts, args=(self._work,), name="rmq-scan", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._most = len(self._threads)
            else:
                self._threads.append(thread)
        if self._threads:
            self._work.put(part)
        else:
            part.read()

    def close(self) -> None:
        """End the threads; each may have to finish a batch."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():  # a finalizer may run in any
                thread.join()


def _read_parts(work: SimpleQueue[_Part | None]) -> None:
    while (part := work.get()) is not None:
        part.read()
        del part


def cores() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def batches(make: Callable[[], ScanPass], threads: int) -> Generator[ColumnBatch, None, None]:
    """Yield the batches of a pass in order, its parts read by up to ``threads`` threads.

    Errors come after the rows before them. A pass that is not to be cut is read as it is.
    """
    whole = make()
    extent = whole.begin() if threads > 1 else None
    ranges = iter(()) if extent is None else _ranges(whole, extent, threads)
    first = next(ranges, None)
    if extent is None or first is None or first[1] == extent[1]:
        yield from iter(whole.next_batch, None)
        return
    parts = _passes(whole, make, chain((first,), ranges))
    running = next(parts)
    yield from islice(iter(running.next_batch, None), _ALONE)
    whole.expect(running)
    yield from _in_order(chain((running,), parts), whole, make, threads)


def _in_order(
    parts: Iterator[ScanPass], whole: ScanPass, make: Callable[[], ScanPass], threads: int
) -> Generator[ColumnBatch, None, None]:
    """Yield the batches of the parts, which threads read ahead."""
    threads = min(threads, max(cores(), _THREADS_MOST))
    readers = _Readers(threads)
    ahead: deque[_Part] = deque()
    try:
        while True:
            for running in islice(parts, threads + _PARTS_MORE - len(ahead)):
                ahead.append(_Part(running))
                readers.hand_in(ahead[-1])
            if not ahead:
                return
            part = ahead[0]
            make()  # raises if the store was closed, or this is a forked child
            found = part.found.get()
            if isinstance(found, _Pause):
                readers.hand_in(part)
            elif isinstance(found, BaseException):
                raise found
            elif found is not None:
                part.taken += _cost(found)
                yield found
            elif part.running.stopped:
                return
            else:
                whole.expect(part.running)
                ahead.popleft()
    finally:
        for part in ahead:
            part.closed = True
        readers.close()


def _passes(
    whole: ScanPass, make: Callable[[], ScanPass], ranges: Iterable[tuple[int, int]]
) -> Iterator[ScanPass]:
    for start, stop in ranges:
        running = make()
        running.be_part(whole, start, stop)
        yield running


def _ranges(
    whole: ScanPass, extent: tuple[int, int, int], threads: int
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the parts, of about as many bytes each."""
    start, stop, size = extent
    wanted = min(PART_BYTES, max(PART_LEAST, -(-size // threads)))
    step = max(1, (stop - start) * wanted // max(size, 1))
    for near in range(start + step, stop, step):
        cut = whole.cut(near)
        if cut > start:
            yield start, cut
            start = cut
    yield start, stop


def _cost(batch: ColumnBatch) -> int:
    return batch.nbytes + _BATCH_COST
