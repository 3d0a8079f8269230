"""What a stream tells where messages that it was to read next may be lost."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.spark.stream.offsets import DataLossError
from support.stream_model import Crash, Query, fill, options

pytestmark = pytest.mark.spark


def test_a_topic_that_is_made_anew_is_told(
    store: rmqstore.MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, "kept", 1, 1)
    fill(store, "orders", 1, 5)
    query = Query(options(store, consumeFrom="first"))
    query.all()
    store.delete_topic("orders")
    with pytest.raises(DataLossError, match=r"orders/0: offset 5 comes next, it has no messages"):
        query.trigger()
    fill(store, "orders", 1, 9)  # more than there were: the offset is there again
    for again in (False, True):
        if again:
            query.start(options(store))
        with pytest.raises(DataLossError, match=r"orders/0: offset 5 .* 0 to 9 now, of a topic ma"):
            query.trigger()
    query.start(options(store, failOnDataLoss="false"))
    with caplog.at_level(logging.WARNING, "rmqstore"):
        query.all()
    assert "orders/0: offset 5 comes next" in caplog.text
    assert [row[2] for row in query.rows if row[0] == "orders"] == [*range(5), *range(9)]
    query.start(options(store))
    assert query.all() == 0


def test_another_store_at_the_path_is_told(tmp_path: Path) -> None:
    config = StoreConfig.small()
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 2, 6)
        query = Query(options(store, consumeFrom="first"))
        query.all()
    (tmp_path / "store").rename(tmp_path / "gone")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 2, 8)
        with pytest.raises(DataLossError, match=r"orders/0: offset 6 .*, and 3 more"):
            query.trigger()
        query.start(options(store, failOnDataLoss="false"))
    (tmp_path / "store").rename(tmp_path / "gone too")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 2, 2)
        query.start(options(store))
        with pytest.raises(DataLossError, match=r"offset 6 comes next, the queue has 0 to 2 now"):
            query.trigger()


def test_messages_that_waited_in_a_topic_made_anew_are_told(store: rmqstore.MessageStore) -> None:
    fill(store, "kept", 1, 1)
    fill(store, "orders", 1, 5)
    query = Query(options(store, consumeFrom="first", queues='{"orders":[0]}'))
    query.offsets, query.done = [json.dumps(query.initial())], 1
    store.delete_topic("orders")
    fill(store, "orders", 1, 2)
    for again in (False, True):
        if again:
            query.start(options(store, topics="orders"))
        with pytest.raises(DataLossError, match=r"offset 0 comes next, .* 0 to 2 now, of a topic"):
            query.trigger()
    query.start(options(store, topics="orders", failOnDataLoss="false"))
    assert query.all() == 1
    assert len(query.rows) == 2


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("start", ["first", "last"])
def test_another_store_that_came_while_the_query_was_down_is_told(
    tmp_path: Path, start: str, available_now: bool
) -> None:
    config = StoreConfig.small()
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 4, 10)
        given = options(store, consumeFrom=start, maxMessagesPerTrigger="1000")
    query = Query(given)
    if start == "first":
        query.all()
    else:
        query.offsets, query.done = [json.dumps(query.initial())], 1
    (tmp_path / "store").rename(tmp_path / "gone")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 4, 20)
    query.start(given, available_now=available_now)
    with pytest.raises(DataLossError, match=r"orders/0: offset 10 .* 0 to 20 now, of a store made"):
        query.trigger()
    query.start({**given, "failOnDataLoss": "false"}, available_now=available_now)
    assert query.all() == 1
    assert len(query.batches[1]) == 80
    query.start(given, available_now=available_now)
    assert query.all() == 0


def test_a_batch_of_a_store_that_was_replaced_is_not_run_again(tmp_path: Path) -> None:
    config = StoreConfig.small()
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 1, 4)
        given = options(store, consumeFrom="first")
    query = Query(given)
    with pytest.raises(Crash):
        query.trigger(crash_at="planned")
    (tmp_path / "store").rename(tmp_path / "gone")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 1, 6)
    query.start(given)
    with pytest.raises(DataLossError, match=r"from offset 0 on, of a store that was replaced"):
        query.trigger()
    query.start({**given, "failOnDataLoss": "false"})
    assert query.all() == 2
    assert [len(batch) for batch in query.batches.values()] == [0, 6]


@pytest.mark.parametrize("how", ["moved", "copied", "copied without the times"])
def test_a_store_that_was_moved_is_the_same(tmp_path: Path, how: str) -> None:
    with rmqstore.open(tmp_path / "a", "a", config=StoreConfig.small()) as store:
        fill(store, "orders", 2, 5)
        given = options(store, consumeFrom="first")
    query = Query(given)
    query.all()
    if how == "moved":
        (tmp_path / "a").rename(tmp_path / "b")
    else:
        copy = shutil.copy2 if how == "copied" else shutil.copyfile
        shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=copy)
    with rmqstore.open(tmp_path / "b", "a", config=StoreConfig.small()) as store:
        fill(store, "orders", 2, 1)
    query.start({**given, "path": str(tmp_path / "b")})
    assert query.all() == 1
    assert len(query.rows) == 12


def test_retention_leaves_a_store_the_same(tmp_path: Path) -> None:
    config = StoreConfig.small(mapped_file_size_commit_log=8192)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 1, 200)
        given = options(store, consumeFrom="first")
        query = Query(given)
        query.all()
        before = json.loads(query.offsets[-1])["logs"]["."]
        files = sorted((tmp_path / "store" / "commitlog").iterdir())
    assert len(files) > 3
    for file in files[:2]:
        file.unlink()
    query.start(given)
    assert query.all() == 0  # nothing to read, and so no batch that has it noted
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 1, 3)
    query.start(given)
    assert query.all() == 1
    assert len(query.rows) == 203
    after = json.loads(query.offsets[-1])["logs"]["."]
    assert (before[0], after[0]) == (0, int(files[2].name))
    (tmp_path / "store").rename(tmp_path / "gone")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 1, 300)  # whose log begins before the one that is known
    query.start(given)
    with pytest.raises(DataLossError, match=r"offset 203 .* 0 to 300 now, of a store made again"):
        query.trigger()


def test_a_checkpoint_without_what_the_logs_began_with(store: rmqstore.MessageStore) -> None:
    fill(store, "orders", 2, 5)
    query = Query(options(store, consumeFrom="first"))
    query.all()
    old = json.loads(query.offsets[0])
    assert list(old.pop("logs")) == ["."]
    query.offsets = [json.dumps(old)]
    query.start(options(store))
    assert query.all() == 0
    fill(store, "orders", 1, 1)
    assert query.all() == 1
    assert list(json.loads(query.offsets[1])["logs"]) == ["."]


def test_a_store_without_messages_is_noted_once_it_has_some(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", 1)
    query = Query(options(store))
    assert "logs" not in query.initial()
    query.offsets, query.done = [json.dumps(query.initial())], 1
    fill(store, "orders", 1, 1)
    query.start(options(store))
    assert query.all() == 1
    assert "logs" in json.loads(query.offsets[1])


def test_a_batch_whose_messages_are_gone(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore.spark.stream.plan._APPEAR_SECONDS", 0.1)
    fill(store, "kept", 1, 1)
    fill(store, "orders", 1, 5)
    query = Query(options(store, consumeFrom="first"))
    with pytest.raises(Crash):
        query.trigger(crash_at="planned")
    store.delete_topic("orders")
    fill(store, "orders", 1, 2)
    query.start(options(store))
    with pytest.raises(DataLossError, match="the batch has offsets 0 to 5, the queue has 0 to 2"):
        query.trigger()
    query.start(options(store, failOnDataLoss="false"))
    assert query.trigger()
    assert len(query.batches[0]) == 3


def test_offsets_that_our_own_retention_took_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = StoreConfig.small(mapped_file_size_commit_log=4096)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fill(store, "orders", 1, 60)
        query = Query(options(store, consumeFrom="first", maxMessagesPerTrigger="10"))
        query.trigger()
        seen = [row[2] for row in query.rows]
        assert 0 < len(seen) < 20
        done = store.delete_expired(before=store.clock.now() + 1)
        first = store["orders"][0].min_offset
        assert done.files
        assert first > len(seen)
        with pytest.raises(DataLossError, match=rf"orders/0: offset {len(seen)} comes next"):
            query.all()
        query.start(options(store, failOnDataLoss="false"))
        with caplog.at_level(logging.WARNING, "rmqstore"):
            query.all()
        assert "orders/0: offset" in caplog.text
        assert [row[2] for row in query.rows] == [*seen, *range(first, 60)]
