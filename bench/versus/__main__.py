"""Run all workloads, or those whose name has ``--only``, and print the table.

    PYTHONPATH=bench:tests python -m versus [--rounds 5] [--messages 200000] [--only TEXT]

Each round runs every workload on both sides, one after the other; the table has medians, and
behind the ratio of the medians the smallest and the greatest ratio of a round.  Data, sizes and
flushing are the same on both sides, file sizes the default ones.
"""

from __future__ import annotations

import argparse
import sys

import workloads
from versus import opening, reading, writing
from versus.real import RealStore
from versus.rows import table


def main() -> int:
    """Run the rounds; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="versus", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=200_000, help="of the store that is read")
    parser.add_argument("--only", default="", help="part of the names of the wanted workloads")
    given = parser.parse_args()
    shown = []
    works = []
    with workloads.scratch() as folder, RealStore() as real:
        makers = {
            reading: lambda: reading.Reading(real, folder, given.messages),
            writing: lambda: writing.Writing(real, folder),
            opening: lambda: opening.Opening(real, folder),
        }
        for group, make in makers.items():
            rows = [row for row in group.lines() if given.only in row.name]
            if rows:
                shown += rows
                works.append((make(), rows))
        for number in range(given.rounds):
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
            for work, rows in works:
                work.run(rows)
    print(table(shown))
    return int(any(row.ratio() < row.goal for row in shown))


if __name__ == "__main__":
    sys.exit(main())
