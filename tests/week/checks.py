"""What must hold of a week: nothing lost, nothing kept twice, nothing that grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from week import traffic

MEMORY_MORE = 32 << 20  # bytes that no file has, beyond the first third's
DESCRIPTORS_MORE = 8
FILES_MORE = 3  # of the log, beyond the bytes of the time that is kept


def entries(notes: Path, name: str, width: int) -> Any:
    """The entries of a file of notes, an array of so many columns."""
    path = notes / name
    data = np.fromfile(path, "<i8") if path.exists() else np.zeros(0, "<i8")
    return data[: len(data) // width * width].reshape(-1, width)


def covered(ranges: Any, stop: int) -> Any:
    """Whether each number is in one of the ranges."""
    inside = np.zeros(stop + 1, np.int64)
    np.add.at(inside, ranges[:, 0], 1)
    np.add.at(inside, ranges[:, 1], -1)
    return np.cumsum(inside)[:stop] > 0


def delivery_problems(notes: Path) -> list[str]:
    begun, acknowledged = entries(notes, "begun", 2), entries(notes, "acknowledged", 2)
    stop = int(begun[:, 1].max())
    sure = covered(acknowledged, stop)
    wanted = np.fromiter((traffic.is_delivered(n) for n in range(stop)), bool, stop)
    problems = []
    places: dict[int, set[int]] = {}
    firsts = []
    for group in traffic.GROUPS:
        delivered = entries(notes, f"delivered-{group}", 3)
        dead = entries(notes, f"dead-{group}", 1)[:, 0]
        got = np.zeros(stop, bool)
        got[delivered[:, 0]] = True
        got[dead] = True
        lost = np.flatnonzero(sure & wanted & ~got)
        if len(lost):
            problems.append(f"{group}: {len(lost)} lost: {lost[:9].tolist()}")
        wrong = np.flatnonzero(got & ~wanted)
        if len(wrong):
            problems.append(
                f"{group}: {len(wrong)} rolled back and delivered: {wrong[:9].tolist()}"
            )
        firsts.append(delivered[delivered[:, 2] == 0][:, :2])
    pairs = np.unique(np.concatenate(firsts), axis=0)
    numbers, counts = np.unique(pairs[:, 0], return_counts=True)
    for number in numbers[counts > 1][:9].tolist():
        places[number] = set(pairs[pairs[:, 0] == number][:, 1].tolist())
    if places:
        problems.append(f"{int((counts > 1).sum())} kept twice: {places}")
    return problems


def growth_problems(notes: Path, rounds_kept: float, log_file: int) -> list[str]:
    """Disk within what the time that is kept takes; memory and descriptors flat."""
    problems = []
    samples = entries(notes, "samples", 5)
    rounds = samples[:, 0]
    last = int(rounds.max())
    steady = samples[rounds > max(rounds_kept * 1.2, last / 3)]
    early = samples[(rounds > last / 10) & (rounds <= last / 3)]
    if not len(steady) or not len(early):
        return problems
    # The log's bytes a round, from the time before anything was old enough to be deleted.
    filling = samples[(rounds > 0) & (rounds < rounds_kept * 0.9)]
    rate = float((filling[:, 1] / filling[:, 0]).max())
    limit = rate * rounds_kept * 1.25 + FILES_MORE * log_file
    if steady[:, 1].max() > limit:
        problems.append(f"the log takes {steady[:, 1].max()} bytes, at most {limit:.0f} expected")
    if steady[:, 3].max() > early[:, 3].max() + MEMORY_MORE:
        problems.append(f"memory grew from {early[:, 3].max()} to {steady[:, 3].max()} bytes")
    if steady[:, 4].max() > early[:, 4].max() + DESCRIPTORS_MORE:
        problems.append(f"descriptors grew from {early[:, 4].max()} to {steady[:, 4].max()}")
    return problems
