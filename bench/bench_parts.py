"""A consume queue and a commit log alone."""

import itertools

import pytest

import rmqstore
import workloads

COUNT = 200_000
SLICE = 32
FLUSHED = 50
MODES = ["r", "r+"]


@pytest.fixture
def fresh(tmp_path):
    """Return a function that gives the path of a new directory."""
    numbers = itertools.count()
    return lambda: tmp_path / str(next(numbers))


def bench_parts_put_unit(measure, fresh):
    def work(path):
        with rmqstore.ConsumeQueue(path, mode="a") as queue:
            for at in range(COUNT):
                queue.put_unit(250 * at, 250, 0, at)

    measure(work, COUNT, lambda: (fresh(),))


@pytest.mark.parametrize("mode", MODES)
def bench_parts_units(measure, written, mode):
    with rmqstore.ConsumeQueue(written / "consumequeue" / workloads.TOPIC / "0", mode=mode) as one:
        stop = one.max_offset - SLICE

        def work():
            for at in range(0, stop, SLICE):
                assert len(one.units(at, at + SLICE)) == SLICE

        measure(work, stop // SLICE)


def bench_parts_append(measure, fresh):
    records = [
        rmqstore.encode_record(workloads.TOPIC, body) for body in workloads.bodies(128, COUNT)
    ]

    def work(path):
        with rmqstore.CommitLog(path, mode="a") as log:
            assert len(log.append(records)) == COUNT

    measure(work, COUNT, lambda: (fresh(),))


@pytest.mark.parametrize("mode", MODES)
def bench_parts_records(measure, written, mode):
    with rmqstore.CommitLog(written / "commitlog", mode=mode) as log:

        def work():
            assert sum(1 for _ in log.records()) == workloads.COUNT

        measure(work, workloads.COUNT)


@pytest.mark.parametrize("part", ["queue", "log", "index"])
def bench_parts_flush(measure, fresh, part):
    record = rmqstore.encode_record(workloads.TOPIC, b"body")
    make = {
        "queue": rmqstore.ConsumeQueue,
        "log": rmqstore.CommitLog,
        "index": rmqstore.IndexFile,
    }[part]
    with make(fresh(), mode="a") as one:
        numbers = itertools.count()
        write = {
            "queue": lambda at: one.put_unit(250 * at, 250, 0, at),
            "log": lambda at: one.append([record]),
            "index": lambda at: one.put_key(f"{workloads.TOPIC}#{at}", at, 1_700_000_000_000),
        }[part]

        def work():
            for _ in range(FLUSHED):
                write(next(numbers))
                one.flush()

        measure(work, FLUSHED)
