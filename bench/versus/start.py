"""From the start of a process to the first message of a store that was closed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import workloads
from versus.real import RealStore, Round
from versus.rows import Row

START = "process start to first message"
COUNT = 200_000
FIRST_MESSAGE = """
import sys, rmqstore
with rmqstore.open(sys.argv[1], "r+") as store:
    print(len(store.get(sys.argv[2], 0, 0, 1).messages[0].body), flush=True)
"""


def lines() -> list[Row]:
    """Return the line; its count is one start."""
    return [Row(START, 14)]


class Start:
    """A store written by ours, a copy for each side."""

    def __init__(self, folder: Path) -> None:
        self.ours = workloads.written(folder / "start-ours", 1024, COUNT)
        self.theirs = workloads.copy(self.ours, folder / "start-theirs")

    def run(self, rows: list[Row]) -> None:
        """Run one round; a process that ends is of no further use to either side."""
        for row in rows:
            began = time.perf_counter_ns()
            with RealStore() as real:
                real.ask("open", dir=self.theirs)
                real.round("get", topic=workloads.TOPIC, queue_id=0, count=1, batch=1)
                taken = time.perf_counter_ns() - began
                row.theirs.append(Round(taken, 0, 1))
                real.ask("close")
            command = [sys.executable, "-c", FIRST_MESSAGE, str(self.ours), workloads.TOPIC]
            began = time.perf_counter_ns()
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                length = int(process.stdout.readline())
                row.ours.append(Round(time.perf_counter_ns() - began, 0, 1))
            assert (length, process.returncode) == (1024, 0)
