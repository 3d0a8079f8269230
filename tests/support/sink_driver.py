"""The writers of the Spark sink driven as Spark drives them, without a session.

Each writer, message and task goes through pickle; a task has a context that names its partition
and, in a stream, query and batch.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

import rmqstore
from rmqstore.spark.sink import writers

PATIENCE = 60  # seconds until a child that hangs is ended
SIZES = """\
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=100
maxIndexNum=400
"""
Parts = Sequence[Sequence[Mapping[str, Any]]]


def settings(root: Path, **more: str) -> dict[str, str]:
    """Options of a small store at ``root/store``."""
    config = root / "broker.conf"
    config.write_text(SIZES)
    given = {"path": str(root / "store"), "config": str(config), "topic": "orders"}
    return given | {"locktimeout": "10s"} | more


def rows(*texts: str) -> list[dict[str, bytes]]:
    return [{"body": text.encode()} for text in texts]


def bodies(root: Path) -> list[bytes]:
    """Bodies of ``root/store`` in the order of the log."""
    with rmqstore.open(root / "store") as store:
        return store.scan(columns=["body"]).to_table()["body"].to_pylist()


def schema(*columns: str) -> StructType:
    from rmqstore.spark.common.schema import spark_schema

    return spark_schema(columns or ("body",))


class Task:
    """Substitute for ``TaskContext.get()`` in a task."""

    def __init__(self, partition: int, properties: Mapping[str, str]) -> None:
        self.partition = partition
        self.properties = properties

    def partitionId(self) -> int:
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


def batches(rows: Sequence[Mapping[str, Any]], size: int = 3) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them over: batches of a few rows."""
    for first in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[first : first + size]))


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def run_task(writer: Any, number: int, rows: Any, **properties: str) -> Any:
    """One task's message."""
    real = writers._task
    writers._task = lambda: Task(number, properties)  # type: ignore
    try:
        return again(again(writer).write(batches(rows)))
    finally:
        writers._task = real


def stage_batch(options: Mapping[str, str], parts: Parts, overwrite: bool = False) -> Any:
    """A writer and its tasks' messages."""
    columns = next((tuple(row) for part in parts for row in part), ())
    writer = writers.BatchWriter(options, schema(*columns), overwrite)
    return writer, [run_task(writer, number, rows) for number, rows in enumerate(parts)]


def write_batch(options: Mapping[str, str], parts: Parts, overwrite: bool = False) -> None:
    writer, messages = stage_batch(options, parts, overwrite)
    again(writer).commit(messages)


def stage_stream(
    options: Mapping[str, str], query: str, batch: int, parts: Parts, overwrite: bool = False
) -> Any:
    columns = next((tuple(row) for part in parts for row in part), ())
    writer = writers.StreamWriter(options, schema(*columns), overwrite)
    context = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
    messages = [run_task(writer, number, rows, **context) for number, rows in enumerate(parts)]
    return writers.StreamWriter(options, schema(*columns), overwrite), messages


def write_stream(
    options: Mapping[str, str], query: str, batch: int, parts: Parts, overwrite: bool = False
) -> None:
    writer, messages = stage_stream(options, query, batch, parts, overwrite)
    writer.commit(messages, batch)


class Crash:
    """The process ends itself by SIGKILL when a method is called for the n-th time."""

    def __init__(self, owner: type, name: str, when: str, count: int) -> None:
        self.owner, self.name, self.when, self.count = owner, name, when, count
        self.calls = 0

    def __repr__(self) -> str:
        return f"{self.when}-{self.owner.__name__}.{self.name}-{self.count}"

    def arm(self) -> None:
        real = getattr(self.owner, self.name)

        def method(owner: Any, *arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls < self.count:
                return real(owner, *arguments, **named)
            if self.when == "within":  # half of the rows
                real(owner, arguments[0].slice(0, arguments[0].num_rows // 2), **named)
            elif self.when == "after":
                real(owner, *arguments, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(self.owner, self.name, method)


def killed(crash: Crash, work: Callable[[], object]) -> bool:
    """Work in a child that dies at a point; False if it never came to it."""
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        status = 1
        try:
            crash.arm()
            work()
            status = 0
        except BaseException as error:
            os.write(2, f"{crash}: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(ended)
    assert status in (0, -signal.SIGKILL), (crash, status)
    return status != 0
