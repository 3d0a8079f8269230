"""A job: its runs, those of the machine alone in turn with them, and its goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scale.rows import Took, median
from verbs.running import Run


@dataclass
class Goal:
    """A goal: ``ratio``, of the other side's time to ours, or ``most`` or ``least`` of a figure."""

    text: str
    ratio: float | None = None
    most: float | None = None
    least: float | None = None


@dataclass
class Job:
    """A job, and what is run beside it.

    ``figure`` makes a number of a unit from the medians of clock and processor, in seconds.
    """

    name: str
    goal: Goal
    ours: Callable[[], Run]
    beside: str
    other: Callable[[], Run | Took]
    figure: Callable[[float, float], float]
    unit: str
    runs: list[Run] = field(default_factory=list)
    others: list[Run | Took] = field(default_factory=list)

    def run(self, rounds: int) -> None:
        """Run both sides, in turn first: files are in memory for the second one."""
        for number in range(rounds):
            if number % 2 == 0:
                self.others.append(self.other())
            self.runs.append(self.ours())
            if number % 2 == 1:
                self.others.append(self.other())

    def medians(self) -> tuple[float, float, float, float]:
        """Return the medians of clock and processor, ours and the other side's."""
        ours, others = (
            (median([one.wall for one in side]), median([one.cpu for one in side]))
            for side in (self.runs, self.others)
        )
        return *ours, *others

    @property
    def value(self) -> float:
        """The figure."""
        return self.figure(*self.medians()[:2])

    @property
    def ratio(self) -> float:
        """The other side's time to ours, of medians."""
        wall, _, other, _ = self.medians()
        return other / wall

    @property
    def is_reached(self) -> bool:
        """Whether the goal is reached."""
        goal = self.goal
        return (
            (goal.ratio is None or self.ratio >= goal.ratio)
            and (goal.most is None or self.value <= goal.most)
            and (goal.least is None or self.value >= goal.least)
        )

    @property
    def peak(self) -> int:
        """The most KiB of ours in any run."""
        return max(one.peak for one in self.runs)

    def cells(self) -> list[str]:
        """Return the job's line of the table."""
        wall, cpu, other, other_cpu = (f"{one:,.2f}" for one in self.medians())
        return [
            *(self.name, f"{self.value:,.2f} {self.unit}", wall, cpu),
            *(self.beside, other, other_cpu, f"{self.ratio:.2f}"),
            *(self.goal.text, "reached" if self.is_reached else "MISSED"),
        ]


def table(jobs: list[Job]) -> str:
    """Return the jobs as a Markdown table."""
    head = ["job", "figure", "s", "cpu, s", "beside", "s", "cpu, s", "ratio", "goal", ""]
    lines = ["---", "--:", "--:", "--:", "---", "--:", "--:", "--:", "---", "---"]
    rows = [head, lines, *(job.cells() for job in jobs)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
