"""Consumers in threads that come and go: at least once to the group, orderly ones not together."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

import rmqstore

QUEUES = 6
MESSAGES = 1200
THREADS = 4
SECONDS = 60.0  # at most


def produce(store: rmqstore.MessageStore, count: int) -> None:
    for number in range(count):
        store.put("orders", b"%d" % number, queue_id=number % QUEUES)


@pytest.mark.parametrize("orderly", [False, True])
def test_each_message_comes_to_the_group(store: rmqstore.MessageStore, orderly: bool) -> None:
    store.create_topic("orders", QUEUES)
    until = time.monotonic() + SECONDS
    lock = threading.Lock()
    committed: Counter[bytes] = Counter()
    in_hand: dict[int, int] = {}  # orderly: who has a message of a queue
    failures: list[BaseException] = []

    def consume(seed: int) -> None:
        draw = random.Random(seed)
        try:
            while len(committed) < MESSAGES and time.monotonic() < until:
                with store.consumer("orders", group="g", orderly=orderly) as orders:
                    hold = draw.randrange(1, 40)
                    taken = []
                    for message in orders:
                        if orderly:
                            with lock:
                                assert in_hand.setdefault(message.queue_id, seed) == seed
                        taken.append(message)
                        if draw.random() < 0.3:
                            with lock:
                                committed.update(message.body for message in taken)
                                for queue_id in [q for q, who in in_hand.items() if who == seed]:
                                    del in_hand[queue_id]
                            orders.commit()
                            taken.clear()
                        if len(taken) >= hold:
                            break  # and leaves without a commit
                    with lock:  # before it leaves
                        for queue_id in [q for q, who in in_hand.items() if who == seed]:
                            del in_hand[queue_id]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=consume, args=(seed,)) for seed in range(THREADS)]
    producer = threading.Thread(target=produce, args=(store, MESSAGES))
    for thread in [producer, *threads]:
        thread.start()
    for thread in [producer, *threads]:
        thread.join(SECONDS)
    assert not failures, failures[0]
    assert set(committed) == {b"%d" % number for number in range(MESSAGES)}
    with store.consumer("orders", group="g") as rest:
        list(rest)
        rest.commit()
    assert all(lag.messages == 0 for lag in store.lag("g"))


def test_one_consumer_in_many_threads(store: rmqstore.MessageStore) -> None:
    store.create_topic("orders", QUEUES)
    seen: list[bytes] = []
    lock = threading.Lock()
    orders = store.consumer("orders", group="g")
    enough = threading.Event()

    def consume() -> None:
        for message in orders.follow():
            with lock:
                seen.append(message.body)
                last = len(seen) == MESSAGES
            orders.commit()
            if last:
                enough.set()

    threads = [threading.Thread(target=consume) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    produce(store, MESSAGES)
    assert enough.wait(SECONDS)
    orders.close()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(seen) == sorted(b"%d" % number for number in range(MESSAGES))
    assert sum(store.offsets["orders", "g"].values()) == MESSAGES
