"""Run all workloads, or those whose name has ``--only``, and print the tables.

    PYTHONPATH=bench:tests python -m versus [--rounds 5] [--messages 200000] [--entries 2000000]
        [--only TEXT] [--limits build/limits] [--json FILE] [--sustained GIB]

Each round runs every workload on both sides in fresh processes, theirs first in every other round.
Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import workloads
from versus import opening, pages, reading, start, sustained, writing
from versus.limits import Limits
from versus.rows import Work


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="versus", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=200_000, help="the measure of all stores")
    parser.add_argument("--entries", type=int, default=2_000_000, help="of an index file")
    parser.add_argument("--only", default="", help="part of the names of the wanted workloads")
    parser.add_argument("--limits", default="", help="the program of bench/limits")
    parser.add_argument("--json", type=Path, help="where the figures of versus.pages go")
    parser.add_argument("--sustained", type=int, default=0, help="GiB written without a pause")
    return parser


def wanted(folder: Path, given: argparse.Namespace) -> list[Work]:
    """Return the workloads that have a wanted line, with what they need."""
    limits = Limits(given.limits)
    makers = {
        reading: lambda: reading.works(folder, 2 * given.messages, limits),
        writing: lambda: writing.works(folder, given.messages, given.entries, limits),
        opening: lambda: opening.works(folder, given.messages),
        start: lambda: start.works(folder, given.messages),
    }
    found = []
    for group, make in makers.items():
        if any(given.only in name for name in group.GOALS):
            found += [work for work in make() if any(given.only in row.name for row in work.rows)]
    return found


def main() -> int:
    """Run the rounds; 1 if a goal is missed."""
    given = arguments().parse_args()
    with workloads.scratch() as folder:
        works = wanted(folder, given)
        for number in range(given.rounds):
            for work in works:
                print(f"round {number + 1}: {work.rows[0].name}", file=sys.stderr, flush=True)
                work.run(theirs_first=number % 2 == 0)
    figures = [row.figures() for work in works for row in work.rows if given.only in row.name]
    for measure in pages.MEASURES:
        print(pages.table(figures, measure), end="\n\n")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    if given.sustained:
        print(sustained.table(given.sustained))
    return int(
        any(pages.verdict(row[each]) == "MISSED" for row in figures for each in pages.MEASURES)
    )


if __name__ == "__main__":
    sys.exit(main())
