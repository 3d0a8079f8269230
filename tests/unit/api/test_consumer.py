"""``store.consumer``: what a group gets, and where it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore._core import Core
from rmqstore.errors import (
    ConsumeDisabledError,
    MessagesRemovedError,
    ReadOnlyStoreError,
    StoreClosedError,
    TopicNotFoundError,
)
from rmqstore.files import paths
from support.consumed import QUEUES, bodies, fill
from support.retention_stores import open_store, put_hours

WAIT = 60.0


@pytest.fixture
def small() -> rmqstore.StoreConfig:
    return rmqstore.StoreConfig.small()


def test_a_new_group_begins_at_the_first_message(store: rmqstore.MessageStore) -> None:
    fill(store, 20)
    with store.consumer("orders", group="billing") as orders:
        assert orders.queues == (0, 1, 2, 3)
        assert bodies(orders) == list(range(20))
        assert list(orders) == []
        assert store.offsets == {}
        orders.commit()
    assert store.offsets == {("orders", "billing"): dict.fromkeys(range(QUEUES), 5)}
    fill(store, 4)
    with store.consumer("orders", group="billing") as orders:
        assert bodies(orders) == [0, 1, 2, 3]


def test_what_is_not_committed_comes_again(store: rmqstore.MessageStore) -> None:
    fill(store, 8)
    with store.consumer("orders", group="billing", queues=[0]) as orders:
        messages = iter(orders)
        assert next(messages).body == b"0"
        orders.commit()
        assert next(messages).body == b"4"
    assert store.offsets["orders", "billing"] == {0: 1}
    with store.consumer("orders", group="billing", queues=[0]) as orders:
        assert bodies(orders) == [4]


def test_each_commit_is_up_to_the_last_message_taken(store: rmqstore.MessageStore) -> None:
    fill(store, 12)
    with store.consumer("orders", group="billing") as orders:
        for count, _message in enumerate(orders, 1):
            orders.commit()
            assert sum(store.offsets["orders", "billing"].values()) == count


def test_for_ends_at_the_head_of_its_start(store: rmqstore.MessageStore) -> None:
    fill(store, 4)
    with store.consumer("orders", group="billing") as orders:
        taken = 0
        for message in orders:
            store.put("orders", b"9", queue_id=message.queue_id)
            taken += 1
        assert taken == 4
        assert len(list(orders)) == 4


@pytest.mark.parametrize("start", ["group", "first", "last"])
def test_where_a_consumer_begins(store: rmqstore.MessageStore, start: str) -> None:
    fill(store, 8)
    with store.consumer("orders", group="billing", queues=[0]) as orders:
        next(iter(orders))
        orders.commit()
    with store.consumer("orders", group="billing", start=start, queues=[0]) as orders:
        expected = {"group": [4], "first": [0, 4], "last": []}[start]
        assert bodies(orders) == expected
        store.put("orders", b"77", queue_id=0)
        assert bodies(orders) == [77]
        orders.commit()
    assert store.offsets["orders", "billing"] == {0: 3}


def test_the_last_message_is_the_last_when_the_consumer_is_made(
    store: rmqstore.MessageStore,
) -> None:
    store.create_topic("orders", 1)
    store.put("orders", b"1", queue_id=0)
    with store.consumer("orders", group="billing", start="last") as orders:
        store.put("orders", b"2", queue_id=0)
        assert bodies(orders) == [2]
        store.create_topic("orders", 2)
        store.put("orders", b"3", queue_id=1)
        assert bodies(orders) == [3]  # all of a new queue is new


def test_a_topic_is_deleted_under_its_consumer(store: rmqstore.MessageStore) -> None:
    fill(store, 20)
    with store.consumer("orders", group="billing") as orders:
        for message in orders:
            orders.retry(message, delay_level=-1)
        orders.commit()
        store.delete_topic("orders")
        fill(store, 4)
        assert bodies(orders) == [0, 1, 2, 3]
        orders.commit()
    assert store.offsets["orders", "billing"] == dict.fromkeys(range(QUEUES), 1)


def test_what_was_taken_of_a_deleted_topic_is_not_committed_to_the_new_one(
    store: rmqstore.MessageStore,
) -> None:
    fill(store, 20)
    with store.consumer("orders", group="billing", orderly=True) as orders:
        assert len(list(orders)) == 20
        store.delete_topic("orders")
        fill(store, 4)
        orders.commit()
        assert ("orders", "billing") not in store.offsets
    with store.consumer("orders", group="billing") as orders:
        assert bodies(orders) == [0, 1, 2, 3]
        orders.commit()
        store.delete_topic("orders")
        fill(store, 20)  # the queues are longer than they were
        assert bodies(orders) == list(range(20))
        orders.commit()
    assert store.offsets["orders", "billing"] == dict.fromkeys(range(QUEUES), 5)


def test_retries_of_a_deleted_retry_topic_do_not_pass_the_new_ones(
    store: rmqstore.MessageStore,
) -> None:
    store.create_topic("%RETRY%billing", 1)
    fill(store, 1)
    retried = {"RETRY_TOPIC": "orders"}
    with store.consumer("orders", group="billing") as orders:
        for number in range(3):
            store.core.put_stored(
                "%RETRY%billing", 0, b"%d" % number, "RETRY_TOPIC\1orders", wait=False
            )
        assert len(list(orders)) == 4
        store.delete_topic("%RETRY%billing")
        store.create_topic("%RETRY%billing", 1)
        for number in range(5):
            store.core.put_stored(
                "%RETRY%billing", 0, b"%d" % number, "RETRY_TOPIC\1orders", wait=False
            )
        orders.commit()
        assert ("%RETRY%billing", "billing") not in store.offsets
        again = [*orders]
        assert [message.body for message in again] == [b"0", b"1", b"2", b"3", b"4"]
        assert all(message.properties == retried for message in again)


def test_a_commit_after_the_close_is_refused(store: rmqstore.MessageStore) -> None:
    fill(store, 4)
    with store.consumer("orders", group="billing") as orders:
        assert len(list(orders)) == 4
    for _ in range(2):
        with pytest.raises(StoreClosedError, match=r"billing.*closed"):
            orders.commit()
    assert store.offsets == {}
    with store.consumer("orders", group="billing") as orders:
        assert len(list(orders)) == 4
        orders.commit()
    orders.commit()  # there is nothing to commit


def test_a_consumer_that_begins_earlier_takes_the_group_back(
    store: rmqstore.MessageStore,
) -> None:
    fill(store, 12)
    with store.consumer("orders", group="billing", queues=[1]) as orders:
        assert len(list(orders)) == 3
        orders.commit()
    with store.consumer("orders", group="billing", start="first", queues=[1]) as orders:
        next(iter(orders))
        orders.commit()
    assert store.offsets["orders", "billing"] == {1: 1}


def test_a_consumer_begins_at_a_time(store: rmqstore.MessageStore) -> None:
    store.put("orders", b"1", queue_id=0)
    store.clock.advance(3600)
    second = store.put("orders", b"2", queue_id=0)
    for start in (second.store_timestamp, second.store_timestamp - 1000):
        with store.consumer("orders", group=f"g{start}", start=start) as orders:
            assert bodies(orders) == [2]
    with store.consumer("orders", group="late", start=second.store_timestamp + 1) as orders:
        assert bodies(orders) == []


def test_a_filter_lets_the_group_pass_what_it_does_not_want(
    store: rmqstore.MessageStore,
) -> None:
    fill(store, 4000)
    with store.consumer("orders", group="billing", tags="paid || shipped") as orders:
        assert bodies(orders) == list(range(1, 4000, 2))
        orders.commit()
    assert [lag.messages for lag in store.lag("billing")] == [0] * QUEUES


def test_a_topic_that_nothing_knows(store: rmqstore.MessageStore) -> None:
    with pytest.raises(TopicNotFoundError, match="no topic 'order'"):
        store.consumer("order", group="billing")
    assert not store.groups  # nor is a group made
    store.create_topic("order", 2)
    with store.consumer("order", group="billing") as orders:
        assert list(orders) == []
        assert orders.queues == (0, 1)


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", "a@b", "g" * 121, "g" * 256, "a b", "a\0", "\u00e9", "."]
)
def test_a_group_name_that_cannot_be(store: rmqstore.MessageStore, name: str) -> None:
    fill(store, 1)
    for call in (
        lambda: store.consumer("orders", group=name),
        lambda: store.create_group(name),
        lambda: store.lag(name),
    ):
        with pytest.raises(ValueError, match="must be 1 to 120 of"):
            call()
    with pytest.raises(rmqstore.GroupNotFoundError):
        store.delete_group(name)
    assert not store.groups
    assert not Path(store.path, "config", paths.SUBSCRIPTION_GROUP_JSON).exists()
    with store.consumer("orders", group="g" * 120) as orders:
        orders.retry(next(iter(orders)))


def test_messages_that_were_removed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_hours(store, 9, 300)
        raising = store.consumer("t", group="one", queues=[0], on_removed="raise")
        skipping = store.consumer("t", group="two", queues=[0])
        store.delete_expired(before=store.clock.now())
        first = store["t"][0].min_offset
        assert first > 0
        with pytest.raises(MessagesRemovedError) as caught:
            list(raising)
        assert (caught.value.offset, caught.value.min_offset) == (0, first)
        left = [message.queue_offset for message in raising]  # it has been told
        assert left == list(range(first, 900))
        assert [message.queue_offset for message in skipping] == left
        raising.close()
        skipping.close()


def test_who_follows_goes_on_after_removed_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_hours(store, 9, 300)
        with store.consumer("t", group="one", queues=[0], on_removed="raise") as consumer:
            store.delete_expired(before=store.clock.now())
            follower = consumer.follow()
            with pytest.raises(MessagesRemovedError):
                next(follower)
            assert next(follower).queue_offset == store["t"][0].min_offset > 0


def test_arguments_that_are_none(store: rmqstore.MessageStore) -> None:
    fill(store, 1)
    for arguments in (
        {"start": "begin"},
        {"start": 1.5},
        {"start": "2026-01-01T00:00:00"},
        {"queues": []},
        {"queues": [-1]},
        {"queues": ["0"]},
        {"queues": 1},
        {"on_removed": "ignore"},
        {"tags": 5},
    ):
        with pytest.raises((TypeError, ValueError)):
            store.consumer("orders", group="billing", **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="queues must be"):
        store.consumer("orders", group="billing", queues=1)  # type: ignore[arg-type]
    for group in (None, 5, b"x"):
        with pytest.raises(TypeError):
            store.consumer("orders", group=group)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="name must be"):
            store.delete_group(group)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.consumer(5, group="billing")  # type: ignore[arg-type]


# Read only


def test_a_reader_consumes_beside_an_owner_and_commits_nothing(
    store: rmqstore.MessageStore,
) -> None:
    fill(store, 8)
    with store.consumer("orders", group="billing", queues=[0]) as orders:
        next(iter(orders))
        orders.commit(sync=True)
    with rmqstore.open(store.path) as reader:
        orders = reader.consumer("orders", group="billing")
        assert bodies(orders) == [1, 2, 3, 4, 5, 6, 7]
        with pytest.raises(ReadOnlyStoreError):
            orders.commit()
        with pytest.raises(ReadOnlyStoreError):
            orders.retry(reader["orders"][0][0])
        follower = orders.follow()
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(next(follower).body))
        thread.start()
        store.put("orders", b"new")
        thread.join(WAIT)
        assert got == [b"new"]
        assert reader.offsets == store.offsets
        orders.close()
        assert "unknown" not in reader.groups
        reader.consumer("orders", group="unknown").close()
        assert "unknown" not in store.groups


def test_a_group_that_may_not_consume(
    tmp_path: Path, store: rmqstore.MessageStore, small: rmqstore.StoreConfig
) -> None:
    fill(store, 1)
    store.create_group("billing")
    store.close()
    file = Path(store.path, "config", paths.SUBSCRIPTION_GROUP_JSON)
    file.write_text(file.read_text().replace('"consumeEnable":true', '"consumeEnable":false'))
    for mode in ("r", "r+"):
        with rmqstore.open(store.path, mode, config=small) as again:
            assert not again.groups["billing"].consume_enable
            with pytest.raises(ConsumeDisabledError, match="consumeEnable"):
                again.consumer("orders", group="billing")


def test_light_queues_are_consumed_by_their_own_offsets(store: rmqstore.MessageStore) -> None:
    """A queue that records of another topic are in, as multi-dispatch leaves it."""
    fill(store, 8)
    store.create_topic("light", 1)
    with store.consumer("light", group="billing") as light:
        got = store.get("orders", 3, 0)
        pulled = []

        def get(topic: str, queue_id: int, offset: int, count: int, **_: object) -> object:
            found = got.messages[offset : offset + count]
            pulled.append(count)
            status = rmqstore.GetStatus.FOUND if found else rmqstore.GetStatus.OFFSET_OVERFLOW_ONE
            return rmqstore.GetResult(status, found, offset + len(found), 0, 2)

        light._core = Faked(store.core, get, (0, 2))  # type: ignore[assignment]
        first = next(iter(light))
        assert (first.topic, first.queue_offset) == ("orders", 0)
        light.commit()
        assert store.offsets["light", "billing"] == {0: 1}
        assert pulled[-1] == 1


class Faked:
    """A core that answers ``get`` by a function."""

    def __init__(self, core: Core, get: Callable[..., object], bounds: tuple[int, int]) -> None:
        self._real = core
        self.get = get
        self._found = bounds

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return self._found if topic == "light" else None

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def test_a_service_that_fails_keeps_no_store_open(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("t", b"x")
    monkeypatch.setattr(type(store.progress), "save", lambda self: 1 // 0)
    _ = store.offsets
    with pytest.raises(ZeroDivisionError):
        store.close()
    assert store.closed
    monkeypatch.undo()
    with rmqstore.open(store.path, "r+") as again:
        assert again.recovery.clean
