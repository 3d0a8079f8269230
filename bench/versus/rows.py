"""A workload with its two sides, and what the rounds of its lines come to."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from versus.rounds import Round, fresh

STEADY = 1.5  # greatest of the rounds' ratios over the least; beyond it a ratio says nothing


class Goal(NamedTuple):
    """What the ratio of their time to ours is to be, by the clock and of the processor."""

    clock: float
    cpu: float | None = None


@dataclass
class Row:
    """A line: its rounds on both sides, and the limit of a C program where there is one."""

    name: str
    goal: Goal
    limit: Callable[[], list[float]] = list
    ours: list[Round] = field(default_factory=list)
    theirs: list[Round] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the line's figures, each of one message, key or call."""
        clock = [[one.ns / one.count for one in side] for side in (self.ours, self.theirs)]
        cpu = None
        if all(one.cpu_ns is not None for one in self.ours + self.theirs):
            used = [[one.cpu_ns / one.count for one in side] for side in (self.ours, self.theirs)]
            cpu = compared(*used, self.goal.cpu)
        busy = (not (a.quiet and b.quiet) for a, b in zip(self.ours, self.theirs, strict=True))
        faults = [one.faults * 1000 / one.count for one in self.ours if one.faults is not None]
        return {
            "name": self.name,
            "rounds": len(self.ours),
            "busy": sum(busy),
            "clock": compared(*clock, self.goal.clock),
            "cpu": cpu,
            "faults": statistics.median(faults) if faults else None,
            "limit": statistics.median(self.limits) if self.limits else None,
        }


def compared(ours: list[float], theirs: list[float], goal: float | None) -> dict[str, Any]:
    """Return the medians, and theirs over ours: of medians, of bests, and of the rounds."""
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    steady = max(each) <= STEADY * min(each)
    return {
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "ratio": statistics.median(theirs) / statistics.median(ours) if steady else None,
        "bests": min(theirs) / min(ours) if steady else None,
        "least": min(each),
        "greatest": max(each),
        "goal": goal,
    }


@dataclass
class Work:
    """A workload: its lines, their side, and ours in one process or several.

    ``theirs`` returns as many rounds as each of ours; the lines are in the order of ours.
    """

    rows: list[Row]
    theirs: Callable[[], list[Round]]
    ours: list[Callable[[], list[Round]]]

    def run(self, *, theirs_first: bool) -> None:
        """Run one round, both sides in processes of their own, one after the other."""
        theirs = self.theirs() if theirs_first else []
        ours = [one for each in self.ours for one in fresh(each)]
        theirs = theirs or self.theirs()
        for row, a, b in zip(self.rows, ours, theirs * len(self.ours), strict=True):
            row.ours.append(a)
            row.theirs.append(b)
            row.limits += row.limit()
