"""Consumers that wait for messages, in threads and in asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore.errors import (
    StoreClosedError,
)
from rmqstore.files import paths
from support.consumed import fill

WAIT = 60.0


@pytest.fixture
def small() -> rmqstore.StoreConfig:
    return rmqstore.StoreConfig.small()


# Waiting


def test_follow_waits_for_messages(store: rmqstore.MessageStore) -> None:
    fill(store, 4)
    orders = store.consumer("orders", group="billing")
    seen: list[int] = []
    came = threading.Semaphore(0)

    def read() -> None:
        for message in orders.follow():
            seen.append(int(message.body))
            came.release()

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(100, 110):
        store.put("orders", b"%d" % number)
    for _ in range(14):
        assert came.acquire(timeout=WAIT)
    assert sorted(seen) == [0, 1, 2, 3, *range(100, 110)]
    orders.close()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_who_follows_takes_over_what_another_leaves(store: rmqstore.MessageStore) -> None:
    fill(store, 8)
    first = store.consumer("orders", group="billing", orderly=True)
    assert len(list(first)) == 8
    second = store.consumer("orders", group="billing", orderly=True)
    follower = second.follow()
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(int(next(follower).body) for _ in range(8)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    first.close()
    thread.join(WAIT)
    assert sorted(got) == list(range(8))


def test_waiting_ends_with_the_store(tmp_path: Path, small: rmqstore.StoreConfig) -> None:
    store = rmqstore.open(tmp_path / "s", "a", config=small)
    store.create_topic("orders", 1)
    orders = store.consumer("orders", group="billing")
    ended: list[BaseException] = []

    def read() -> None:
        try:
            next(orders.follow())
        except StoreClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(0.05)
    store.close()
    thread.join(WAIT)
    assert len(ended) == 1
    with pytest.raises(StoreClosedError):
        orders.commit()
    orders.close()


@pytest.mark.parametrize("form", ["consumer", "follow"])
def test_asyncio_waits_for_messages(store: rmqstore.MessageStore, form: str) -> None:
    fill(store, 4)

    async def main() -> list[int]:
        orders = store.consumer("orders", group="billing")
        seen = []

        async def put() -> None:
            while len(seen) < 4:
                await asyncio.sleep(0.001)
            for number in range(100, 103):
                await store.aput("orders", b"%d" % number)
                await asyncio.sleep(0.01)

        task = asyncio.create_task(put())
        async for message in orders if form == "consumer" else orders.follow():
            seen.append(int(message.body))
            orders.commit()
            if len(seen) == 7:
                break
        await task
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, orders.close)
        assert [message async for message in orders] == []
        return seen

    seen = asyncio.run(asyncio.wait_for(main(), WAIT))
    assert sorted(seen) == [0, 1, 2, 3, 100, 101, 102]
    assert sum(store.offsets["orders", "billing"].values()) == 7


def test_a_call_that_is_cancelled_loses_no_message(store: rmqstore.MessageStore) -> None:
    count = 200
    for number in range(count):
        store.put("orders", b"%d" % number, queue_id=0)
    cancelled = 0
    seen = []
    with store.consumer("orders", group="billing") as orders:
        follower = orders.follow()
        while len(seen) < count:
            call = follower.__anext__()
            try:
                call.send(None)
            except StopIteration as done:
                seen.append(int(done.value.body))
                continue
            with pytest.raises(asyncio.CancelledError):
                call.throw(asyncio.CancelledError())
            cancelled += 1
            assert cancelled <= count
    assert seen == list(range(count))
    assert cancelled


def put_retried(store: rmqstore.MessageStore) -> None:
    store.core.put_stored(paths.retry_topic("billing"), 0, b"retried", "RETRY_TOPIC\x01orders")


def test_a_busy_queue_keeps_no_other_one_waiting(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", 3)
    with store.consumer("orders", group="billing") as orders:
        for _ in range(300):
            store.put("orders", b"busy", queue_id=0)
        store.put("orders", b"other", queue_id=2)
        store.create_topic(paths.retry_topic("billing"), 1)
        put_retried(store)
        seen: list[bytes] = []
        busy = []
        for message in orders.follow():
            seen.append(message.body)
            if message.body == b"busy":
                busy.append(message.queue_offset)
                store.put("orders", b"busy", queue_id=0)  # there is always more
            if {b"other", b"retried"} <= set(seen) or len(seen) == 2000:
                break
        assert {b"other", b"retried"} <= set(seen)
        assert busy == list(range(len(busy)))


def test_a_busy_retry_topic_keeps_no_queue_waiting(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", 1)
    store.create_topic(paths.retry_topic("billing"), 1)
    for _ in range(40):
        put_retried(store)
    with store.consumer("orders", group="billing") as orders:
        follower = orders.follow()
        assert next(follower).body == b"retried"
        store.put("orders", b"new")
        for _ in range(1000):
            put_retried(store)
            if next(follower).body == b"new":
                break
        else:
            pytest.fail("the queue never had its turn")


def test_waiting_costs_no_processor_time(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", 4)
    orders = store.consumer("orders", group="billing")
    follower = orders.follow()
    thread = threading.Thread(target=lambda: list(follower))
    thread.start()
    looked = 0
    original = orders._take

    def count(*arguments: object) -> object:
        nonlocal looked
        looked += 1
        return original(*arguments)  # type: ignore[arg-type]

    orders._take = count  # type: ignore[assignment,method-assign]
    began = time.monotonic()
    time.sleep(0.3)
    most = 3 + (time.monotonic() - began)  # once a second
    assert looked <= most
    orders.close()
    thread.join(WAIT)
