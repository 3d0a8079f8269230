"""The index file alone: keys from a list, from Arrow, one a call; lookups in a filled one."""

import itertools
import random

import pyarrow as pa
import pytest

import rmqstore
import workloads

COUNT = 2_000_000
ASKED = 200_000
ONE_BY_ONE = 200_000


@pytest.fixture
def columns():
    topic_keys = [f"{workloads.TOPIC}#{key}" for key in workloads.keys(COUNT)]
    offsets = list(range(0, 250 * COUNT, 250))
    times = [1_700_000_000_000 + n // 100 for n in range(COUNT)]
    return topic_keys, offsets, times


@pytest.fixture
def fresh(tmp_path):
    """Return a function that gives a new index file, and closes the one before it."""
    numbers = itertools.count()
    files = []

    def setup():
        for file in files:
            file.close()
        files[:] = [rmqstore.IndexFile(tmp_path / f"{next(numbers):017d}", mode="a")]
        return (files[0],)

    yield setup
    for file in files:
        file.close()


def bench_index_put_keys(measure, columns, fresh):
    def work(index):
        assert index.put_keys(*columns) == COUNT

    measure(work, COUNT, fresh)


def bench_index_put_keys_arrow(measure, columns, fresh):
    arrays = [pa.array(column) for column in columns]

    def work(index):
        assert index.put_keys(*arrays) == COUNT

    measure(work, COUNT, fresh)


def bench_index_put_key(measure, columns, fresh):
    rows = list(itertools.islice(zip(*columns, strict=True), ONE_BY_ONE))

    def work(index):
        for row in rows:
            index.put_key(*row)

    measure(work, ONE_BY_ONE, fresh)


def bench_index_select_many(measure, columns, tmp_path):
    index = rmqstore.IndexFile(tmp_path / "00000000000000000", mode="a")
    index.put_keys(*columns)
    wanted = random.Random(4).sample(columns[0], ASKED)
    measure(index.select_many, ASKED, lambda: (wanted,))
    index.close()


@pytest.fixture(params=["r", "r+"])
def filled(request, columns, tmp_path):
    """Give an index file with all keys, opened with each mode."""
    path = tmp_path / "00000000000000000"
    with rmqstore.IndexFile(path, mode="a") as index:
        index.put_keys(*columns)
    with rmqstore.IndexFile(path, mode=request.param) as index:
        yield index


def bench_index_filled_select_many(measure, columns, filled):
    wanted = random.Random(4).sample(columns[0], ASKED)
    measure(filled.select_many, ASKED, lambda: (wanted,))


def bench_index_filled_select(measure, columns, filled):
    wanted = random.Random(4).sample(columns[0], ASKED)

    def work():
        for key in wanted:
            assert filled.select_phy_offset(key)

    measure(work, ASKED)
