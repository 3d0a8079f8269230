"""Which benchmarks run each public call: ``COVERED``; what has none, and why: ``NOT_MEASURED``.

A test compares both with the public names and with the benchmarks that pytest finds.  A name is a
module's or a class's: ``open``, ``MessageStore.get``, ``Queue.__getitem__``.  A reading call of
something opened is measured in each mode in which it can be opened to read.
"""

from __future__ import annotations

from typing import NamedTuple

READING = ("r", "r+")


class Covered(NamedTuple):
    """The benchmarks of a call, and the modes in which they must run it."""

    benchmarks: tuple[str, ...]
    modes: tuple[str, ...]


def reads(*benchmarks: str) -> Covered:
    """Return the benchmarks of a reading call: each one in each mode."""
    return Covered(benchmarks, READING)


def writes(*benchmarks: str) -> Covered:
    """Return the benchmarks of a call that writes, or does not depend on a mode."""
    return Covered(benchmarks, ())


COVERED: dict[str, Covered] = {
    "open": reads("bench_open"),
    "crc32": writes("bench_crc32"),
    "string_hash": writes("bench_codec_string_hash"),
    "encode_record": writes("bench_codec_encode_record"),
    "decode_record": writes("bench_codec_decode_record"),
    "MessageStore.put": writes("bench_put"),
    "MessageStore.put_many": writes("bench_put_many"),
    "MessageStore.put_batch": writes("bench_write_put_batch"),
    "MessageStore.put_table": writes("bench_write_put_table"),
    "MessageStore.aput": writes("bench_write_aput"),
    "MessageStore.flush": writes("bench_write_flush"),
    "MessageStore.wait_durable": writes("bench_write_wait_durable"),
    "MessageStore.create_topic": writes("bench_topics_create_delete"),
    "MessageStore.delete_topic": writes("bench_topics_create_delete"),
    "MessageStore.close": reads("bench_open"),
    "MessageStore.consumer": reads("bench_consume"),
    "MessageStore.groups": reads("bench_consume_groups"),
    "MessageStore.offsets": reads("bench_consume_groups"),
    "MessageStore.lag": reads("bench_consume_lag"),
    "MessageStore.create_group": writes("bench_consume_create_delete"),
    "MessageStore.delete_group": writes("bench_consume_create_delete"),
    "Consumer.__iter__": reads("bench_consume"),
    "Consumer.__aiter__": reads("bench_consume_async"),
    "Consumer.follow": reads("bench_consume_follow"),
    "Consumer.close": reads("bench_consume"),
    "Consumer.commit": writes("bench_consume_commit"),
    "Consumer.retry": writes("bench_consume_retry"),
    "MessageStore.get": reads("bench_lookup_get"),
    "MessageStore.at": reads("bench_lookup_at"),
    "MessageStore.query": reads("bench_lookup_query", "bench_lookup_missing"),
    "MessageStore.query_many": reads("bench_lookup_query_many"),
    "MessageStore.locate_many": reads("bench_lookup_locate_many"),
    "MessageStore.message": reads("bench_lookup_unique_key"),
    "MessageStore.scan": reads("bench_scan"),
    "MessageStore.index_coverage": reads("bench_topics_index_coverage"),
    "MessageStore.queue_ids": reads("bench_topics_queue_ids"),
    "MessageStore.queue_bounds": reads("bench_topics_queue_bounds"),
    "MessageStore.stats": reads("bench_topics_stats"),
    "MessageStore.topics": reads("bench_topics"),
    "MessageStore.__getitem__": reads("bench_topics"),
    "MessageStore.__contains__": reads("bench_topics"),
    "MessageStore.__iter__": reads("bench_topics"),
    "Topic.messages": reads("bench_lookup_topic_messages"),
    "Queue.__getitem__": reads("bench_lookup_queue_item", "bench_lookup_slice"),
    "Queue.__iter__": reads("bench_lookup_iterate"),
    "Queue.__reversed__": reads("bench_lookup_reversed"),
    "Queue.__len__": reads("bench_topics_queue_bounds"),
    "Queue.min_offset": reads("bench_topics_queue_bounds"),
    "Queue.max_offset": reads("bench_topics_queue_bounds"),
    "Queue.units": reads("bench_lookup_units"),
    "Queue.offset_at": reads("bench_lookup_offset_at"),
    "Scan.__iter__": reads("bench_scan_messages"),
    "Scan.__arrow_c_stream__": reads("bench_scan_stream"),
    "Scan.to_batches": reads("bench_scan"),
    "Scan.to_table": reads("bench_scan_table"),
    "Scan.dataset": reads("bench_scan_dataset"),
    "Scan.count": reads("bench_scan_count"),
    "Scan.extent": reads("bench_scan_extent"),
    "IndexFile.put_key": writes("bench_index_put_key"),
    "IndexFile.put_keys": writes("bench_index_put_keys", "bench_index_put_keys_arrow"),
    "IndexFile.select_phy_offset": reads("bench_index_filled_select"),
    "IndexFile.select_many": reads("bench_index_filled_select_many"),
    "IndexFile.flush": writes("bench_parts_flush"),
    "ConsumeQueue.put_unit": writes("bench_parts_put_unit"),
    "ConsumeQueue.units": reads("bench_parts_units"),
    "ConsumeQueue.flush": writes("bench_parts_flush"),
    "CommitLog.append": writes("bench_parts_append"),
    "CommitLog.records": reads("bench_parts_records"),
    "CommitLog.flush": writes("bench_parts_flush"),
    "Message.detach": reads("bench_codec_detach"),
}

_KEPT = "an attribute that is kept in memory: no call of the store"
_CLOSES = "an unmapping; flush, which comes before it, is measured"
_CONVERTED = "to_table, which is measured, and a conversion by another library"
_FOUND = "found when the topic was looked up"
_SCHEMA = "types of columns, without the store"
_RESULT = "values that a measured call returned"

# ``Class`` stands for all of it, ``Class.*`` for its properties, never for its methods.
NOT_MEASURED: dict[str, str] = {
    "serve": "its start and stop are opening and closing: bench_open; requests are another bench's",
    "aserve": "serve in a thread",
    "Server": "made by serve",
    "Server.*": "its start and stop: bench_open",
    "Queue.ext_units": "bench_lookup_units reads what it adds fields to",
    "MessageStore.clock": "gives what is there",
    "MessageStore.core": _KEPT,
    "MessageStore.begin": "one put of a few more properties: bench_put",
    "MessageStore.in_doubt": "a look at each half message without an end: bench_lookup_at",
    "MessageStore.delayed": "a look at each message that waits: bench_lookup_at",
    "Transaction": "made by begin",
    "Transaction.*": "a put each, or two: bench_put",
    "InDoubt": "made by in_doubt",
    "InDoubt.*": "a put each, or two: bench_put",
    "Delayed": _RESULT,
    "Delayed.*": _RESULT,
    "MessageStore.path": _KEPT,
    "MessageStore.mode": _KEPT,
    "MessageStore.closed": _KEPT,
    "MessageStore.config": _KEPT,
    "MessageStore.deleted_topics": _KEPT,
    "MessageStore.passed_over": _KEPT,
    "Topic.__getitem__": "an object made, nothing read",
    "MessageStore.__len__": "as MessageStore.__iter__",
    "MessageStore.keys": "as MessageStore.__iter__",
    "MessageStore.items": "as MessageStore.__iter__",
    "MessageStore.__bool__": "a constant, nothing is read",
    "Topic.__iter__": _FOUND,
    "Topic.__len__": _FOUND,
    "Scan.to_pandas": _CONVERTED,
    "Scan.to_polars": _CONVERTED,
    "Scan.schema": _SCHEMA,
    "Scan.__arrow_c_schema__": _SCHEMA,
    "Scan.replace": "another scan, nothing read",
    "Scan.narrowed": "planning of a Spark query: what a scan with since and until begins with",
    "Scan.*": "an argument of the scan",
    "Message.*": "decoded when asked for: bench_lookup_get uses some of them",
    "IndexFile.close": _CLOSES,
    "ConsumeQueue.close": _CLOSES,
    "CommitLog.close": _CLOSES,
    "IndexFile.*": "a field of the 40 bytes with which the file begins",
    "ConsumeQueue.*": "bench_parts_units finds both in each call",
    "CommitLog.*": _KEPT,
    "StoreConfig": "settings: a file of a few lines at most",
    "Consumer.queues": _KEPT,
    "MessageStore.delete_expired": "unlinks whole files: its time is the file system's, and a walk",
    "MessageStore.clean_unused_topics": "unlinks whole files: its time is the file system's",
    "Deleted": _RESULT,
    "GetResult": _RESULT,
    "Group": _RESULT,
    "Lag": _RESULT,
    "PutResult": _RESULT,
    "PutManyResult": _RESULT,
    "Snapshot": _RESULT,
    "MessageStore.snapshot": "the time of a copy is the disk's",
    "RecoveredRange": _RESULT,
    "Recovery": _RESULT,
}
