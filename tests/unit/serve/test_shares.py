"""One account or client that fills what all share leaves room for the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore import StoreConfig
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.serve import sharedtable
from rmqstore.serve.accounts.account import Account
from rmqstore.serve.accounts.acl import Acl
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.network import memory
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.shares import Shares
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until

pytestmark = pytest.mark.pure

PUB_SUB = 12
SMALL = StoreConfig.small()
SEND = {"a": "p", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
        "k": "false", "m": "false"}  # fmt: skip
PULL: dict[str, object] = {
    "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6,
    "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subVersion": 0, "subscription": "*",
}  # fmt: skip


class Of:
    """A client with an account, from which no signature is wanted."""

    def __init__(self, server: Server, key: str | None) -> None:
        self.client = RemotingClient(server.address)
        self._own = {} if key is None else {"AccessKey": key}

    def send(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> int:
        return self.client.send(code, {**(fields or {}), **self._own}, body)

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Any:
        return self.client.answer(self.send(code, fields, body))


def account(key: str, **named: int) -> Account:
    return Account(key, "secret-secret", AddressRule("127.0.0.1"), False, PUB_SUB, PUB_SUB, named)


def server_with(path: Path | None = None, *, queues: int = 8, **limits: Any) -> Server:
    acl = Acl([account("attacker", secret=1), account("victim-account")])
    made = Server(path, Settings(acl=acl, limits=Limits(**limits)), SMALL)
    if "orders" not in made.store.topics:
        made.store.create_topic("orders", queue_nums=queues)
    return made


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Of, Of]]:
    with server_with(**getattr(request, "param", {})) as server:
        attacker, victim = Of(server, "attacker"), Of(server, "victim-account")
        yield server, attacker, victim
        attacker.client.close()
        victim.client.close()


def with_limits(**limits: Any) -> Any:
    return pytest.mark.parametrize("pair", [limits], indirect=True)


def commit(of: Of, group: str, queue: int = 0, **other: Any) -> Any:
    fields = {"topic": "orders", "queueId": queue, "commitOffset": 1, "consumerGroup": group}
    return of.ask(15, fields | other)


def lock(of: Of, group: str, *queues: tuple[str, int], broker: str = "broker-a") -> Any:
    return of.ask(41, None, json.dumps({
        "clientId": "c", "consumerGroup": group,
        "mqSet": [{"brokerName": broker, "topic": t, "queueId": q} for t, q in queues],
    }).encode())  # fmt: skip


def locked(answer: Any) -> list[tuple[str, int]]:
    assert answer.code == 0
    return [(one["topic"], one["queueId"]) for one in answer.json["lockOKMQSet"]]


# The rule


def test_one_has_half_and_the_next_one_room() -> None:
    shares = Shares(100)
    while shares.has_room(("a",)):
        shares.take(("a",))
    assert (shares.taken, shares.of("a")) == (50, 50)
    while shares.has_room(("b",)):
        shares.take(("b",))
    assert shares.of("b") == 25
    assert shares.has_room(("c",), 25)
    assert not shares.has_room(("c",), 26)
    shares.give(("a",), 50)
    assert (shares.taken, shares.of("a")) == (25, 0)
    assert shares.has_room(("b",))


def test_owners_of_one_thing_share() -> None:
    shares = Shares(90)
    while shares.has_room(("account", "connection")):
        shares.take(("account", "connection"))
    assert shares.of("connection") == 30
    while shares.has_room(("account", "another")):
        shares.take(("account", "another"))
    assert shares.of("another") == 10
    assert shares.of("account") < 45
    assert shares.has_room(("other", "its"), 45)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40), st.booleans()), max_size=80))
def test_it_counts_as_a_plain_list(steps: list[tuple[int, int, bool]]) -> None:
    """What is taken is never more than the table, and never all of it by what one owner may."""
    shares = Shares(200)
    kept: list[tuple[int, int]] = []
    for owner, amount, gives in steps:
        if gives and kept:
            shares.give((kept[-1][0],), kept.pop()[1])
        elif shares.has_room((owner,), amount):
            own = sum(size for who, size in kept if who == owner)
            assert own + amount <= 200 - sum(size for _, size in kept)
            shares.take((owner,), amount)
            kept.append((owner, amount))
        assert shares.taken == sum(size for _, size in kept) <= 200
        for who in range(6):
            assert shares.of(who) == sum(size for one, size in kept if one == who)


# Locks


def test_only_queues_that_are_there_are_locked(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, _ = pair
    answer = lock(attacker, "g", ("orders", 7), ("orders", 8), ("unknown", 0))
    assert locked(answer) == [("orders", 7)]
    assert locked(lock(attacker, "g", ("orders", 6), broker="another")) == []
    assert len(server.gateway.locks) == 1


def test_a_deleted_topic_has_no_queues(pair: tuple[Server, Of, Of]) -> None:
    """Its former queues are neither locked nor committed to, also once it is made anew."""
    server, attacker, _ = pair
    store = server.store
    store.put("orders", b"1", queue_id=7)
    assert commit(attacker, "g", 7).code == 0
    for queues in (0, 4):
        if queues == 0:
            assert locked(lock(attacker, "g", ("orders", 7))) == [("orders", 7)]
            store.delete_topic("orders")
        else:
            store.create_topic("orders", queues)
        assert locked(lock(attacker, f"h{queues}", ("orders", 7))) == []
        assert commit(attacker, "g", 7).code == (17 if queues == 0 else 1)
        assert attacker.ask(321, {"topic": "orders", "queueId": 7}).code == 1
    assert locked(lock(attacker, "g", ("orders", 3))) == [("orders", 3)]
    assert dict(store.offsets) == {}


def test_locks_need_what_consuming_needs(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, victim = pair
    server.store.create_topic("secret", queue_nums=1)
    for code in (41, 42):
        body = {"clientId": "c", "consumerGroup": "g",
                "mqSet": [{"brokerName": "broker-a", "topic": "secret", "queueId": 0}]}  # fmt: skip
        refused = attacker.ask(code, None, json.dumps(body).encode())
        assert refused.code == 1
        assert "No default permission for topic:secret" in refused.remark
        assert victim.ask(code, None, json.dumps(body).encode()).code == 0


def test_who_locks_all_it_can_leaves_locks(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, victim = pair
    server.gateway.locks._shares.most = 60
    queues = [("orders", number) for number in range(8)]
    assert locked(lock(attacker, "legal", *queues)) == queues
    for number in range(20):
        lock(attacker, f"g{number}", *queues)
    assert locked(lock(attacker, "more", *queues)) == []
    assert locked(lock(attacker, "legal", *queues)) == queues  # renewed
    assert locked(lock(victim, "v", *queues)) == queues
    server.store.clock.advance(61)
    assert locked(lock(attacker, "more", *queues)) == queues


# Offsets


def test_only_offsets_of_queues_that_are_there_are_kept(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, _ = pair
    assert commit(attacker, "g", 7).code == 0
    refused = commit(attacker, "g", 8)
    assert (refused.code, refused.remark) == (1, "the topic orders has no queue 8")
    server.store.put("orders", b"1", queue_id=7)
    server.store.registry.put(TopicConfig("orders", 4, 4, 6))
    assert commit(attacker, "other", 7).code == 0  # it has messages, which a client still reads
    assert commit(attacker, "other", 6).code == 1
    assert dict(server.store.offsets) == {("orders", "g"): {7: 1}, ("orders", "other"): {7: 1}}


@with_limits(offsets=90)
def test_who_commits_all_it_can_leaves_offsets(pair: tuple[Server, Of, Of]) -> None:
    _, attacker, victim = pair
    codes = [commit(attacker, f"g{number}", queue).code
             for number in range(10) for queue in range(8)]  # fmt: skip
    assert codes[:32] == [0] * 32
    assert codes[-8:] == [1] * 8
    assert sum(one == 0 for one in codes) <= 45
    assert [commit(victim, "v", queue).code for queue in range(8)] == [0] * 8
    assert commit(attacker, "g0", 0, commitOffset=2).code == 0


def test_offsets_of_nothing_are_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that an older server has kept, after a restart."""
    monkeypatch.setattr(sharedtable, "_REST_SECONDS", 0.0)
    monkeypatch.setattr(sharedtable, "_ENTRY_REST_SECONDS", 0.0)
    with server_with(tmp_path, offsets=40) as server:
        for queue in range(100, 130):
            server.store.progress.commit("orders", "spoilt", queue, 1)
        for queue in range(10):
            server.store.progress.commit("unknown", f"g{queue}", queue, 1)
        server.store.progress.commit("orders", "spoilt", 3, 7)
    with server_with(tmp_path, offsets=40) as server:
        victim = Of(server, "victim-account")
        assert server.store.progress.count == 41
        assert commit(victim, "v").code == 0
        assert dict(server.store.offsets) == {("orders", "spoilt"): {3: 7}, ("orders", "v"): {0: 1}}
        victim.client.close()
    with server_with(tmp_path, offsets=40) as server:
        assert set(server.store.offsets) == {("orders", "spoilt"), ("orders", "v")}


# Groups, topics, members, subscriptions, held pulls


@with_limits(topics=10)
def test_who_makes_all_groups_it_can_leaves_groups(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, victim = pair
    bodies = [heartbeat(attacker.client.name, [consumer(f"g{number}", {"orders": "*"})])
              for number in range(8)]  # fmt: skip
    assert [attacker.ask(34, None, one).code for one in bodies] == [0] * 5 + [1] * 3
    body = heartbeat(victim.client.name, [consumer("v", {"orders": "*"})])
    assert victim.ask(34, None, body).code == 0
    assert "v" in server.store.groups


@pytest.mark.parametrize("restarted", [False, True])
def test_who_asks_for_all_groups_and_topics_it_can_leaves_some(
    tmp_path: Path, restarted: bool
) -> None:
    """Groups that others then make by consuming, or ask for; topics alike."""
    settings = Settings(limits=Limits(topics=20))
    topic = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    group = {"retryMaxTimes": 3}
    with Server(tmp_path, settings, SMALL) as server, RemotingClient(server.address) as attacker:
        server.gateway.asked_topics._shares.most = 20
        codes = [
            attacker.ask(200, None, json.dumps(group | {"groupName": f"g{n}"}).encode()).code
            for n in range(16)
        ]
        assert codes == [0] * 10 + [1] * 6
        assert attacker.ask(200, None, json.dumps(group | {"groupName": "g1"}).encode()).code == 0
        assert attacker.ask(207, {"groupName": "g1"}).code == 0
        assert attacker.ask(200, None, json.dumps(group | {"groupName": "g15"}).encode()).code == 0
        codes = [attacker.ask(17, {"topic": f"t{n}", **topic}).code for n in range(16)]
        assert codes == [0] * 10 + [1] * 6
        assert attacker.ask(17, {"topic": "t1", **topic}).code == 0
        assert attacker.ask(215, {"topic": "t1"}).code == 0
        assert attacker.ask(17, {"topic": "t15", **topic}).code == 0
        if not restarted:
            check_room_for_another(server)
    if restarted:
        with Server(tmp_path, settings, SMALL) as server:
            check_room_for_another(server)


def check_room_for_another(server: Server) -> None:
    with RemotingClient(server.address, source="127.0.0.2") as victim:
        for group in ("v", "w"):
            body = heartbeat("v", [consumer(group, {"t0": "*"})])
            assert victim.ask(34, None, body).code == 0
            assert victim.ask(200, None, b'{"groupName":"%s2"}' % group.encode()).code == 0
            topic = {"topic": f"of-{group}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            assert victim.ask(17, topic).code == 0
            assert victim.ask(310, SEND | {"b": f"to-{group}"}, b"x").code == 0


def test_who_deletes_groups_and_topics_has_room_for_others_at_once(tmp_path: Path) -> None:
    topic = {"topic": "made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    with Server(tmp_path, Settings(), SMALL) as server, RemotingClient(server.address) as client:
        gateway = server.gateway
        for made, asked, deleted in (
            (gateway.new_groups, (200, None, b'{"groupName":"g"}'), (207, {"groupName": "g"})),
            (gateway.asked_topics, (17, topic), (215, {"topic": "made"})),
            (gateway.produced_topics, (310, SEND | {"b": "made"}, b"x"), (215, {"topic": "made"})),
        ):
            assert client.ask(*asked).code == 0
            assert server.in_loop(partial(made.of, "127.0.0.1")) == 1
            assert client.ask(*deleted).code == 0
            assert server.in_loop(partial(made.of, "127.0.0.1")) == 0


@with_limits(topics=10)
def test_groups_of_nobody_are_taken_back(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, victim = pair
    for number in range(5):
        body = heartbeat("c", [consumer(f"g{number}", {"orders": "*"})])
        assert attacker.ask(34, None, body).code == 0
    assert commit(attacker, "g4").code == 0
    for number in range(5):
        attacker.ask(35, {"clientID": "c", "consumerGroup": f"g{number}"})
    body = heartbeat("v", [consumer("v", {"orders": "*"})])
    assert attacker.ask(34, None, body).code == 0
    assert sorted(server.store.groups) == ["g4", "v"]
    topics = [one.topic_name for one in server.store.registry]
    assert sorted(name for name in topics if name.startswith("%")) == ["%RETRY%g4", "%RETRY%v"]
    file = Path(server.store.path, "config", "subscriptionGroup.json")
    wait_until(lambda: file.exists() and set(
        json.loads(file.read_text())["subscriptionGroupTable"]) == {"g4", "v"})  # fmt: skip
    assert victim.ask(34, None, heartbeat("v2", [consumer("g0", {"orders": "*"})])).code == 0


@with_limits(topics=10)
def test_who_makes_all_topics_it_can_leaves_topics(pair: tuple[Server, Of, Of]) -> None:
    _, attacker, victim = pair
    codes = [attacker.ask(310, SEND | {"b": f"t{number}"}, b"x").code for number in range(7)]
    assert codes == [0] * 5 + [17] * 2
    assert victim.ask(310, SEND | {"b": "mine"}, b"x").code == 0


@with_limits(subscription_bytes=60_000)
def test_who_subscribes_to_all_it_can_leaves_room(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, victim = pair
    server.gateway.clients._members.most = 60

    def beat(of: Of, group: str, length: int) -> int:
        body = heartbeat(of.client.name, [consumer(group, {"orders": "x" * length})])
        code: int = of.ask(34, None, body).code
        return code

    assert [beat(attacker, f"g{n}", 9000) for n in range(4)] == [0, 0, 1, 1]
    assert beat(victim, "v", 9000) == 0
    produces = heartbeat(attacker.client.name, [], [f"p{n}" for n in range(18)])
    assert attacker.ask(34, None, produces).code == 0
    produces = heartbeat(attacker.client.name, [], [f"q{n}" for n in range(2)])
    assert attacker.ask(34, None, produces).code == 1
    produces = heartbeat(victim.client.name, [], [f"v{n}" for n in range(10)])
    assert victim.ask(34, None, produces).code == 0


@with_limits(held_pulls=12, queues=1)
def test_who_has_all_held_it_can_leaves_pulls(pair: tuple[Server, Of, Of]) -> None:
    server, attacker, victim = pair
    server.store.create_topic("held", queue_nums=1)
    pull = PULL | {"topic": "held"}
    asked = [attacker.send(11, pull | {"consumerGroup": "g"}) for _ in range(6)]
    assert [attacker.client.answer(one).code for one in asked[4:]] == [19, 19]
    mine = [victim.send(11, pull | {"consumerGroup": "v"}) for _ in range(2)]
    wait_until(lambda: len(server.gateway.holds) == 6)
    server.store.put("held", b"1", queue_id=0)
    assert [victim.client.answer(one).code for one in mine] == [0, 0]
    assert [attacker.client.answer(one).code for one in asked[:4]] == [0] * 4


def test_memory_is_given_back_when_slow_clients_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory, "_trim", given.append)
    monkeypatch.setattr(memory, "_SECONDS", 0.01)
    settings = Settings(limits=Limits(write_buffer=1 << 16))
    with Server(None, settings, SMALL) as server:
        server.store.create_topic("orders", queue_nums=1)
        server.store.put("orders", bytes(200 << 10), queue_id=0)
        with RemotingClient(server.address) as reader:
            assert reader.ask(11, PULL | {"consumerGroup": "g"}).code == 0
        wait_until(lambda: not server.in_loop(lambda: server.gateway.connections.open))
        assert not given
        with RemotingClient(server.address) as slow:
            for _ in range(200):
                slow.send(11, PULL | {"consumerGroup": "g"})
            wait_until(lambda: server.in_loop(lambda: server.gateway.connections.unread.taken))
        wait_until(lambda: given)
        assert server.in_loop(lambda: server.gateway.connections.unread.taken) == 0


def test_clients_that_do_not_read_have_less_the_more_they_are() -> None:
    settings = Settings(limits=Limits(write_buffer=1 << 20))
    with Server(None, settings, SMALL) as server:
        server.store.create_topic("orders", queue_nums=1)
        server.store.put("orders", bytes(200 << 10), queue_id=0)
        slow = [RemotingClient(server.address) for _ in range(40)]
        for one in slow:
            for _ in range(40):
                one.send(11, PULL | {"consumerGroup": "g"})
        wait_until(lambda: server.in_loop(
            lambda: sum(one.is_slow for one in server.gateway.connections.open)) == 40)  # fmt: skip
        unread = server.in_loop(lambda: [one.unwritten for one in server.gateway.connections.open])
        assert sum(unread) < (16 << 20) + 40 * (600 << 10)
        with RemotingClient(server.address) as reader:
            assert reader.ask(11, PULL | {"consumerGroup": "g"}).code == 0
        for one in slow:
            one.close()
