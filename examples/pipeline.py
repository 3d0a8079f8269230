"""A pipeline that is killed in the middle and still adds up.

Orders are put into a store by one process. A Spark query of another process reads them as they
come, sums up the revenue of each minute and region, and writes the sums twice: as Parquet, and as
messages of a topic in a second store. On the way the whole Spark process is killed with
``kill -9`` and started again. In the end three totals are compared, order by order: what was put,
what the Parquet files say, and what the topic says.

    python examples/pipeline.py build/pipeline          # about a minute and a half
    python examples/pipeline.py build/pipeline --short

It needs ``pip install "rmqstore[spark]" matplotlib`` and Java 17.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pipeline_picture
import rmqstore
from pipeline_picture import Sampler

REGIONS = ("africa", "america", "asia", "europe", "oceania")
MINUTE = 60_000  # ms
FIRST_ORDER = 1_767_225_600_000  # 2026-01-01T00:00:00Z
CHUNK = 500  # orders a put
EVENT_MINUTES_A_SECOND = 2.0  # the orders' own clock runs faster than ours
MARK = "made-by-the-pipeline-example"
SAMPLES = "samples.jsonl"
CLOSING = "closing"  # the region of the order that closes all windows

Totals = Counter[tuple[int, str]]  # cents, or orders, by minute and region


# ---- the process that puts orders


def put_orders(store_path: Path, orders: int, seconds: float) -> None:
    """Put orders at an even pace: a table of columns at a time."""
    import pyarrow as pa

    chance = random.Random(4)
    began = time.monotonic()
    pace = seconds / orders
    with rmqstore.open(store_path, "a") as store:
        for first in range(0, orders, CHUNK):
            numbers = range(first, min(first + CHUNK, orders))
            regions = chance.choices(REGIONS, (1, 4, 6, 5, 1), k=len(numbers))
            bodies = [
                json.dumps({"order": n, "amount": chance.randint(100, 50_000)}).encode()
                for n in numbers
            ]
            times = [_event_time(n * pace) - chance.randint(0, MINUTE // 2) for n in numbers]
            store.put_table(
                pa.table(
                    {
                        "topic": pa.array(["orders"] * len(numbers)),
                        "body": pa.array(bodies, pa.binary()),
                        "tags": pa.array(regions),
                        "keys": pa.array([[f"order-{n}"] for n in numbers]),
                        "born_timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
                    }
                )
            )
            ahead = numbers.stop * pace - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
        # One order far in the future: windows are given out when no earlier one can come.  Its
        # own window stays open, so nothing has to leave it out.
        body = json.dumps({"order": -1, "amount": 0}).encode()
        end = _event_time(seconds) + 60 * MINUTE
        store.put("orders", body, tags=CLOSING, born_timestamp=end)


def _event_time(second: float) -> int:
    return FIRST_ORDER + int(second * EVENT_MINUTES_A_SECOND * MINUTE)


# ---- the process that is killed


def run_queries(
    orders_path: Path, revenue_path: Path, work: Path, closed: str, bound: float
) -> None:
    """Sum the orders up until the watermark is at ``closed``."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    session = (
        SparkSession.builder.master("local[2]")
        .appName("revenue")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(work / "local"))
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    orders = (
        session.readStream.format("rmqstore")
        .option("topics", "orders")
        .option("consumeFrom", "first")
        .option("columns", "tags,body,born_timestamp")
        .load(str(orders_path))
    )
    revenue = (
        orders.select(
            F.col("tags").alias("region"),
            F.col("born_timestamp").alias("time"),
            F.from_json(F.col("body").cast("string"), "amount long").amount.alias("cents"),
        )
        .withWatermark("time", "10 minutes")
        .groupBy(F.window("time", "1 minute"), "region")
        .agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))
        .select(F.col("window.start").alias("minute"), "region", "cents", "orders")
    )
    as_files = (
        revenue.coalesce(1)
        .writeStream.queryName("parquet")
        .trigger(processingTime="500 milliseconds")
        .format("parquet")
        .option("checkpointLocation", str(checkpoints(work)["parquet"]))
        .start(str(work / "revenue.parquet"))
    )
    as_messages = (
        revenue.select(
            F.to_json(F.struct("minute", "region", "cents", "orders")).cast("binary").alias("body"),
            F.col("region").alias("tags"),
            F.array(F.date_format("minute", "yyyy-MM-dd'T'HH:mm")).alias("keys"),
        )
        .writeStream.queryName("topic")
        .trigger(processingTime="500 milliseconds")
        .format("rmqstore")
        .option("topic", "revenue")
        .option("checkpointLocation", str(checkpoints(work)["topic"]))
        .start(str(revenue_path))
    )
    queries = (as_files, as_messages)
    give_up = time.monotonic() + bound
    open_queries = set(queries)
    while open_queries and time.monotonic() < give_up:
        time.sleep(0.1)
        for query in list(open_queries):
            if not query.isActive:
                raise SystemExit(f"query {query.name} failed: {query.exception()}")
            last = query.lastProgress
            # That batch has given out the last window.
            if last is not None and last.eventTime.get("watermark", "") >= closed:
                open_queries.discard(query)
    for query in queries:
        query.stop()
    session.stop()
    if open_queries:
        raise SystemExit("the queries did not come to their end in time")


# ---- what was put, and what came out


def totals_of_orders(path: Path) -> tuple[Totals, Totals]:
    """Sum up the orders themselves, without Spark."""
    cents, count = Counter(), Counter()
    with rmqstore.open(path) as store:
        for batch in store.scan("orders", columns=["tags", "body", "born_timestamp"]).to_batches():
            for row in batch.to_pylist():
                if row["tags"] != CLOSING:
                    at = int(row["born_timestamp"].timestamp() * 1000) // MINUTE
                    cents[at, row["tags"]] += json.loads(row["body"])["amount"]
                    count[at, row["tags"]] += 1
    return cents, count


def totals_of_files(path: Path) -> tuple[Totals, Totals]:
    """Sum up the Parquet files that Spark's own log of the sink names."""
    from pyarrow import parquet

    cents, count = Counter(), Counter()
    for file in sorted(_committed_files(path)):
        for row in parquet.read_table(file).to_pylist():
            at = int(row["minute"].timestamp()) // 60
            cents[at, row["region"]] += row["cents"]
            count[at, row["region"]] += row["orders"]
    return cents, count


def _committed_files(path: Path) -> set[Path]:
    """Files of batches that were committed; a killed batch may have left others."""
    found = set()
    for log in (path / "_spark_metadata").iterdir():
        if log.name.split(".")[0].isdigit():
            for line in log.read_text().splitlines()[1:]:
                found.add(Path(json.loads(line)["path"].removeprefix("file://")))
    return found


def totals_of_topic(path: Path) -> tuple[Totals, Totals]:
    """Sum up the messages of the topic that Spark wrote."""
    cents, count = Counter(), Counter()
    with rmqstore.open(path) as store:
        for message in store.scan("revenue"):
            row = json.loads(message.body)
            at = int(datetime.fromisoformat(row["minute"]).timestamp()) // 60
            cents[at, row["region"]] += row["cents"]
            count[at, row["region"]] += row["orders"]
    return cents, count


# ---- one after the other


def start(role: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start this file as another process, in a group of its own so that it can be killed whole."""
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **os.environ,
    }
    command = [sys.executable, __file__, "--role", role, *map(str, arguments)]
    return subprocess.Popen(command, start_new_session=True, env=environment)


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, as ``kill -9`` does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(timeout=30)


def batches_done(work: Path) -> int:
    """How many batches the slower query has finished."""
    commits = [checkpoint / "commits" for checkpoint in checkpoints(work).values()]
    return min(
        sum(file.name.isdigit() for file in path.iterdir()) if path.exists() else 0
        for path in commits
    )


def checkpoints(work: Path) -> dict[str, Path]:
    """Return the checkpoint of each query, by its name."""
    return {name: work / f"checkpoint-{name}" for name in ("parquet", "topic")}


def run(directory: Path, *, orders: int, seconds: float) -> int:
    """Run it all; 0 if the totals agree."""
    work = directory.absolute()
    if work.exists() and not (work / MARK).exists():
        raise SystemExit(f"{work} is there and not from an earlier run: name another directory")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / MARK).touch()
    orders_path, revenue_path = work / "orders", work / "revenue"
    closed = datetime.fromtimestamp(_event_time(seconds) / 1000, UTC).isoformat()[:19]
    with rmqstore.open(orders_path, "a") as store:  # so that the stream finds it
        store.create_topic("orders", queue_nums=4)
    kills: list[float] = []
    bound = 10 * seconds + 300
    children = []
    with rmqstore.open(orders_path) as store:
        sampler = Sampler(store, "orders", checkpoints(work), work / SAMPLES)
        try:
            print("Spark starts and waits for orders", flush=True)
            queries = start("queries", orders_path, revenue_path, work, closed, bound)
            children.append(queries)
            give_up = time.monotonic() + bound
            while batches_done(work) < 1:
                if queries.poll() is not None or time.monotonic() > give_up:
                    raise SystemExit("Spark did not start")
                time.sleep(0.1)
            print(f"orders are put, {orders:,} in {seconds:.0f} s; Spark sums them up", flush=True)
            writer = start("writer", orders_path, orders, seconds)
            children.append(writer)
            put_began = time.monotonic()
            while queries.poll() is None and time.monotonic() < give_up:
                time.sleep(0.05)
                sampler.sample_when_due()
                on_the_way = time.monotonic() - put_began > seconds / 3
                if writer.poll():
                    raise SystemExit("putting orders failed")
                if not kills and on_the_way and batches_done(work) >= 4:
                    kill(queries)
                    kills.append(sampler.sample(time.time()).at)
                    print("kill -9 of Spark in the middle of its work; started again", flush=True)
                    queries = start("queries", orders_path, revenue_path, work, closed, bound)
                    children.append(queries)
            if queries.poll() != 0 or not kills:
                raise SystemExit("Spark did not come to its end")
            sampler.sample(time.time())
        finally:
            for child in children:
                if child.poll() is None:
                    kill(child)
    return report(work, orders_path, revenue_path, kills, orders)


def report(
    work: Path, orders_path: Path, revenue_path: Path, kills: list[float], orders: int
) -> int:
    """Compare the totals, and draw how it went."""
    cents, count = totals_of_orders(orders_path)
    print(f"{'':>10}{'windows':>10}{'orders':>12}{'revenue':>18}")
    right = sum(count.values()) == orders
    for name, (of_cents, of_count) in {
        "put": (cents, count),
        "parquet": totals_of_files(work / "revenue.parquet"),
        "topic": totals_of_topic(revenue_path),
    }.items():
        equal = (of_cents, of_count) == (cents, count)
        right &= equal
        revenue = sum(of_cents.values()) / 100
        print(
            f"{name:>10}{len(of_count):>10,}{sum(of_count.values()):>12,}{revenue:>18,.2f}"
            f"{'' if equal else '  differs'}"
        )
    samples = pipeline_picture.read_samples(work / SAMPLES)
    print(*pipeline_picture.summary(samples, kills), sep="\n")
    pipeline_picture.draw(samples, kills, work / "pipeline.png")
    print(f"throughput and lag: {work / 'pipeline.png'}")
    print("exact, each order once" if right else "NOT EXACT")
    return 0 if right else 1


def main() -> int:
    """Run the pipeline, or be one of its processes."""
    if sys.argv[1:2] == ["--role"]:
        role, given = sys.argv[2], sys.argv[3:]
        if role == "writer":
            put_orders(Path(given[0]), int(given[1]), float(given[2]))
        else:
            run_queries(*map(Path, given[:3]), given[3], float(given[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="made anew: what is there is removed")
    parser.add_argument("--short", action="store_true", help="a fifth of the orders")
    arguments = parser.parse_args()
    if arguments.short:
        return run(arguments.directory, orders=40_000, seconds=20)
    return run(arguments.directory, orders=400_000, seconds=60)


if __name__ == "__main__":
    sys.exit(main())
