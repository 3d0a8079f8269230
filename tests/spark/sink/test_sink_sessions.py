"""The sinks in a real session: tasks that are tried again, queries that fail and go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import rmqstore
from rmqstore.spark.datasource import RmqStoreDataSource
from rmqstore.spark.sink.foreach import batch_appender
from rmqstore.spark.sink.ledger import Ledger
from rmqstore.spark.sink.writers import BatchWriter, StreamWriter
from support.sink_driver import settings

pytestmark = pytest.mark.spark
PATIENCE = 120  # seconds


def bodies(root: Path) -> list[str]:
    with rmqstore.open(root / "store") as store:
        return sorted(
            m.decode() for m in store.scan(columns=["body"]).to_table()["body"].to_pylist()
        )


def frame(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([(text,) for text in texts], "body string").repartition(3)


def save(rows: DataFrame, options: dict[str, str], mode: str = "append") -> None:
    rows.write.format("rmqstore").options(**options).mode(mode).save()


def staged(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*.arrow*")]


def test_append_and_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    save(frame(spark, "a", "b", "c"), options)
    save(frame(spark), options)
    save(frame(spark, "d"), options)
    assert bodies(tmp_path) == ["a", "b", "c", "d"]
    save(frame(spark, "e", "f"), options, "overwrite")
    assert bodies(tmp_path) == ["e", "f"]
    assert {path.name for path in tmp_path.iterdir()} == {"broker.conf", "store"}
    assert staged(tmp_path) == []


def test_all_columns(spark: SparkSession, tmp_path: Path) -> None:
    options = settings(tmp_path)
    del options["topic"]
    rows = spark.sql(
        "SELECT 'bills' AS topic, X'00FF' AS body, 'paid' AS tags, array('k1', 'k2') AS keys, "
        "3 AS queue_id, map('UNIQ_KEY', 'old', 'p', 'q') AS properties, 7 AS flag, "
        "TIMESTAMP '2026-01-02 03:04:05.678901' AS born_timestamp "
        "UNION ALL SELECT 'bills', X'', NULL, NULL, NULL, NULL, NULL, NULL"
    )
    save(rows, options)
    with rmqstore.open(tmp_path / "store") as store:
        table = store.scan("bills").to_table().to_pylist()
    [full] = [row for row in table if row["tags"] == "paid"]
    [bare] = [row for row in table if row["tags"] is None]
    assert (full["body"], full["keys"], full["queue_id"], full["flag"]) == (
        b"\x00\xff",
        ["k1", "k2"],
        3,
        7,
    )
    assert ("p", "q") in full["properties"]
    assert ("UNIQ_KEY", "old") not in full["properties"]
    assert full["born_timestamp"].isoformat() == "2026-01-02T03:04:05.678000+00:00"
    assert (bare["body"], bare["keys"], bare["flag"]) == (b"", [], 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "option", "error"),
    [
        ("body, body AS text", {}, "the sink writes no column 'text'"),
        ("length(body) AS body", {}, "column 'body' must be binary or string.*not int"),
        ("body", {"queuenums": "many"}, "option 'queueNums' must be .*'many'"),
        ("body", {"flash": "sync"}, "the sink has no option 'flash'; nearest is 'flush'"),
    ],
)
def test_what_is_refused_before_any_task(
    spark: SparkSession, tmp_path: Path, columns: str, option: dict[str, str], error: str
) -> None:
    rows = frame(spark, "a").selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=error):
        save(rows, settings(tmp_path) | option)
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


@pytest.mark.long
def test_a_locked_store(spark: SparkSession, tmp_path: Path) -> None:
    options = settings(tmp_path, locktimeout="200ms")
    save(frame(spark, "a"), options)
    with (
        rmqstore.open(tmp_path / "store", "a"),
        pytest.raises(PySparkException, match="open for writing elsewhere by process"),
    ):
        save(frame(spark, "b"), options)
    assert staged(tmp_path) == []
    assert bodies(tmp_path) == ["a"]


@pytest.mark.long
def test_a_store_that_is_locked_at_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    save(frame(spark, "a"), settings(tmp_path))
    options = settings(tmp_path, locktimeout="200ms", queryname="locked")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("b")
    run = stream(spark, tmp_path, "rmqstore", options)
    with (
        rmqstore.open(tmp_path / "store", "a"),
        pytest.raises(PySparkException, match="open for writing elsewhere by process") as raised,
    ):
        run()
    assert "Traceback" not in str(raised.value)
    assert staged(tmp_path) == []
    run()
    assert bodies(tmp_path) == ["a", "b"]


@pytest.mark.long
def test_a_directory_of_other_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.txt").touch()
    with pytest.raises(PySparkException, match=r"there is 'thesis.txt', and no store") as raised:
        save(frame(spark, "a"), settings(tmp_path))
    assert "Traceback" not in str(raised.value)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["thesis.txt"]


@pytest.mark.long
def test_a_row_that_no_store_takes(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, "a", "b", "c").selectExpr("repeat(body, 70000) AS body")
    with pytest.raises(PySparkException, match="column 'body', row 0: the record takes") as raised:
        save(rows, settings(tmp_path))
    assert "Traceback" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


def failing_once(flag: Path) -> type:
    """A source whose tasks fail after they have staged, and whose commits die after the rows."""

    class Failing(BatchWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            from pyspark import TaskContext

            message = super().write(iterator)
            task = TaskContext.get()
            if task is not None and task.attemptNumber() == 0:
                raise RuntimeError("after it has staged")
            return message

    class Dying(StreamWriter):
        def commit(self, messages: list[Any], batchId: int) -> None:
            import os

            from rmqstore.spark.sink.ledger import Ledger

            if batchId == 1 and not flag.exists():
                flag.touch()
                Ledger.seal = lambda *_: os._exit(1)  # type: ignore[method-assign]
            super().commit(messages, batchId)

    class Source(RmqStoreDataSource):
        @classmethod
        def name(cls) -> str:
            return "rmqstore_failing"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Failing(self.options, schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return Dying(self.options, schema, overwrite)

    return Source


@pytest.mark.long
def test_tasks_that_fail_after_they_have_staged(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(failing_once(tmp_path / "flag"))
    options = settings(tmp_path)
    texts = [f"row {i}" for i in range(30)]
    frame(spark, *texts).write.format("rmqstore_failing").options(**options).mode("append").save()
    assert bodies(tmp_path) == sorted(texts)
    assert staged(tmp_path) == []


def stream(
    spark: SparkSession, root: Path, source: str, options: dict[str, str]
) -> Callable[[], None]:
    """Run a query over files of lines until it has read them all."""

    def run() -> None:
        rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(root / "in"))
        query = (
            rows.selectExpr("value AS body")
            .repartition(2)
            .writeStream.format(source)
            .options(**options)
            .option("checkpointLocation", str(root / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE)
        finally:
            query.stop()

    return run


def test_a_stream_goes_on_where_its_commit_died(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(failing_once(tmp_path / "flag"))
    options = settings(tmp_path)
    run = stream(spark, tmp_path, "rmqstore_failing", options)
    (tmp_path / "in").mkdir()
    texts = []
    for number in range(4):
        lines = [f"{number}.{i}" for i in range(10)]
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(lines))
        texts += lines
    with pytest.raises(PySparkException):
        run()
    assert (tmp_path / "flag").exists()
    assert len(bodies(tmp_path)) == 20  # the rows are there, the ledger has not heard of them
    assert Ledger(tmp_path / "store").intent() is not None
    run()
    assert bodies(tmp_path) == sorted(texts)
    assert staged(tmp_path) == []
    (tmp_path / "in" / "4.txt").write_text("4.0")
    run()
    assert bodies(tmp_path) == sorted([*texts, "4.0"])


def counts_of_letters(spark: SparkSession, folder: Path) -> Any:
    """A stream of three batches of lines, counted: 6 of a, 3 of b."""
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text("\n".join(["a"] * 2 + ["b"] * number))
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    return lines.groupBy("value").count().selectExpr("concat(value, '=', count) AS body")


@pytest.mark.long
def test_complete_mode(spark: SparkSession, tmp_path: Path) -> None:
    options = settings(tmp_path, allowoverwrite="true")
    counts = counts_of_letters(spark, tmp_path / "in")
    query = (
        counts.writeStream.format("rmqstore")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE)
    finally:
        query.stop()
    assert bodies(tmp_path) == ["a=6", "b=3"]
    assert not [path.name for path in tmp_path.iterdir() if "making" in path.name]


@pytest.mark.long
def test_update_mode_through_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    options = settings(tmp_path)
    append = batch_appender(options.pop("path"), "totals", **options)
    counts = counts_of_letters(spark, tmp_path / "in")
    for again in range(2):  # from the start: batches that are in the store are dropped
        query = (
            counts.writeStream.foreachBatch(append)
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{again}"))
            .outputMode("update")
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE)
        finally:
            query.stop()
        assert bodies(tmp_path) == ["a=2", "a=4", "a=6", "b=1", "b=3"]
