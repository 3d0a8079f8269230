"""recovery: opening a closed store, and one whose process was killed."""

import pytest

import rmqstore
import workloads

COUNT = 250_000


@pytest.mark.parametrize("how", ["clean", "killed"])
def bench_recovery(measure, tmp_path, how):
    make = {"clean": workloads.written, "killed": workloads.killed}[how]
    source = make(tmp_path / how, 1024, COUNT)
    opened = []

    def setup():
        for store in opened:
            store.close()
        opened.clear()
        return (workloads.copy(source, tmp_path / "store"),)

    def work(path):
        opened.append(rmqstore.open(path, "r+"))

    measure(work, COUNT, setup)
    opened[0].close()
