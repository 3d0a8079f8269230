"""Any sequence of steps in a store's life, shrunk to those that it takes to go wrong."""

from __future__ import annotations

import random
import shutil
import time

from faults.framework import Case, Run, campaign
from faults.machine import Machine, Step, draw_steps, shrunk

STEPS = 50
SHRINK = 60  # seconds spent on shrinking
# Runs that went wrong once: as a violation tells them.
KEPT: list[tuple[int, list[Step]]] = []


@campaign("machine", cases=2000, slice=10, memory=True)
def machine(run: Run) -> None:
    run.fork(one_machine, range(run.cases), seconds=300)
    run.fork(one_kept, range(len(KEPT)), seconds=300)


def one_machine(case: Case, number: int) -> None:
    seed = case.draw.getrandbits(32)
    tried(case, seed, draw_steps(random.Random(seed), STEPS))


def one_kept(case: Case, number: int) -> None:
    tried(case, *KEPT[number])


def tried(case: Case, seed: int, steps: list[Step]) -> None:
    """Run the steps, and where that goes wrong tell the fewest that do."""
    home = case.scratch / "home"

    def run(some: list[Step]) -> list[tuple[str, str]]:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        return Machine(home, seed).run(some)

    found = run(steps)
    if not found:
        return
    kind = found[0][0]
    until = time.monotonic() + SHRINK

    def fails(some: list[Step]) -> bool:
        return time.monotonic() < until and any(what == kind for what, _ in run(some))

    fewest = shrunk(steps, fails)
    again = run(fewest) or found
    for what, text in again[:3]:
        case.violation(what, f"{text}\nof the run {(seed, fewest)}")
