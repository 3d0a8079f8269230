"""Stores beside snappy Parquet in Spark: the same messages read, found, written, rebuilt.

    make bench-spark ARGS="--messages 2000000 --rounds 3"

Each pair runs in turn in one session of ``local[2]``; medians are shown. Bodies of 1 KiB are
random letters, keys are distinct, tags vary. All files are in the page cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import rmqstore

TAGS = ("paid", "shipped", "delivered", "cancelled")
QUEUES = 64
CHUNK = 20_000  # messages a put
SMALL_BODY = 128  # bytes, of what is rebuilt
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

Work = Callable[[], object]
Row = tuple[str, str, str, str]


def write_messages(path: Path, messages: int, body_bytes: int) -> None:
    """Make a store of messages of one topic in 64 queues."""
    chance = np.random.default_rng(5)
    alphabet = np.frombuffer(LETTERS, np.uint8)
    with rmqstore.open(path, "a") as store:
        store.create_topic("orders", queue_nums=QUEUES)
        for first in range(0, messages, CHUNK):
            count = min(CHUNK, messages - first)
            letters = alphabet[chance.integers(0, 64, count * body_bytes, np.uint8)]
            ends = np.arange(count + 1, dtype=np.int32) * body_bytes
            bodies = pa.Array.from_buffers(
                pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(letters)]
            )
            store.put_many(
                "orders",
                bodies,
                tags=[TAGS[n % 4] for n in range(count)],
                keys=[f"order-{first + n}" for n in range(count)],
            )


@contextmanager
def session(cores: int, directory: Path) -> Iterator[Any]:
    """Yield a local session set up as the documentation recommends."""
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def in_turn(rounds: int, *works: Work, before: Work = bool) -> list[list[float]]:
    """Return the seconds of each work in each round, after one to warm up.

    Work done ``before`` each of them takes no time.
    """
    taken: list[list[float]] = [[] for _ in works]
    for turn in range(rounds + 1):
        for seconds, work in zip(taken, works, strict=True):
            before()
            began = time.perf_counter()
            work()
            if turn:
                seconds.append(time.perf_counter() - began)
    return taken


def ratio(theirs: list[float], ours: list[float]) -> str:
    """Return the ratio of theirs to ours, and the spread over the rounds."""
    each = sorted(a / b for a, b in zip(theirs, ours, strict=True))
    middle = statistics.median(theirs) / statistics.median(ours)
    return f"{middle:.2f} ({each[0]:.2f}-{each[-1]:.2f})"


def rate(messages: int, seconds: list[float]) -> str:
    middle = statistics.median(seconds)
    return f"{messages / middle:,.0f}/s ({middle:.3f} s)"


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def reading(spark: Any, store: Path, parquet: Path, messages: int, rounds: int) -> list[Row]:
    """All columns, three small ones, and one key out of all."""
    from pyspark.sql import functions as F

    def ours() -> Any:
        return spark.read.format("rmqstore")

    key = f"order-{random.Random(6).randrange(messages)}"
    with rmqstore.open(store) as opened:
        [wanted] = opened.query("orders", key)
    small = "topic,queue_id,store_timestamp"
    whole, columns, theirs = in_turn(
        rounds,
        lambda: noop(ours().load(str(store))),
        lambda: noop(ours().option("columns", small).load(str(store))),
        lambda: noop(spark.read.parquet(str(parquet))),
    )
    their_columns, _ = in_turn(
        rounds, lambda: noop(spark.read.parquet(str(parquet)).select(*small.split(","))), lambda: 0
    )

    def found(frame: Any) -> None:
        [row] = frame.collect()
        if row.physical_offset != wanted.physical_offset:
            raise SystemExit(f"found {row}, wanted {wanted.physical_offset}")

    by_option, by_filter, their_key, their_unique = in_turn(
        rounds,
        lambda: found(ours().option("topics", "orders").option("keys", key).load(str(store))),
        lambda: found(ours().load(str(store)).where(F.col("uniq_key") == wanted.uniq_key)),
        lambda: found(spark.read.parquet(str(parquet)).where(F.array_contains("keys", key))),
        lambda: found(spark.read.parquet(str(parquet)).where(F.col("uniq_key") == wanted.uniq_key)),
    )
    return [
        ("all columns", rate(messages, whole), rate(messages, theirs), ratio(theirs, whole)),
        (
            "topic, queue_id, store_timestamp; beside all columns",
            rate(messages, columns),
            rate(messages, whole),
            ratio(whole, columns),
        ),
        (
            "the same three; beside Parquet's three",
            rate(messages, columns),
            rate(messages, their_columns),
            ratio(their_columns, columns),
        ),
        (
            "one key, by the option",
            f"{statistics.median(by_option):.3f} s",
            f"{statistics.median(their_key):.3f} s",
            ratio(their_key, by_option),
        ),
        (
            "one unique key, by a filter that is pushed down",
            f"{statistics.median(by_filter):.3f} s",
            f"{statistics.median(their_unique):.3f} s",
            ratio(their_unique, by_filter),
        ),
    ]


def writing(spark: Any, parquet: Path, work: Path, messages: int, rounds: int) -> list[Row]:
    """Write the same DataFrame into a store and into Parquet."""
    frame = spark.read.parquet(str(parquet)).select("topic", "tags", "keys", "body", "queue_id")

    def to_store(flush: str) -> None:
        frame.write.format("rmqstore").option("flush", flush).option("queueNums", QUEUES).mode(
            "append"
        ).save(str(work / "written"))

    def by_tasks() -> None:
        from rmqstore.spark import write_store

        write_store(frame, str(work / "written"))

    def to_parquet() -> None:
        frame.write.parquet(str(work / "written.parquet"))

    def removed() -> None:
        for name in ("written", "written.parquet"):
            shutil.rmtree(work / name, ignore_errors=True)

    asynchronous, synchronous, tasks, theirs = in_turn(
        rounds,
        lambda: to_store("async"),
        lambda: to_store("sync"),
        by_tasks,
        to_parquet,
        before=removed,
    )
    removed()
    return [
        (name, rate(messages, ours), rate(messages, theirs), ratio(theirs, ours))
        for name, ours in (
            ("append, flush=async", asynchronous),
            ("append, flush=sync (Parquet does not sync)", synchronous),
            ("write_store, by the tasks", tasks),
        )
    ]


def rebuilding(work: Path, messages: int, rounds: int) -> list[Row]:
    """Queues and index from a log of small messages, by one worker and by two."""
    from rmqstore.spark import rebuild

    store = work / "small"
    write_messages(store, messages, SMALL_BODY)

    def removed() -> None:
        shutil.rmtree(work / "rebuilt", ignore_errors=True)

    taken = {}
    for cores in (1, 2):
        with session(cores, work) as spark:
            for mode in ("direct", "shuffle"):

                def once(mode: str = mode, spark: Any = spark) -> None:
                    rebuild(spark, str(store), str(work / "rebuilt"), mode=mode)

                [taken[mode, cores]] = in_turn(2 * rounds, once, before=removed)
    removed()
    return [
        (
            f"rebuild {mode}, {SMALL_BODY} bytes; beside one worker",
            rate(messages, taken[mode, 2]),
            rate(messages, taken[mode, 1]),
            ratio(taken[mode, 1], taken[mode, 2]),
        )
        for mode in ("direct", "shuffle")
    ]


def looking(work: Path, rounds: int) -> list[Row]:
    """Time the planning of a query, and a check for news, over 1,000 queues."""
    from rmqstore.spark.common.schema import spark_schema
    from rmqstore.spark.read.batch import BatchReader
    from rmqstore.spark.stream.source import StreamReader

    store = work / "queues"
    with rmqstore.open(store, "a") as opened:
        for topic in range(10):
            opened.create_topic(f"topic-{topic}", queue_nums=100)
            opened.put_many(f"topic-{topic}", [b"x" * 100] * 1000)

    def plan(**options: str) -> None:
        BatchReader({"path": str(store), **options}, spark_schema()).partitions()

    def stream(**options: str) -> Any:
        reader = StreamReader({"path": str(store), **options}, spark_schema())
        start = reader.initialOffset()
        limit = reader.getDefaultReadLimit()
        for _ in range(30):  # a stream is idle when it has seen nothing new for a while
            reader.latestOffset(start, limit)
            time.sleep(0.1)
        return lambda: reader.latestOffset(start, limit)

    names = ("plan all", "plan along queues", "an idle trigger's latestOffset")
    works = (plan, lambda: plan(consumeFrom="first"), stream())
    rows = []
    for name, taken in zip(names, in_turn(max(rounds, 5), *works), strict=True):
        rows.append((f"{name}, 1,000 queues", f"{statistics.median(taken) * 1e3:.2f} ms", "", ""))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="for the files, some GB; a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as temporary:
        work = Path(temporary)
        store, parquet = work / "store", work / "parquet"
        write_messages(store, given.messages, given.body)
        rows = looking(work, given.rounds)
        with session(2, work) as spark:
            spark.read.format("rmqstore").load(str(store)).write.parquet(str(parquet))
            rows += reading(spark, store, parquet, given.messages, given.rounds)
            rows += writing(spark, parquet, work, given.messages, given.rounds)
        rows += rebuilding(work, given.messages, given.rounds)
    print(
        f"{given.messages:,} messages of {given.body} bytes, {given.rounds} rounds, {os_name()}\n"
    )
    print("| work | ours | beside | ratio (spread) |\n|---|--:|--:|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def os_name() -> str:
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
