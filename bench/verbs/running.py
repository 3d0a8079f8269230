"""A command run to its end: its time, processor time, and memory beside the page cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAUSE = 0.02  # seconds between looks at the memory


class Run(NamedTuple):
    """Seconds by the clock and of the processor, and the most KiB of its own, with children."""

    wall: float
    cpu: float
    peak: int
    output: bytes = b""


def run(command: list[str], codes: tuple[int, ...] = (0,)) -> Run:
    """Run a command whose exit code is one of ``codes``."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    memory = _Memory(process.pid)
    memory.start()
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    memory.end()
    if process.returncode not in codes:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    return Run(wall, used.ru_utime + used.ru_stime, memory.peak, output)


def verb(*words: object, codes: tuple[int, ...] = (0,)) -> Run:
    """Run a verb of the command line."""
    return run([sys.executable, "-m", "rmqstore", *map(str, words)], codes)


def work(*words: object) -> Run:
    """Run a work of :mod:`verbs.work`; the times are its own, without those of its process."""
    done = run([sys.executable, "-m", "verbs.work", *map(str, words)])
    wall, cpu = map(float, done.output.split())
    return done._replace(wall=wall, cpu=cpu)


class _Memory(threading.Thread):
    """Looks at a process and its children, pages of files left out."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self.peak = 0

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, sum(map(_own, _tree(self._pid))))
            if self._ended.wait(PAUSE):
                return

    def end(self) -> None:
        self._ended.set()
        self.join()


def _own(pid: int) -> int:
    """Return the KiB that are a process's alone; 0 of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def _tree(pid: int) -> Iterator[int]:
    """Yield the ids of a process and of all below it."""
    yield pid
    try:
        lists = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for children in lists:
        for child in children.split():
            yield from _tree(int(child))
