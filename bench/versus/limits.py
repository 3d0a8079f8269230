"""Lower bounds of the machine: the program ``bench/limits``, once in each round."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import workloads

WINDOW_MIB = 64  # of a fresh log file that the program reserves at a time


class Limits:
    """The program; without one, no line has a limit."""

    def __init__(self, program: str) -> None:
        self.program = program

    def put(self, size: int, count: int) -> list[float]:
        """Return nanoseconds for each of ``count`` records appended."""
        record = workloads.record_size(size)
        return self._run("put", size, record, count, WINDOW_MIB, workloads.root())

    def index(self, count: int) -> list[float]:
        """Return nanoseconds for each of ``count`` keys entered."""
        return self._run("index", count, workloads.root())

    def read(self, log_file: Path, *, body: bool) -> list[float]:
        """Return nanoseconds for each record of a log file checked, with its body copied or not."""
        return self._run("copy" if body else "check", log_file)

    def _run(self, *arguments: object) -> list[float]:
        if not self.program:
            return []
        os.sync()
        command = [self.program, *map(str, arguments)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [min(float(line.split()[1]) for line in done.stdout.splitlines())]
