"""``python -m week DIRECTORY``: the whole week, then the real broker on what it left."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from week.beside import differences
from week.run import Week


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[2])
    parser.add_argument("directory", type=Path, help="is made; needs some GB")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--no-java", action="store_true", help="leave out the real broker")
    given = parser.parse_args()
    week = Week(given.directory, given.messages, given.days, given.kills, seed=given.seed)
    began = time.monotonic()
    counted = week.run()
    print(*(f"{value:>14,}  {name}" for name, value in counted.items()), sep="\n")
    print(f"{time.monotonic() - began:>14,.0f}  seconds, seed {week.seed}", flush=True)
    problems = week.problems()
    if not given.no_java:
        compared, differ = differences(week.store)
        print(f"{compared:>14,}  compared with the real broker")
        problems += differ
    print(*(f"PROBLEM: {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
