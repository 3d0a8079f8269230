"""Offsets by store time, asked again and again: what a queue remembers of its bisections."""

import os
import random
import shutil
import struct
from bisect import bisect_left, bisect_right
from time import process_time

import pytest

import rmqstore

COUNT = 9_000  # more than twice the nodes that are remembered
REPEATED = 8  # more often than it takes to remember
TIME_AT = 56  # of a record whose born host is IPv4
BEGAN = 1_700_000_000_000


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("times") / "store"
    with rmqstore.open(path, "a") as store:
        store.create_topic("t", 1)
        store.put_many("t", [b"x"] * COUNT)
    return path


def set_times(path, times):
    """Write store times into the log, as if its records had come then."""
    log = min((path / "commitlog").iterdir())
    with rmqstore.open(path) as store:
        places = [message.physical_offset for message in store["t"][0]]
    with log.open("r+b") as file:
        for at, time in zip(places, times, strict=True):
            file.seek(at + TIME_AT)
            file.write(struct.pack(">q", time))


def asked(times, count=200):
    return random.Random(4).choices(range(min(times) - 2, max(times) + 3), k=count)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_asked_again_it_is_the_oracles(written, mode):
    times = sorted(random.Random(1).choices(range(BEGAN, BEGAN + COUNT), k=COUNT))
    set_times(written, times)
    with rmqstore.open(written, mode) as store:
        queue = store["t"][0]
        for time in asked(times, 2_000):
            assert queue.offset_at(time) == bisect_left(times, time)
            assert queue.offset_at(time, "upper") == bisect_right(times, time) - 1


def test_other_ends_in_between(written):
    times = [BEGAN + n // 3 for n in range(COUNT)]
    set_times(written, times)
    with rmqstore.open(written) as store:
        queue = store["t"][0]
        for low, high in [(0, COUNT), (10, COUNT - 7), (0, COUNT), (500, 501), (7, 7)]:
            for time in asked(times, 50):
                found = queue.offset_at(time, bounds=(low, high))
                assert found == bisect_left(times, time, low, high)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_times_out_of_order_are_searched_as_the_first_time(written, mode):
    times = random.Random(2).choices(range(BEGAN, BEGAN + COUNT), k=COUNT)
    set_times(written, times)
    wanted = asked(times)
    first = []
    for time in wanted[:40]:
        with rmqstore.open(written, mode) as store:
            first.append(store["t"][0].offset_at(time))
    with rmqstore.open(written, mode) as store:
        queue = store["t"][0]
        for _ in range(REPEATED):
            assert [queue.offset_at(time) for time in wanted[:40]] == first


def test_times_rewritten_between_two_searches(written):
    before = [BEGAN + n for n in range(COUNT)]
    set_times(written, before)
    for shift in (-3_000, 17, 4_000):
        after = [time + shift for time in before]
        with rmqstore.open(written) as store:
            queue = store["t"][0]
            for time in asked(before):
                assert queue.offset_at(time) == bisect_left(before, time)
            set_times(written, after)
            for time in asked(before):
                assert queue.offset_at(time) == bisect_left(after, time)
        set_times(written, before)


def test_a_queue_that_grows(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as store:
        store.create_topic("t", 1)
        queue = store["t"][0]
        times = []
        for n in range(200):
            store.put("t", b"x", queue_id=0)
            times.append(queue[-1].store_timestamp)
            for time in (times[0], times[n // 2], times[-1], times[-1] + 1) * (n % 4):
                assert queue.offset_at(time) == bisect_left(times, time)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("back", [1, 40, 5_000])
def test_a_clock_that_went_back(written, mode, back):
    chance = random.Random(back)
    times = [BEGAN + back + n * 20 for n in range(COUNT)]
    for at in (5, COUNT // 2, *chance.choices(range(COUNT), k=20)):
        times[at] -= chance.randrange(back) + 1
    set_times(written, times)
    with rmqstore.open(written, mode) as store:
        queue = store["t"][0]
        for wanted in (*chance.choices(times, k=150), *asked(times, 150)):
            first = next((at for at, one in enumerate(times) if one >= wanted), COUNT)
            last = max((at for at, one in enumerate(times) if one <= wanted), default=-1)
            assert (queue.offset_at(wanted), queue.offset_at(wanted, "upper")) == (first, last)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_step_back_costs_no_walk_through_the_queue(tmp_path, mode):
    count = 200_000
    path = tmp_path / "store"
    with rmqstore.open(path, "a") as store:
        store.create_topic("t", 1)
        store.put_many("t", [b"x"] * count)
        [first, second] = [message.physical_offset for message in store["t"][0][:2]]
    took = []
    for back in (0, 1):
        with min((path / "commitlog").iterdir()).open("r+b") as file:
            for at in range(count):
                file.seek(first + at * (second - first) + TIME_AT)
                file.write(struct.pack(">q", BEGAN + at - back * (at == 1000) * 2))
        with rmqstore.open(path, mode) as store:
            queue = store["t"][0]
            assert queue.offset_at(BEGAN + 7) == 7
            began = process_time()
            assert [queue.offset_at(BEGAN + at) for at in range(5000, count, 1000)] == list(
                range(5000, count, 1000)
            )
            took.append(process_time() - began)
    assert took[1] < 50 * took[0]  # hundreds of times as long, one message after the other


GONE = {
    "nothing": lambda queue: None,
    "all queues": lambda queue: shutil.rmtree(queue.parent.parent),
    "the queue": shutil.rmtree,
    "all files": lambda queue: [file.unlink() for file in queue.iterdir()],
    "first": lambda queue: min(queue.iterdir()).unlink(),
    "middle": lambda queue: sorted(queue.iterdir())[2].unlink(),
    "last": lambda queue: max(queue.iterdir()).unlink(),
    "a link's target": lambda queue: (
        max(queue.iterdir()).unlink() or (queue / f"{900:020d}").symlink_to("gone")
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("gone", GONE)
def test_nearest_of_units_without_a_file(tmp_path, gone, state):
    """A reader derives them from the log; its answers are no farther from the time."""
    path, count, per_file = tmp_path / "store", 46, 10
    config = rmqstore.StoreConfig.small(mapped_file_size_consume_queue=per_file * 20)
    with rmqstore.open(path, "a", config=config) as store:
        for number in range(count):
            store.put("t", b"%d" % number, queue_id=0)
    times = [BEGAN + 10 * number for number in range(count)]
    set_times(path, times)
    queue = path / "consumequeue" / "t" / "0"
    for file in queue.iterdir():
        newest = times[min(int(file.name) // 20 + per_file, count) - 1]
        os.utime(file, ns=(newest * 10**6, newest * 10**6))
    asked = range(times[0] - 20, times[-1] + 20)
    with rmqstore.open(path) as store:
        before = [store["t"][0].offset_at(time, "nearest") for time in asked]
    GONE[gone](queue)
    if state == "killed":
        (path / "abort").touch()
    with rmqstore.open(path) as store:
        assert len(store["t"][0]) == count
        found = [store["t"][0].offset_at(time, "nearest") for time in asked]
    for time, now, then in zip(asked, found, before, strict=True):
        assert abs(times[now] - time) <= abs(times[then] - time)
    assert gone != "nothing" or found == before
