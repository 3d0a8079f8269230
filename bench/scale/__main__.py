"""Measure how cost grows, and print a table: what, figure, goal, reached or not.

    PYTHONPATH=bench python -m scale [--only TEXT] [--sizes 100000,1000000,10000000] [--huge 0] ...

Stores are made in ``RMQSTORE_BENCH_DIR``, one at a time: 10,000,000 messages take 4 GB,
``--huge 100000000`` takes 17 GB.  Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import workloads
from scale import growth, memory, queues, sparse, threads
from scale.rows import Line, table


def arguments() -> argparse.ArgumentParser:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="scale", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", default="", help="of growth, sparse, writer, queues, threads, huge"
    )
    parser.add_argument("--sizes", default="100000,1000000,10000000", help="messages of stores")
    parser.add_argument("--huge", type=int, default=0, help="messages of one more store")
    parser.add_argument("--gib", type=int, default=100, help="of the sparse store")
    parser.add_argument("--read", type=int, default=400, help="of its messages, from each queue")
    parser.add_argument(
        "--written", type=int, default=10_000_000, help="by the writer, a call each"
    )
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--puts", type=int, default=200_000, help="of the threads, 1 KiB each")
    parser.add_argument("--rounds", type=int, default=5)
    return parser


def run(given: argparse.Namespace) -> list[Line]:
    """Run the selected parts."""
    sizes = [int(size) for size in given.sizes.split(",")]
    found = []
    with workloads.scratch() as folder:
        parts: dict[str, Callable[[], list[Line]]] = {
            "growth": lambda: growth.lines(folder, sizes, given.rounds),
            "sparse": lambda: sparse.lines(folder, given.gib, given.rounds, given.read),
            "writer": lambda: memory.lines(folder, given.written),
            "queues": lambda: queues.lines(folder, given.queues, given.rounds),
            "threads": lambda: threads.lines(given.puts, given.rounds),
        }
        if given.huge:
            parts["huge"] = lambda: growth.huge(folder, given.huge, given.rounds)
        for name, part in parts.items():
            if not given.only or name in given.only.split(","):
                print(f"scale: {name}", file=sys.stderr, flush=True)
                found += part()
    return found


def main() -> int:
    """Measure and print; 1 where a goal is missed."""
    found = run(arguments().parse_args())
    print(table(found))
    return int(any(line.reached is False for line in found))


if __name__ == "__main__":
    sys.exit(main())
