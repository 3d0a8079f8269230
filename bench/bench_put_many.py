"""put_many: many messages a call, columns from Python lists."""

import pytest

import workloads

COUNT = {1024: 200_000, 128: 1_000_000}


@pytest.mark.parametrize("with_keys", [False, True], ids=["plain", "keys-tags"])
@pytest.mark.parametrize("size", [128, 1024])
def bench_put_many(measure, stores, size, with_keys):
    count = COUNT[size]
    workloads.bodies(size, count)
    workloads.keys(count)
    workloads.tags(count)

    def work(store):
        workloads.fill(store, size, count, with_keys=with_keys)

    measure(work, count, lambda: (stores(),))
