"""A Spark cluster on one machine: a master, two workers, and the failures of a cluster.

Orders are copied by a stream from a store into another, while an executor, a worker and the driver
are killed in turn. Then they are counted, queues and index rebuilt, both stores verified, and the
orders written once more, up to a time by a job and from it on by a stream. At last one worker does
not see the store's directory. Each result is compared with the orders themselves, without Spark.

    python examples/cluster.py build/demo-cluster       # a minute or two on two idle cores

It needs ``pip install ".[spark]"`` in the checkout and Java 17, and listens on loopback only. Its
output is also in ``report.txt`` of the directory; the rest of what it makes there is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TextIO

import rmqstore
from cluster_processes import Cluster, Process

JOB = Path(__file__).with_name("cluster_job.py")
REGIONS = ("africa", "america", "asia", "europe", "oceania")
FIRST = 30_000  # orders before the stream
LATER = 10_000  # orders before each kill
VICTIMS = ("executor", "worker", "driver")
BOUND = 285.0  # seconds
BLIND_HOST = "host-without-the-disk"
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4 << 20,
    mapped_file_size_consume_queue=20 * 5000,
    max_hash_slot_num=10_000,
    max_index_num=25_000,
)


class Demo:
    """The steps on a cluster, with the orders put so far and the report."""

    def __init__(self, cluster: Cluster, shared: Path, report: TextIO) -> None:
        self.cluster = cluster
        self.shared = shared  # the directory that the blind worker does not see
        self.store, self.sink = shared / "orders", shared / "copies"
        self.report = report
        self.is_right = True
        self.sums = {region: [0, 0] for region in REGIONS}
        self.put = 0
        self.random = random.Random(4)

    def run(self) -> None:
        """Run all steps."""
        self.title("a master and two workers start, each worker with one core and 1 GB")
        self.cluster.start_master()
        workers = [self.cluster.start_worker(f"worker-{number}") for number in (1, 2)]
        with rmqstore.open(self.store, "a", config=CONFIG) as store:
            self.put_orders(store, FIRST)
            until = max(queue[-1].store_timestamp for queue in store["orders"].values()) + 1
            self.title(f"{FIRST:,} orders are put, and {LATER:,} before each kill; a stream copies")
            self.stream(store, workers)
        self.compare(self.sink)
        self.title("one job counts, rebuilds, verifies, and backfills")
        self.work(until)
        self.title(f"another worker in place of one; on its host {self.shared} is empty")
        self.cluster.end(workers.pop())
        self.blind()

    def title(self, text: str) -> None:
        """Report the beginning of a step."""
        self.say(f"{self.cluster.seconds():4.0f} s  {text}")

    def say(self, text: str) -> None:
        """Print a line, also into the report."""
        for file in (sys.stdout, self.report):
            print(text, file=file, flush=True)

    def check(self, is_right: bool, text: str) -> None:
        """Report a result."""
        self.is_right &= is_right
        self.say(f"        {'ok' if is_right else 'WRONG'}: {text}")

    def put_orders(self, store: rmqstore.MessageStore, count: int) -> None:
        """Put orders, and add them to the sums."""
        numbers = range(self.put, self.put + count)
        regions = self.random.choices(REGIONS, (1, 4, 6, 5, 1), k=count)
        amounts = [self.random.randint(100, 50_000) for _ in numbers]
        bodies = []
        for number, region, amount in zip(numbers, regions, amounts, strict=True):
            self.sums[region][0] += 1
            self.sums[region][1] += amount
            body = {"order": number, "amount": amount, "note": "-" * 200}
            bodies.append(json.dumps(body).encode())
        store.put_many("orders", bodies, tags=regions, keys=[f"order-{n}" for n in numbers])
        self.put += count

    def stream(self, store: rmqstore.MessageStore, workers: list[Process]) -> None:
        """Copy the orders while processes of the stream are killed."""
        checkpoint, end = self.shared / "checkpoint", self.shared / "end"
        copy = (JOB, "copy", self.store, self.sink, checkpoint, end)
        job = self.cluster.submit(*copy)
        for victim in VICTIMS:
            self.put_orders(store, LATER)
            batch = self.cluster.until(lambda: batch_under_way(checkpoint), "a batch under way")
            killed = self.cluster.seconds()
            if victim == "executor":
                self.cluster.kill_executor(workers[0])
            elif victim == "worker":
                self.cluster.end(workers.pop())
                workers.append(self.cluster.start_worker("worker-3"))
            else:
                self.cluster.end(job)
                job = self.cluster.submit(*copy)
            self.cluster.until((checkpoint / "commits" / str(batch)).exists, f"batch {batch}")
            later = self.cluster.seconds() - killed
            self.say(f"        {victim} killed in batch {batch}, which ended {later:.1f} s later")
        end.touch()
        lag = self.cluster.result("copy", job)
        executors, hosts = self.cluster.executors()
        self.check(lag == 0, f"lag {lag} in the end; {executors} executors on {hosts} workers")

    def compare(self, sink: Path) -> None:
        """Compare the orders of a sink with those of the source, one by one."""
        source, copies = (Counter(bodies_of(path)) for path in (self.store, sink))
        missing = len(source.keys() - copies.keys())
        self.say(f"        {'':<8}{'messages':>10}{'distinct':>10}{'missing':>10}")
        self.say(f"        {'source':<8}{source.total():>10,}{len(source):>10,}")
        self.say(f"        {'sink':<8}{copies.total():>10,}{len(copies):>10,}{missing:>10,}")
        self.check(source == copies and len(source) == self.put, "each order once")

    def work(self, until: int) -> None:
        """Check the results of the batch job."""
        made, backfilled = self.shared / "rebuilt", self.shared / "backfilled"
        paths = (self.store, self.sink, made, backfilled, self.shared / "checkpoint-2")
        found = self.cluster.result("work", self.cluster.submit(JOB, "work", *paths, until))
        queues, log = found["counts"]["consumequeue"], found["counts"]["commitlog"]
        self.say(f"        {'':<8}{'orders':>10}{'Spark':>10}{'revenue':>16}{'Spark':>16}")
        for region, (orders, cents) in self.sums.items():
            number, total = queues[region]
            self.say(
                f"        {region:<8}{orders:>10,}{number:>10,}"
                f"{cents / 100:>16,.2f}{total / 100:>16,.2f}"
            )
        self.check(queues == log == self.sums, "counts and sums, along the queues and the log")
        messages, processes = found["rebuilt"]
        pairs = [(files_of(self.store / name), files_of(made / name))
                 for name in ("consumequeue", "index")]  # fmt: skip
        self.check(
            messages == self.put and all(original == again for original, again in pairs),
            f"{sum(len(again) for _, again in pairs)} files rebuilt for {messages:,} messages, "
            f"equal byte for byte, by {processes} processes",
        )
        for path, differences in found["differences"].items():
            self.check(differences == 0, f"verify {Path(path).name}: {differences} differences")
        once, twice, both = found["backfilled"]
        self.check(once == twice == FIRST, f"{once:,} up to a time by a job; run again: {twice:,}")
        self.check(both == self.put, f"{both - twice:,} more from it on by a stream")
        self.compare(backfilled)

    def blind(self) -> None:
        """Run a query and a job with a worker that sees an empty directory for the shared one."""
        space = ["unshare", "--mount", "--uts"]
        if os.geteuid() != 0:
            space.append("--map-root-user")
        hide = f'hostname {BLIND_HOST} && mount -t tmpfs none "$0" && exec "$@"'
        allowed = subprocess.run([*space, "true"], capture_output=True, text=True, check=False)
        if allowed.returncode != 0:
            self.say(f"        left out: {' '.join(space)}: {allowed.stderr.strip()}")
            return
        self.cluster.start_worker("worker-4", *space, "sh", "-c", hide, str(self.shared))
        # No second attempt, which the other worker could make.
        job = self.cluster.submit(JOB, "blind", self.store, **{"spark.task.maxFailures": "1"})
        for name, error in self.cluster.result("blind", job).items():
            line = re.search(
                f"host {BLIND_HOST} does not see {re.escape(str(self.store))}.*", error
            )
            self.check(line is not None, f"{name}: {line[0] if line else error[-500:]}")


def batch_under_way(checkpoint: Path) -> int | None:
    """Return the number of a batch after the first that is planned and not committed, if any."""
    planned, done = (
        max((int(path.name) for path in (checkpoint / name).glob("[0-9]*")), default=-1)
        for name in ("offsets", "commits")
    )
    return planned if planned > max(done, 0) else None


def bodies_of(store: Path) -> list[bytes]:
    """Return the bodies of the orders in a store."""
    with rmqstore.open(store) as opened:
        return opened.scan("orders", columns=["body"]).to_table()["body"].to_pylist()


def files_of(directory: Path) -> list[bytes]:
    """Return the contents of a directory's files in the order of their names."""
    return [path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()]


def stop(number: int, _: object) -> None:
    """End by a signal as by an error."""
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="for the report; made if missing")
    directory = parser.parse_args().directory.absolute()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    directory.mkdir(parents=True, exist_ok=True)
    work = directory / "work"
    if work.exists():
        raise SystemExit(f"{work} belongs to another run: remove it if that has ended")
    work.mkdir()
    shared = work / "shared"
    shared.mkdir()
    try:
        with (
            (directory / "report.txt").open("w") as report,
            Cluster(work / "cluster", BOUND) as cluster,
        ):
            demo = Demo(cluster, shared, report)
            demo.run()
            demo.title("done: all exact" if demo.is_right else "done: NOT EXACT")
    finally:
        shutil.rmtree(work)
    return 0 if demo.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
