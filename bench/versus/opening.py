"""Opening: a log dispatched again, a killed store, a closed store."""

from __future__ import annotations

from pathlib import Path

import rmqstore
import workloads
from versus.real import RealStore, Round
from versus.rows import Row, timed

COUNT = {128: 1_000_000, 1024: 200_000}


DISPATCH_1K, DISPATCH_128 = "dispatch, 1 KiB", "dispatch, 128 B"
KILLED, CLOSED = "recovery of a killed store", "recovery of a closed store"
GOALS = {DISPATCH_1K: 4, DISPATCH_128: 5, KILLED: 2.5, CLOSED: 50}


def lines() -> list[Row]:
    """Return the lines; each counts messages."""
    return [Row(name, goal) for name, goal in GOALS.items()]


class Opening:
    """Stores written by ours, copied for each round and each side."""

    def __init__(self, real: RealStore, folder: Path) -> None:
        self.real = real
        self.copied = folder / "copy"
        self.logs = {
            size: workloads.written(folder / f"log-{size}", size, count)
            for size, count in COUNT.items()
        }
        self.killed = workloads.killed(folder / "killed", 1024, COUNT[1024])

    def run(self, rows: list[Row]) -> None:
        """Run one round of the lines, theirs and ours in turn."""
        works = {
            DISPATCH_1K: lambda row: self._dispatch(row, 1024),
            DISPATCH_128: lambda row: self._dispatch(row, 128),
            KILLED: lambda row: self._recovery(row, self.killed),
            CLOSED: lambda row: self._recovery(row, self.logs[1024]),
        }
        for row in rows:
            works[row.name](row)

    def _dispatch(self, row: Row, size: int) -> None:
        for side in (row.theirs, row.ours):
            path = workloads.copy(self.logs[size], self.copied)
            workloads.forget_dispatch(path)
            if side is row.theirs:
                side.append(self._opened_by_them(path, COUNT[size]))
                continue
            opened = []
            side.append(
                timed(
                    lambda p=path, o=opened: o.append(workloads.open_and_dispatch(p, COUNT[size])),
                    COUNT[size],
                )
            )
            opened[0].close()

    def _recovery(self, row: Row, source: Path) -> None:
        path = workloads.copy(source, self.copied)
        row.theirs.append(self._opened_by_them(path, COUNT[1024]))
        path = workloads.copy(source, self.copied)
        opened = []
        row.ours.append(timed(lambda: opened.append(rmqstore.open(path, "r+")), COUNT[1024]))
        opened[0].close()

    def _opened_by_them(self, path: Path, count: int) -> Round:
        done = self.real.round("open", dir=path)
        self.real.ask("close")
        return Round(done.ns, done.cpu_ns, count)
