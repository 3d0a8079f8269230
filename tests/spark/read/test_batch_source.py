"""The batch source in a real session, with filters pushed down and without."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

import rmqstore
from conftest import BrokerStore, DumpRow, FiveStore, property_text
from rmqstore.columns.scan import COLUMNS
from support import scan_model
from support.source_model import same_rows

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=["true", "false"])
def session(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    spark.conf.set(PUSHDOWN, request.param)
    yield spark
    spark.conf.unset(PUSHDOWN)


def _load(spark: Any, path: object, **options: object) -> Any:
    return spark.read.format("rmqstore").options(**options).load(str(path))


def _of_a_row(row: Any) -> tuple[object, ...]:
    millis = [round(row[name].timestamp() * 1000) for name in ("born_timestamp", "store_timestamp")]
    return (
        row["topic"],
        row["queue_id"],
        row["queue_offset"],
        row["physical_offset"],
        row["store_size"],
        row["sys_flag"],
        *millis,
        row["msg_id"],
        row["body_crc"],
        hashlib.sha1(row["raw_body"]).digest(),
        property_text(row["properties"]),
    )


def _of_a_dump(row: DumpRow) -> tuple[object, ...]:
    return (
        row.record_topic,
        row.record_queue_id,
        row.record_queue_offset,
        row.physical_offset,
        row.size,
        row.sys_flag,
        row.born_timestamp,
        row.store_timestamp,
        row.msg_id,
        row.body_crc,
        row.body_sha1,
        row.properties,
    )


@pytest.mark.parametrize(
    "name", ["broker-clean", pytest.param("broker-killed", marks=pytest.mark.long)]
)
def test_every_row_of_a_brokers_store(
    session: Any, broker_store: Callable[[str], BrokerStore], name: str
) -> None:
    store = broker_store(name)
    columns = ",".join([*COLUMNS, "raw_body"])
    for way in ("auto", "commitlog", "consumequeue"):
        rows = _load(session, store.root, scan=way, columns=columns, minPartitions=3).collect()
        found = {row["physical_offset"]: _of_a_row(row) for row in rows}
        assert len(found) == len(rows)
        for dumped in store.dump:
            assert found[dumped.physical_offset] == _of_a_dump(dumped), way
    topics = ",".join(sorted({row.record_topic for row in store.dump}))
    keys = {
        row["uniq_key"]: row["physical_offset"]
        for row in rows
        if row["uniq_key"] and "," not in row["uniq_key"]
    }
    assert len(keys) > 10
    some = dict(random.Random(1).sample(sorted(keys.items()), 10))
    by_key = _load(session, store.root, scan="index", topics=topics, keys=",".join(some)).collect()
    assert set(some.values()) <= {row["physical_offset"] for row in by_key}
    assert all(row["uniq_key"] in some or set(row["keys"]) & set(some) for row in by_key)


@pytest.mark.long
def test_every_row_of_a_store_of_five(session: Any, five_store: FiveStore) -> None:
    """Long topics, and bodies compressed in every way, by each way to read."""
    wanted = {row.physical_offset: tuple(vars(row).values()) for row in five_store.dump}
    kinds = {0: "none", 0x101: "LZ4", 0x201: "ZSTD", 0x301: "ZLIB"}
    for way in ("commitlog", "consumequeue"):
        rows = _load(session, five_store.root, scan=way, minPartitions=3).collect()
        assert len(rows) == len(wanted)
        for row in rows:
            assert wanted[row["physical_offset"]] == (
                row["topic"],
                row["queue_id"],
                row["queue_offset"],
                row["physical_offset"],
                row["store_size"],
                kinds[row["sys_flag"]],
                *row["keys"],
                hashlib.sha1(row["body"]).digest(),
            )
    long = max((row.topic for row in five_store.dump), key=len)
    some = [row for row in five_store.dump if row.topic == long][::40]
    keys = ",".join(row.key for row in some)
    found = _load(session, five_store.root, scan="index", topics=long, keys=keys).collect()
    assert {row["physical_offset"] for row in found} == {row.physical_offset for row in some}


CONDITIONS = [
    "topic = 'orders' and queue_id = 1",
    "topic <> 'orders'",
    "queue_offset between 3 and 9",
    "tags in ('TagA', 'BB')",
    "tags not in ('TagA')",
    "tags is null or tags = 'BB'",
    "tags <=> null",
    "tags like 'Tag%' and body is not null",
    "store_timestamp >= timestamp_millis(1700000000100)",
    "store_timestamp = timestamp'2023-11-14 22:13:20.2'",
    "physical_offset > 5000 and physical_offset <= 30000",
    "uniq_key = 'order-2'",
    "array_contains(keys, 'Aa') and topic like '%s%'",
    "properties['p'] = 'first'",
    "body = X'' or flag > 5.5",
    "flag > 5.5",
]


@pytest.mark.long
def test_filters_of_sql_with_and_without_pushing_down(session: Any, tmp_path: Path) -> None:
    rng = random.Random(5)
    config = scan_model.config(rng)
    records = scan_model.random_records(rng, 400, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path, records, config)
    with rmqstore.open(tmp_path) as store:
        plain = session.createDataFrame([], _load(session, tmp_path).schema).unionByName(
            _load(session, tmp_path)
        )
        whole = store.scan().to_table().to_pylist()
    everything = [row.asDict() for row in plain.collect()]
    assert {row["physical_offset"] for row in everything} == {
        row["physical_offset"] for row in whole
    }
    kept = session.createDataFrame(everything, plain.schema)
    for condition in CONDITIONS:
        options = rng.choice([{}, {"minPartitions": 4}, {"scan": "commitlog"}])
        found = _load(session, tmp_path, **options).where(condition).collect()
        wanted = kept.where(condition).collect()
        same_rows([row.asDict() for row in found], [row.asDict() for row in wanted])


def test_what_can_be_is_evaluated_by_the_source(spark: Any, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=rmqstore.StoreConfig.small()) as store:
        store.put("orders", b"x", tags="paid")
    spark.conf.set(PUSHDOWN, "true")
    try:
        chosen = _load(spark, tmp_path).where("tags = 'paid' and topic = 'orders'")
        assert ") Filter " not in chosen._jdf.queryExecution().executedPlan().toString()
        assert chosen.count() == 1
    finally:
        spark.conf.unset(PUSHDOWN)


def test_columns_paths_and_views(session: Any, tmp_path: Path, monkeypatch: Any) -> None:
    for name, count in (("a", 3), ("b", 5)):
        with rmqstore.open(tmp_path / name, "a", config=rmqstore.StoreConfig.small()) as store:
            store.put_many("orders", [b"x"] * count, queue_id=0)
    whole = session.read.format("rmqstore")
    assert whole.load([str(tmp_path / "a"), f"file:{tmp_path}/b"]).count() == 8
    assert whole.load(f"{tmp_path}/*").select("topic").distinct().count() == 1
    assert whole.schema("queue_offset bigint, topic string").load(f"{tmp_path}/b").columns == [
        "queue_offset",
        "topic",
    ]
    relative = os.path.relpath(tmp_path / "b")
    assert session.read.format("rmqstore").load(relative).count() == 5
    session.sql(
        f"create or replace temporary view orders using rmqstore options (path '{tmp_path}/b', "
        "columns 'queue_offset')"
    )
    assert (
        session.sql("select sum(queue_offset) from orders where queue_offset > 1").first()[0] == 9
    )
    session.catalog.dropTempView("orders")


def test_errors_are_one_line_of_ours(spark: Any, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        store.put_many("orders", [b"a body", b"b", b"c"], queue_id=0)
    cases: list[tuple[dict[str, str], str]] = [
        ({"topicz": "a"}, "the batch source has no option 'topicz'; nearest is 'topics'"),
        ({"topics": "order"}, "no topic 'order'; nearest is 'orders'"),
        (
            {"columns": "topc"},
            "option 'columns': a store has no column 'topc'; nearest is 'topic'",
        ),
        ({"scan": "index"}, "option 'scan' is 'index', but option 'keys' names none"),
    ]
    for options, text in cases:
        with pytest.raises(AnalysisException) as told:
            _load(spark, tmp_path / "s", **options).count()
        assert text in str(told.value)
        assert "Traceback" not in str(told.value)
    [file] = (tmp_path / "s" / "commitlog").iterdir()
    data = bytearray(file.read_bytes())
    data[data.index(b"a body")] ^= 1
    file.write_bytes(data)
    with pytest.raises(PySparkException) as told_too:
        _load(spark, tmp_path / "s").collect()
    assert f"{file}, offset 0: BODYCRC does not match the body" in str(told_too.value)
    assert _load(spark, tmp_path / "s", onCorrupt="skip").count() == 2
