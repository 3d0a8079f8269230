"""Other ways to write: put_batch, put_table, aput; and waiting for the disk."""

import asyncio

import pyarrow as pa

import workloads

COUNT = 200_000
BATCH = 64
SIZE = 128
FLUSHED = 50


def bench_write_put_batch(measure, stores):
    rows = workloads.bodies(SIZE, COUNT)
    batches = [rows[at : at + BATCH] for at in range(0, COUNT, BATCH)]

    def work(store):
        for batch in batches:
            store.put_batch(workloads.TOPIC, batch, queue_id=0)

    measure(work, COUNT, lambda: (stores(),))


def bench_write_put_table(measure, stores):
    table = pa.table(
        {
            "topic": pa.array([workloads.TOPIC] * COUNT).dictionary_encode(),
            "body": pa.array(workloads.bodies(SIZE, COUNT), pa.binary()),
            "keys": workloads.keys(COUNT),
            "tags": workloads.tags(COUNT),
        }
    )
    measure(lambda store: store.put_table(table), COUNT, lambda: (stores(),))


def bench_write_aput(measure, stores):
    rows = workloads.bodies(SIZE, COUNT // 4)

    async def put_all(store):
        for body in rows:
            await store.aput(workloads.TOPIC, body, queue_id=0)

    measure(lambda store: asyncio.run(put_all(store)), len(rows), lambda: (stores(),))


def bench_write_flush(measure, stores):
    (body,) = workloads.bodies(1024, 1)

    def work(store):
        for _ in range(FLUSHED):
            store.put(workloads.TOPIC, body, queue_id=0)
            store.flush()

    measure(work, FLUSHED, lambda: (stores(),))


def bench_write_wait_durable(measure, stores):
    (body,) = workloads.bodies(1024, 1)

    def work(store):
        for _ in range(FLUSHED):
            done = store.put(workloads.TOPIC, body, queue_id=0)
            assert store.wait_durable(done.physical_offset)

    measure(work, FLUSHED, lambda: (stores(),))
