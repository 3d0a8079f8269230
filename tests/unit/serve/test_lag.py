"""How far groups are behind, on the page and in the metrics: as operators' tools say it."""

from __future__ import annotations

import dataclasses
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.wire.objecttext import loads
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat

pytestmark = [pytest.mark.pure, pytest.mark.usefixtures("fresh_figures")]

QUEUES = 4


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small(), metrics_port=0) as made:
        made.store.create_topic("orders", QUEUES)
        for number in range(40):
            made.store.put("orders", b"x", queue_id=number % QUEUES)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def read(server: Server, path: str) -> str:
    with urllib.request.urlopen(f"http://{server.metrics_address}{path}", timeout=60) as reply:
        text: str = reply.read().decode()
        return text


def shown(server: Server) -> list[tuple[Any, ...]]:
    """The page's rows of groups."""
    names = ("group", "topic", "consumers", "messages")
    groups = json.loads(read(server, "/api/overview"))["groups"]
    return [tuple(one[name] for name in names) for one in groups]


def metric(server: Server, name: str) -> dict[tuple[str, str], float]:
    """A metric's values by topic and group."""
    found = {}
    for line in read(server, "/metrics").splitlines():
        if line.startswith(name + "{"):
            labels = dict(
                pair.split("=", 1) for pair in line[len(name) + 1 : line.rindex("}")].split(",")
            )
            key = (labels["topic"].strip('"'), labels["group"].strip('"'))
            found[key] = float(line.rpartition(" ")[2])
    return found


def behind(client: RemotingClient, group: str) -> int:
    """What ``mqadmin consumerProgress`` adds up."""
    table = loads(client.ask(208, {"consumerGroup": group}).body)["offsetTable"]
    return sum(one["brokerOffset"] - one["consumerOffset"] for one in table.values())


def commit(client: RemotingClient, group: str, queue: int, offset: int) -> None:
    asked = {"consumerGroup": group, "topic": "orders", "queueId": queue, "commitOffset": offset}
    assert client.ask(15, asked).code == 0


def beat(client: RemotingClient, *groups: dict[str, Any]) -> None:
    assert client.ask(34, None, heartbeat("c", list(groups))).code == 0


@pytest.mark.parametrize("is_online", [True, False])
def test_queues_without_an_offset_are_not_consumed(
    server: Server, client: RemotingClient, is_online: bool
) -> None:
    if is_online:
        beat(client, consumer("billing", {"orders": "*", "%RETRY%billing": "*"}))
    commit(client, "billing", 0, 10)
    assert behind(client, "billing") == 30
    assert shown(server) == [("billing", "orders", int(is_online), 30)]
    assert metric(server, "rocketmq_group_diff") == {("orders", "billing"): 30}
    assert metric(server, "rocketmq_consumer_offset") == {("orders", "billing"): 10}
    lag = server.store.lag()
    assert [(one.queue_id, one.messages) for one in lag] == [(0, 0), (1, 10), (2, 10), (3, 10)]


def test_a_group_that_is_connected_is_there(server: Server, client: RemotingClient) -> None:
    beat(client, consumer("fresh", {"orders": "*", "%RETRY%fresh": "*", "missing": "*"}))
    assert shown(server) == [("fresh", "orders", 1, 40), ("fresh", "missing", 1, 0)]
    assert metric(server, "rocketmq_group_diff") == {("orders", "fresh"): 40}
    server.store.put("%RETRY%fresh", b"again", queue_id=0)
    assert ("fresh", "%RETRY%fresh", 1, 1) in shown(server)
    assert metric(server, "rocketmq_group_retrydiff") == {("%RETRY%fresh", "fresh"): 1}


def test_lost_and_damaged_messages_are_passed_over(tmp_path: Path) -> None:
    config = StoreConfig.small()
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.create_topic("orders", 1)
        done = []
        for _ in range(6):
            done.append(store.put("orders", b"x", queue_id=0))
            store.clock.advance(1)
        with store.consumer("orders", group="billing") as orders:
            next(iter(orders))
            orders.commit(sync=True)
        stored = [message.store_timestamp for message in store.scan("orders")]
    log = tmp_path / "commitlog" / f"{0:020d}"

    def damage(at: int, within: int) -> None:
        with log.open("r+b") as file:
            file.seek(done[at].physical_offset + within)
            file.write(b"~~~~")

    damage(1, 88)
    rmqstore.open(tmp_path, "r+", config=config, on_corruption="fill", verify="full").close()
    for damaged in ((), (2,)):
        for at in damaged:
            damage(at, 4)
        with Server(tmp_path, Settings(), config, metrics_port=0) as server:
            [row] = json.loads(read(server, "/api/overview"))["groups"]
            assert row["messages"] == 5
            assert row["late"] == stored[-1] - stored[2 + len(damaged)]
            span = metric(server, "rmqstore_group_behind_seconds")
            assert span["orders", "billing"] == row["late"] / 1000


def test_a_topic_without_messages_is_no_lag(server: Server, client: RemotingClient) -> None:
    server.store.create_topic("empty", 2)
    beat(client, consumer("idle", {"empty": "*"}))
    assert shown(server) == [("idle", "empty", 1, 0)]
    assert metric(server, "rocketmq_group_diff") == {("empty", "idle"): 0}


def test_of_a_broadcast_its_consumers_know(server: Server, client: RemotingClient) -> None:
    beat(client, consumer("all", {"orders": "*"}, messageModel="BROADCASTING"))
    assert shown(server) == [("all", "orders", 1, None)]
    assert metric(server, "rocketmq_group_diff") == {}


def test_a_topic_that_no_consumer_wants_any_more(server: Server, client: RemotingClient) -> None:
    server.store.create_topic("other", 1)
    commit(client, "moved", 0, 3)
    assert shown(server) == [("moved", "orders", 0, 37)]
    beat(client, consumer("moved", {"other": "*"}))
    assert behind(client, "moved") == 0
    assert shown(server) == [("moved", "other", 1, 0)]
    assert metric(server, "rocketmq_group_diff") == {("other", "moved"): 0}


def test_queues_that_are_not_read_do_not_count(server: Server, client: RemotingClient) -> None:
    commit(client, "billing", 0, 10)
    entry = server.store.registry.get("orders")
    assert entry is not None
    server.store.registry.put(dataclasses.replace(entry, read_queue_nums=2))
    assert behind(client, "billing") == 10
    assert shown(server) == [("billing", "orders", 0, 10)]


def test_those_that_are_behind_most_are_first(server: Server, client: RemotingClient) -> None:
    for group, offset in (("a", 10), ("c", 5), ("b", 5), ("d", 0)):
        for queue in range(QUEUES):
            commit(client, group, queue, offset)
    assert [row[0] for row in shown(server)] == ["d", "b", "c", "a"]


def test_what_is_counted_is_bounded() -> None:
    settings = Settings(limits=Limits(offsets=3))
    with (
        Server(None, settings, StoreConfig.small(), metrics_port=0) as server,
        RemotingClient(server.address) as client,
    ):
        server.store.create_topic("orders", QUEUES)
        for queue in range(QUEUES):
            server.store.put("orders", b"x", queue_id=queue)
        beat(client, consumer("fresh", {"orders": "*"}))
        assert shown(server) == [("fresh", "orders", 1, 3)]
