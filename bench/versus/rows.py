"""A line of the table: a workload's rounds on both sides, and their ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from versus.real import Round

HEAD = ["workload", "ours, ns", "cpu", "theirs, ns", "cpu", "theirs / ours", "spread", "goal", ""]
HEAD += ["limit in C, ns", "ours / limit"]


@dataclass
class Row:
    """A workload: its name, and the goal for the ratio of their time to ours."""

    name: str
    goal: float
    ours: list[Round] = field(default_factory=list)
    theirs: list[Round] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        """Return their median over ours."""
        return median(self.theirs) / median(self.ours)

    def figures(self) -> dict[str, float | str]:
        """Return the name, and the ratio of the medians with the least and greatest of a round."""
        each = [b.each / a.each for a, b in zip(self.ours, self.theirs, strict=True)]
        spread = {"least": min(each), "greatest": max(each)}
        return {"name": self.name, "ratio": self.ratio(), **spread}

    def cells(self) -> list[str]:
        """Return the line's cells, as text."""
        figures = self.figures()
        limit = statistics.median(self.limits) if self.limits else None
        return [
            self.name,
            f"{median(self.ours):,.0f}",
            f"{statistics.median(one.cpu_each for one in self.ours):,.0f}",
            f"{median(self.theirs):,.0f}",
            f"{statistics.median(one.cpu_each for one in self.theirs):,.0f}",
            f"{self.ratio():.2f}",
            f"{figures['least']:.2f} to {figures['greatest']:.2f}",
            f"{self.goal:g}",
            "reached" if self.ratio() >= self.goal else "MISSED",
            "" if limit is None else f"{limit:,.0f}",
            "" if limit is None else f"{median(self.ours) / limit:.1f}",
        ]


def median(rounds: list[Round]) -> float:
    """Return the median time of one message or key."""
    return statistics.median(one.each for one in rounds)


def timed(work: Callable[[], object], count: int) -> Round:
    """Run ours once."""
    cpu, began = time.process_time_ns(), time.perf_counter_ns()
    work()
    ended = time.perf_counter_ns()
    return Round(ended - began, time.process_time_ns() - cpu, count)


def table(rows: list[Row]) -> str:
    """Return the lines as a Markdown table."""
    lines = [
        HEAD,
        ["---", *["--:"] * 7, "---", "--:", "--:"],
        *(row.cells() for row in rows if row.ours),
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
