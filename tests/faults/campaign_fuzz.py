"""Parsers over inputs that are no good: under the sanitizers where there is a build with them.

The C parsers run in a program of their own, over copies of their inputs that end with a page that
nobody may touch.  Each input can be made from the run's seed and its number, so that the one that
ended a program is found by halves.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from faults import fuzzing
from faults.framework import Case, Run, campaign
from rmqstore import _core

SLICE = 100_000
PARTS = 8  # programs that share a parser's inputs
TARGETS = {
    "record": 100_000_000,
    "index": 100_000_000,
    "find": 10_000_000,
    "queue": 10_000_000,
    "checkpoint": 10_000_000,
    "text": 10_000_000,
    "name": 10_000_000,
    "arrow": 10_000_000,
    "filter": 10_000_000,
    "frame": 10_000_000,
}
PYTHON = 100_000
SECONDS = 1800  # until a program hangs, on a machine that is busy
ASAN = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:handle_sigbus=0:allow_user_segv_handler=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
}


@campaign("fuzz", cases=sum(TARGETS.values()), slice=SLICE * len(TARGETS), needs_faults=True)
def fuzz(run: Run) -> None:
    if not run.slice and "RMQSTORE_ASAN_PATH" not in os.environ:
        run.not_run("the sanitizers: RMQSTORE_ASAN_PATH names no build with them")
    parts = [f"{target}-{part}" for target in TARGETS for part in range(1 if run.slice else PARTS)]
    unlimited = resource.RLIM_INFINITY  # the sanitizer's own memory is terabytes of addresses
    run.fork(_native, parts, seconds=SECONDS, memory=unlimited, counts=False)
    run.fork(_python, fuzzing.PYTHON, seconds=SECONDS, counts=False)


def _native(case: Case, name: str) -> None:
    target, _, part = name.rpartition("-")
    count = case.run.number(TARGETS[target], SLICE) // (1 if case.run.slice else PARTS)
    seed = zlib.crc32(case.run.seed.encode())
    first = int(part) * count
    said = _program(case, target, seed, first, count)
    case.count(count)
    if said.returncode == 0:
        case.note(f"{target}: good inputs", json.loads(said.stdout)["taken"])
        return
    while count > 1:
        half = count // 2
        found = _program(case, target, seed, first, half)
        if found.returncode == 0:
            first, half = first + half, count - half
        else:
            said = found
        count = half
    data = _core._fuzz_input(target, fuzzing.seeds(target), seed, first).hex()
    case.violation("died", f"input {first} of {target}, {data}\n{said.stderr[-6000:]}")


def _program(
    case: Case, target: str, seed: int, first: int, count: int
) -> subprocess.CompletedProcess[str]:
    arguments = [target, str(seed), str(first), str(count)]
    asan = None if case.run.slice else os.environ.get("RMQSTORE_ASAN_PATH")
    return subprocess.run(
        [sys.executable, "-m", "faults.fuzzing", *arguments],
        env=os.environ | (sanitized(asan) if asan else {}),
        capture_output=True,
        text=True,
        check=False,
    )


def sanitized(asan: str) -> dict[str, str]:
    """The variables under which a program uses the build with the sanitizers."""
    tests = str(Path(__file__).resolve().parents[1])
    libraries = [
        path
        for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")
        if Path(path := _library(name)).is_file()
    ]
    paths = [asan, tests]
    return ASAN | {"LD_PRELOAD": " ".join(libraries), "PYTHONPATH": os.pathsep.join(paths)}


def _library(name: str) -> str:
    command = [os.environ.get("CC", "gcc"), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _python(case: Case, target: str) -> Any:
    count = case.run.number(PYTHON, 1000)
    try:
        taken = fuzzing.run_python(target, case.run.seed, 0, count, case.scratch / "files")
    except AssertionError as error:
        case.violation("error", str(error))
    else:
        case.note(f"{target}: good inputs", taken)
    case.count(count)
