"""put: one message a call, asynchronous flush."""

import pytest

import workloads

COUNT = {1024: 200_000, 128: 300_000}


@pytest.mark.parametrize("size", [1024, 128])
def bench_put(measure, stores, size):
    rows = workloads.bodies(size, COUNT[size])
    measure(workloads.put_each, len(rows), lambda: (stores(), rows))
