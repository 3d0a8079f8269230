"""``python -m faults``: run the campaigns and print one table.  Exit code 1: violations of ours."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import os
import pickle
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from faults.framework import Campaign, Run, Violation, end_with, load_campaigns, perform

MEMORY = "/dev/shm"
MEMORY_FREE = 1 << 30  # bytes
SHOWN = 12  # sorts of violations of a campaign that are printed
STORES = {"ours": "ours", "theirs": "4.9.3"}


def cell(run: Run, column: str) -> str:
    """Cases and violations, and what was not run: which is not what was passed."""
    parts = []
    tally = run.columns.get(column)
    if tally is not None and (tally.cases or tally.violations):
        parts.append(f"{tally.cases:,}: {tally.counts()}")
    if reasons := run.reasons.get(column):
        parts.append("not run: " + ", ".join(reasons))
    return "; ".join(parts) or "-"


def table(runs: list[Run]) -> str:
    rows = [["scenario", "cases: violations, ours", "the real 4.9.3", "seconds"]]
    for run in runs:
        rows.append([run.name, cell(run, "ours"), cell(run, "theirs"), f"{run.seconds:,.0f}"])
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    lines = [
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d:>{widths[3]}}".rstrip()
        for a, b, c, d in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    notes = [
        f"{run.name}, {STORES[column]}: {name}: {count:,}"
        for run in runs
        for column, tally in run.columns.items()
        for name, count in sorted(tally.notes.items())
    ]
    return "\n".join(lines + notes)


def _alike(violation: Violation) -> tuple[str, str]:
    """What violations of one cause mostly have in common: the text without names and numbers."""
    return violation.kind, re.sub(r"/[^ ,:]*|'[^']*'|[0-9]+", "", violation.text)[:60]


def explain(run: Run) -> str:
    """The first violation of each sort, and how to repeat it."""
    lines = []
    for column, tally in run.columns.items():
        sorts: dict[tuple[str, str], list[Violation]] = {}
        for violation in tally.violations:
            sorts.setdefault(_alike(violation), []).append(violation)
        for found in list(sorts.values())[:SHOWN]:
            first = found[0]
            again = f"make faults ONLY={run.name} SEED={run.seed} CASE={first.case}"
            count = f", and {len(found) - 1:,} like it" if len(found) > 1 else ""
            lines.append(f"{run.name}, {STORES[column]}: {first.kind} in case {first.case}{count}")
            lines.append(f"  {again}" + (f" SCALE={run.scale:g}" if run.scale != 1 else ""))
            lines.extend("  " + line for line in first.text.rstrip().splitlines())
        if len(sorts) > SHOWN:
            lines.append(f"  and {len(sorts) - SHOWN:,} more sorts")
    if run.kept:
        lines.append(f"  the directories of {run.kept} of them are in {run.scratch}")
    return "\n".join(lines)


def start(campaign: Campaign, arguments: argparse.Namespace, scratch: Path) -> Callable[[], Run]:
    """Have a campaign run in a process of its own; what waits for it.

    What it keeps in memory would make each fork of the next one slower.
    """
    result = scratch / "run"
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            end_with(parent)
            with result.open("wb") as file:
                pickle.dump(one(campaign, arguments, scratch), file)
        finally:
            os._exit(0)

    def join() -> Run:
        os.waitpid(child, 0)
        try:
            with result.open("rb") as file:
                run: Run = pickle.load(file)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            run = Run(campaign, scratch, seed=arguments.seed)
            run.violation("died", "-", f"the campaign's process: {error!r}")
        return run

    return join


def one(campaign: Campaign, arguments: argparse.Namespace, scratch: Path) -> Run:
    from rmqstore import _core

    print(f"{time.strftime('%H:%M:%S')} {campaign.name} ...", file=sys.stderr, flush=True)
    run = Run(
        campaign,
        scratch,
        seed=arguments.seed,
        scale=arguments.scale,
        slice=arguments.slice,
        jobs=arguments.jobs,
        only_case=arguments.case,
        only_column=arguments.column,
        first=arguments.first,
    )
    if campaign.needs_faults and not _core.FAULTS:
        run.not_run("this build has no kill points and failing calls")
        return run
    return perform(run)


def scratch_of(campaign: Campaign, top: Path) -> Path:
    """A directory for a campaign; what is in memory costs no waiting for the disk."""
    with contextlib.suppress(OSError):
        if campaign.memory and shutil.disk_usage(MEMORY).free > MEMORY_FREE:
            return Path(tempfile.mkdtemp(prefix=f"rmqstore-{campaign.name}-", dir=MEMORY))
    scratch = top / campaign.name
    scratch.mkdir()
    return scratch


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="10: ten times as many cases")
    parser.add_argument("--seed", default="", help="repeat a run's draws")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--only", default="", help="names of campaigns, separated by commas")
    parser.add_argument("--case", default="", help="this case alone, as a violation names it")
    parser.add_argument("--column", default="", choices=["", "ours", "theirs"])
    parser.add_argument("--slice", action="store_true", help="only what the tests have of each")
    parser.add_argument("--first", action="store_true", help="end with the first violation")
    parser.add_argument("--scratch", type=Path, help="where to make directories")
    arguments = parser.parse_args()
    faulthandler.enable()
    logging.getLogger("rmqstore").addHandler(logging.NullHandler())  # recovery warns all the time
    arguments.seed = arguments.seed or f"{random.SystemRandom().getrandbits(32):x}"
    campaigns = load_campaigns()
    only = [name for name in arguments.only.split(",") if name]
    if unknown := set(only) - campaigns.keys():
        parser.error(f"no campaign {', '.join(sorted(unknown))}; there are {', '.join(campaigns)}")
    if arguments.scratch:
        arguments.scratch = arguments.scratch.absolute()  # errors name absolute paths
        arguments.scratch.mkdir(parents=True, exist_ok=True)
    top = Path(tempfile.mkdtemp(prefix="rmqstore-faults-", dir=arguments.scratch))
    names = only or list(campaigns)
    places = {name: scratch_of(campaigns[name], top) for name in names}
    joins = {
        name: start(campaigns[name], arguments, places[name])
        for name in names
        if campaigns[name].alongside and len(names) > 1
    }
    runs = []
    for name in sorted(names, key=lambda name: name in joins):
        join = joins.get(name) or start(campaigns[name], arguments, places[name])
        run = join()
        runs.append(run)
        if text := explain(run):
            print(text, flush=True)
        if not run.kept:
            shutil.rmtree(places[name], ignore_errors=True)
    if not any(top.iterdir()):
        top.rmdir()
    print(f"\nSEED={arguments.seed} SCALE={arguments.scale:g}\n{table(runs)}", flush=True)
    return int(any(run.column("ours").violations for run in runs))


if __name__ == "__main__":
    sys.exit(main())
