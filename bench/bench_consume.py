"""Consumers of groups, their offsets, and their lag."""

import asyncio
import itertools
from collections import deque

import workloads
from rmqstore.consume.lag import lag_of

ASKED = 1_000
TAKEN = 10_000
GROUP = "bench"


def take(messages, count):
    """Take so many messages, and return the last."""
    return deque(itertools.islice(messages, count), 1)[0]


def bench_consume(measure, store):
    count = min(TAKEN, sum(map(len, store[workloads.TOPIC].values())))

    def work():
        with store.consumer(workloads.TOPIC, group=GROUP, start="first") as consumer:
            assert take(consumer, count) is not None

    measure(work, count)


def bench_consume_follow(measure, store):
    count = min(TAKEN, sum(map(len, store[workloads.TOPIC].values())))

    def work():
        with store.consumer(workloads.TOPIC, group=GROUP, start="first") as consumer:
            assert take(consumer.follow(), count) is not None

    measure(work, count)


def bench_consume_async(measure, store):
    count = min(TAKEN, sum(map(len, store[workloads.TOPIC].values())))

    async def consume():
        left = count
        with store.consumer(workloads.TOPIC, group=GROUP, start="first") as consumer:
            async for _message in consumer:
                left -= 1
                if left == 0:
                    return

    measure(lambda: asyncio.run(consume()), count)


def bench_consume_commit(measure, stores):
    store = stores()
    store.put_many("orders", [b"x" * 100] * TAKEN, queue_id=0)

    def work():
        with store.consumer("orders", group=GROUP, start="first") as consumer:
            for _message in consumer:
                consumer.commit()

    measure(work, TAKEN)


def bench_consume_retry(measure, stores):
    store = stores()
    store.put("orders", b"x" * 100, queue_id=0)
    consumer = store.consumer("orders", group=GROUP)
    message = next(iter(consumer))

    def work():
        for _ in range(ASKED):
            consumer.retry(message)

    measure(work, ASKED)


def bench_consume_lag(measure, store):
    offsets = {(workloads.TOPIC, GROUP): dict.fromkeys(store[workloads.TOPIC], 0)}
    assert store.lag(GROUP) == []  # the same, of offsets that are in a file

    def work():
        for _ in range(10):
            assert len(lag_of(store.core, offsets, GROUP, None)) == workloads.QUEUES

    measure(work, 10)


def bench_consume_groups(measure, store):
    def work():
        for _ in range(ASKED):
            assert store.groups is not None
            assert store.offsets is not None

    measure(work, ASKED)


def bench_consume_create_delete(measure, stores):
    store = stores()
    numbers = itertools.count()

    def work():
        names = [f"group-{next(numbers)}" for _ in range(50)]
        for name in names:
            store.create_group(name)
        for name in names:
            store.delete_group(name)

    measure(work, 50)
