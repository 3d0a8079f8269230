"""A file that is cut, replaced or removed while a task has it mapped: an error, and no dead worker.

The files change once the first rows of a query have come out of its task, which has read a small
part of the log by then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import rmqstore

pytestmark = [pytest.mark.spark, pytest.mark.long]

COUNT = 64_000
KEPT = 50_000_000  # bytes of the log that are left: far behind what the first rows are of
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=96 << 20, mapped_file_size_consume_queue=20 * 100_000
)
LOG = f"commitlog/{0:020d}"
SCHEMA = "queue_offset bigint, wrong boolean"
DIED = ("exited unexpectedly", "crashed", "SIGBUS", "Connection reset")


def body_of(number: int) -> bytes:
    return b"%08d" % number * 120


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as writer:
        for start in range(0, COUNT, 8000):
            bodies = [body_of(number) for number in range(start, start + 8000)]
            writer.put_many("orders", bodies, queue_id=0)
    return path


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "sound"
    with rmqstore.open(path, "a", config=rmqstore.StoreConfig.small()) as writer:
        writer.put_many("orders", [b"fine"] * 10, queue_id=0)
    return path


def cut(path: Path) -> None:
    os.truncate(path, KEPT)


def replace(path: Path) -> None:
    """Put a shorter file in its place."""
    short = path.with_name("short")
    with path.open("rb") as file:
        short.write_bytes(file.read(KEPT))
    short.rename(path)


def remove(path: Path) -> None:
    path.unlink()


def read_and_change(spark: Any, store: Path, change: Callable[[Path], None], **given: str) -> Any:
    """The rows of a query under which the log changes: queue offsets, and whether one is wrong."""
    file = store / LOG

    def changing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = False
        for batch in batches:
            if not done:
                change(file)
                done = True
            offsets = batch["queue_offset"].to_pylist()
            pairs = zip(offsets, batch["body"].to_pylist(), strict=True)
            wrong = [body != body_of(number) for number, body in pairs]
            yield pa.RecordBatch.from_pydict({"queue_offset": offsets, "wrong": wrong})

    options = {"columns": "queue_offset,body", "minPartitions": "1", "scan": "commitlog", **given}
    frame = spark.read.format("rmqstore").options(**options).load(str(store))
    return frame.mapInArrow(changing, SCHEMA).collect()


def right(rows: Any) -> list[int]:
    assert not any(row["wrong"] for row in rows)
    return sorted(row["queue_offset"] for row in rows)


def still_works(spark: Any, sound: Path) -> None:
    assert spark.read.format("rmqstore").load(str(sound)).count() == 10


@pytest.mark.parametrize("way", ["commitlog", "consumequeue"])
def test_a_log_that_is_cut_under_a_task(spark: Any, store: Path, sound: Path, way: str) -> None:
    with pytest.raises(PySparkException) as told:
        read_and_change(spark, store, cut, scan=way)
    text = str(told.value)
    # Of the task that met the cut, or of the next try, which knows only that the end is gone.
    met = re.search(f"{store / LOG}(, offset| ends at offset) ([0-9]+)", text)
    assert met, text
    assert KEPT - len(body_of(0)) - 300 < int(met[2]) <= KEPT
    assert not any(word in text for word in DIED)
    still_works(spark, sound)


@pytest.mark.parametrize("way", ["commitlog", "consumequeue"])
def test_what_is_before_the_cut_where_damage_is_skipped(
    spark: Any, store: Path, sound: Path, way: str
) -> None:
    with rmqstore.open(store) as reader:
        units = reader["orders"][0].units()
    before = int((units["physical_offset"] + units["size"] <= KEPT).sum())
    rows = read_and_change(spark, store, cut, scan=way, onCorrupt="skip")
    assert right(rows) == list(range(before))
    still_works(spark, sound)


@pytest.mark.parametrize("change", [replace, remove])
def test_a_log_that_is_replaced_or_removed_under_a_task(
    spark: Any, store: Path, sound: Path, change: Callable[[Path], None]
) -> None:
    """What the task has mapped is still whole; a task that begins anew says what it misses."""
    try:
        rows = read_and_change(spark, store, change)
    except PySparkException as error:
        assert str(store) in str(error)  # noqa: PT017
        assert not any(word in str(error) for word in DIED)  # noqa: PT017
    else:
        assert right(rows) == list(range(COUNT))
    still_works(spark, sound)
