"""Topics, queues and statistics of a store; topics created and deleted."""

import itertools

import workloads

ASKED = 1_000
CREATED = 50


def bench_topics(measure, store):
    def work():
        for _ in range(ASKED):
            assert workloads.TOPIC in store
            assert len(store[workloads.TOPIC]) == workloads.QUEUES

    measure(work, ASKED)


def bench_topics_queue_ids(measure, store):
    def work():
        for _ in range(ASKED):
            assert len(store.queue_ids()[workloads.TOPIC]) == workloads.QUEUES

    measure(work, ASKED)


def bench_topics_queue_bounds(measure, store):
    def work():
        for _ in range(ASKED):
            assert store.queue_bounds(workloads.TOPIC, 0)[1] > 0

    measure(work, ASKED)


def bench_topics_index_coverage(measure, store):
    def work():
        for _ in range(ASKED):
            assert store.index_coverage()

    measure(work, ASKED)


def bench_topics_stats(measure, store):
    def work():
        for _ in range(ASKED):
            assert store.stats()

    measure(work, ASKED)


def bench_topics_create_delete(measure, stores):
    store = stores()
    numbers = itertools.count()

    def work():
        names = [f"topic-{next(numbers)}" for _ in range(CREATED)]
        for name in names:
            store.create_topic(name)
        for name in names:
            store.delete_topic(name)

    measure(work, CREATED)
