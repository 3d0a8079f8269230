"""The index file by itself: put_keys into a fresh file, select_many from a filled one."""

import itertools
import random

import pytest

import rmqstore
import workloads

COUNT = 2_000_000
ASKED = 200_000


@pytest.fixture
def columns():
    topic_keys = [f"{workloads.TOPIC}#{key}" for key in workloads.keys(COUNT)]
    offsets = list(range(0, 250 * COUNT, 250))
    times = [1_700_000_000_000 + n // 100 for n in range(COUNT)]
    return topic_keys, offsets, times


def bench_index_put_keys(measure, columns, tmp_path):
    numbers = itertools.count()
    files = []

    def setup():
        for file in files:
            file.close()
        files[:] = [rmqstore.IndexFile(tmp_path / f"{next(numbers):017d}", mode="a")]
        return (files[0],)

    def work(index):
        assert index.put_keys(*columns) == COUNT

    measure(work, COUNT, setup)
    files[0].close()


def bench_index_select_many(measure, columns, tmp_path):
    index = rmqstore.IndexFile(tmp_path / "00000000000000000", mode="a")
    index.put_keys(*columns)
    wanted = random.Random(4).sample(columns[0], ASKED)
    measure(index.select_many, ASKED, lambda: (wanted,))
    index.close()
