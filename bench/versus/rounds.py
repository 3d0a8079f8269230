"""A measured round: the processes and the machine before it, and its two times."""

from __future__ import annotations

import mmap
import os
import re
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

HEATED = 1 << 30  # several times what a round takes
SAMPLE = 0.2  # seconds over which the machine is watched
PATIENCE = 3.0  # seconds that a round waits for a quiet machine
BUSY = 0.1  # of all cores; a machine where others use more is not quiet


class Round(NamedTuple):
    """One side's round: nanoseconds by the clock and of the processor, for so many of a unit.

    ``faults`` are minor page faults of the writing threads, where they are counted.
    """

    ns: float
    cpu_ns: float | None
    count: int
    faults: int | None = None
    quiet: bool = True


def timed(work: Callable[[], int], settle: Callable[[], object] = lambda: None) -> Round:
    """Run ours, which returns its count; the processor's time is until it has settled as well."""
    cpu, began = time.process_time_ns(), time.perf_counter_ns()
    count = work()
    ended = time.perf_counter_ns()
    settle()
    return Round(ended - began, time.process_time_ns() - cpu, count)


def minor_faults() -> int:
    """Return the minor page faults of this thread so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def measured(
    work: Callable[[], list[Round]],
    *,
    warm: Callable[[], object] | None = None,
    prepare: Callable[[], object] = lambda: None,
    heated: int = HEATED,
) -> list[Round]:
    """Run a work to warm up, unless ``warm`` is to do that, then once on a ready machine."""
    if warm is None:
        prepare()
        work()
    else:
        warm()
    prepare()
    os.sync()
    is_quiet = quiet()
    heat(heated)
    return [one._replace(quiet=is_quiet) for one in work()]


def quiet() -> bool:
    """Wait until others use little of the machine, for a while; return whether they do."""
    until = time.monotonic() + PATIENCE
    while busy() > BUSY:
        if time.monotonic() >= until:
            return False
    return True


def heat(size: int) -> None:
    """Touch and free so much memory, if it is free, so that the next pages are ready ones.

    A hypervisor takes free pages within two seconds, and finding one again costs more than a put.
    """
    known = re.search(r"MemFree:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    free = int(known[1]) << 10 if known else 0
    np.empty(min(size, free * 3 // 4), np.uint8)[:: mmap.PAGESIZE] = 1


def busy() -> float:
    """Return the share of all cores in use while this process sleeps."""
    before = np.array(ticks())
    time.sleep(SAMPLE)
    passed = np.array(ticks()) - before
    idle = passed[3] + passed[4]
    return float(1 - idle / max(1, passed.sum()))


def ticks() -> list[int]:
    """Return the time of all cores as user, nice, system, idle, iowait, irq, softirq, steal."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    return [int(one) for one in line.split()[1:9]]


def fresh(work: Callable[[], list[Round]]) -> list[Round]:
    """Run ours in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work).result()
