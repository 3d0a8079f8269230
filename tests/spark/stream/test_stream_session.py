"""Streams in a real session: triggers, restarts from a checkpoint, a first batch that failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import rmqstore
from rmqstore.spark.stream.lag import Lag, LagListener, lag
from support.stream_model import dispatched, fill

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT = 90


def stream(spark: Any, store: rmqstore.MessageStore, **options: str) -> Any:
    reader = spark.readStream.format("rmqstore").schema(
        "topic string, queue_offset long, body binary"
    )
    return reader.options(consumeFrom="first", discoveryInterval="50ms", **options).load(store.path)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def finished(query: Any) -> Any:
    """Return a query that ends by itself, once it has."""
    try:
        assert query.awaitTermination(WAIT)
    finally:
        query.stop()
    return query


def bodies(spark: Any, path: Path) -> list[bytes]:
    return sorted(bytes(row.body) for row in spark.read.parquet(str(path)).collect())


def test_what_is_there_and_again_from_the_checkpoint(
    spark: Any, store: rmqstore.MessageStore, tmp_path: Path
) -> None:
    fill(store, "orders", 3, 10)
    told: list[Lag] = []
    listener = LagListener(lambda _, found: told.append(found))
    spark.streams.addListener(listener)
    try:
        for trigger, batches in (({"availableNow": True}, 3), ({"once": True}, 1)):
            frame = stream(spark, store, maxMessagesPerTrigger="11")
            writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = finished(writer.trigger(**trigger).start())
            ran = [each for each in query.recentProgress if each["numInputRows"]]
            assert len(ran) == batches
            behind = [lag(each) for each in ran]
            assert [found.messages for found in behind if found] == [19, 8, 0][-batches:]
            assert all(found and bool(found.bytes) == bool(found.messages) for found in behind)
            assert bodies(spark, tmp_path / "out") == sorted(m.body for m in store.scan())
            fill(store, "orders", 4, 5)
            fill(store, "later", 1, 7)
        until(lambda: len(told) >= 4)
    finally:
        spark.streams.removeListener(listener)
    assert told[0].messages == 19


@pytest.mark.parametrize("trigger", [{}, {"processingTime": "100 milliseconds"}])
def test_what_comes_while_it_runs(
    spark: Any, store: rmqstore.MessageStore, trigger: dict[str, str]
) -> None:
    fill(store, "orders", 2, 5)
    name = f"running{len(trigger)}"
    writer = stream(spark, store, topicPattern="orders.*").writeStream.format("memory")
    writer = writer.trigger(**trigger) if trigger else writer
    query = writer.queryName(name).start()
    try:
        for step in range(3):
            fill(store, f"orders-{step}", 1, 4)
            fill(store, "orders", 2, 3)
            fill(store, "events", 1, 1)
            until(lambda: spark.table(name).count() == 10 + 10 * (step + 1))  # noqa: B023
    finally:
        query.stop()
    expected = sorted(m.body for m in store.scan() if m.topic != "events")
    assert sorted(bytes(row.body) for row in spark.table(name).collect()) == expected


def test_a_first_batch_that_failed_is_run_again_as_it_was(
    spark: Any, store: rmqstore.MessageStore, tmp_path: Path
) -> None:
    fill(store, "orders", 1, 8)

    def fails(frame: Any, number: int) -> None:
        raise RuntimeError(f"batch {number} of {frame.count()} rows fails")

    got: dict[int, list[int]] = {}

    def keeps(frame: Any, number: int) -> None:
        got[number] = sorted(row.queue_offset for row in frame.collect())

    def start(function: Callable[[Any, int], None], begin: str) -> Any:
        reader = spark.readStream.format("rmqstore").options(consumeFrom=begin)
        frame = reader.load(store.path).writeStream.foreachBatch(function)
        frame = frame.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return frame.trigger(availableNow=True).start()

    with pytest.raises(Exception, match="batch 0 of 5 rows fails"):
        finished(start(fails, '{"orders":{"0":3}}'))
    fill(store, "orders", 1, 4)
    finished(start(keeps, "last"))
    assert got == {0: [3, 4, 5, 6, 7], 1: [8, 9, 10, 11]}


def test_errors_are_one_line_of_ours(spark: Any, store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 1, 1)
    cases = [
        (
            {"maxMessagePerTrigger": "3"},
            "the streaming source has no option 'maxmessagepertrigger'",
        ),
        ({"topics": "order"}, "no topic 'order'; nearest is 'orders'"),
    ]
    for given, text in cases:
        frame = stream(spark, store, **given)
        with pytest.raises(StreamingQueryException) as told:
            finished(frame.writeStream.format("noop").trigger(availableNow=True).start())
        assert text in str(told.value)
        assert "Traceback" not in str(told.value)


def test_an_idle_trigger(spark: Any, store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 4, 2)
    query = stream(spark, store).writeStream.format("noop").start()
    try:
        until(lambda: query.lastProgress and query.lastProgress["numInputRows"])
        until(lambda: query.status["isDataAvailable"] is False)
        time.sleep(1)  # some triggers without data
        assert query.isActive
        assert query.status["isDataAvailable"] is False
        store.put("orders", b"one more", queue_id=0)
        dispatched(store)
        until(lambda: sum(each["numInputRows"] for each in query.recentProgress) == 9)
    finally:
        query.stop()
