"""Staged files: checked as the store checks, read back as they were, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import _core
from rmqstore.config.store_config import StoreConfig
from rmqstore.spark.common.columns import SINK_COLUMNS
from rmqstore.spark.common.errors import RowError
from rmqstore.spark.sink import staging
from rmqstore.spark.sink.options import SinkLimits

pytestmark = pytest.mark.spark

LIMITS = SinkLimits(4 << 20, 16 << 20, False, False)
PREFIX = "0123456789ABCDEF"
MAPS = pa.map_(pa.string(), pa.string())


def batch(**columns: Any) -> Any:
    arrays = {n: c if isinstance(c, pa.Array) else pa.array(c) for n, c in columns.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def staged(directory: Path, batches: Any, **changes: Any) -> Any:
    rules = staging.Rules(
        **({"columns": ("topic", "body"), "topic": None} | changes), limits=LIMITS
    )
    return staging.stage(batches, directory, rules, prefix=PREFIX, partition=3, sync=True)


@pytest.mark.parametrize("first", [0, 1, 255, 65530, (1 << 32) - 20])
def test_keys_name_their_rows(first: int) -> None:
    keys = staging.unique_keys(PREFIX, 0x1234, first, 20).to_pylist()
    assert keys == [f"{PREFIX}{0x80001234:08X}{first + i:08X}" for i in range(20)]
    assert [staging.row_of_key(key) for key in keys] == [(0x1234, first + i) for i in range(20)]
    with pytest.raises(ValueError, match=r"must have 2\^32"):
        staging.unique_keys(PREFIX, 0, (1 << 32) - 20, 21)


def test_what_is_staged_is_what_is_stored(tmp_path: Path, store: rmqstore.MessageStore) -> None:
    given = batch(
        tags=["a", None, "c"],
        body=pa.array(["x", "", "\u00e9"], pa.string()),
        topic=["orders", "bills", "orders"],
        keys=pa.array([["k1", "k2"], [], None], pa.list_(pa.string())),
        queue_id=pa.array([1, None, 0], pa.int64()),
        properties=pa.array(
            [[("p", "q"), ("UNIQ_KEY", "old"), ("r", "s")], None, [("UNIQ_KEY", "older")]], MAPS
        ),
        flag=pa.array([7, None, -1], pa.int16()),
        born_timestamp=pa.array([1000, None, 5_000_999], pa.timestamp("us", "Europe/Rome")),
    )
    done = staged(tmp_path / "job", [given.slice(0, 0), given, given], columns=SINK_COLUMNS)
    assert (done.partition, done.rows, done.topics) == (3, 6, ("bills", "orders"))
    assert [path.name for path in (tmp_path / "job").iterdir()] == [done.name]
    staging.check_staged(tmp_path / "job", done)
    for read in staging.staged_batches(tmp_path / "job" / done.name):
        store.put_table(read)
    rows = store.scan().to_table().to_pylist()
    assert [row["uniq_key"] for row in rows] == [f"{PREFIX}80000003{i:08X}" for i in range(6)]
    assert [row["body"] for row in rows[:3]] == [b"x", b"", "\u00e9".encode()]
    assert [row["topic"] for row in rows[:3]] == ["orders", "bills", "orders"]
    assert [row["tags"] for row in rows[:3]] == ["a", None, "c"]
    assert [row["keys"] for row in rows[:3]] == [["k1", "k2"], [], []]
    assert [row["flag"] for row in rows[:3]] == [7, 0, -1]
    assert rows[0]["queue_id"] == 1
    assert rows[0]["properties"][:2] == [("p", "q"), ("r", "s")]
    assert [row["born_timestamp"].timestamp() for row in rows[:3:2]] == [0.001, 5.0]


def test_maps_lose_their_old_key_wherever_a_slice_begins() -> None:
    rows = [[("UNIQ_KEY", "x"), ("a", "b")], None, [("c", "d")], [], [("UNIQ_KEY", "y")]] * 3
    column = pa.array(rows, MAPS)
    wanted = [None if row is None else [e for e in row if e[0] != "UNIQ_KEY"] for row in rows]
    for start in range(6):
        for count in range(8):
            part = batch(properties=column, body=[b""] * 15, topic=["t"] * 15)
            done = staging.prepare(part.slice(start, count), ("topic", "body", "properties"))
            assert done.column("properties").to_pylist() == wanted[start : start + count]


def test_a_topic_for_all_rows(tmp_path: Path) -> None:
    given = batch(topic=pa.array([None, "other"], pa.string()), body=[b"1", b"2"])
    done = staged(tmp_path, [given], topic="orders")
    assert done.topics == ("orders",)
    [read] = staging.staged_batches(tmp_path / done.name)
    assert read.column("topic").to_pylist() == ["orders", "orders"]
    done = staged(tmp_path, [given.select(["body"])], columns=("body",), topic="orders")
    assert done.topics == ("orders",)


def test_no_rows_leave_no_file(tmp_path: Path) -> None:
    done = staged(tmp_path / "job", [batch(topic=pa.array([], pa.string()), body=[])])
    assert (done.name, done.rows, done.bytes) == ("", 0, 0)
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"body": pa.array([b"", None], pa.binary())}, "column 'body', row 1: no value"),
        ({"topic": pa.array(["a", None])}, "column 'topic', row 1: no value"),
        ({"topic": ["a", "b/c"]}, "column 'topic', row 1: must be 1 to 127 .* got 'b/c'"),
        ({"body": [b"", b"x" * (4 << 20)]}, r"column 'body', row 1: the record takes \d+ bytes"),
        ({"queue_id": [0, -1]}, "column 'queue_id', row 1"),
        ({"keys": [["a"], ["b c"]]}, "column 'keys', row 1"),
        ({"tags": ["", "a\x01"]}, "column 'tags', row 1"),
        ({"properties": pa.array([None, [("a", None)]], MAPS)}, "column 'properties', row 1"),
        ({"properties": pa.array([None, [("TAGS", "a")]], MAPS), "tags": ["b", "b"]}, "'tags'"),
        (
            {"properties": pa.array([None, [("a", "b" * 40000)]], MAPS)},
            "column 'properties', row 1: the properties take",
        ),
    ],
)
def test_rows_that_no_store_takes(tmp_path: Path, changes: dict[str, Any], error: str) -> None:
    bad = batch(**({"topic": ["a", "a"], "body": [b"", b""]} | changes))
    names = tuple(name for name in SINK_COLUMNS if name in bad.schema.names)
    good = bad.slice(0, 1) if "TAGS" not in str(changes) else bad.slice(0, 0)
    with pytest.raises(
        RowError, match=rf"partition 3, in its 2 rows from {len(good)} on: .*{error}"
    ):
        staged(tmp_path, [good, bad], columns=names)
    assert list(tmp_path.iterdir()) == []


def outcome(call: Any, *arguments: Any, **named: Any) -> int | str:
    try:
        done = call(*arguments, **named)
        return done if isinstance(done, int) else int(done.count)
    except ValueError as error:
        return str(error)


def test_the_limits_are_the_stores_own(tmp_path: Path) -> None:
    """What ``check_table`` takes the store takes, and what it refuses the store refuses."""
    config = StoreConfig.small().replace(
        mapped_file_size_commit_log=4096, max_message_size=3000, record_checksum=True
    )
    refused = 0
    limits = {"max_message_size": 3000, "file_size": 4096, "record_checksum": True}
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        for size in (2800, 2870, 2871, 2872, 2873, 2880, 2900, 3000):
            table = batch(topic=["t"], body=[b"x" * size], uniq_key=["U" * 32])
            said = [
                outcome(_core.check_table, table, **limits),
                outcome(store.put_table, table),
            ]
            assert said[0] == said[1]
            refused += said[0] != 1
    assert 0 < refused < 8


def test_an_error_of_the_rows_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[Any]:
        yield batch(topic=["a"], body=[b"1"])
        raise RuntimeError("the query failed")

    with pytest.raises(RuntimeError, match="the query failed"):
        staged(tmp_path, failing())
    assert list(tmp_path.iterdir()) == []


def test_staged_files_are_not_taken_when_they_changed(tmp_path: Path) -> None:
    done = staged(tmp_path, [batch(topic=["a"] * 9, body=[b"1"] * 9)])
    path = tmp_path / done.name
    good = path.read_bytes()
    path.write_bytes(good[:-60] + b"x" + good[-59:])
    with pytest.raises(staging.StagedFileError, match=r"has the sum [0-9a-f]{16}, was staged with"):
        staging.check_staged(tmp_path, done)
    path.write_bytes(good[:-1])
    with pytest.raises(staging.StagedFileError, match=r"has \d+ bytes, was staged with"):
        staging.check_staged(tmp_path, done)
    path.write_bytes(b"")
    with pytest.raises(staging.StagedFileError, match="cannot be read"):
        list(staging.staged_batches(path))
    path.unlink()
    with pytest.raises(staging.StagedFileError, match="9 rows of the write is missing"):
        staging.check_staged(tmp_path, done)
    with pytest.raises(staging.StagedFileError, match="cannot be read"):
        list(staging.staged_batches(path))


@pytest.mark.parametrize("skip", range(8))
def test_rows_are_passed_over(tmp_path: Path, skip: int) -> None:
    bodies = [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    parts = [batch(topic=["a"] * n, body=bodies[s : s + n]) for s, n in ((0, 2), (2, 1), (3, 4))]
    done = staged(tmp_path, parts)
    read = list(staging.staged_batches(tmp_path / done.name, skip))
    assert [body for part in read for body in part.column("body").to_pylist()] == bodies[skip:]
    assert all(part.num_rows for part in read)
