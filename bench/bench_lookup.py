"""Lookups in a closed store of half a million messages, opened with each mode."""

import random

import pytest

import workloads

ASKED = 20_000


@pytest.fixture
def wanted() -> list[str]:
    return random.Random(3).sample(workloads.keys(workloads.COUNT), ASKED)


def bench_lookup_query(measure, store, wanted):
    measure(workloads.query_each, ASKED, lambda: (store, wanted))


def bench_lookup_missing(measure, store, wanted):
    def work():
        for key in wanted:
            assert not store.query(workloads.TOPIC, f"{key}-none")

    measure(work, ASKED)


def bench_lookup_locate_many(measure, store, wanted):
    def work():
        offsets, starts = store.locate_many(workloads.TOPIC, wanted)
        assert len(offsets) == ASKED == len(starts) - 1

    measure(work, ASKED)


def bench_lookup_query_many(measure, store, wanted):
    def work():
        assert len(store.query_many(workloads.TOPIC, wanted)) == ASKED

    measure(work, ASKED)


def bench_lookup_unique_key(measure, store, wanted):
    ids = [store.query(workloads.TOPIC, key)[0].uniq_key for key in wanted[:2000]]

    def work():
        for each in ids:
            assert store.message(each).uniq_key == each

    measure(work, len(ids))


def bench_lookup_at(measure, store, wanted):
    offsets = store.locate_many(workloads.TOPIC, wanted)[0].tolist()

    def work():
        for offset in offsets:
            assert store.at(offset).physical_offset == offset

    measure(work, ASKED)


def bench_lookup_queue_item(measure, store):
    queue = store[workloads.TOPIC][0]
    places = random.Random(5).choices(range(queue.min_offset, queue.max_offset), k=ASKED)

    def work():
        for place in places:
            assert queue[place].queue_offset == place

    measure(work, ASKED)


def bench_lookup_offset_at(measure, store):
    queue = store[workloads.TOPIC][0]
    first, last = queue[0].store_timestamp, queue[-1].store_timestamp
    times = random.Random(6).choices(range(first, last + 1), k=ASKED)

    def work():
        for time in times:
            assert queue.offset_at(time) >= 0

    measure(work, ASKED)


def bench_lookup_iterate(measure, store):
    queue = store[workloads.TOPIC][0]
    count = queue.max_offset - queue.min_offset

    def work():
        assert sum(1 for _ in queue) == count

    measure(work, count)


def bench_lookup_reversed(measure, store):
    queue = store[workloads.TOPIC][0]
    count = queue.max_offset - queue.min_offset

    def work():
        assert sum(1 for _ in reversed(queue)) == count

    measure(work, count)


def bench_lookup_slice(measure, store):
    queue = store[workloads.TOPIC][0]
    low, high = queue.min_offset, queue.max_offset

    def work():
        assert sum(len(queue[at : at + 32]) for at in range(low, high, 32)) == high - low

    measure(work, high - low)


def bench_lookup_get(measure, store):
    queue = store[workloads.TOPIC][0]
    count = queue.max_offset - queue.min_offset
    measure(workloads.get_all, count, lambda: (store, count))


def bench_lookup_units(measure, store):
    queue = store[workloads.TOPIC][0]
    low, high = queue.min_offset, queue.max_offset

    def work():
        for at in range(low, high - 32, 32):
            assert len(queue.units(at, at + 32)) == 32

    measure(work, (high - low) // 32)


def bench_lookup_topic_messages(measure, store):
    topic = store[workloads.TOPIC]

    def work():
        assert sum(1 for _ in topic.messages()) == workloads.COUNT

    measure(work, workloads.COUNT)
