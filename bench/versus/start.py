"""From the start of a process to the first message of a store that was closed."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import workloads
from versus.real import RealStore
from versus.rounds import Round, measured
from versus.rows import Goal, Row, Work

GOALS = {"process start to first message": Goal(14)}
FIRST_MESSAGE = """
import sys, rmqstore
with rmqstore.open(sys.argv[1], "r+") as store:
    print(len(store.get(sys.argv[2], 0, 0, 1).messages[0].body), flush=True)
"""


def works(folder: Path, messages: int) -> list[Work]:
    """Return the workload on a store written by ours, a copy for each side."""
    ours = workloads.written(folder / "start-ours", 1024, messages)
    theirs = workloads.copy(ours, folder / "start-theirs")
    sides = [
        partial(measured, partial(start, path)) for start, path in ((them, theirs), (us, ours))
    ]
    return [Work([Row(*one) for one in GOALS.items()], sides[0], [sides[1]])]


def them(path: Path) -> list[Round]:
    """Start a JVM and read."""
    began = time.perf_counter_ns()
    with RealStore() as real:
        real.ask("open", dir=path)
        real.ask("get", topic=workloads.TOPIC, queues=1, count=1, batch=1, body=True)
        done = Round(time.perf_counter_ns() - began, None, 1)
        real.ask("close")
        return [done]


def us(path: Path) -> list[Round]:
    """Start Python and read."""
    command = [sys.executable, "-c", FIRST_MESSAGE, str(path), workloads.TOPIC]
    began = time.perf_counter_ns()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        length = int(process.stdout.readline())
        done = Round(time.perf_counter_ns() - began, None, 1)
    assert (length, process.returncode) == (1024, 0)
    return [done]
