"""Which consumer of a group reads which queue, and orderly ones."""

from __future__ import annotations

import gc
import itertools
import threading

import pytest

import rmqstore
from rmqstore.consume.sharing import allocate
from rmqstore.errors import (
    StoreClosedError,
)
from support.consumed import QUEUES, bodies, fill

WAIT = 60.0


# Sharing


def test_queues_are_shared_evenly() -> None:
    for count in range(9):
        for members in range(1, 6):
            parts = [allocate(list(range(count)), members, index) for index in range(members)]
            assert list(itertools.chain(*parts)) == list(range(count))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_queues_are_shared_again_when_one_comes_or_goes(store: rmqstore.MessageStore) -> None:
    fill(store, 8)
    first = store.consumer("orders", group="billing")
    assert first.queues == (0, 1, 2, 3)
    assert len(list(first)) == 8  # and commits nothing
    second = store.consumer("orders", group="billing")
    other = store.consumer("orders", group="audit")
    assert (first.queues, second.queues, other.queues) == ((0, 1), (2, 3), (0, 1, 2, 3))
    assert bodies(second) == [2, 3, 6, 7]
    assert bodies(first) == []
    second.commit()
    second.close()
    second.close()
    assert first.queues == (0, 1, 2, 3)
    assert bodies(first) == []  # the second one has committed its queues
    first.close()
    with store.consumer("orders", group="billing") as again:
        assert bodies(again) == [0, 1, 4, 5]
    with pytest.raises(StoreClosedError):
        list(first)


def test_a_late_commit_takes_nobody_back(store: rmqstore.MessageStore) -> None:
    fill(store, 12)
    first = store.consumer("orders", group="billing")
    assert len(list(first)) == 12
    second = store.consumer("orders", group="billing")
    messages = iter(second)
    assert {next(messages).queue_id, next(messages).queue_id} == {2}
    second.commit()
    first.commit()  # it has taken them all
    assert store.offsets["orders", "billing"] == dict.fromkeys(range(QUEUES), 3)
    assert bodies(second) == []
    second.commit()
    assert store.offsets["orders", "billing"] == dict.fromkeys(range(QUEUES), 3)


def test_a_consumer_that_is_forgotten_leaves(store: rmqstore.MessageStore) -> None:
    fill(store, 8)
    first = store.consumer("orders", group="billing")
    second = store.consumer("orders", group="billing")
    assert first.queues == (0, 1)
    del second
    gc.collect()
    assert first.queues == (0, 1, 2, 3)
    assert bodies(first) == list(range(8))


def test_pinned_queues(store: rmqstore.MessageStore) -> None:
    fill(store, 8)
    pinned = store.consumer("orders", group="billing", queues=[1, 2])
    with pytest.raises(ValueError, match=r"pinned, got \[2\]"):
        store.consumer("orders", group="billing", queues=[2, 3])
    sharer = store.consumer("orders", group="billing")
    assert (pinned.queues, sharer.queues) == ((1, 2), (0, 3))
    assert bodies(pinned) == [1, 2, 5, 6]
    pinned.close()
    assert sharer.queues == (0, 1, 2, 3)
    store.consumer("orders", group="billing", queues=[2, 3]).close()


def test_new_queues_are_found_by_the_next_loop(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", 1)
    with store.consumer("orders", group="billing") as orders:
        assert list(orders) == []
        store.create_topic("orders", 3)
        store.put("orders", b"7", queue_id=2)
        assert bodies(orders) == [7]
        assert orders.queues == (0, 1, 2)
        store.put("orders", b"8", queue_id=9)
        assert bodies(orders) == [8]


# Orderly


def test_an_orderly_queue_goes_to_nobody_else_until_it_is_committed(
    store: rmqstore.MessageStore,
) -> None:
    fill(store, 8)
    first = store.consumer("orders", group="billing", orderly=True)
    messages = iter(first)
    taken = [next(messages) for _ in range(8)]
    assert [message.queue_id for message in taken] == [0, 0, 1, 1, 2, 2, 3, 3]
    second = store.consumer("orders", group="billing", orderly=True)
    assert second.queues == (2, 3)
    assert bodies(second) == []
    first.commit()
    assert bodies(second) == []
    fill(store, 8)
    assert bodies(second) == [2, 3, 6, 7]
    second.close()  # gives up what it has
    assert bodies(first) == list(range(8))


def test_an_orderly_queue_is_given_up_with_its_consumer(store: rmqstore.MessageStore) -> None:
    fill(store, 4)
    first = store.consumer("orders", group="billing", orderly=True)
    assert len(list(first)) == 4
    second = store.consumer("orders", group="billing", orderly=True)
    assert bodies(second) == []
    first.close()
    assert bodies(second) == [0, 1, 2, 3]


def test_one_message_of_an_orderly_queue_at_a_time(store: rmqstore.MessageStore) -> None:
    fill(store, 8)
    with store.consumer("orders", group="billing", orderly=True, queues=[0]) as orders:
        assert next(iter(orders)).body == b"0"
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.extend(bodies(orders)))
        thread.start()
        thread.join(WAIT)
        assert seen == []  # the other thread has a message of it
        orders.commit()
        thread = threading.Thread(target=lambda: seen.extend(bodies(orders)))
        thread.start()
        thread.join(WAIT)
        assert seen == [4]
