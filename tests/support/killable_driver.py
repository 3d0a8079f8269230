"""A driver with two streams out of a store into another, at the orders of a test that kills it.

    python killable_driver.py <kind of master> <input> <output> <directory>

One stream copies each message, the other sums up the minutes behind a watermark. Orders come as
lines of JSON; the answer to each is a file.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import rmqstore.spark
from support.clusters import end_with_parent, linked_home, session_settings
from support.killable_sink import Control, FaultyDataSource

TICK = 0.2
CLOSING = "closing"  # the tag of the message behind all others, which has no minute of its own


class Driver:
    """The session, its queries, and its orders."""

    def __init__(self, kind: str, source: Path, output: Path, directory: Path) -> None:
        self.source, self.output, self.directory = source, output, directory
        self.control = Control(str(directory / "control"))
        self.spark = self.session(kind)
        self.spark.dataSource.register(FaultyDataSource)
        self.queries = {name: self.start(name) for name in ("copies", "minutes")}

    def session(self, kind: str) -> SparkSession:
        place = self.directory / str(os.getpid())
        place.mkdir()
        master = "local[2,4]"
        if kind == "cluster":
            os.environ["SPARK_HOME"] = str(linked_home(place))
            master = "local-cluster[2,1,1024]"
        builder = SparkSession.builder.master(master)
        for name, value in session_settings(place).items():
            builder = builder.config(name, value)
        # An executor that was killed comes again; no task has to fail four times meanwhile.
        return builder.config("spark.task.maxFailures", "8").getOrCreate()

    def start(self, name: str) -> StreamingQuery:
        read = (
            self.spark.readStream.format("rmqstore")
            .option("topics", "events")
            .option("consumeFrom", "first")
            .option("columns", "tags,keys,body,born_timestamp")
            .option("maxMessagesPerTrigger", "400")
            .load(str(self.source))
        )
        read = read.mapInArrow(self.control.passing, read.schema)
        rows = read.select("tags", "keys", "body") if name == "copies" else _minutes(read)
        return (
            rows.writeStream.queryName(name)
            .format("rmqstore_faulty")
            .option("control", self.control.directory)
            .option("topic", name)
            .option("checkpointLocation", str(self.checkpoint(name)))
            .trigger(processingTime="100 milliseconds")
            .start(str(self.output))
        )

    def checkpoint(self, name: str) -> Path:
        return self.directory / f"checkpoint-{name}"

    # Orders

    def drain(self) -> None:
        for name in self.queries:
            try:
                self.queries[name].processAllAvailable()
            except StreamingQueryException:
                self.revive()
                self.queries[name].processAllAvailable()

    def revive(self) -> None:
        """Start queries again that Spark gave up because a Python process came up too slowly.

        Spark waits ten seconds for it, whatever the machine has to do meanwhile.
        """
        for name, running in self.queries.items():
            if running.isActive:
                continue
            error = str(running.exception())
            if "Python worker failed to connect back" not in error:
                raise SystemExit(f"{name} failed: {error}")
            self.queries[name] = self.start(name)

    def restart(self, name: str, forget: bool = False) -> bool:
        """Stop a query and start it again; return whether its last batch was forgotten."""
        self.queries[name].stop()
        forgotten = forget and forget_last_commit(self.checkpoint(name))
        self.queries[name] = self.start(name)
        return forgotten

    def verify(self) -> list[str]:
        for running in self.queries.values():
            running.stop()
        return [str(row) for row in rmqstore.spark.verify(self.spark, str(self.output)).collect()]

    def run(self) -> None:
        orders: queue.SimpleQueue[str] = queue.SimpleQueue()

        def listen() -> None:
            for line in end_with_parent(sys.stdin):
                orders.put(line)

        threading.Thread(target=listen, daemon=True).start()
        self.answer(0, "started")
        while True:
            try:
                order: dict[str, Any] = json.loads(orders.get(timeout=TICK))
            except queue.Empty:
                self.revive()
                continue
            number, what = order.pop("number"), order.pop("what")
            if what == "end":
                break
            self.answer(number, getattr(self, what)(**order))
        self.spark.stop()
        self.answer(number, "ended")

    def answer(self, number: int, text: object) -> None:
        path = self.directory / "control" / f"answer-{os.getpid()}-{number}"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(text))
        temporary.replace(path)


def _minutes(read: Any) -> Any:
    return (
        read.select(
            "tags",
            F.col("born_timestamp").alias("time"),
            F.from_json(F.col("body").cast("string"), "value long").value.alias("value"),
        )
        .withWatermark("time", "15 minutes")
        .groupBy(F.window("time", "1 minute").alias("minute"), "tags")
        .agg(F.sum("value").alias("value"), F.count("*").alias("messages"))
        .select(
            F.to_json(
                F.struct(F.unix_millis("minute.start").alias("minute"), "tags", "value", "messages")
            ).alias("body"),
            "tags",
        )
    )


def forget_last_commit(checkpoint: Path) -> bool:
    """Remove the last batch's end, so that it comes again; return whether it was there."""

    def last(name: str) -> int:
        numbers = [int(path.name) for path in (checkpoint / name).glob("*") if _is_number(path)]
        return max(numbers, default=-1)

    batch = last("commits")
    if batch < 0 or last("offsets") != batch:
        return False  # a batch is under way, and comes again anyway
    for path in (checkpoint / "commits" / str(batch), checkpoint / "commits" / f".{batch}.crc"):
        path.unlink(missing_ok=True)
    return True


def _is_number(path: Path) -> bool:
    return re.fullmatch(r"\d+", path.name) is not None


if __name__ == "__main__":
    Driver(sys.argv[1], *map(Path, sys.argv[2:5])).run()
