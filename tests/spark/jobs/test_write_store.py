"""``write_store``: a new store from a DataFrame, made by the executors."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore.offline import LogPiece, assign_positions
from rmqstore.spark.common.columns import SchemaError
from rmqstore.spark.jobs.new_store import DestinationError
from support import oracle_store

pytestmark = [pytest.mark.spark, pytest.mark.long]

CONFIG = rmqstore.StoreConfig.small(
    mapped_file_size_commit_log=100_000,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=100,
    max_index_num=400,
)
SCHEMA = (
    "number long, topic string, queue_id int, tags string, keys array<string>, "
    "properties map<string,string>, flag int, body binary"
)


def random_rows(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    rows = []
    for number in range(count):
        topic = rng.choice(["orders"] * 5 + ["%RETRY%a-b", "rare"])
        body = rng.randbytes(rng.choice([0, 10, 900, 900, 20_000 if rng.random() < 0.1 else 50]))
        keys = rng.choice([None, [], ["k1"], [f"key-{number}", "k2"]])
        properties = rng.choice([None, {}, {"a": "b", "n": str(number)}])
        tags = rng.choice([None, "TagA", "TagB"])
        flag = rng.choice([None, 0, -1, 7])
        row = (number, topic, rng.randrange(6), tags, keys, properties, flag, body)
        rows.append(row)
    return rows


def leftovers(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write(spark: Any, frame: Any, path: Path, **options: Any) -> Any:
    import rmqstore.spark as jobs

    return jobs.write_store(frame, path, config=CONFIG, **options)


@pytest.mark.parametrize(("seed", "partitions"), [(1, 1), (2, 5), (3, 13)])
def test_random_rows(spark: Any, tmp_path: Path, seed: int, partitions: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, 700)
    frame = spark.createDataFrame(rows, SCHEMA).repartitionByRange(partitions, "number")
    frame = frame.sortWithinPartitions("number").drop("number")
    result = write(spark, frame, tmp_path / "store")
    assert leftovers(tmp_path) == ["store"]
    parts = {"checkpoint", "commitlog", "config", "consumequeue", "index"}
    assert set(leftovers(tmp_path / "store")) - {"lock"} == parts
    assert result.messages == len(rows)
    assert sum(result.topics.values()) == len(rows)
    by_queue = oracle_store.check_store(tmp_path / "store", slot_num=100, exact_index=True)
    assert oracle_store.is_clean(tmp_path / "store")
    expected = defaultdict(list)
    for _, topic, queue_id, *rest in rows:
        expected[topic, queue_id].append(rest)
    assert set(by_queue) == set(expected)
    for queue, records in by_queue.items():
        assert [record.queue_offset for record in records] == list(range(len(records)))
        for record, (tags, keys, properties, flag, body) in zip(
            records, expected[queue], strict=True
        ):
            own = dict(record.properties)
            assert own.pop("TAGS", None) == tags
            assert own.pop("KEYS", None) == (" ".join(keys) if keys else None)
            own.pop("UNIQ_KEY", None)
            assert own == (properties or {})
            assert (record.flag, record.body) == (flag or 0, body)
    times = {record.store_timestamp for records in by_queue.values() for record in records}
    assert len(times) == 1
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 3
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        assert store.recovery.clean
        assert store.recovery.notes == ()  # the log was not walked
        assert {topic.write_queue_nums for topic in store.topics.values()} <= {4, 5, 6}
        found = store.put("orders", b"one more", queue_id=0)
        assert found.queue_offset == len(expected["orders", 0])
    with rmqstore.open(tmp_path / "store", "r+", verify="full") as store:
        assert store.scan().count() == len(rows) + 1


def test_rows_without_queues_take_turns(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 120, 1, 12).selectExpr("cast(id as string) as body")
    result = write(spark, frame, tmp_path / "store", topic="all", queue_nums=3)
    assert dict(result.topics) == {"all": 120}
    with rmqstore.open(tmp_path / "store") as store:
        assert [len(queue) for queue in store["all"].values()] == [40, 40, 40]
        bodies = [int(message.body) for message in store["all"][0]]
        assert bodies == sorted(bodies)
        assert len({message.uniq_key for message in store.scan()}) == 120


def test_nulls_among_queue_ids(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 40, 1, 2).selectExpr(
        "'t' as topic", "cast(if(id % 2 = 0, 9, null) as int) as queue_id", "binary('x') as body"
    )
    write(spark, frame, tmp_path / "store")
    with rmqstore.open(tmp_path / "store") as store:
        counts = {number: len(queue) for number, queue in store["t"].items()}
        assert counts[9] == 20
        assert sum(counts.values()) == 40
        assert store["t"].write_queue_nums == 10


def test_rows_that_change_when_they_are_computed_again(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 500, 1, 7).selectExpr(
        "'t' as topic", "repeat('x', cast(rand() * 2000 as int)) as body", "uuid() as keys"
    )
    result = write(spark, frame, tmp_path / "store")
    assert result.messages == 500
    oracle_store.check_store(tmp_path / "store", slot_num=100, exact_index=True)


def test_no_rows_at_all(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    frame = spark.createDataFrame([], SCHEMA).drop("number")
    result = write(spark, frame, tmp_path / "store")
    assert (result.messages, dict(result.topics)) == (0, {})
    with rmqstore.open(tmp_path / "store", "r+") as store:
        assert store.scan().count() == 0
        assert store.config.mapped_file_size_commit_log == 100_000


def test_a_store_copied_by_its_columns(spark: Any, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "from", "a", config=CONFIG) as store:
        for number in range(50):
            store.put("orders", b"%d" % number, tags="TagA", keys=["k"], queue_id=number % 3)
        table = store.scan().to_table()
    table = table.set_column(
        table.schema.get_field_index("born_timestamp"),
        "born_timestamp",
        table["born_timestamp"].cast(pa.timestamp("us", "UTC")),
    ).drop_columns(["store_timestamp"])
    result = write(spark, spark.createDataFrame(table).coalesce(1), tmp_path / "to")
    assert result.messages == 50
    with rmqstore.open(tmp_path / "from") as old, rmqstore.open(tmp_path / "to") as new:
        columns = ["topic", "queue_id", "queue_offset", "uniq_key", "tags", "keys", "properties"]
        columns += ["body", "born_timestamp", "born_host", "flag"]
        assert new.scan(columns=columns).to_table() == old.scan(columns=columns).to_table()


@pytest.mark.parametrize(
    ("columns", "options", "kind", "text"),
    [
        (["'t' as topic"], {}, SchemaError, "column 'body' is missing"),
        (["'b' as body"], {}, SchemaError, "column 'topic' is missing"),
        (
            ["'b' as body", "1 as tag"],
            {"topic": "t"},
            SchemaError,
            "a message has no column 'tag'; ne",
        ),
        (["'b' as body", "1 as tags"], {"topic": "t"}, SchemaError, "'tags' must be str.*not int"),
        (
            ["'b' as body"],
            {"topic": "a/b"},
            rmqstore.MessageIllegalError,
            "topic must be 1 .*'a/b'",
        ),
        (
            ["'b' as body"],
            {"topic": "t", "queue_nums": 0},
            ValueError,
            "queue_nums must be 1 .*got 0",
        ),
        (
            ["'b' as body"],
            {"topic": "t", "queue_nums": "4"},
            TypeError,
            "queue_nums must be int from 1 .*not str",
        ),
        (["null as body"], {"topic": "t"}, SchemaError, "'body' must be binary or str.*not void"),
    ],
)
def test_refused_before_any_task(
    spark: Any,
    tmp_path: Path,
    columns: list[str],
    options: dict[str, Any],
    kind: type[Exception],
    text: str,
) -> None:
    with pytest.raises(kind, match=text):
        write(spark, spark.range(3).selectExpr(*columns), tmp_path / "store", **options)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        ("repeat('x', 100001) as body", rmqstore.MessageIllegalError, "the record takes 100"),
        ("cast(if(id = 7, null, 'x') as string) as body", ValueError, "no value .null."),
    ],
)
def test_a_row_that_cannot_be_stored(
    spark: Any, tmp_path: Path, column: str, kind: type[Exception], text: str
) -> None:
    frame = spark.range(0, 20, 1, 4).selectExpr("'t' as topic", column)
    with pytest.raises(kind, match=text):
        write(spark, frame, tmp_path / "store")
    assert leftovers(tmp_path) == []


def test_a_task_that_fails_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 2000, 1, 4).selectExpr(
        "'t' as topic", "if(id = 1999, raise_error('lost'), repeat('x', 500)) as body"
    )
    with pytest.raises(Exception, match="lost"):
        write(spark, frame, tmp_path / "store")
    assert leftovers(tmp_path) == []


def test_a_task_that_is_tried_again(spark: Any, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        mark = marks / str(context.partitionId())
        if not mark.exists():
            mark.touch()
            raise RuntimeError("a lost executor")

    frame = spark.range(0, 300, 1, 3).selectExpr("'t' as topic", "cast(id as string) as body")
    result = write(spark, frame.mapInArrow(fails_once, frame.schema), tmp_path / "store")
    assert len(leftovers(marks)) == 3
    assert result.messages == 300
    assert leftovers(tmp_path) == ["marks", "store"]
    with rmqstore.open(tmp_path / "store") as store:
        assert sorted(int(message.body) for message in store.scan()) == list(range(300))


def test_a_directory_that_is_not_empty(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "file").touch()
    frame = spark.range(3).selectExpr("'t' as topic", "'b' as body")
    with pytest.raises(DestinationError, match="is not empty"):
        write(spark, frame, tmp_path / "store")
    with pytest.raises(DestinationError, match="is no directory"):
        write(spark, frame, tmp_path / "store" / "file")
    assert leftovers(tmp_path) == ["store"]
    assert leftovers(tmp_path / "store") == ["file"]


def test_places_of_pieces() -> None:
    sizes = [40, 30, 22, 1, 92, 50, 42, 43]
    placed = assign_positions([LogPiece(0, 0, size, size) for size in sizes], 100)
    found = [(piece.position, piece.ends_file) for piece in placed]
    assert found == [
        (0, False),
        (40, False),
        (70, True),
        (100, True),
        (200, True),
        (300, False),
        (350, True),
        (400, False),
    ]
    with pytest.raises(ValueError, match="93 bytes does not fit into 100"):
        assign_positions([LogPiece(0, 0, 93, 93)], 100)


def test_functions_keep_their_names_beside_modules() -> None:
    import importlib

    for name in ("rebuild", "write_store", "compact"):
        importlib.import_module("rmqstore.spark.jobs.rebuild")
        package = importlib.import_module("rmqstore.spark")
        assert not hasattr(getattr(package, name), "__path__")
        assert callable(getattr(package, name))
