"""Stores that a real broker wrote under real clients' traffic, random each run, read by ours.

``RMQSTORE_INTEROP_SEED`` repeats a run's traffic; ``RMQSTORE_INTEROP_ROUNDS`` makes it longer.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rmqstore
from interop import compare, traffic
from interop.broker import Broker, Consumed, Loaded
from interop.driver import DEFAULT, Driver, Unit, copy

pytestmark = pytest.mark.long

ROUNDS = int(os.environ.get("RMQSTORE_INTEROP_ROUNDS", "1"))
SENDS = 1200
LOAD = {"topics": ["orders", "load"], "queues": 4, "rate": 2000, "max_body": 600}
LOAD_SECONDS = 1.5
SMALL = {  # so that a short run rolls all three kinds of file
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 300,
    "maxIndexNum": 1200,
}
SIZES = {"small": SMALL, "default": DEFAULT}
UNITS_PER_FILE = {"small": 100, "default": 300_000}
SCENARIOS = [("small", "close"), ("default", "kill"), ("small", "kill"), ("default", "close")]
CHOSEN = [
    (*scenario, number)
    for number in range(ROUNDS)
    for scenario in (SCENARIOS if ROUNDS > 1 else SCENARIOS[:3])
]


@dataclass
class Stored:
    """What a broker left, and what it and its clients said of it while it ran."""

    path: Path
    kind: str
    end: str
    traffic: traffic.Traffic
    dumped: list[Unit]  # by the broker itself, before it ended
    pulled: list[Consumed]
    by_tags: list[Consumed]
    by_sql: list[Consumed]
    loaded: list[Loaded]  # acknowledged before the end

    @property
    def config(self) -> dict[str, int]:
        """For the real store."""
        return {**SIZES[self.kind], "maxMsgsNumBatch": 1 << 14}


def all_in_queues(broker: Broker, loaded: list[Loaded]) -> bool:
    """Whether all of these have been dispatched, and outlive the broker in its queues."""
    ends = {place: end for place, (_, end) in broker.minmax().items()}
    return all(row.queue_offset < ends.get((row.topic, row.queue_id), 0) for row in loaded)


def write(broker: Broker, path: Path, kind: str, end: str, seed: int) -> Stored:
    """Run a broker there with traffic of all kinds, then shut it down or kill it."""
    broker.start(path, {**SIZES[kind], **traffic.BROKER_CONFIG}, traffic.BROKER)
    sending = traffic.Traffic(broker, seed)
    broker.topics({"load": 4})
    broker.consumer_start(
        traffic.GROUP, {"orders": " || ".join(traffic.SUBSCRIBED)}, fail=traffic.FAIL
    )
    broker.consumer_start(traffic.SQL_GROUP, {}, {"payments": traffic.SQL})
    sending.everything(SENDS)
    sending.settle()
    pulled = [row for topic in [*traffic.TOPICS, traffic.DEAD] for row in broker.pull(topic)]
    dumped = broker.dump(body=True)
    by_tags = broker.consumer_rows(traffic.GROUP)
    subscribed = {
        unit.physical_offset
        for unit in dumped
        if unit.topic == "orders" and unit.record["properties"].get("TAGS") in traffic.SUBSCRIBED
    }
    until = time.monotonic() + 60
    while not subscribed <= {row.physical_offset for row in by_tags}:  # it gets them in its time
        assert time.monotonic() < until
        by_tags += broker.consumer_rows(traffic.GROUP)
    by_sql = broker.consumer_rows(traffic.SQL_GROUP)
    loaded: list[Loaded] = []
    if end == "kill":
        broker.load_start(seed=seed, **LOAD)
        time.sleep(LOAD_SECONDS)
        loaded = broker.load_rows()
        until = time.monotonic() + 60
        while len(loaded) <= 100:
            assert time.monotonic() < until
            loaded += broker.load_rows()
        while not all_in_queues(broker, loaded):  # acknowledged is not dispatched yet
            assert time.monotonic() < until
        broker.kill()
    else:
        assert broker.shutdown()
    return Stored(path, kind, end, sending, dumped, pulled, by_tags, by_sql, loaded)


@pytest.fixture(scope="module")
def brokers(java: None) -> Iterator[list[Broker]]:
    """The broker process in use, if there is one."""
    running: list[Broker] = []
    yield running
    for broker in running:
        broker.close()


@pytest.fixture(scope="module", params=CHOSEN, ids=lambda param: "-".join(map(str, param)))
def stored(
    request: pytest.FixtureRequest,
    brokers: list[Broker],
    seed: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Stored:
    kind, end, number = request.param
    drawn = random.Random(f"{seed} {kind} {end} {number}").getrandbits(32)
    if not brokers or not brokers[-1].alive:
        brokers.append(Broker())
    path = tmp_path_factory.mktemp("broker") / "store"
    return write(brokers[-1], path, kind, end, drawn)


@pytest.fixture(scope="module")
def real(java: None) -> Iterator[Driver]:
    with Driver() as driver:
        yield driver


@pytest.fixture(scope="module")
def read(stored: Stored, real: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list]:
    """What a real store reads of a copy, which it recovers; it has the copy open meanwhile."""
    path = copy(stored.path, tmp_path_factory.mktemp("real") / "store")
    opened = real.open(path, stored.config)
    assert opened["load"], real.log()
    assert opened["start"]
    assert opened["clean"] == (stored.end == "close")
    yield real.dump()
    assert real.shutdown()


def check_clients(store: rmqstore.MessageStore, stored: Stored, tally: Counter) -> None:
    """Compare with all that clients sent and got."""
    compare.sent(store, stored.traffic.sent, tally)
    compare.consumed(store, stored.pulled, tally)
    compare.consumed(store, stored.by_tags, tally)
    compare.consumed(store, stored.by_sql, tally)
    compare.loaded(store, stored.loaded, tally)


def test_as_its_broker_and_clients_say(stored: Stored, tally: Counter) -> None:
    before = {p: p.stat().st_mtime_ns for p in stored.path.rglob("*")}
    with rmqstore.open(stored.path, "r") as store:
        assert store.recovery.clean == (stored.end == "close")
        compare.queues(store, stored.dumped, tally, whole=False)
        check_clients(store, stored, tally)
        # What a subscription's consumer got is what ours gives by the same tags.
        got = {row.physical_offset for row in stored.by_tags if not row.reconsume_times}
        mine = compare.subscribed(store, "orders", traffic.SUBSCRIBED)
        there = max(unit.physical_offset for unit in stored.dumped)
        assert {offset for offset in mine if offset <= there} == got
        assert len(stored.by_sql) > 10
        dead = list(store[traffic.DEAD][0])
        assert len(dead) == stored.traffic.expected_dead() >= 3
        retried = {row.physical_offset for row in stored.by_tags if row.reconsume_times}
        assert retried == {m.physical_offset for m in store[traffic.RETRY][0]}
        assert len(retried) == len(dead)
        for message in dead:
            origin = store.message(message.properties["ORIGIN_MESSAGE_ID"])
            assert (origin.body, origin.topic) == (message.body, "orders")
    assert {p: p.stat().st_mtime_ns for p in stored.path.rglob("*")} == before
    if stored.kind == "small":
        for name in ("commitlog", "index"):
            assert len(list((stored.path / name).iterdir())) > 2, name
        queues = (stored.path / "consumequeue").glob("*/*")
        assert max(len(list(queue.iterdir())) for queue in queues) > 1


def test_as_the_real_store_reads_it(
    stored: Stored, read: list[Unit], real: Driver, tally: Counter
) -> None:
    clean = stored.end == "close"
    with rmqstore.open(stored.path, "r") as store:
        if clean:
            compare.queues(store, read, tally)
            compare.answers(store, real, read, tally)
        else:  # what was not dispatched when the broker died is not in the queues
            ends = {
                (name, queue_id): queue.max_offset
                for name, topic in store.topics.items()
                for queue_id, queue in topic.items()
            }
            seen = [unit for unit in read if unit.queue_offset < ends.get(unit[:2], 0)]
            assert len(seen) >= len(stored.dumped) + len(stored.loaded)
            compare.queues(store, seen, tally)
        compare.keys(store, read, tally, real if clean else None, False, *[True] * clean)
        compare.tags(store, read if clean else seen, tally)
        compare.times(store, real, read, tally, UNITS_PER_FILE[stored.kind])


def test_as_ours_recovers_it(
    stored: Stored, read: list[Unit], real: Driver, tally: Counter, tmp_path: Path
) -> None:
    path = copy(stored.path, tmp_path / "store")
    with rmqstore.open(path, "r+") as store:
        assert store.recovery.clean == (stored.end == "close")
        # Of a killed one the record that was being copied into the log, which nobody was told of.
        most = 0 if stored.end == "close" else max(unit.size for unit in read)
        assert store.recovery.bytes_cut <= most
        compare.queues(store, read, tally)
        compare.answers(store, real, read, tally)
        compare.keys(store, read, tally, None, False, True)
        check_clients(store, stored, tally)
