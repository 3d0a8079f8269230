"""The codec alone: hashes, records from fields and back; messages kept beyond their batch."""

import rmqstore
import workloads

CALLS = 100_000


def bench_codec_string_hash(measure):
    topic_keys = workloads.keys(CALLS)

    def work():
        for key in topic_keys:
            rmqstore.string_hash(key)

    measure(work, CALLS)


def bench_codec_encode_record(measure):
    rows = workloads.bodies(128, CALLS)

    def work():
        for body in rows:
            rmqstore.encode_record(workloads.TOPIC, body, properties=b"KEYS\x01a\x02")

    measure(work, CALLS)


def bench_codec_decode_record(measure):
    records = [
        rmqstore.encode_record(workloads.TOPIC, body) for body in workloads.bodies(128, CALLS)
    ]

    def work():
        for record in records:
            rmqstore.decode_record(record)

    measure(work, CALLS)


def bench_codec_detach(measure, store):
    count = 20_000

    def setup():
        return (store.get(workloads.TOPIC, 0, 0, count, max_bytes=1 << 30).messages,)

    def work(messages):
        assert len(messages) == count
        for message in messages:
            message.detach()

    measure(work, count, setup)
