"""Plans of queries over a sparse store of 10 TiB: seconds, and the driver's memory.

    PYTHONPATH=bench:tests python bench/spark_scale.py DIRECTORY

10,000 log files of 1 GiB, 100,000 queues and 1,000 index files, of a few GB on the disk; it is made
where it is missing. Each query is planned by a process of its own, with what it opens first; run it
twice, as the first one reads the disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from support.sparse_store import SparseStore

STORE = SparseStore(10_000, 1 << 30, topics=1000, queues=100, records=40, indexed=10)
QUERIES = {
    "all of it": {},
    "along all queues": {"consumeFrom": "first"},
    "a rare key of a topic": {"topics": STORE.queue_of(300)[0], "keys": STORE.key_of(300)},
}
_PLAN = """
import ast, resource, sys, time
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.read.batch import BatchReader
began = time.perf_counter()
found = BatchReader(ast.literal_eval(sys.argv[1]), spark_schema()).partitions()
print(len(found), time.perf_counter() - began, time.process_time(),
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    store = parser.parse_args().directory / "sparse"
    if not (store / "checkpoint").exists():
        STORE.write(store)
    print("| query | tasks | seconds | of the processor | MiB |\n|---|--:|--:|--:|--:|")
    for name, options in QUERIES.items():
        given = repr({"path": str(store), **options})
        command = [sys.executable, "-c", _PLAN, given]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        tasks, wall, cpu, memory = done.stdout.split()
        print(f"| {name} | {tasks} | {float(wall):.1f} | {float(cpu):.1f} | {memory} |", flush=True)


if __name__ == "__main__":
    main()
