"""dispatch: a written log without queues and index, opened and dispatched again."""

import pytest

import workloads

COUNT = {128: 1_000_000, 1024: 200_000}


@pytest.mark.parametrize("size", [128, 1024])
def bench_dispatch(measure, tmp_path, size):
    count = COUNT[size]
    path = workloads.written(tmp_path / "store", size, count)
    opened = []

    def setup():
        for store in opened:
            store.close()
        opened.clear()
        workloads.forget_dispatch(path)
        return ()

    def work():
        opened.append(workloads.open_and_dispatch(path, count))

    measure(work, count, setup)
    opened[0].close()
