"""A work in a process of its own: of the toolbox, or of the machine alone.

    python -m verbs.work read xxh3|find PROCESSES FILE...
    python -m verbs.work parquet|export STORE FILE
    python -m verbs.work du STORE

Prints its seconds by the clock and of the processor.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

CHUNK = 256 << 10  # stays in a core's cache
TASK = 64 << 20
ABSENT = "in no message"  # the text that is searched for

Range = tuple[str, int, int]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Run a work; return its seconds by the clock, and of the processor with its children."""
    used, began = _used(), time.perf_counter()
    work()
    wall = time.perf_counter() - began
    return wall, _used() - used


def _used() -> float:
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


# ---- the machine alone


def read(what: str, processes: str, *files: str) -> Callable[[], object]:
    """Return the work of reading files whole by so many processes: their sums, or a search."""
    ranges = list(ranges_of(files))
    parts = [(what, ranges[number :: int(processes)]) for number in range(int(processes))]

    def work() -> None:
        with get_context("fork").Pool(int(processes)) as pool:
            pool.starmap(read_ranges, parts, chunksize=1)
            pool.close()
            pool.join()  # their times are counted from then on

    return work


def used_bytes(path: str | Path) -> int:
    """Return the bytes of a file before the hole that its end may be."""
    status = Path(path).stat()
    return min(status.st_size, status.st_blocks * 512)


def ranges_of(files: tuple[str, ...]) -> Iterator[Range]:
    """Yield ranges of the bytes in use of files."""
    for name in files:
        size = used_bytes(name)
        for start in range(0, size, TASK):
            yield name, start, min(size, start + TASK)


def read_ranges(what: str, ranges: list[Range]) -> None:
    """Read ranges a chunk at a time, and add each to a sum, or search it."""
    from xxhash import xxh3_64

    state, absent = xxh3_64(), ABSENT.encode()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    for name, start, stop in ranges:
        with Path(name).open("rb", buffering=0) as file:
            file.seek(start)
            rest = stop - start
            while rest > 0:
                size = file.readinto(view[:rest])
                rest -= size
                if what == "xxh3":
                    state.update(view[:size])
                elif buffer.find(absent, 0, size) >= 0:
                    raise RuntimeError(f"{name}: {ABSENT!r} is there")


def parquet(store: str, file: str) -> Callable[[], object]:
    """Return the work of writing a store's columns, in memory, as ``export`` writes them."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    import rmqstore
    from rmqstore.toolbox.exchange.formats import GROUP_BYTES, REPEATED

    with rmqstore.open(store) as opened:
        table = pa.Table.from_batches(opened.scan().to_batches())
    rows = max(1, table.num_rows * GROUP_BYTES // table.nbytes)

    def work() -> None:
        pq.write_table(table, file, row_group_size=rows, use_dictionary=REPEATED)
        with Path(file).open("rb") as written:
            os.fsync(written.fileno())

    return work


# ---- the toolbox


def export(store: str, file: str) -> Callable[[], object]:
    """Return the work of an export."""
    from rmqstore import toolbox

    return partial(toolbox.export, store, file)


def du(store: str) -> Callable[[], object]:
    """Return the work of ``du --by topic``."""
    from rmqstore import toolbox

    return partial(toolbox.disk_use, store, by="topic")


if __name__ == "__main__":
    print(*timed(globals()[sys.argv[1]](*sys.argv[2:])))
