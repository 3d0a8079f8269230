"""Likely mistakes: a queue beyond the topic's number, a misspelt topic, tags with ``||``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import MessageIllegalError, MessageStore, RmqStoreWarning, StoreConfig

BARS = "a || b"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with rmqstore.open(tmp_path / "store", "a", config=StoreConfig.small()) as opened:
        opened.create_topic("orders", 4)
        yield opened


# A queue beyond the topic's number


def test_a_put_makes_the_queue_and_logs_it_once(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("orders", b"last", queue_id=3)
    store.put("new", b"last", queue_id=3)
    assert not caplog.records
    store.put("orders", b"x", queue_id=99)
    store.put("orders", b"y", queue_id=99)
    store.put_many("orders", [b"z"], queue_id=100)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("rmqstore", logging.WARNING)
    assert record.getMessage() == (
        f"{store.path}: topic 'orders': queue 99 created beyond its 4; "
        "RocketMQ's clients do not read it"
    )
    assert [message.body for message in store["orders"][99]] == [b"x", b"y"]
    assert list(store["orders"]) == [0, 1, 2, 3, 99, 100]
    assert {store.put("orders", b"").queue_id for _ in range(8)} == {0, 1, 2, 3}
    with store.consumer("orders", group="g") as orders:
        assert {b"x", b"y", b"z"} <= {message.body for message in orders}


def test_a_queue_of_the_files_is_not_logged(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("orders", b"x", queue_id=99)
    store.close()
    caplog.clear()
    with rmqstore.open(store.path, "a") as again:
        again.put("orders", b"y", queue_id=99)
        assert len(again["orders"][99]) == 2
        assert not caplog.records
        again.create_topic("orders", 200)
        again.put("orders", b"z", queue_id=150)
        assert not caplog.records


def test_delayed_and_half_messages_are_not_logged(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("orders", b"x", queue_id=2, delay_level=18)
    store.begin("orders", b"x", queue_id=2).commit()
    assert not caplog.records


# A misspelt topic


def test_a_scan_of_a_misspelt_topic_warns(store: MessageStore) -> None:
    text = f"{store.path}: no topic 'ordres'; did you mean 'orders'?"
    with pytest.warns(RmqStoreWarning) as warned:
        found = store.scan("ordres")
    assert [str(one.message) for one in warned] == [text]
    assert warned[0].filename == __file__
    assert found.count() == 0  # as it always was
    with pytest.warns(RmqStoreWarning, match="'ordres'"):
        store.scan(["orders", "ordres"])
    with rmqstore.open(store.path) as reader, pytest.warns(RmqStoreWarning, match="'ordres'"):
        reader.scan("ordres")


def test_a_topic_that_may_be_meant_does_not_warn(store: MessageStore) -> None:
    store.create_topic("daily-2026-11-26", 1)
    store.create_topic("removed", 1)
    store.put("removed", b"x", queue_id=0)
    store.delete_topic("removed")
    store.create_topic("remove", 1)
    for topic in ("orders", "payments", "daily-2026-11-27", "removed", "%RETRY%orders", "", ()):
        store.scan(topic)
    assert store.scan("removed").count() == 1
    store.scan()


def test_queues_without_an_entry_are_a_topic(store: MessageStore) -> None:
    store.put("order", b"x", queue_id=0)
    store.close()
    Path(store.path, "config/topics.json").unlink()
    with rmqstore.open(store.path) as reader:
        assert reader.scan("order").count() == 1


def test_each_use_of_a_scan_is_silent(store: MessageStore) -> None:
    with pytest.warns(RmqStoreWarning):
        found = store.scan("ordres")
    assert found.to_table().num_rows == found.dataset().count_rows() == len(list(found)) == 0
    assert found.replace(tags="a").count() == 0


# Tags that no filter takes


@pytest.mark.parametrize(
    "put",
    [
        lambda store, tags: store.put("orders", b"x", tags=tags),
        lambda store, tags: store.put_batch("orders", [b"x"], tags=tags),
        lambda store, tags: store.put_many("orders", [b"x"], tags=tags),
        lambda store, tags: store.begin("orders", b"x", tags=tags),
        lambda store, tags: asyncio.run(store.aput("orders", b"x", tags=tags)),
    ],
    ids=["put", "put_batch", "put_many", "begin", "aput"],
)
def test_two_tags_in_one_are_refused(store: MessageStore, put: Callable[..., Any]) -> None:
    for tags in (BARS, "||", "a||", "|a||b", "a|b|||"):
        with pytest.raises(MessageIllegalError, match=r"^tags must not contain '\|\|', at which"):
            put(store, tags)
    assert store.scan().count() == 0
    for tags in ("a|b", "|", "|a|", "a | | b"):
        put(store, tags)


def test_the_row_is_named(store: MessageStore) -> None:
    with pytest.raises(MessageIllegalError, match=r"^tags, row 1: must not contain"):
        store.put_many("orders", [b"x"] * 3, tags=["a", BARS, "b"])
    assert store.scan().count() == 0


def test_stored_tags_are_copied(store: MessageStore, tmp_path: Path) -> None:
    """A broker stores what its clients send: no filter matches it, but all else reads it."""
    properties = {"TAGS": BARS}
    record = rmqstore.encode_record("orders", b"x", properties=properties)
    with rmqstore.CommitLog(tmp_path / "broker/commitlog", file_size=1 << 20, mode="a") as log:
        log.append([record])
    with rmqstore.open(tmp_path / "broker") as broker:
        assert [message.tags for message in broker.scan()] == [BARS]
        assert broker.scan(tags=BARS).count() == 0
        store.put_table(broker.scan())
    assert [message.tags for message in store.scan("orders", sql=f"TAGS = '{BARS}'")] == [BARS]
