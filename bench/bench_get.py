"""get: 32 messages a call from one queue, fields and body of each used."""

import rmqstore
import workloads

COUNT = 100_000


def bench_get(measure, stores):
    store = stores()
    store.put_many(workloads.TOPIC, workloads.bodies(1024, COUNT), queue_id=0)
    measure(workloads.get_all, COUNT, lambda: (store, COUNT))


def bench_get_read_only(measure, tmp_path):
    with rmqstore.open(tmp_path / "store", "a") as writer:
        writer.create_topic(workloads.TOPIC, workloads.QUEUES)
        writer.put_many(workloads.TOPIC, workloads.bodies(1024, COUNT), queue_id=0)
    with rmqstore.open(tmp_path / "store") as store:
        measure(workloads.get_all, COUNT, lambda: (store, COUNT))
