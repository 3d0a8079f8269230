"""Delays and transactions in a store that goes from ours to a real broker, and back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from interop.broker import Broker
from interop.driver import SMALL
from rmqstore.config.store_config import StoreConfig

CONFIG = StoreConfig(
    mapped_file_size_commit_log=SMALL["mappedFileSizeCommitLog"],
    mapped_file_size_consume_queue=SMALL["mappedFileSizeConsumeQueue"],
    max_hash_slot_num=SMALL["maxHashSlotNum"],
    max_index_num=SMALL["maxIndexNum"],
)
CHECKS = {"transactionCheckInterval": 500, "transactionTimeOut": 500, "transactionCheckMax": 10_000}
# What a broker adds to a message on its way, and takes away.
THEIRS = {"CLUSTER", "WAIT", "UNIQ_KEY", "PGROUP", "outcome"}
FIELDS = ("body", "flag", "sys_flag", "reconsume_times", "topic", "queue_id")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def shape(store: rmqstore.MessageStore, topic: str, body: bytes) -> list[object]:
    """The fields of the newest record of a body in a topic, but for places and times."""
    found = max(
        (message for message in store.scan(topic) if message.body == body),
        key=lambda message: message.physical_offset,
    )
    properties = {k: v for k, v in found.properties.items() if k not in THEIRS}
    return [*(getattr(found, name) for name in FIELDS), properties]


@pytest.mark.long
def test_to_a_broker_and_back(java: None, tmp_path: Path, tally: Counter[str]) -> None:
    root = tmp_path / "store"
    ours = [b"ours %d" % number for number in range(6)]
    early = [b"early %d" % number for number in range(6)]
    later = [b"later %d" % number for number in range(6)]
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for body in ours:
            store.put("t", body, delay_level=1, tags="x", keys="k", queue_id=1)
        until(lambda: len(list(store["t"].messages())) == 6)
        for body in later:
            store.put("t", body, delay_level=2, queue_id=1)
        begun = [store.begin("t", b"half %d" % n, tags="x", queue_id=2) for n in range(5)]
        begun[0].commit()
        begun[3].rollback()
        # A broker whose clock is behind a message's store time delivers it at once.
        store.schedule._sleep.stop()
        store.clock.advance(3600)
        for body in early:
            store.put("t", body, delay_level=18, queue_id=1)
    doubtful = {b"half 1", b"half 2", b"half 4"}
    with Broker() as broker:
        broker.start(root, SMALL, CHECKS)
        until(lambda: len(broker.pull("t")) >= len([*ours, *early, *later, *begun[:1]]))
        until(lambda: {one.message.body for one in reader(root)} == doubtful)
        until(lambda: all(one.checks >= 2 for one in reader(root)))  # those it asks for
        sent = [
            {"topic": "t", "queue_id": 1, "body": b"theirs", "tags": "x", "keys": ["k"],
             "delay_level": 2, "flag": 7},
            {"topic": "t", "body": b"tx", "tags": "x", "properties": {"outcome": "UNKNOW"}},
            {"topic": "t", "body": b"txc", "tags": "x",
             "properties": {"outcome": "COMMIT_MESSAGE"}},
        ]  # fmt: skip
        assert {one.status for one in broker.send(sent)} == {"SEND_OK"}
        until(lambda: b"tx" in {one.message.body for one in reader(root)})
        broker.shutdown()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert {one.message.body for one in store.in_doubt()} == {*doubtful, b"tx"}
        store.clock.advance(20_000)
        until(lambda: not store.delayed())
        bodies = Counter(message.body for message in store["t"].messages())
        # The broker's file is behind what it delivered; none of it is delivered again.
        delayed = [*ours, *early, *later, b"theirs"]
        assert {body: bodies[body] for body in delayed} == dict.fromkeys(delayed, 1)
        tally["delivered"] += len(bodies)
        for one in store.in_doubt():
            one.commit()
        assert store.in_doubt() == []
        # The records of both, field by field.
        store.put("t", b"theirs'", delay_level=2, tags="x", keys="k", queue_id=1, flag=7)
        store.clock.advance(10)
        until(lambda: not store.delayed())
        for topic in ("SCHEDULE_TOPIC_XXXX", "t"):
            expected = shape(store, topic, b"theirs")
            expected[0] = b"theirs'"
            assert shape(store, topic, b"theirs'") == expected
            tally["records"] += 1
        queue_id = next(m.queue_id for m in store.scan("t") if m.body == b"txc")
        store.begin("t", b"txd", tags="x", queue_id=queue_id).commit()
        for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "t"):
            expected = shape(store, topic, b"txc")
            expected[0] = b"txd"
            assert shape(store, topic, b"txd") == expected
            tally["records"] += 1
        ops = [op.properties for op in store["RMQ_SYS_TRANS_OP_HALF_TOPIC"][0]]
        assert all(op == {"WAIT": "true", "TAGS": "d"} for op in ops)
        tally["records"] += len(ops)


def reader(root: Path) -> list[rmqstore.InDoubt]:
    with rmqstore.open(root, "r", config=CONFIG) as store:
        return store.in_doubt()
