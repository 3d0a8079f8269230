"""Runs the calls under callgrind and reads its counts."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import workloads
from instructions import stores
from rmqstore import _core

HERE = Path(__file__).parent
GROUPS = {"caller": "yes", "all": "no"}  # whether threads are counted apart
TIMEOUT = 600
TRIGGER = re.compile(r"^desc: Trigger: Client Request: (.+)=(\d+)$", re.MULTILINE)
TOTALS = re.compile(r"^(?:summary|totals): (\d+)$", re.MULTILINE)
BUILT_BY = re.compile(rb"GCC: \([^)]*\) (\d+)|clang version (\d+)")
# No threads of the libraries, no random hashes, and one allocator for Arrow.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def key() -> str:
    """Return the environment of the counts: compiler, Python, C library and processor."""
    built_by = BUILT_BY.search(Path(_core.__file__).read_bytes())
    compiler = "unknown"
    if built_by:
        compiler = f"gcc-{built_by[1].decode()}" if built_by[1] else f"clang-{built_by[2].decode()}"
    python = f"{sys.implementation.name}-{platform.python_version()}"
    libc = "-".join(platform.libc_ver())
    return f"{compiler} {python} {libc} {sysconfig.get_platform()}"


def count() -> dict[str, float]:
    """Return the instructions of each call: for one message, key or call."""
    with workloads.scratch() as folder:
        mark = folder / "mark.so"
        compiler = os.environ.get("CC", "gcc").split()
        source = str(HERE / "mark.c")
        subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", mark, source], check=True)
        stores.make(folder)
        found: dict[str, dict[int, list[int]]] = {}
        for group, apart in GROUPS.items():
            _run(folder, group, apart, mark)
            for path in folder.glob(f"{group}.*"):
                _read(path, found)
    found.pop("-", None)
    return {name: _each(name, counted) for name, counted in found.items()}


def _run(folder: Path, group: str, apart: str, mark: Path) -> None:
    options = [f"--callgrind-out-file={folder / group}", f"--separate-threads={apart}"]
    valgrind = ["valgrind", "-q", "--tool=callgrind", "--fair-sched=yes", *options]
    program = [sys.executable, "-m", "instructions.calls", group, str(folder), str(mark)]
    environment = {**os.environ, **ENVIRONMENT}
    subprocess.run([*valgrind, *program], check=True, env=environment, timeout=TIMEOUT)


def _read(path: Path, found: dict[str, dict[int, list[int]]]) -> None:
    """Add the call, its repetitions and the instructions in one file."""
    text = path.read_text()
    trigger, totals = TRIGGER.search(text), TOTALS.search(text)
    if trigger and totals:
        rounds = found.setdefault(trigger[1], {}).setdefault(int(trigger[2]), [])
        rounds.append(int(totals[1]))


def _each(name: str, counted: dict[int, list[int]]) -> float:
    """Return the difference of the least rounds of both, a unit of work."""
    if len(counted) != 2:
        raise RuntimeError(f"{name} was counted for {sorted(counted)}: two counts are needed")
    few, many = sorted(counted)
    more = min(counted[many]) - min(counted[few])
    return round(more / (many - few), 1)
