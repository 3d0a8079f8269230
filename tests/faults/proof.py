"""``python -m faults.proof``: put known defects back, one at a time, and see who finds them.

Each pair of a defect and a campaign in whose reach it is runs slices of the campaign, each with
another seed, until there is a violation or time is up; the case that found it then runs again
without the defect, and must be clean.  Before, the same campaigns run without a defect, where any
violation makes the whole proof void.  Exit code 1: something was not found, or not by the defect.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from faults.reach import REACH

NONE = "(none)"
PATIENCE = 600  # seconds beyond its time that a slice may take


@dataclass
class Slice:
    """What one slice of a campaign, or one case of it, came to."""

    violations: str = ""  # their kinds and how many
    case: str = ""  # the first that has one
    text: str = ""  # what it told
    cases: int = 0


@dataclass
class Outcome:
    plant: str
    campaign: str
    found: str = ""  # the kinds of violations
    cases: int = 0
    seconds: float = 0.0
    case: str = ""  # that found it, and its seed
    clean: bool = True  # without the defect that case finds nothing

    @property
    def good(self) -> bool:
        return bool(self.found) != (self.plant == NONE) and self.clean

    def row(self) -> list[str]:
        said = self.found or ("nothing" if self.plant == NONE else "NOT FOUND")
        if not self.good and self.found:
            said = f"VOID, WITHOUT IT AS WELL: {self.found}"
        return [self.plant, self.campaign, said, f"{self.cases:,}", f"{self.seconds:.0f}"]


def run_slice(plant: str, campaign: str, seed: str, case: str, limit: float) -> Slice:
    command = [sys.executable, "-m", "faults", "--slice", "--only", campaign, "--column", "ours"]
    command += ["--first", "--seed", seed, "--case", case]
    with tempfile.TemporaryDirectory(prefix="rmqstore-proof-") as scratch:
        try:
            done = subprocess.run(
                [*command, "--scratch", scratch],
                env=os.environ | ({} if plant == NONE else {"RMQ_PLANT": plant}),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return Slice("hung")
    row = re.search(rf"^{campaign} +([0-9,]+): (.*?)  ", done.stdout, re.MULTILINE)
    if row is None:
        raise RuntimeError(f"{command} with {plant}: exit code {done.returncode}\n{done.stdout}")
    cases = int(row[1].replace(",", ""))
    if done.returncode == 0:
        return Slice(cases=cases)
    told = rf"^{campaign}, ours: .* in case (.*?)(?:, and .* like it)?\n((?:  .*\n)*)"
    first = re.search(told, done.stdout, re.MULTILINE)
    case, text = first.groups() if first else ("", done.stdout)
    return Slice(row[2].strip(), case, text, cases)


def prove(plant: str, campaign: str, seed: str, bound: float) -> Outcome:
    outcome = Outcome(plant, campaign)
    begun = time.monotonic()
    turn = 0
    while not outcome.found and (turn == 0 or time.monotonic() - begun < bound):
        found = run_slice(plant, campaign, f"{seed}-{turn}", "", bound + PATIENCE)
        outcome.found = found.violations
        outcome.cases += found.cases
        if found.violations:
            outcome.case = f"SEED={seed}-{turn} CASE={found.case}"
        turn += 1
    outcome.seconds = time.monotonic() - begun
    if outcome.case and plant != NONE:
        again = run_slice(NONE, campaign, f"{seed}-{turn - 1}", found.case, bound + PATIENCE)
        outcome.clean = not again.violations
    print("  ".join([*outcome.row(), outcome.case]), file=sys.stderr, flush=True)
    if outcome.found and not outcome.good:
        print(found.text if plant == NONE else again.text, file=sys.stderr, flush=True)
    return outcome


def table(outcomes: list[Outcome]) -> str:
    rows = [["plant", "campaign", "found", "cases", "seconds"], *(o.row() for o in outcomes)]
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(r, widths, strict=True)) for r in rows]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.proof", description=__doc__)
    parser.add_argument("--only", default="", help="plants, separated by commas")
    parser.add_argument("--campaign", default="", help="this campaign alone")
    parser.add_argument("--seconds", type=float, default=120, help="time for each pair")
    parser.add_argument("--clean", type=float, default=30, help="time for each without a defect")
    parser.add_argument("--seed", default="")
    arguments = parser.parse_args()
    from rmqstore import _core

    if not hasattr(_core, "planted"):
        parser.error("this build has no plants: scripts/build_wheel.sh makes one in mode plants")
    only = [name for name in arguments.only.split(",") if name] or list(REACH)
    seed = arguments.seed or f"{random.SystemRandom().getrandbits(32):x}"
    pairs = [
        (plant, campaign)
        for plant in only
        for campaign in REACH[plant]
        if arguments.campaign in {"", campaign}
    ]
    campaigns = dict.fromkeys(campaign for _, campaign in pairs)
    outcomes = [prove(NONE, name, seed, arguments.clean) for name in campaigns if arguments.clean]
    outcomes += [prove(*pair, seed, arguments.seconds) for pair in pairs]
    print(f"SEED={seed}\n{table(outcomes)}", flush=True)
    return int(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
