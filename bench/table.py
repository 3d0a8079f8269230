"""Ours beside what the machine needs at least, in one run, and how far each goal is.

    python bench/table.py LIMITS [--rounds N] [--check]

``LIMITS`` is the program built from ``bench/limits/limits.c``.  Every round runs each workload and
its limit one after the other, on fresh files in the same folder; the table has medians over the
rounds and, behind the ratio, the smallest and the greatest of the rounds' own ratios.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import rmqstore
import workloads

WINDOW_MIB = 64  # blocks reserved at a time, about as the store does
PUT_1K = 200_000
PUT_128 = 1_000_000
KEYS = 2_000_000
ASKED = 20_000
SCANNED = 500_000
CRC_SIZES = (64, 1 << 10, 4 << 10, 1 << 20)


@dataclass
class Row:
    """One line of the table: nanoseconds a message, key or call, a value a round."""

    name: str
    beside: str  # what it is compared with; "" where the goal is absolute
    goal: str
    reached: Callable[["Row"], bool]
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        """Return ours over theirs, by medians."""
        return statistics.median(self.ours) / statistics.median(self.theirs)

    def cells(self) -> list[str]:
        """Return the line's cells, as text."""
        ours = statistics.median(self.ours)
        cells = [self.name, f"{ours:,.1f}", f"{1e9 / ours:,.0f}"]
        if not self.beside:
            return [*cells, "", "", "", self.goal, self.verdict()]
        each = [a / b for a, b in zip(self.ours, self.theirs, strict=True)]
        spread = f"{self.ratio():.2f} ({min(each):.2f}-{max(each):.2f})"
        theirs = f"{statistics.median(self.theirs):,.1f}"
        return [*cells, self.beside, theirs, spread, self.goal, self.verdict()]

    def verdict(self) -> str:
        """Return whether the goal is reached, empty without one."""
        if not self.goal:
            return ""
        return "reached" if self.reached(self) else "MISSED"


def at_most(ratio: float) -> dict[str, object]:
    return {"goal": f"<= {ratio:g} x limit", "reached": lambda row: row.ratio() <= ratio}


def times_faster(times: float) -> dict[str, object]:
    return {"goal": f">= {times:g} x zlib", "reached": lambda row: row.ratio() <= 1 / times}


def under(nanoseconds: float, text: str) -> dict[str, object]:
    return {"goal": text, "reached": lambda row: statistics.median(row.ours) <= nanoseconds}


NO_GOAL: dict[str, object] = {"goal": "", "reached": lambda _row: True}


def timed(work: Callable[[], object], count: int) -> float:
    """Return nanoseconds for each of ``count``."""
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / count


def limit(program: str, *arguments: object) -> float:
    """Run the limits program and return the smallest time in its output."""
    os.sync()
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return min(float(line.split()[1]) for line in done.stdout.splitlines())


def put(row: Row, program: str, size: int, count: int, *, many: bool) -> None:
    record = workloads.record_size(size)
    rows = workloads.bodies(size, count)
    where = workloads.root()
    row.theirs.append(limit(program, "put", size, record, count, WINDOW_MIB, where))
    os.sync()
    with workloads.fresh_store() as store:
        store.put(workloads.TOPIC, b"warm", queue_id=0)
        if many:
            row.ours.append(timed(lambda: store.put_many(workloads.TOPIC, rows), count))
        else:
            row.ours.append(timed(lambda: workloads.put_each(store, rows), count))


def dispatch(row: Row, size: int, count: int) -> None:
    with workloads.scratch() as scratch:
        path = workloads.written(scratch / "store", size, count)
        workloads.forget_dispatch(path)
        os.sync()
        start = time.perf_counter_ns()
        store = workloads.open_and_dispatch(path, count)
        row.ours.append((time.perf_counter_ns() - start) / count)
        store.close()


def query(row: Row, count: int) -> None:
    with workloads.fresh_store() as store:
        workloads.fill(store, 128, count, with_keys=True)
        wanted = random.Random(3).sample(workloads.keys(count), ASKED)
        workloads.query_each(store, wanted[:1000])
        row.ours.append(timed(lambda: workloads.query_each(store, wanted), ASKED))


def index(row: Row, program: str) -> None:
    names = [f"{workloads.TOPIC}#{key}" for key in workloads.keys(KEYS)]
    offsets = list(range(0, 250 * KEYS, 250))
    times = [1_700_000_000_000 + n // 100 for n in range(KEYS)]
    row.theirs.append(limit(program, "index", KEYS, workloads.root()))
    os.sync()
    with workloads.scratch() as path:
        file = rmqstore.IndexFile(path / "00000000000000000", mode="a")
        row.ours.append(timed(lambda: file.put_keys(names, offsets, times), KEYS))
        file.close()


def scan(rows: list[Row], count: int) -> None:
    """All columns and three small ones, of a store open for reading and for writing."""
    with workloads.scratch() as scratch:
        path = workloads.written(scratch / "store", 1024, count, with_keys=True)
        for mode, pair in (("r", rows[:2]), ("r+", rows[2:])):
            with rmqstore.open(path, mode) as store:
                for row, columns in zip(pair, (None, workloads.THREE_COLUMNS), strict=True):
                    row.ours.append(timed(partial(workloads.scan_all, store, columns), count))


def crc(rows: dict[str, Row], program: str, size: int) -> None:
    (data,) = workloads.bodies(size, 1)
    calls = min((64 << 20) // size, 100_000)

    def ours() -> None:
        crc32 = rmqstore.crc32
        for _ in range(calls):
            crc32(data)

    def theirs() -> None:
        crc32 = zlib.crc32
        for _ in range(calls):
            crc32(data)

    mine = timed(ours, calls)
    rows["zlib"].ours.append(mine)
    rows["zlib"].theirs.append(timed(theirs, calls))
    rows["limit"].ours.append(mine)
    rows["limit"].theirs.append(limit(program, "crc", size))


def print_table(rows: list[Row]) -> None:
    heads = ["workload", "ns each", "each s", "beside", "ns each", "ratio", "goal", ""]
    lines = [heads, *(row.cells() for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(heads))]
    right = {1, 2, 4}
    for number, line in enumerate(lines):
        cells = [
            cell.rjust(widths[n]) if n in right else cell.ljust(widths[n])
            for n, cell in enumerate(line)
        ]
        print("  ".join(cells).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("limits")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit code 1 where a goal is missed")
    options = parser.parse_args()
    program = options.limits

    put_1k = Row("put 1 KiB", "limit", **at_most(4))
    put_128 = Row("put 128 B", "limit", **NO_GOAL)
    many_128 = Row("put_many 128 B", "limit", **at_most(2.5))
    many_1k = Row("put_many 1 KiB", "limit", **NO_GOAL)
    dispatched = Row("dispatch 128 B", "", **under(400, ">= 2,500,000/s"))
    queried = Row("query", "", **under(3000, "< 3 us"))
    indexed = Row("index put_keys", "limit", **NO_GOAL)
    all_columns, three_columns = under(1000, ">= 1,000,000/s"), under(200, ">= 5,000,000/s")
    scans = [
        Row('scan 1 KiB, all columns, "r"', "", **all_columns),
        Row('scan 1 KiB, three small, "r"', "", **three_columns),
        Row('scan 1 KiB, all columns, "r+"', "", **all_columns),
        Row('scan 1 KiB, three small, "r+"', "", **three_columns),
    ]
    crcs = {}
    for size in CRC_SIZES:
        goal = {64: NO_GOAL, 1024: times_faster(3)}.get(size, times_faster(5))
        crcs[size] = {
            "zlib": Row(f"crc32 {size:,} B", "zlib", **goal),
            "limit": Row(f"crc32 {size:,} B", "limit", **NO_GOAL),
        }

    for number in range(options.rounds + 1):  # the first one warms up
        put(put_1k, program, 1024, PUT_1K, many=False)
        put(put_128, program, 128, PUT_128 // 4, many=False)
        put(many_128, program, 128, PUT_128, many=True)
        put(many_1k, program, 1024, PUT_1K, many=True)
        dispatch(dispatched, 128, PUT_128)
        query(queried, PUT_128 // 2)
        index(indexed, program)
        scan(scans, SCANNED)
        for size in CRC_SIZES:
            crc(crcs[size], program, size)
        rows = [put_1k, put_128, many_128, many_1k, dispatched, queried, indexed, *scans]
        rows += [row for pair in crcs.values() for row in pair.values()]
        if number == 0:
            for row in rows:
                row.ours.clear()
                row.theirs.clear()
        print(f"round {number} of {options.rounds}", file=sys.stderr)

    print_table(rows)
    return 1 if options.check and any(row.verdict() == "MISSED" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
