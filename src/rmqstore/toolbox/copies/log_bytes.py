"""The bytes of two logs compared, by threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqstore._core import units_within
from rmqstore.base.layout import INT32_MAX, INT64_MAX, INT64_MIN
from rmqstore.directory.layout import log_file
from rmqstore.files.regular import open_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqstore._core import Memory
    from rmqstore.store import MessageStore

__all__ = ["DifferingBytes", "differing_bytes"]

_TASK = 64 << 20
_CHUNK = 256 << 10  # two of them stay in a core's cache

Ranges = list[tuple[int, int]]


@dataclass
class DifferingBytes:
    """Ranges of two logs whose bytes differ, or were not compared.

    Attributes
    ----------
    common : list of (int, int)
        Physical offsets of ranges that differ, of the part that both logs have; in order.
    start, stop : int
        That part; outside of it nothing was compared.
    """

    common: Ranges
    start: int
    stop: int

    def equal_at(self, units: Memory) -> bool:
        """Whether nothing differs, and the messages of all units were compared."""
        return not self.common and units_within(units, self.start, self.stop)

    def touch(self, offsets: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
        """Whether each record has a byte that differs or was not compared."""
        import numpy as np

        whole = [(INT64_MIN, self.start), *self.common, (self.stop, INT64_MAX)]
        starts, stops = np.array(whole, np.int64).T
        offsets = np.minimum(offsets, INT64_MAX - INT32_MAX)  # their ends are 64 bits, too
        before_end = np.searchsorted(starts, offsets + sizes, "left")
        touched: NDArray[Any] = np.searchsorted(stops, offsets, "right") < before_end
        return touched


def differing_bytes(
    a: MessageStore, b: MessageStore, progressed: Callable[[int, int], None]
) -> DifferingBytes:
    """Compare the logs where both have the same offsets; not at all if their files differ in size.

    ``progressed`` gets bytes so far, and in all, from several threads.
    """
    one, other = (store.scan().extent(queued=False) for store in (a, b))
    start, stop = max(one.start, other.start), min(one.stop, other.stop)
    size: int = a.core.sizes()[0]
    if start >= stop or size != b.core.sizes()[0]:
        return DifferingBytes([], INT64_MAX - 1, INT64_MAX)
    tasks = []
    at = start
    while at < stop:
        end = min(stop, at + _TASK, at - at % size + size)
        tasks.append((at, end))
        at = end
    done = 0

    def compare(task: tuple[int, int]) -> Ranges:
        nonlocal done
        found = _of_task(a, b, size, *task)
        done += task[1] - task[0]
        progressed(done, stop - start)
        return found

    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        found = [one for ranges in pool.map(compare, tasks) for one in ranges]
    finally:
        pool.shutdown(cancel_futures=True)
    return DifferingBytes(found, start, stop)


def _of_task(a: MessageStore, b: MessageStore, size: int, start: int, stop: int) -> Ranges:
    """Return the ranges that differ in a part of one file of each log."""
    file = start - start % size
    compare = ctypes.CDLL(None).memcmp  # the interpreter goes on meanwhile
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    found: Ranges = []
    try:
        with (
            open_regular(log_file(a.path, a.config, file)) as one,
            open_regular(log_file(b.path, b.config, file)) as other,
        ):
            files = (one.fileno(), other.fileno())
            for fd in files:  # mapped bytes are read ahead too little
                os.posix_fadvise(fd, start - file, stop - start, os.POSIX_FADV_WILLNEED)
            start = a.core.equal_until(b.core, start, stop)
            buffers = [bytearray(_CHUNK), bytearray(_CHUNK)]
            pointers = [(ctypes.c_char * _CHUNK).from_buffer(buffer) for buffer in buffers]
            for at in range(start, stop, _CHUNK):
                count = min(_CHUNK, stop - at)
                views = [memoryview(buffer)[:count] for buffer in buffers]
                least = min(
                    os.preadv(fd, [view], at - file) for fd, view in zip(files, views, strict=True)
                )
                if compare(pointers[0], pointers[1], least) != 0:
                    found.append(_narrowed(views[0][:least], views[1][:least], at))
                if least < count:
                    found.append((at + least, at + count))
    except FileNotFoundError:
        return [(start, stop)]
    return found


def _narrowed(one: memoryview, other: memoryview, at: int) -> tuple[int, int]:
    """Return the range from the first byte that differs to the last."""
    import numpy as np

    differing = np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))
    return at + int(differing[0]), at + int(differing[-1]) + 1
