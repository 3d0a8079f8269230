"""Offsets, groups and topics: looks for unused ones let others go on, and shares are given back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore import StoreConfig
from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.serve import sharedtable
from rmqstore.serve.network.turns import Steps
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.sharedtable import SharedTable
from support.gates import Gate
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.turns import Answers, Clock

pytestmark = pytest.mark.pure

SMALL = StoreConfig.small()
SEND: dict[str, object] = {
    "a": "p", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
    "k": "false", "m": "false",
}  # fmt: skip


def send(client: RemotingClient, topic: str) -> int:
    return client.ask(310, SEND | {"b": topic}, b"x").code


def commit(client: RemotingClient, group: str, topic: str = "t") -> int:
    return client.ask(15, {
        "topic": topic, "queueId": 0, "commitOffset": 1, "consumerGroup": group,
    }).code  # fmt: skip


def beat(client: RemotingClient, group: str) -> int:
    return client.ask(34, None, heartbeat(client.name, [consumer(group, {"t": "*"})])).code


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "store", Settings(limits=Limits(topics=6)), SMALL) as made:
        made.store.create_topic("t", 2)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


# Looks


def add_offsets(server: Server, count: int, topic: str = "t") -> None:
    for number in range(count):
        server.store.progress.commit(topic, f"g{number}", 0, 1)


def add_groups(server: Server, count: int) -> None:
    for number in range(count):
        server.store.group_entries.enter(GroupConfig(f"g{number}", retry_max_times=3))


@pytest.mark.parametrize("kind", ["offsets", "groups", "groups beside offsets"])
def test_a_look_lets_others_go_on(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    kind: str,
) -> None:
    gateway = stepped.gateway
    table = gateway.offset_shares if kind == "offsets" else gateway.new_groups
    table._shares.most = 2000 if kind != "groups beside offsets" else 1
    if kind == "groups":
        add_groups(stepped, 2000)
    else:
        add_offsets(stepped, 2000)
        add_groups(stepped, 1)
    clock.stop_after(200)
    asked = (
        asker.send(15, {"topic": "t", "queueId": 1, "commitOffset": 1, "consumerGroup": "new"})
        if kind == "offsets"
        else asker.send(34, None, heartbeat("c", [consumer("new", {"t": "*"})]))
    )
    assert answers.is_served_between(other)
    assert asker.answer(asked).code == 1


def test_who_comes_before_the_end_of_a_look_is_refused() -> None:
    limits = Limits(offsets=1000)
    with Server(None, Settings(limits=limits), SMALL) as server:
        server.store.create_topic("t", 1)
        add_offsets(server, 500)
        add_offsets(server, 500, "unknown")
        with RemotingClient(server.address) as client:
            assert commit(client, "mine") == 1
            wait_until(lambda: commit(client, "mine") == 0)
            wait_until(lambda: {topic for topic, _ in server.store.offsets} == {"t"})
            wait_until(lambda: server.in_loop(lambda: server.gateway.offset_shares._shares.taken)
                       == 501)  # fmt: skip


def test_looks_rest(server: Server, client: RemotingClient) -> None:
    groups = server.gateway.new_groups
    looks = []
    remove = groups._remove_unused
    groups._remove_unused = lambda: looks.append(1) or remove()  # type: ignore[func-returns-value, method-assign]
    assert [beat(client, f"g{n}") for n in range(10)] == [0] * 3 + [1] * 7
    assert len(looks) == 1
    server.store.delete_group("g0")  # what others have removed is seen at once
    assert [beat(client, f"h{n}") for n in range(3)] == [0, 1, 1]
    assert len(looks) == 2


class Table(SharedTable[int]):
    """Numbers, each several times."""

    def __init__(self, most: int) -> None:
        self.entries: dict[int, int] = {}
        self.unused: set[int] = set()
        self.works: list[Steps] = []
        turns = SimpleNamespace(add=self.works.append)
        super().__init__(cast("Any", SimpleNamespace(turns=turns)), most)

    def _keys(self) -> list[int]:
        return list(self.entries)

    def _has(self, key: int) -> int:
        return self.entries.get(key, 0)

    def _size(self) -> int:
        return sum(self.entries.values())

    def _remove_unused(self) -> Steps:
        for key in list(self.entries):
            if key in self.unused:
                self.entries.pop(key, None)
            yield


STEPS = st.lists(st.tuples(st.sampled_from("taskx"), st.integers(0, 9), st.integers(0, 2)))


@given(STEPS, st.integers(0, 3))
def test_counts_are_right_whoever_changes_the_table(
    steps: list[tuple[str, int, int]], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharedtable, "_AT_ONCE", at_once)
        patch.setattr(sharedtable, "_REST_SECONDS", 0.0)
        patch.setattr(sharedtable, "_ENTRY_REST_SECONDS", 0.0)
        table = Table(12)
        for step, key, owner in steps:
            if (step == "t" and table.take(key, f"owner{owner}")) or step == "a":
                table.entries[key] = table.entries.get(key, 0) + 1
            elif step == "x":
                table.entries.pop(key, None)
            elif step == "k":
                table.unused ^= {key}
            elif table.works and next(table.works[0], table) is table:
                table.works.pop(0)
        for work in table.works:
            for _ in work:
                pass
        for _ in table._look():
            pass
        shares = table._shares
        assert table._counted == table.entries
        assert shares.taken == table._size()
        assert table._makers.keys() <= table.entries.keys()
        for owner in range(3):
            mine = (key for key, maker in table._makers.items() if maker == f"owner{owner}")
            assert shares.of(f"owner{owner}") == sum(map(table._has, mine))


# What is being made has its owner


@pytest.mark.parametrize("kind", ["groups", "topics"])
def test_what_is_being_made_stays_its_owners_through_a_look(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is in no table yet: a look would find nothing, and leave room for as many again."""
    table = server.gateway.new_groups if kind == "groups" else server.gateway.asked_topics
    table._shares.most = 6
    topic: dict[str, object] = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    go_on = threading.Event()
    monkeypatch.setattr(server.store.core, "check_writable", lambda: go_on.wait(60))

    def ask(number: int) -> int:
        body = b'{"groupName":"g%d","retryMaxTimes":3}' % number
        return (
            client.send(200, None, body)
            if kind == "groups"
            else client.send(17, topic | {"topic": f"t{number}"})
        )

    asked = [ask(number) for number in range(3)]
    assert client.answer(ask(3), 20).code == 1  # which has begun a look
    assert server.in_loop(lambda: table.of("127.0.0.1")) == 3
    go_on.set()
    assert [client.answer(one).code for one in asked] == [0] * 3
    assert server.in_loop(lambda: (table.of("127.0.0.1"), len(table._begun))) == (3, 0)


# What is taken is given back


def test_topics_that_cannot_be_written_count_for_nobody(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.error = OSError(28, "No space left on device", "topics.json")
    assert 17 not in [send(client, f"bad{n}") for n in range(10)]
    assert server.gateway.produced_topics.of("127.0.0.1") == 0
    gate.error = None
    assert [send(client, f"good{n}") for n in range(4)] == [0, 0, 0, 17]


@pytest.mark.parametrize("way", ["request", "store", "clean-up"])
def test_topics_that_are_deleted_count_for_nobody(
    server: Server, client: RemotingClient, way: str
) -> None:
    assert [send(client, f"t{n}") for n in range(4)] == [0, 0, 0, 17]
    if way == "request":
        assert client.ask(215, {"topic": "t0"}).code == 0
    elif way == "store":
        server.store.delete_topic("t0")
    else:
        server.store.registry.leave(["t0"])
    server.in_loop(setattr, server.gateway.produced_topics, "_look_from", 0.0)
    assert [send(client, f"u{n}") for n in range(2)] == [0, 17]


def test_a_topic_that_is_written_now_counts(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.close()
    asked = [client.send(310, SEND | {"b": f"t{n}"}, b"x") for n in range(5)]
    assert gate.reached.wait(60)
    assert client.answer(asked[4]).code == 17  # also after a look at those that are written
    gate.open.set()
    assert [client.answer(one).code for one in asked[:4]] == [0, 0, 0, 17]


def test_a_message_that_is_not_given_back_makes_no_group(
    server: Server, client: RemotingClient
) -> None:
    for number in range(10):
        refused = client.ask(36, {"offset": 1 << 40, "group": f"bad{number}", "delayLevel": 0})
        assert refused.code == 1
        assert "look message by offset failed" in (refused.remark or "")
    assert server.gateway.new_groups.of("127.0.0.1") == 0
    assert [beat(client, f"g{n}") for n in range(4)] == [0, 0, 0, 1]


def test_groups_and_offsets_that_others_remove_count_for_nobody(
    server: Server, client: RemotingClient
) -> None:
    server.gateway.offset_shares._shares.most = 6
    assert [commit(client, f"c{n}") for n in range(4)] == [0, 0, 0, 1]
    server.store.delete_group("c0", offsets=True)
    assert [commit(client, f"d{n}") for n in range(2)] == [0, 1]
    assert [beat(client, f"g{n}") for n in range(4)] == [0, 0, 0, 1]
    assert client.ask(207, {"groupName": "g0"}).code == 0
    assert [beat(client, f"h{n}") for n in range(2)] == [0, 1]
    file = Path(server.store.path, "config", "subscriptionGroup.json")
    wait_until(lambda: file.exists() and "h0" in json.loads(file.read_text())[
        "subscriptionGroupTable"])  # fmt: skip
