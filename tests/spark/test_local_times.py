"""``timestamp_ntz`` through every writer: what Spark's own cast by the session's zone gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIMES = [
    "2026-03-29 01:59:59.999", "2026-03-29 02:00:00", "2026-03-29 02:30:00",
    "2026-03-29 03:00:00", "2026-10-25 02:00:00", "2026-10-25 02:59:59.999",
    "2026-10-25 03:00:00", "1893-03-31 23:55:00", "1969-12-31 23:59:59.999", "2450-07-01 12:00:00",
]  # fmt: skip


def frame(spark: Any) -> Any:
    rows = [(f"{time}", "T") for time in TIMES]
    return spark.createDataFrame(rows, "body string, topic string").selectExpr(
        "*", "cast(body as timestamp_ntz) as born_timestamp"
    )


@pytest.fixture(params=["Europe/Berlin", "America/New_York", "+05:30"])
def zoned(spark: Any, request: Any) -> Iterator[Any]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def append(spark: Any, path: Path) -> None:
    frame(spark).write.format("rmqstore").mode("append").save(str(path))


def overwrite(spark: Any, path: Path) -> None:
    append(spark, path)
    options = {"allowOverwrite": "true"}
    frame(spark).write.format("rmqstore").mode("overwrite").options(**options).save(str(path))


def whole(spark: Any, path: Path) -> None:
    from rmqstore.spark import write_store

    write_store(frame(spark), path)


def stream(spark: Any, path: Path, *, each: bool = False) -> None:
    from rmqstore.spark import batch_appender

    given = path.with_name("given")
    frame(spark).coalesce(1).write.parquet(str(given))
    rows = spark.readStream.schema(frame(spark).schema).parquet(str(given))
    writer = rows.writeStream.option("checkpointLocation", str(path.with_name("checkpoint")))
    writer = writer.trigger(availableNow=True)
    if each:
        query = writer.foreachBatch(batch_appender(path, "q")).start()
    else:
        query = writer.format("rmqstore").start(str(path))
    assert query.awaitTermination(120)
    assert query.exception() is None


def foreach(spark: Any, path: Path) -> None:
    stream(spark, path, each=True)


WRITERS: list[Callable[[Any, Path], None]] = [append, overwrite, whole, stream, foreach]


@pytest.mark.parametrize("write", WRITERS)
def test_writers(zoned: Any, tmp_path: Path, write: Callable[[Any, Path], None]) -> None:
    wanted = {
        row.body: row.millis
        for row in frame(zoned)
        .selectExpr("body", "unix_millis(cast(born_timestamp as timestamp)) as millis")
        .collect()
    }
    path = tmp_path / "store"
    write(zoned, path)
    with rmqstore.open(path, "r") as store:
        assert {m.body.decode(): m.born_timestamp for m in store.scan()} == wanted
    read = zoned.read.format("rmqstore").load(str(path))
    found = read.selectExpr("cast(body as string) as body", "unix_millis(born_timestamp) as millis")
    assert {row.body: row.millis for row in found.collect()} == wanted


def test_filters_by_local_times(zoned: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    append(zoned, path)
    read = zoned.read.format("rmqstore").load(str(path))
    with rmqstore.open(path, "r") as store:
        middle = store.at(0).store_timestamp
        stored = store.scan().count()
    local = zoned.sql(
        f"select date_format(timestamp_millis({middle}), 'yyyy-MM-dd HH:mm:ss.SSS') as t"
    ).first()["t"]
    conditions = {
        f"store_timestamp >= timestamp_ntz'{local}'": stored,
        f"store_timestamp < timestamp_ntz'{local}'": 0,
        f"store_timestamp >= '{local}'": stored,
        "born_timestamp < timestamp_ntz'2026-10-25 02:59:59.999'": None,
    }
    name = "spark.sql.python.filterPushdown.enabled"
    for condition, count in conditions.items():
        found = []
        for pushed in ("true", "false"):
            zoned.conf.set(name, pushed)
            found.append(sorted(bytes(row.body) for row in read.where(condition).collect()))
        zoned.conf.unset(name)
        assert found[0] == found[1]
        assert count is None or len(found[0]) == count


def test_a_session_without_a_zone(spark: Any, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    named = "the session names no zone"
    spark.conf.unset("spark.sql.session.timeZone")
    try:
        if spark.conf.get("spark.sql.session.timeZone") == before:  # the builder's own
            return
        with pytest.raises(Exception, match=named):
            append(spark, tmp_path / "store")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert not (tmp_path / "store").exists()
