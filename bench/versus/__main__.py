"""Run all workloads, or those whose name has ``--only``, and print the table.

    PYTHONPATH=bench:tests python -m versus [--rounds 5] [--messages 200000] [--only TEXT]
        [--entries 2000000] [--limits build/limits] [--sustained GIB] [--json FILE]

Each round runs every workload on both sides, one after the other; the table has medians, and
behind the ratio of the medians the smallest and the greatest ratio of a round.  A limit is what a
C program needs for a workload's bytes alone, where there is such a program.  Data, sizes and
flushing are the same on both sides, file sizes the default ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import workloads
from versus import opening, reading, start, sustained, writing
from versus.limits import Limits
from versus.real import RealStore
from versus.rows import table


def main() -> int:
    """Run the rounds; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="versus", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=200_000, help="of the store that is read")
    parser.add_argument("--only", default="", help="part of the names of the wanted workloads")
    parser.add_argument("--entries", type=int, default=2_000_000, help="of an index file")
    parser.add_argument("--limits", default="", help="the program of bench/limits")
    parser.add_argument("--json", type=Path, help="where the figures of versus.plot go")
    parser.add_argument("--sustained", type=int, default=0, help="GiB written without a pause")
    given = parser.parse_args()
    limits = Limits(given.limits)
    shown = []
    works = []
    with workloads.scratch() as folder, RealStore() as real:
        makers = {
            reading: lambda: reading.Reading(real, folder, given.messages, limits),
            writing: lambda: writing.Writing(real, folder, limits, given.entries),
            opening: lambda: opening.Opening(real, folder),
            start: lambda: start.Start(folder),
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
    if shown:
        print(table(shown))
    if given.json:
        given.json.write_text(json.dumps([row.figures() for row in shown], indent=1) + "\n")
    if given.sustained:
        print(sustained.table(given.sustained))
    return int(any(row.ratio() < row.goal for row in shown))


if __name__ == "__main__":
    sys.exit(main())
