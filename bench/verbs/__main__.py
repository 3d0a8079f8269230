"""Measure the toolbox's jobs beside the machine's own pace, and print two tables.

    PYTHONPATH=bench:tests python -m verbs [--gib 10] [--sparse 100] [--rounds 3] [--only TEXT]

The stores are made in ``RMQSTORE_BENCH_DIR``, which needs 1.2 times ``--gib``.  Exit code 1 where a
goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import workloads
from scale.rows import at_most, table
from verbs import jobs, rows
from verbs.rows import Job

MEMORY_MIB = 300


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="verbs", description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=10, help="of the log of 1 KiB messages")
    parser.add_argument("--sparse", type=int, default=100, help="GiB of the sparse store")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the names of the wanted jobs")
    return parser


def measured(folder: Path, given: argparse.Namespace) -> list[Job]:
    """Return the wanted jobs with their runs."""
    groups = (
        (jobs.SPARSE, lambda: jobs.on_sparse(folder, given.sparse)),
        (jobs.WHOLE, lambda: jobs.on_whole(folder, given.gib)),
        (jobs.PART, lambda: jobs.on_part(folder, given.gib)),
    )
    done = []
    for names, make in groups:
        if any(given.only in name for name in names):
            for job in make():
                if given.only in job.name:
                    print(f"verbs: {job.name}", file=sys.stderr, flush=True)
                    job.run(given.rounds)
                    done.append(job)
    return done


def main() -> int:
    """Measure and print; 1 where a goal is missed."""
    given = arguments().parse_args()
    with workloads.scratch() as folder:
        done = measured(folder, given)
    memory = [at_most(job.name, job.peak / 1024, MEMORY_MIB, "MiB") for job in done]
    print(rows.table(done), table(memory), sep="\n\n")
    return int(not all(job.is_reached for job in done) or not all(one.reached for one in memory))


if __name__ == "__main__":
    sys.exit(main())
