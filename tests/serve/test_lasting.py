"""Sessions of real Java clients that others end: consumers that die, producers that come back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop.broker import Broker
from interop.driver import SMALL as SIZES
from interop.driver import DriverError
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve.consuming.locks import LockedQueue
from serve.javaclients import JavaClients

pytestmark = [pytest.mark.interop, pytest.mark.campaign]

# Sizes as in the real broker's small stores; who is in doubt is asked for every half second.
CONFIG = StoreConfig(
    mapped_file_size_commit_log=SIZES["mappedFileSizeCommitLog"],
    mapped_file_size_consume_queue=SIZES["mappedFileSizeConsumeQueue"],
    max_hash_slot_num=SIZES["maxHashSlotNum"],
    max_index_num=SIZES["maxIndexNum"],
    transaction_check_interval=500,
    transaction_timeout=500,
    transaction_check_max=10_000,
)
CHECKS = {"transactionCheckInterval": 500, "transactionTimeOut": 500, "transactionCheckMax": 10_000}
QUICK = (  # rebalances and renewals of locks that need not be waited for
    "-Drocketmq.client.rebalance.waitInterval=300",
    "-Drocketmq.client.rebalance.lockInterval=300",
)


def until(holds: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Aside(threading.Thread):
    """A scenario that runs while the test goes on."""

    def __init__(self, java: JavaClients, scenario: str, namesrv: str, **fields: Any) -> None:
        super().__init__(daemon=True)
        self._run = lambda: java.run(scenario, namesrv, **fields)
        self.rows: list[list[Any]] = []
        self.start()

    def run(self) -> None:
        with contextlib.suppress(DriverError):  # it was killed
            self.rows = self._run()


@pytest.fixture
def clients(java: None) -> Iterator[JavaClients]:
    with JavaClients(flags=QUICK) as process:
        yield process


def bodies(store: rmqstore.MessageStore, topic: str) -> list[str]:
    return sorted(message.body.decode() for message in store.scan(topic))


def finished(rows: list[list[Any]]) -> tuple[set[str], list[str]]:
    """Return requests and consumed messages."""
    asked = {row[2]["body"] for row in rows if row[:2] == ["got", "check"]}
    return asked, sorted({row[2]["body"] for row in rows if row[:2] == ["got", "open"]})


def test_the_queues_of_a_dead_orderly_consumer_are_taken_over(clients: JavaClients) -> None:
    """Once its locks have expired: a closed connection gives up none of them."""
    with (
        rmqstore.serve(config=CONFIG) as server,
        JavaClients(flags=QUICK) as dying,
    ):
        store = server.store
        store.create_topic("turns", 4)
        for number in range(4):
            store.put("turns", b"0", queue_id=number)

        def holders() -> list[str | None]:
            locks = server.gateway.locks
            queues = [LockedQueue("turns", "broker-a", number) for number in range(4)]
            return [locks.holder("turns-c", queue) for queue in queues]

        first = Aside(dying, "turns-stay", server.address, instance="a", count=1000, seconds=240)
        until(lambda: holders() == ["127.0.0.1@a"] * 4)
        until(lambda: len(store.offsets.get(("turns", "turns-c"), {})) == 4)
        second = Aside(clients, "turns-stay", server.address, instance="b", count=12, seconds=240)
        until(lambda: sorted(map(str, holders())) == ["127.0.0.1@a"] * 2 + ["127.0.0.1@b"] * 2)
        before = holders()
        dying.kill()
        first.join(60)
        for number in range(12):
            store.put("turns", b"%d" % (number // 4 + 1), queue_id=number % 4)
        time.sleep(2)  # time for the second to be given what the dead one holds
        assert holders() == before
        assert second.is_alive()
        store.clock.advance(61)
        second.join(60)
        assert not second.is_alive()
        got = [row[2] for row in second.rows if row[:2] == ["got", "turns"]]
        for number in range(4):
            order = [row["body"] for row in got if row["queue_id"] == number]
            assert order == ["1", "2", "3"] or (order == ["0", "1", "2", "3"]), number


def test_a_producer_that_died_ends_its_transactions_when_it_is_back(
    clients: JavaClients, tmp_path: Path
) -> None:
    with rmqstore.serve(tmp_path / "s", config=CONFIG) as server:
        with JavaClients(flags=QUICK) as dying:
            dying.run("tx-open", server.address, checks=1)
            dying.kill()
        assert len(server.store.in_doubt()) == 3
        rows = clients.run("tx-finish", server.address)
        asked, got = finished(rows)
        assert asked == {"open 1", "open 2", "open 3"}
        assert got == ["open 0", "open 1", "open 3"]
        until(lambda: server.store.in_doubt() == [])
        assert bodies(server.store, "opened") == got


def test_a_real_broker_finishes_what_is_open(clients: JavaClients, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.serve(root, config=CONFIG) as server:
        clients.run("tx-open", server.address, checks=2)
        assert len(server.store.in_doubt()) == 3
        assert bodies(server.store, "opened") == ["open 0"]
    with Broker() as broker:
        started = broker.start(root, SIZES, CHECKS)
        rows = clients.run("tx-finish", f"127.0.0.1:{started['names_port']}")
        assert broker.shutdown()
    asked, got = finished(rows)
    assert asked == {"open 1", "open 2", "open 3"}
    assert got == ["open 0", "open 1", "open 3"]
    with rmqstore.open(root, "r+") as store:
        assert store.in_doubt() == []
        # A broker that has asked a second time before it was answered commits twice.
        assert sorted(set(bodies(store, "opened"))) == got
