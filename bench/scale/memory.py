"""Memory of a process of its own beside the page cache: a reader's, and a writer's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import rmqstore
import workloads
from scale.rows import Line, at_most

READER_MIB, WRITER_MIB = 200, 150
SIZE = 128


def own() -> int:
    """Return the KiB that are this process's alone, without pages of files."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous:\s+(\d+) kB", rollup, re.MULTILINE)[1])


def run(module: str, function: str, *arguments: object) -> list[int]:
    """Run a function of a part in a process of its own; return the numbers that it prints."""
    program = f"import sys\nfrom scale import {module}\n{module}.{function}(*sys.argv[1:])\n"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [int(number) for number in done.stdout.split()]


def write(path: str, count: str) -> None:
    """Put messages, a call each, and print the process's own memory."""
    rows = workloads.bodies(SIZE, workloads.POOL)
    with rmqstore.open(path, "a") as store:
        store.create_topic(workloads.TOPIC, workloads.QUEUES)
        for start in range(0, int(count), len(rows)):
            workloads.put_each(store, rows[: int(count) - start])
        print(own())


def lines(folder: Path, count: int) -> list[Line]:
    """Return the memory of a writer after so many puts."""
    (kib,) = run("memory", "write", folder / "written", count)
    shutil.rmtree(folder / "written")
    return [at_most(f"a writer after {count:,} puts: of its own", kib / 1024, WRITER_MIB, "MiB")]
