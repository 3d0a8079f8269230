"""Spark's side of a streaming source, as its engine calls it, without an engine.

Source: pyspark, ``sql/streaming/python_streaming_source_runner.py`` for what is called and how the
values travel; the order of the calls as a real session has it.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Mapping
from typing import Any

import rmqstore
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.stream.source import StreamReader

COLUMNS = ("topic", "queue_id", "queue_offset", "body")
Row = tuple[str, int, int, bytes]


FAST = {"discoveryInterval": "0ms"}


def options(store: rmqstore.MessageStore, **more: str) -> dict[str, str]:
    """Return the options of a stream of a store."""
    return {"path": store.path, **FAST, **more}


def fill(store: rmqstore.MessageStore, topic: str, queues: int, each: int) -> None:
    """Put messages to the first queues of a topic."""
    for queue_id in range(queues):
        for i in range(each):
            store.put(topic, f"{topic}/{queue_id}/{i}".encode(), queue_id=queue_id, wait=False)
    dispatched(store)


def dispatched(store: rmqstore.MessageStore) -> None:
    """Wait until a reader sees the messages put."""
    until = time.monotonic() + 60
    while store.stats()["dispatch_behind_bytes"]:
        assert time.monotonic() < until
        time.sleep(0.001)


class Crash(Exception):
    """The driver dies here."""


class Query:
    """A query with its checkpoint: offsets of batches begun, and how many of them are done."""

    def __init__(self, options: Mapping[str, str], *, available_now: bool = False) -> None:
        self.offsets: list[str] = []
        self.done = 0
        self.batches: dict[int, list[Row]] = {}
        self.reports: list[dict[str, Any]] = []
        self.start(options, available_now=available_now)

    def start(self, options: Mapping[str, str], *, available_now: bool = False) -> None:
        """Start it, or start it again from the checkpoint."""
        lowered = {name.lower(): value for name, value in options.items()}
        self.reader = StreamReader(lowered, spark_schema(COLUMNS))
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit = self.reader.getDefaultReadLimit()
        self._started = False

    def initial(self) -> dict[str, Any]:
        return travelled(self.reader.initialOffset())

    def trigger(self, *, crash_at: str = "", limit: Any = None) -> bool:
        """Run the next batch, if any; the driver dies at ``crash_at``."""
        if self.done == len(self.offsets):
            start = json.loads(self.offsets[-1]) if self.offsets else self.initial()
            end = travelled(self.reader.latestOffset(start, limit or self.limit))
            report = self.reader.reportLatestOffset()
            self.reports.append(travelled(report))
            if end == start:
                return False
            self.offsets.append(json.dumps(end))
            if crash_at == "planned":
                raise Crash
            if self.done:
                self.reader.commit(json.loads(self.offsets[self.done - 1]))
        number = self.done
        before = json.loads(self.offsets[number - 1]) if number else self.initial()
        end = json.loads(self.offsets[number])
        rows = self.read(before, end)
        if crash_at == "read":
            raise Crash
        assert self.batches.setdefault(number, rows) == rows  # a replay has the very same
        if crash_at == "written":
            raise Crash
        self.done += 1
        return True

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        """Read a batch as the tasks do, by copies."""
        partitions = self.reader.partitions(start, end)
        task = pickle.loads(pickle.dumps(self.reader))
        rows: list[Row] = []
        for partition in partitions or [None]:  # an empty plan is read as well
            for batch in task.read(pickle.loads(pickle.dumps(partition))):
                columns = (batch.column(name).to_pylist() for name in COLUMNS)
                rows += zip(*columns, strict=True)
        return rows

    def all(self, most: int = 1000) -> int:
        """Run batches until there is none to run; their number."""
        for count in range(most):
            if not self.trigger():
                return count
        raise AssertionError(f"still something to do after {most} batches")

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the batches."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def travelled(value: Any) -> Any:
    """Return a value after its way through Spark."""
    return json.loads(json.dumps(value))
