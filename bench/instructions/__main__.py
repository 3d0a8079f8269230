"""Count the instructions of the hot calls and compare them with ``counts.json`` beside this.

    PYTHONPATH=bench python -m instructions [--update]

Exit code 1 where a call takes over 3 % more than is written there, or one of both has no count.
One that takes over 3 % fewer passes and is named: written down (``--update``), it guards the next.
For a compiler, Python, C library and processor that are not in the file nothing is compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from instructions import counting

COUNTS = Path(__file__).parent / "counts.json"
MOST = 0.03
# A reader in "r" looks for what is new by the clock, which only adds to its count: what is too much
# is counted again, and the least is taken.
COUNTED = 3


def differing(known: dict[str, float], found: dict[str, float]) -> tuple[list[str], list[str]]:
    """Return regressions and improvements of the counts, a line each."""
    wrong = [f"{name}: is not in {COUNTS.name}" for name in found.keys() - known.keys()]
    wrong += [f"{name}: was not counted" for name in known.keys() - found.keys()]
    better = []
    for name in found.keys() & known.keys():
        change = found[name] / known[name] - 1
        if change > MOST:
            wrong.append(f"{name}: {change:.1%} more")
        elif change < -MOST:
            better.append(f"{name}: {-change:.1%} fewer")
    return sorted(wrong), sorted(better)


def table(known: dict[str, float], found: dict[str, float]) -> str:
    """Return both as text."""
    width = max(map(len, found))
    lines = [f"{'call':{width}}  {'committed':>12}  {'now':>12}  change"]
    for name in sorted(found):
        if name not in known:
            lines.append(f"{name:{width}}  {'':>12}  {found[name]:12,.1f}")
            continue
        change = found[name] / known[name] - 1
        lines.append(f"{name:{width}}  {known[name]:12,.1f}  {found[name]:12,.1f}  {change:+.2%}")
    return "\n".join(lines)


def main() -> int:
    """Count; compare, or write."""
    parser = argparse.ArgumentParser(prog="instructions", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write what is counted")
    given = parser.parse_args()
    key = counting.key()
    counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    known = counts.get(key, {})
    found = counting.count()
    for _ in range(COUNTED - 1):
        if not given.update and (not known or not differing(known, found)[0]):
            break
        again = counting.count()
        found = {name: min(count, again.get(name, count)) for name, count in found.items()}
    print(f"instructions for each message, key or call; {key}")
    print(table(known, found))
    if given.update:
        counts[key] = found
        COUNTS.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")
        return 0
    if not known:
        print(f"NOT COMPARED: {COUNTS.name} has no counts for {key}")
        return 0
    wrong, better = differing(known, found)
    for line in wrong + better:
        print(f"instructions: {line}", file=sys.stderr)
    if wrong or better:
        print("instructions: make instructions UPDATE=1 writes them down", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
