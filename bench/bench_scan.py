"""scan: all columns of 1 KiB messages, and three small ones, to Arrow batches."""

import pytest

import rmqstore
import workloads

COUNT = 500_000


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("columns", [None, workloads.THREE_COLUMNS], ids=["all", "three"])
def bench_scan(measure, tmp_path_factory, columns, mode):
    path = workloads.written(tmp_path_factory.mktemp("scan") / "store", 1024, COUNT, with_keys=True)
    with rmqstore.open(path, mode) as store:
        measure(workloads.scan_all, COUNT, lambda: (store, columns))
