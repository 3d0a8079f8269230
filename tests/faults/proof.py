"""``python -m faults.proof``: put known defects back, one at a time, and see who finds them.

Each pair of a defect and a campaign in whose reach it is runs slices of the campaign, each with
another seed, until there is a violation or time is up.  Before, the same campaigns run without a
defect, where any violation makes the whole proof void.  Exit code 1: something was not found.
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
from pathlib import Path

from faults.plants import OUT_OF_REACH, REACH

NONE = "(none)"


@dataclass
class Outcome:
    plant: str
    campaign: str
    found: str = ""  # the kinds of violations
    cases: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return bool(self.found) != (self.plant == NONE)

    def row(self) -> list[str]:
        said = self.found or ("nothing" if self.good else "NOT FOUND")
        if self.plant == NONE and not self.good:
            said = f"VIOLATIONS: {self.found}"
        return [self.plant, self.campaign, said, f"{self.cases:,}", f"{self.seconds:.0f}"]


def attempt(plant: str, campaign: str, seed: str, scratch: Path, limit: float) -> tuple[str, int]:
    """One slice: the kinds of violations, and the cases."""
    command = [sys.executable, "-m", "faults", "--slice", "--only", campaign, "--column", "ours"]
    done = subprocess.run(
        [*command, "--seed", seed, "--scratch", str(scratch)],
        env=os.environ | ({} if plant == NONE else {"RMQ_PLANT": plant}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=limit,
    )
    row = re.search(rf"^{campaign} +([0-9,]+): (.*?)  ", done.stdout, re.MULTILINE)
    if row is None:
        raise RuntimeError(f"{command} with {plant}: exit code {done.returncode}\n{done.stdout}")
    cases = int(row[1].replace(",", ""))
    return ("" if done.returncode == 0 else row[2].strip()), cases


def prove(plant: str, campaign: str, seed: str, bound: float) -> Outcome:
    outcome = Outcome(plant, campaign)
    begun = time.monotonic()
    turn = 0
    while not outcome.found and (turn == 0 or time.monotonic() - begun < bound):
        with tempfile.TemporaryDirectory(prefix="rmqstore-proof-") as scratch:
            try:
                found = attempt(plant, campaign, f"{seed}-{turn}", Path(scratch), bound + 600)
            except subprocess.TimeoutExpired:
                found = "hung", 0
        outcome.found, cases = found
        outcome.cases += cases
        turn += 1
    outcome.seconds = time.monotonic() - begun
    print("  ".join(outcome.row()), file=sys.stderr, flush=True)
    return outcome


def table(outcomes: list[Outcome]) -> str:
    rows = [["plant", "campaign", "found by", "cases", "seconds"], *(o.row() for o in outcomes)]
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(r, widths, strict=True)) for r in rows]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines + [f"{name}: out of reach: {why}" for name, why in OUT_OF_REACH.items()])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.proof", description=__doc__)
    parser.add_argument("--only", default="", help="plants, separated by commas")
    parser.add_argument("--campaign", default="", help="this campaign alone")
    parser.add_argument("--seconds", type=float, default=120, help="time for each pair")
    parser.add_argument("--seed", default="")
    arguments = parser.parse_args()
    from rmqstore import _core

    if not _core.PLANTS:
        parser.error("this build has no plants: build it with RMQSTORE_BUILD=plants")
    only = [name for name in arguments.only.split(",") if name] or list(REACH)
    seed = arguments.seed or f"{random.SystemRandom().getrandbits(32):x}"
    pairs = [
        (plant, campaign)
        for plant in only
        for campaign in REACH[plant]
        if arguments.campaign in {"", campaign}
    ]
    campaigns = dict.fromkeys(campaign for _, campaign in pairs)
    outcomes = [prove(NONE, campaign, seed, 0) for campaign in campaigns]
    outcomes += [prove(*pair, seed, arguments.seconds) for pair in pairs]
    print(f"SEED={seed}\n{table(outcomes)}", flush=True)
    return int(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
