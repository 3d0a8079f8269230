"""Compare this tree's speed with another revision's, on this machine, in one run.

    python scripts/bench_compare.py BASE [--rounds 3] [--fail 10] [pytest arguments]

Builds BASE's release wheel in an environment of its own, then runs this tree's benchmarks with both
in turn.  A workload's figure is the median of its medians over the rounds.  Exit code 1 where one
is slower by more than ``--fail`` percent; a workload that BASE cannot run is reported and passes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build/base"


def run(*command: object, check: bool = True, **options: object) -> int:
    """Run a command in the project's root and return its exit code."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, check=False, **options)
    if check and done.returncode:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}")
    return done.returncode


def make_base(python: str, revision: str) -> Path:
    """Build ``revision`` and return the Python that has it installed."""
    run("rm", "-rf", BUILD)
    (BUILD / "source").mkdir(parents=True)
    archive = BUILD / "source.tar"
    run("git", "archive", "--output", archive, revision)
    run("tar", "-xf", archive, "-C", BUILD / "source")
    run("scripts/make_venv.sh", python, BUILD / "venv")
    base = BUILD / "venv/bin/python"
    run("scripts/build_wheel.sh", base, "release", BUILD / "source", BUILD / "wheel")
    (wheel,) = (BUILD / "wheel").glob("*.whl")
    run(base, "-m", "pip", "install", "--quiet", f"{wheel}[bench]")
    return base


def measure(python: str | Path, into: Path, arguments: list[str]) -> dict[str, float]:
    """Run the benchmarks once; return the median seconds of each that ran."""
    into.parent.mkdir(parents=True, exist_ok=True)
    into.unlink(missing_ok=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run(
        *(python, "-m", "pytest", "bench", "-q", "--benchmark-disable-gc"),
        *(f"--benchmark-json={into}", *arguments),
        check=False,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    if not into.exists() or not into.read_text():
        return {}
    found = json.loads(into.read_text())["benchmarks"]
    return {entry["fullname"]: entry["stats"]["median"] for entry in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fail", type=float, default=10.0, metavar="PERCENT")
    options, arguments = parser.parse_known_args()

    pythons = {"base": make_base(options.python, options.base), "here": Path(sys.executable)}
    medians: dict[str, dict[str, list[float]]] = {"base": {}, "here": {}}
    for number in range(options.rounds):
        order = ("base", "here") if number % 2 == 0 else ("here", "base")
        for side in order:
            print(f"round {number + 1} of {options.rounds}: {side}", flush=True)
            found = measure(pythons[side], BUILD / f"{side}-{number}.json", arguments)
            for name, seconds in found.items():
                medians[side].setdefault(name, []).append(seconds)

    slower = []
    width = max(map(len, medians["here"]), default=8)
    print(f"{'workload':{width}}  {options.base[:12]:>12}  {'here':>12}  change")
    for name, here in medians["here"].items():
        base = medians["base"].get(name)
        after = statistics.median(here)
        if not base:
            print(f"{name:{width}}  {'cannot run':>12}  {after * 1e3:9.3f} ms")
            continue
        before = statistics.median(base)
        change = (after / before - 1) * 100
        verdict = ""
        if change > options.fail:
            slower.append(name)
            verdict = "  SLOWER"
        times = f"{before * 1e3:9.3f} ms  {after * 1e3:9.3f} ms"
        print(f"{name:{width}}  {times}  {change:+.1f} %{verdict}")
    gone = sorted(set(medians["base"]) - set(medians["here"]))
    print(*(f"{name}: fails here" for name in gone), sep="\n", end="\n" if gone else "")
    if not medians["here"]:
        print("no benchmark ran here")
    return 1 if slower or gone or not medians["here"] else 0


if __name__ == "__main__":
    sys.exit(main())
