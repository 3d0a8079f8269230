"""A line of the table, and timing shared by all parts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Line:
    """One figure: its subject, its text, the goal's text, and whether it is reached.

    ``reached`` is None where there is no goal.
    """

    what: str
    figure: str
    goal: str = ""
    reached: bool | None = None

    def cells(self) -> list[str]:
        """Return the line's cells, as text."""
        verdict = {None: "", True: "reached", False: "MISSED"}[self.reached]
        return [self.what, self.figure, self.goal, verdict]


class Took(NamedTuple):
    """Seconds of a work by the clock, and of the processor over all threads."""

    wall: float
    cpu: float


def timed(work: Callable[[], object]) -> Took:
    """Run a work once."""
    cpu, began = time.process_time(), time.perf_counter()
    work()
    ended = time.perf_counter()
    return Took(ended - began, time.process_time() - cpu)


def best(work: Callable[[], object], rounds: int) -> Took:
    """Run a work several times; return the least of each time."""
    took = [timed(work) for _ in range(rounds)]
    return Took(min(one.wall for one in took), min(one.cpu for one in took))


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def at_most(what: str, value: float, most: float, unit: str) -> Line:
    """Return a line whose figure has an upper limit."""
    return Line(what, f"{value:,.1f} {unit}", f"<= {most:,g} {unit}", value <= most)


def table(lines: list[Line]) -> str:
    """Return the lines as a Markdown table."""
    rows = [["what", "figure", "goal", ""], ["---", "--:", "---", "---"]]
    rows += [line.cells() for line in lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
