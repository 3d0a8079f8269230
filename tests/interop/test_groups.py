"""Groups handed over between a real broker and ours, in turn, with everything that belongs to them.

One directory: the broker's consumer begins, ours goes on, and so forth.  Each of them commits less
than it could, gives messages back, and has to find what the other has left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop import compare
from interop.broker import Broker, Consumed
from interop.driver import SMALL
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.offsets import OffsetTable

pytestmark = pytest.mark.long

GROUP = "handed-over"
QUEUES = 3
WAIT = 60.0
BROKER = {"autoCreateSubscriptionGroup": True}


def until(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class Bodies:
    """Bodies that are told apart by their SHA-1, as the driver tells them."""

    def __init__(self) -> None:
        self.made: dict[str, bytes] = {}

    def more(self, count: int) -> list[bytes]:
        new = [b"body %d" % n for n in range(len(self.made), len(self.made) + count)]
        self.made.update({compare.sha1(body): body for body in new})
        return new

    def of(self, rows: list[Consumed]) -> list[bytes]:
        return [self.made[row.body_sha1] for row in rows]


def send(broker: Broker, bodies: list[bytes], **properties: str) -> None:
    broker.send(
        [
            {
                "topic": "orders",
                "queue_id": number % QUEUES,
                "body": body,
                "tags": "paid",
                "properties": properties,
            }
            for number, body in enumerate(bodies)
        ]
    )


def config_of(root: Path, name: str) -> dict[str, Any]:
    return fastjson.loads((root / "config" / name).read_text())


def consume(broker: Broker, expected: int, bodies: Bodies) -> list[bytes]:
    """Let the real consumer get so many messages, and no more."""
    broker.consumer_start(GROUP, {"orders": "*"})
    rows: list[Consumed] = []

    def enough() -> bool:
        rows.extend(broker.consumer_rows(GROUP))
        return len(rows) >= expected

    until(enough, f"{expected} messages, got {len(rows)}")
    time.sleep(0.3)  # time for one too many
    rows += broker.consumer_stop(GROUP)
    assert all(row.topic == "orders" for row in rows)
    return bodies.of(rows)


def test_a_group_is_handed_over_and_back(
    java: None, tmp_path: Path, compared: Callable[[str, int], None]
) -> None:
    root = tmp_path / "store"
    bodies = Bodies()
    config = rmqstore.StoreConfig.from_file(_conf(tmp_path))
    # A broker may lose one of a group's first commits that arrive together, not later ones.
    known = OffsetTable(root)
    known.offsets["orders", GROUP] = {0: 0}
    root.mkdir()
    known.save()
    with Broker() as broker:
        broker.start(root, dict(SMALL), BROKER)
        broker.topics({"orders": QUEUES})
        first = bodies.more(30)
        send(broker, first)
        assert sorted(consume(broker, 30, bodies)) == sorted(first)
        second = bodies.more(9)
        send(broker, second)
        # Beside the live broker, as soon as it has written its offsets.
        with rmqstore.open(root) as reader:
            until(lambda: sum(lag.messages for lag in reader.lag(GROUP, "orders")) == 9, "lag")
            assert all(lag.messages == 3 and lag.bytes > 0 for lag in reader.lag(GROUP, "orders"))
            assert reader.groups[GROUP].retry_max == 16
        assert broker.shutdown()
        theirs = config_of(root, "consumerOffset.json")

        with rmqstore.open(root, "r+", config=config) as store:
            assert {
                f"{topic}@{group}": queues for (topic, group), queues in store.offsets.items()
            } == theirs["offsetTable"]
            compared("groups offsets", len(theirs["offsetTable"]))
            store.create_group("ours-alone", retry_max=3)
            with store.consumer("orders", group=GROUP) as orders:
                taken = []
                for message in orders:
                    taken.append(message.body)
                    if len(taken) == 4:
                        orders.retry(message, delay_level=1)
                    if len(taken) == 6:
                        orders.commit()
            assert sorted(taken) == sorted(second)
            given_back, left = taken[3], taken[6:]
            third = bodies.more(6)
            for number, body in enumerate(third):
                store.put("orders", body, queue_id=number % QUEUES)
            groups = {name: one.retry_max for name, one in store.groups.items()}

        # The broker goes on at our offsets, and delivers what we gave back.
        started = broker.start(root, dict(SMALL), BROKER)
        assert started["load"]
        got = consume(broker, len(left) + len(third) + 1, bodies)
        assert Counter(got) == Counter([*left, *third, given_back])
        compared("groups messages handed over", len(got))
        fourth = bodies.more(3)
        broker.consumer_start(GROUP, {"orders": "*"}, fail="fail")
        send(broker, fourth, fail="yes")
        rows: list[Consumed] = []

        def dead() -> bool:
            rows.extend(broker.consumer_rows(GROUP))
            return len(rows) == 2 * len(fourth)

        until(dead, "each message twice")
        until(lambda: len(broker.dump(f"%DLQ%{GROUP}")) == 3, "dead letters")
        broker.consumer_stop(GROUP)
        assert broker.shutdown()
        table = config_of(root, "subscriptionGroup.json")["subscriptionGroupTable"]
        assert {name: one["retryMaxTimes"] for name, one in table.items()} == groups
        assert len(table) > 3
        compared("groups entries", len(table))

        # Ours finds a group that has read everything, and dead letters.
        with rmqstore.open(root, "r+", config=config) as store:
            with store.consumer("orders", group=GROUP) as orders:
                assert list(orders) == []
            assert all(lag.messages == 0 for lag in store.lag(GROUP))
            letters = list(store[f"%DLQ%{GROUP}"][0])
            assert sorted(letter.body for letter in letters) == sorted(fourth)
            # The same send-back by ours: every field but those that the log decides.
            store.create_group(GROUP, retry_max=1)
            retried = [message for message in store[f"%RETRY%{GROUP}"][0] if message.body in fourth]
            with store.consumer("orders", group=GROUP) as orders:
                for message in retried:
                    ours = store.at(orders.retry(message).physical_offset)
                    (real,) = [one for one in letters if one.body == message.body]
                    assert fields(ours) == fields(real)
            compared("groups dead letters", len(retried))


def fields(message: rmqstore.Message) -> dict[str, object]:
    names = [
        "topic",
        "queue_id",
        "raw_body",
        "properties",
        "flag",
        "sys_flag",
        "store_size",
        "born_timestamp",
        "born_host",
        "reconsume_times",
        "prepared_transaction_offset",
        "body_crc",
    ]
    return {name: getattr(message, name) for name in names}


def _conf(directory: Path) -> Path:
    file = directory / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in SMALL.items()))
    return file
