"""The whole way on one kind of master, in small: sources, sinks and jobs, each checked by itself.

    python spark_round_trip.py <kind> <directory>

One SparkContext a process: so this is a program. It prints one line of JSON, what it has found.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rmqstore
import rmqstore.spark
from rmqstore.spark.jobs.arrow_map import mapped
from support.clusters import (
    connect_server,
    end_with_parent,
    linked_home,
    session_settings,
    standalone,
)

KINDS = ("local", "local-cluster", "standalone", "connect")
TOPICS = ("orders", "payments", "parcels")
MESSAGES = 3000
SEEN = ("topic", "queue_id", "queue_offset", "physical_offset", "tags", "body")
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=256 << 10,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=500,
    max_index_num=2000,
)


class Everywhere:
    """The checks, and what is found on the way."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.source = directory / "source"
        self.rng = random.Random(7)
        self.facts: dict[str, Any] = {"seconds": {}}
        self.put(self.source, MESSAGES)

    def run(self) -> dict[str, Any]:
        for check in (self.batch_source, self.streams, self.batch_sink, self.rebuilds, self.jobs):
            began = time.monotonic()
            check()
            self.facts["seconds"][check.__name__] = round(time.monotonic() - began, 1)
            print(check.__name__, self.facts, file=sys.stderr)
        return self.facts

    # Contents

    def put(self, path: Path, count: int) -> None:
        rng = self.rng
        with rmqstore.open(path, "a", config=CONFIG) as store:
            for topic in TOPICS:
                if topic not in store.topics:
                    store.create_topic(topic, queue_nums=4)
            store.put_many(
                rng.choices(TOPICS, (6, 3, 1), k=count),
                [rng.randbytes(rng.randint(20, 600)) for _ in range(count)],
                tags=rng.choices(("TagA", "TagB", None), k=count),
                keys=[[f"key-{rng.randrange(100)}"] for _ in range(count)],
            )

    def load(self, path: Path, **options: object) -> DataFrame:
        named = {name: str(value) for name, value in options.items()}
        return self.spark.read.format("rmqstore").options(**named).load(str(path))

    @staticmethod
    def rows(df: DataFrame, names: Iterable[str] = SEEN) -> list[tuple]:
        table = df.select(*names).toArrow()
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)

    @staticmethod
    def known(path: Path, names: Iterable[str] = SEEN, **arguments: Any) -> list[tuple]:
        with rmqstore.open(path) as store:
            table = store.scan(columns=list(names), **arguments).to_table()
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)

    # Sources

    def batch_source(self) -> None:
        every = self.known(self.source)
        assert len(every) == MESSAGES
        columns = ",".join(SEEN)
        for scan in ("auto", "commitlog", "consumequeue"):
            found = self.load(self.source, scan=scan, columns=columns, maxPartitionBytes="300k")
            assert self.rows(found) == every, scan
        of_key = self.load(self.source, scan="index", topics="orders", keys="key-7,key-8")
        expected = self.known(self.source, topic="orders", keys=["key-7", "key-8"])
        assert self.rows(of_key) == expected != []
        for pushed in ("true", "false"):
            self.spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
            chosen = self.load(self.source).where(
                (F.col("topic") == "payments") & (F.col("queue_id") < 2) & (F.col("tags") == "TagA")
            )
            wanted = [
                row for row in every if row[0] == "payments" and row[1] < 2 and row[4] == "TagA"
            ]
            assert self.rows(chosen) == wanted != [], pushed
        split = self.load(self.source, maxPartitionBytes="100k", columns="topic,body")
        found = mapped(split, _executor, "executor long, rows long, pandas boolean").toArrow()
        assert sum(found["rows"].to_pylist()) == MESSAGES
        self.facts["partitions"] = found.num_rows
        self.facts["executors"] = len(set(found["executor"].to_pylist()))
        there = set(found["pandas"].to_pylist()) | {find_spec("pandas") is not None}
        [self.facts["pandas"]] = there  # the driver and all workers agree

    def streams(self) -> None:
        copy = self.directory / "copied"
        for turn in range(2):
            self.pump(self.source, copy, turn)
            expected = self.known(self.source, ("topic", "tags", "body"))
            assert self.known(copy, ("topic", "tags", "body")) == expected
            self.put(self.source, 200)
        self.facts["streamed"] = len(expected)

    def pump(self, source: Path, copy: Path, turn: int) -> None:
        read = (
            self.spark.readStream.format("rmqstore")
            .option("consumeFrom", "first")
            .option("maxMessagesPerTrigger", "2000")
            .load(str(source))
        )
        query = (
            read.select("topic", "tags", "keys", "body")
            .writeStream.format("rmqstore")
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(copy))
        )
        try:
            assert query.awaitTermination(90), "the stream takes too long"
            if turn == 0:
                self.facts["batches"] = query.lastProgress["batchId"] + 1
        finally:
            query.stop()

    # Sinks

    def batch_sink(self) -> None:
        sunk = self.directory / "sunk"
        written = self.load(self.source, topics="orders").select("topic", "tags", "keys", "body")
        expected = self.known(self.source, ("tags", "body"), topic="orders")
        for turn in (1, 2):
            written.write.format("rmqstore").mode("append").save(str(sunk))
            assert self.known(sunk, ("tags", "body")) == sorted(expected * turn, key=repr)
        (
            written.drop("topic")
            .write.format("rmqstore")
            .mode("overwrite")
            .option("topic", "again")
            .option("allowOverwrite", "true")
            .save(str(sunk))
        )
        assert self.known(sunk, ("tags", "body"), topic="again") == expected
        assert self.known(sunk, ("topic",)) == [("again",)] * len(expected)
        self.facts["sunk"] = len(expected)

    # Jobs

    def rebuilds(self) -> None:
        for mode in ("direct", "shuffle"):
            made = self.directory / f"rebuilt-{mode}"
            result = rmqstore.spark.rebuild(
                self.spark, self.source, made, mode=mode, config=CONFIG, range_bytes=200 << 10
            )
            assert result.messages == len(self.known(self.source))
            self.facts[f"{mode} processes"] = result.workers
            assert _files(made / "consumequeue") == _files(self.source / "consumequeue"), mode
            assert _index(made) == _index(self.source), mode

    def jobs(self) -> None:
        assert rmqstore.spark.verify(self.spark, str(self.source)).collect() == []
        broken = self.directory / "broken"
        shutil.copytree(self.source, broken)
        unit = next(iter(sorted((broken / "consumequeue" / "orders" / "1").iterdir())))
        with unit.open("r+b") as file:
            file.seek(20 * 3 + 19)
            file.write(b"\x55")  # the last byte of the fourth tags code
        found = rmqstore.spark.verify(self.spark, str(broken)).collect()
        assert [(row.topic, row.queue_id, row.queue_offset) for row in found] == [("orders", 1, 3)]

        loaded = self.directory / "loaded"
        frame = self.load(self.source).select("topic", "tags", "keys", "body")
        written = rmqstore.spark.write_store(frame, loaded, config=CONFIG)
        expected = self.known(self.source, ("topic", "tags", "body"))
        assert written.messages == len(expected)
        assert self.known(loaded, ("topic", "tags", "body")) == expected
        self.facts["write_store processes"] = written.processes
        _check_store(loaded)

        compacted = self.directory / "compacted"
        names = ("queue_id", "queue_offset", "tags", "body", "store_timestamp")
        rmqstore.spark.compact(self.spark, self.source, compacted, topics=["payments"])
        kept = self.known(self.source, names, topic="payments")
        assert self.known(compacted, names) == kept != []
        _check_store(compacted)


def _executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The JVM through which a partition was read: parent of the parent of a Python worker."""
    rows = sum(batch.num_rows for batch in batches)
    with open(f"/proc/{os.getppid()}/stat", "rb") as file:  # noqa: PTH123 - by value to workers
        executor = int(file.read().rpartition(b")")[2].split()[1])
    pandas = find_spec("pandas") is not None
    yield pa.RecordBatch.from_pydict({"executor": [executor], "rows": [rows], "pandas": [pandas]})


def _files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _index(store: Path) -> list[bytes]:
    """Index files in their order: a file's name is when it was made."""
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


def _check_store(path: Path) -> None:
    """It opens for writing, with every record and unit looked at, as it was closed."""
    with rmqstore.open(path, "a", verify="full") as store:
        assert store.recovery.clean, store.recovery


@contextlib.contextmanager
def session(kind: str, directory: Path) -> Iterator[SparkSession]:
    """A session of that kind, stopped at the end."""
    settings = session_settings(directory)
    with contextlib.ExitStack() as stack:
        if kind == "connect":
            url = stack.enter_context(connect_server(directory, settings))
            builder = SparkSession.builder.remote(url)
        else:
            master: Callable[[], str] = {
                "local": lambda: "local[2]",
                "local-cluster": lambda: "local-cluster[2,1,1024]",
                "standalone": lambda: stack.enter_context(standalone(directory)),
            }[kind]
            if kind == "local-cluster":
                os.environ["SPARK_HOME"] = str(linked_home(directory))
            builder = SparkSession.builder.master(master())
            for name, value in settings.items():
                builder = builder.config(name, value)
        spark = builder.getOrCreate()
        yield spark
        spark.stop()


def main() -> None:
    kind, directory = sys.argv[1], Path(sys.argv[2])
    threading.Thread(target=lambda: list(end_with_parent(sys.stdin)), daemon=True).start()
    began = time.monotonic()
    with session(kind, directory) as spark:
        started = time.monotonic() - began
        facts = Everywhere(spark, directory).run()
    facts["seconds"] |= {
        "session": round(started, 1),
        "all": round(time.monotonic() - began, 1),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
