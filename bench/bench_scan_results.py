"""Result forms of a scan, along the log of a closed store of half a million."""

import pyarrow as pa
import pyarrow.compute as pc

import workloads

EXTENTS = 200


def bench_scan_messages(measure, store):
    def work():
        assert sum(1 for _ in store.scan()) == workloads.COUNT

    measure(work, workloads.COUNT)


def bench_scan_count(measure, store):
    def work():
        assert store.scan().count() == workloads.COUNT

    measure(work, workloads.COUNT)


def bench_scan_table(measure, store):
    def work():
        table = store.scan(columns=workloads.THREE_COLUMNS).to_table()
        assert table.num_rows == workloads.COUNT

    measure(work, workloads.COUNT)


def bench_scan_stream(measure, store):
    def work():
        reader = pa.RecordBatchReader.from_stream(store.scan(columns=workloads.THREE_COLUMNS))
        assert sum(batch.num_rows for batch in reader) == workloads.COUNT

    measure(work, workloads.COUNT)


def bench_scan_dataset(measure, store):
    dataset = store.scan().dataset()

    def work():
        wanted = pc.field("queue_id") == 1
        found = dataset.to_table(columns=["queue_offset"], filter=wanted)
        assert found.num_rows == workloads.COUNT // workloads.QUEUES

    measure(work, workloads.COUNT)


def bench_scan_extent(measure, store):
    scan = store.scan()

    def work():
        for _ in range(EXTENTS):
            assert scan.extent().stop > 0

    measure(work, EXTENTS)
