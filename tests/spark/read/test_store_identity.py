"""A task reads the store that its query was planned with, or says that it is another now."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessagesRemovedError
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.read.partitions import read_partition
from rmqstore.spark.read.store_identity import StoreReplacedError, identity_at, last_identity
from rmqstore.spark.stream.source import StreamReader
from support.source_model import partitions_of

pytestmark = pytest.mark.spark

SCHEMA = spark_schema(["body"])
CONFIG = StoreConfig.small().replace(mapped_file_size_commit_log=1 << 16)


def _make(path: Path, body: bytes, count: int = 100) -> None:
    with rmqstore.open(path, "a", config=CONFIG) as store:
        store.put_many("orders", [body] * count, queue_id=0)


def _swap(path: Path) -> None:
    """As an overwrite does: the old store is gone when it returns."""
    made, old = path.with_name("made"), path.with_name("old")
    _make(made, b"new")
    path.rename(old)
    made.rename(path)
    shutil.rmtree(old)


def _fill_again(path: Path) -> None:
    """Put another store into the same directories, as new ones may get the numbers of old ones."""
    made = path.with_name("made")
    _make(made, b"new")
    for place in sorted(path.rglob("*"), reverse=True):
        if not place.is_dir():
            place.unlink()
    shutil.copytree(made, path, dirs_exist_ok=True)


def _bodies(partition: Any) -> list[bytes]:
    passed = pickle.loads(pickle.dumps(partition))
    batches = read_partition(passed, SCHEMA)
    return [body for batch in batches for body in batch.column(0).to_pylist()]


@pytest.mark.parametrize("replace", [_swap, _fill_again])
@pytest.mark.parametrize("lossless", ["true", "false"])
@pytest.mark.parametrize("way", ["commitlog", "consumequeue"])
def test_a_store_that_is_replaced_between_two_tasks(
    tmp_path: Path, way: str, lossless: str, replace: Any
) -> None:
    path = tmp_path / "store"
    _make(path, b"old")
    given = {"path": path, "scan": way, "minPartitions": 4, "failOnDataLoss": lossless}
    planned = partitions_of(given)
    assert set(_bodies(planned[0])) == {b"old"}
    replace(path)
    for partition in planned:
        with pytest.raises(StoreReplacedError) as told:
            _bodies(partition)
        assert str(told.value) == f"{path}: the store was replaced since the query was planned"
    assert {body for each in partitions_of(given) for body in _bodies(each)} == {b"new"}


@pytest.mark.parametrize(
    "given",
    [{}, {"failOnDataLoss": "false"}, {"onCorrupt": "skip"}, {"onCorrupt": "stop"}],
)
def test_a_store_that_is_replaced_while_a_task_reads(
    tmp_path: Path, given: dict[str, object]
) -> None:
    path = tmp_path / "store"
    body = b"old" * 1000
    _make(path, body, 10_000)  # more files than are open at a time
    [planned] = partitions_of({"path": path, "minPartitions": 1, **given})
    batches = read_partition(planned, SCHEMA)
    found = next(batches).column(0).to_pylist()
    _swap(path)
    with pytest.raises(StoreReplacedError):
        found += [one for batch in batches for one in batch.column(0).to_pylist()]
    assert set(found) == {body}


@pytest.mark.parametrize("lossless", ["true", "false"])
def test_a_store_that_is_replaced_under_a_stream(tmp_path: Path, lossless: str) -> None:
    path = tmp_path / "store"
    _make(path, b"old")
    given = {"path": str(path), "consumeFrom": "first", "failOnDataLoss": lossless}
    reader = StreamReader(given, SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    [planned] = reader.partitions(start, end)
    assert set(_bodies(planned)) == {b"old"}
    _swap(path)
    with pytest.raises(StoreReplacedError):
        list(reader.read(planned))
    reader.stop()


@pytest.mark.parametrize("lossless", ["true", "false"])
def test_retention_that_took_all_is_no_replacement(tmp_path: Path, lossless: str) -> None:
    path = tmp_path / "store"
    _make(path, b"old")
    planned = partitions_of({"path": path, "failOnDataLoss": lossless})
    _make(path, b"late" * 1000, 100)
    for file in sorted((path / "commitlog").iterdir())[:-1]:
        file.unlink()
    if lossless == "true":
        with pytest.raises(MessagesRemovedError):
            [_bodies(each) for each in planned]
    else:
        assert [_bodies(each) for each in planned] == [[]]


def test_the_last_record_is_found_behind_others(tmp_path: Path) -> None:
    config = StoreConfig.small().replace(mapped_file_size_commit_log=1 << 20)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        assert last_identity(store, 0, 0) is None
        place = store.put("orders", b"x" * 300_000).physical_offset
        found = last_identity(store, 0, store.stats()["wrote_position"])
        assert found == identity_at(store, place)
        assert found is not None
        assert identity_at(store, place + 1) is None
        assert last_identity(store, 0, place) is None
