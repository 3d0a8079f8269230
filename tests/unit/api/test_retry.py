"""Messages given back: as the real broker stored them, level by level, up to the dead letter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.errors import StoreError
from rmqstore.files import paths

GROUP = "orders-group"
# All but what the log itself decides: offsets, store time, store message id.
FIELDS = [
    "topic",
    "queue_id",
    "body",
    "raw_body",
    "tags",
    "keys",
    "properties",
    "flag",
    "sys_flag",
    "store_size",
    "born_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "uniq_key",
]


@pytest.fixture
def broker(tmp_path: Path, broker_copy: Callable[[str, Path], object]) -> rmqstore.MessageStore:
    broker_copy("broker-clean", tmp_path)
    store = rmqstore.open(tmp_path / "broker-clean", "r+")
    yield store
    store.close()


def fields(message: rmqstore.Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in FIELDS}


def last(store: rmqstore.MessageStore, done: rmqstore.PutResult) -> rmqstore.Message:
    return store.at(done.physical_offset)


def test_records_are_those_of_the_real_broker(broker: rmqstore.MessageStore) -> None:
    """Each message that the broker's consumer gave back is given back once more, by ours.

    It was given up at the second failure.
    """
    scheduled = list(broker["SCHEDULE_TOPIC_XXXX"][2])
    retried = list(broker[f"%RETRY%{GROUP}"][0])
    dead = list(broker[f"%DLQ%{GROUP}"][0])
    by_id = {message.msg_id: message for queue in broker["orders"].values() for message in queue}
    compared = 0
    with broker.consumer("orders", group=GROUP) as orders:
        for theirs in scheduled:
            properties = theirs.properties
            assert properties["REAL_TOPIC"] == f"%RETRY%{GROUP}"
            message = by_id[properties["ORIGIN_MESSAGE_ID"]]
            ours = last(broker, orders.retry(message))
            assert fields(ours) == fields(theirs)
            compared += 1
        given_up = {message.properties["ORIGIN_MESSAGE_ID"]: message for message in dead}
        broker.create_group(GROUP, retry_max=1)
        for message in retried:
            theirs = given_up[message.properties["ORIGIN_MESSAGE_ID"]]
            ours = last(broker, orders.retry(message))
            assert fields(ours) == fields(theirs)
            compared += 1
    assert compared == len(retried) * 2 == 26
    unit = broker["SCHEDULE_TOPIC_XXXX"][2].units()[-1]
    newest = broker["SCHEDULE_TOPIC_XXXX"][2][-1]
    assert unit["tags_code"] == newest.store_timestamp + 10_000  # it is due then


def test_topics_are_made_as_the_broker_makes_them(store: rmqstore.MessageStore) -> None:
    store.put("orders", b"1")
    with store.consumer("orders", group="billing") as orders:
        assert "%RETRY%billing" not in store
        (message,) = orders
        orders.retry(message)
        orders.retry(message, delay_level=-1)
    for name in ("%RETRY%billing", "%DLQ%billing"):
        topic = store[name]
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


@pytest.mark.parametrize(
    ("tried", "asked", "level"),
    [(0, None, 3), (1, None, 4), (15, None, 18), (15, 0, 18), (0, 0, 3), (0, 7, 7), (9, 40, 18)],
)
def test_the_level_grows_with_the_tries(
    store: rmqstore.MessageStore, tried: int, asked: int | None, level: int
) -> None:
    store.create_topic("orders", 1)
    done = store.core.put_stored("orders", 0, b"1", "KEYS\x01k", reconsume_times=tried)
    with store.consumer("orders", group="billing") as orders:
        back = last(store, orders.retry(last(store, done), delay_level=asked))
    assert (back.topic, back.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    assert back.reconsume_times == tried + 1
    assert back.properties == {
        "KEYS": "k",
        "RETRY_TOPIC": "orders",
        "WAIT": "false",
        "DELAY": str(level),
        "ORIGIN_MESSAGE_ID": done.msg_id,
        "REAL_TOPIC": "%RETRY%billing",
        "REAL_QID": "0",
    }


@pytest.mark.parametrize(
    ("retry_max", "tried", "asked", "dead"),
    [(16, 15, None, False), (16, 16, None, True), (0, 0, None, True), (3, 3, 5, True),
     (16, 0, -1, True), (16, 0, -9, True)],
)  # fmt: skip
def test_a_message_tried_too_often_is_a_dead_letter(
    store: rmqstore.MessageStore, retry_max: int, tried: int, asked: int | None, dead: bool
) -> None:
    store.create_topic("orders", 1)
    store.create_group("billing", retry_max=retry_max)
    done = store.core.put_stored("orders", 0, b"1", "", reconsume_times=tried)
    with store.consumer("orders", group="billing") as orders:
        back = last(store, orders.retry(last(store, done), delay_level=asked))
    assert (back.topic == "%DLQ%billing") == dead
    if dead:
        assert (back.queue_id, back.properties["DELAY"]) == (0, "0")
        assert "REAL_TOPIC" not in back.properties
    assert back.reconsume_times == tried + 1


def test_a_compressed_body_and_a_checksum_stay_what_they_are(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small().replace(record_checksum=True)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.create_topic("orders", 1)
        deflated = __import__("zlib").compress(b"x" * 1000)
        done = store.core.put_stored("orders", 0, deflated, "A\x01b", sys_flag=1)
        with store.consumer("orders", group="billing") as orders:
            (message,) = orders
            back = last(store, orders.retry(message))
            assert (back.body, back.raw_body) == (b"x" * 1000, deflated)
            assert back.sys_flag == 1
            assert back.properties["ORIGIN_MESSAGE_ID"] == done.msg_id
            assert back.properties["__CRC32#"] != message.properties["__CRC32#"]


def test_a_group_without_retry_queues_loses_nothing(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.put("orders", b"1")
        store.create_group("billing")
    file = tmp_path / "config" / paths.SUBSCRIPTION_GROUP_JSON
    file.write_text(file.read_text().replace('"retryQueueNums":1', '"retryQueueNums":0'))
    with (
        rmqstore.open(tmp_path, "r+", config=config) as store,
        store.consumer("orders", group="billing") as orders,
        pytest.raises(StoreError, match="has no retry queue"),
    ):
        orders.retry(next(iter(orders)))


def test_the_result_is_that_of_the_record(store: rmqstore.MessageStore) -> None:
    put = store.put("orders", b"1")
    with store.consumer("orders", group="billing") as orders:
        message = next(iter(orders))
        for done, topic in (
            (orders.retry(message), "SCHEDULE_TOPIC_XXXX"),
            (orders.retry(message, delay_level=-1), "%DLQ%billing"),
        ):
            record = last(store, done)
            assert (record.topic, record.uniq_key) == (topic, put.uniq_key)
            assert done.uniq_key == put.uniq_key is not None
            assert (done.queue_id, done.queue_offset) == (record.queue_id, record.queue_offset)
            assert (done.msg_id, done.store_timestamp) == (record.msg_id, record.store_timestamp)
            assert (done.count, done.status) == (1, rmqstore.PutStatus.PUT_OK)


def test_what_cannot_be_given_back(store: rmqstore.MessageStore) -> None:
    store.put("orders", b"1")
    with store.consumer("orders", group="billing") as orders:
        (message,) = orders
        for arguments in ((b"1", None), (None, 1), (message, "3"), (message, True)):
            with pytest.raises(TypeError):
                orders.retry(arguments[0], delay_level=arguments[1])  # type: ignore[arg-type]
