"""``topics``, ``queues`` and ``txn``: bytes, what is hidden, half messages listed once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from support.command_line import Run, rows

pytestmark = pytest.mark.pure


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=StoreConfig.small()) as store:
        for number in range(20):
            store.put("orders", b"order" * number, queue_id=number % 2)
        store.put("audit", b"x" * 1000, queue_id=0)
    return root


def test_bytes_are_those_of_the_records(run: Run, filled: Path) -> None:
    sizes: dict[tuple[str, int], int] = {}
    with rmqstore.open(filled, "r+") as store:
        store.put("light", b"x", queue_id=0, lite_topics=["%LMQ%a"])
    with rmqstore.open(filled) as store:
        for message in store.scan():
            place = message.topic, message.queue_id
            sizes[place] = sizes.get(place, 0) + message.store_size
    queues = {
        (str(row["topic"]), row["queue_id"]): row["bytes"] for row in rows(run("queues", filled))
    }
    assert queues.pop(("%LMQ%a", 0)) is None  # its records are those of others
    assert queues == sizes
    topics = {str(row["topic"]): row["bytes"] for row in rows(run("topics", filled))}
    assert topics.pop("%LMQ%a") is None
    assert sum(map(int, topics.values())) == sum(sizes.values())
    assert list(rows(run("topics", filled))[0])[5:7] == ["messages", "bytes"]


def test_topics_of_the_system_are_hidden(run: Run, filled: Path) -> None:
    with rmqstore.open(filled, "r+") as store:
        store.put("orders", b"x", delay_level=1)
        store.begin("orders", b"x")
        store.put("%RETRY%billing", b"x", queue_id=0)
        store.put("RMQ_SYS_TRACE_TOPIC", b"x", queue_id=0)
    seen = [row["topic"] for row in rows(run("topics", filled))]
    assert seen == ["%RETRY%billing", "audit", "orders"]
    every = [row["topic"] for row in rows(run("topics", filled, "--all"))]
    assert set(every) - set(seen) == {
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
    }
    table = run("topics", filled, "-o", "table")
    assert table.stderr == "rmqstore: 3 topics of the system are hidden; --all shows them\n"
    assert run("topics", filled, "-o", "table", "--all").stderr == ""
    assert run("topics", filled).stderr == ""


def test_topics_that_a_real_broker_made_for_itself(
    run: Run, broker_store: Callable[[str], Any]
) -> None:
    root = broker_store("broker-clean").root
    seen = {str(row["topic"]) for row in rows(run("topics", root))}
    every = {str(row["topic"]) for row in rows(run("topics", root, "--all"))}
    assert every - seen == {
        "BenchmarkTest", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC", "TBW102", "TRANS_CHECK_MAX_TIME_TOPIC", "broker-a",
    }  # fmt: skip
    assert {"orders", "%RETRY%orders-group", "%DLQ%orders-group"} <= seen
    halves = rows(run("txn", root))
    assert len(halves) == len({half["uniq_key"] for half in halves}) == 30  # of 180 copies


def test_a_half_message_is_listed_once(run: Run, tmp_path: Path) -> None:
    config = StoreConfig.small(
        transaction_timeout=0, transaction_check=lambda found: None, transaction_check_interval=50
    )
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        store.begin("orders", b"x", keys="k")
        until = time.monotonic() + 30
        while (
            len(store["RMQ_SYS_TRANS_HALF_TOPIC"][0]) < 3 and time.monotonic() < until
        ):  # put back for each check
            time.sleep(0.02)
    with rmqstore.open(tmp_path / "s") as store:
        copies = len(store["RMQ_SYS_TRANS_HALF_TOPIC"][0])
    assert copies >= 3
    for words in ((), ("--in-doubt",)):
        (half,) = rows(run("txn", tmp_path / "s", *words))
        assert (half["state"], half["keys"]) == ("in doubt", ["k"])
        assert half["half_offset"] == copies - 1
