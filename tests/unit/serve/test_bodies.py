"""Bodies that are parsed: within bounds, once, and with nobody held up for long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.accounts.account import Account
from rmqstore.serve.accounts.acl import Acl
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.admin import resets
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire import fields
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.turns import SECONDS, Answers, Clock

HEARTBEAT, CHECK, LOCK, UNLOCK, STATUS, ASK_STATUS = 34, 46, 41, 42, 223, 221
LONGEST_GROUP, LONGEST_TOPIC, LONGEST_NAME = 120, 127, 255
MANY_QUEUES = 5000


def name(number: int, length: int) -> str:
    return str(number).rjust(length, "x")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("t", 2)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def mid(topic: str, queues: int) -> bytes:
    """A lock or an unlock of many queues."""
    one = {"topic": topic, "brokerName": "broker-a"}
    listed = [{**one, "queueId": number} for number in range(queues)]
    return json.dumps({"consumerGroup": "g" * 120, "clientId": "c" * 255, "mqSet": listed}).encode()


# Those of a legal client that has as much as it may


def test_a_thousand_groups_and_topics_with_the_longest_names(
    server: Server, client: RemotingClient
) -> None:
    groups = [
        consumer(name(n, LONGEST_GROUP), {name(n, LONGEST_TOPIC): "TagA || TagB"})
        for n in range(1000)
    ]
    for one in groups:  # as Java writes it
        wanted = one["subscriptionDataSet"][0]
        wanted |= {"codeSet": [2598919, 2598920], "tagsSet": ["TagA", "TagB"]}
    producers = [name(n, LONGEST_GROUP) for n in range(1000)]
    body = heartbeat("c" * LONGEST_NAME, groups, producers)
    assert len(body) > 500_000
    assert client.ask(HEARTBEAT, None, body).code == 0
    known = server.gateway.clients
    assert server.in_loop(lambda: (len(known.groups), len(known.producer_groups))) == (1000, 1000)


def test_locks_of_many_queues_with_the_longest_names(
    server: Server, client: RemotingClient
) -> None:
    topic = "t" * LONGEST_TOPIC
    server.store.create_topic(topic, MANY_QUEUES)
    body = mid(topic, MANY_QUEUES)
    assert len(body) > 900_000
    assert len(client.ask(LOCK, None, body).json["lockOKMQSet"]) == MANY_QUEUES
    assert client.ask(UNLOCK, None, body).code == 0
    assert len(server.gateway.locks) == 0


# Others


@pytest.mark.parametrize("code", [HEARTBEAT, CHECK, LOCK, UNLOCK])
@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"[" + b"{}," * 300_000 + b"0]", "the body is no JSON of at most 65536 values"),
        (b'{"x":[' + b"1," * 70_000 + b"0]}", "the body is no JSON of at most 65536 values"),
        (b'{"x":"' + b"x" * (1 << 20) + b'"}', "the body must be at most 1048576 bytes"),
    ],
)
def test_what_takes_long_to_parse_is_not_parsed(
    server: Server,
    client: RemotingClient,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    body: bytes,
    remark: str,
) -> None:
    def parsed(text: bytes) -> Any:
        raise AssertionError

    monkeypatch.setattr(fields, "loads", parsed)
    answer = client.ask(code, None, body)
    assert answer.code == 1
    assert (answer.remark or "").startswith(remark)


@pytest.mark.parametrize("code", [HEARTBEAT, CHECK, LOCK, UNLOCK])
def test_a_body_is_parsed_once(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Its permissions are those of what its handler sees."""
    count = 0
    loads = fields.loads

    def counted(text: bytes) -> Any:
        nonlocal count
        count += 1
        return loads(text)

    monkeypatch.setattr(fields, "loads", counted)
    account = Account("somebody", "secret-secret", AddressRule("127.0.0.1"), False, 12, 12, {})
    body = {
        HEARTBEAT: heartbeat("c", [consumer(f"g{n}", {"t": "*"}) for n in range(20)], []),
        CHECK: json.dumps({"group": "g", "subscriptionData": {"topic": "t"}}).encode(),
    }.get(code, mid("t", 2))
    with (
        Server(None, Settings(acl=Acl([account])), StoreConfig.small()) as server,
        RemotingClient(server.address) as client,
    ):
        assert client.ask(code, {"AccessKey": "somebody"}, body).code == 0
    assert count == 1


@pytest.mark.parametrize("accounts", [False, True])
@pytest.mark.parametrize("queues", [200, 2048])
def test_what_was_parsed_is_counted_or_not_kept(clock: Clock, accounts: bool, queues: int) -> None:
    """A long one that waits for its turn, with thousands of others, is bytes."""
    account = Account("somebody", "secret-secret", AddressRule("127.0.0.1"), False, 12, 12, {})
    settings = Settings(acl=Acl([account]) if accounts else None)
    body = mid("big", queues)
    with Server(None, settings, StoreConfig.small()) as server, ExitStack() as clients:
        server.store.create_topic("big", queues)
        gateway = server.gateway
        many = [clients.enter_context(RemotingClient(server.address)) for _ in range(8)]
        clock.stop_when(lambda: len(gateway.answers._answering) == 8)
        all_sent = Event()  # in one turn of the loop: the first is not answered before the last
        gateway.work.loop.call_soon_threadsafe(all_sent.wait, SECONDS)
        asked = [one.send(LOCK, {"AccessKey": "somebody"}, body) for one in many]
        all_sent.set()
        assert clock.stopped.wait(SECONDS)
        each = gateway.connections.unanswered / 8
        parsed = queues * 4 * 96 if queues == 200 else 0
        assert parsed < each - len(body) < parsed + 4000
        clock.go_on()
        assert {one.answer(its).code for one, its in zip(many, asked, strict=True)} == {0}
        wait_until(lambda: gateway.connections.unanswered == 0)


def test_others_are_served_while_queues_are_unlocked(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock, answers: Answers
) -> None:
    clock.stop_after(20)
    asked = asker.send(UNLOCK, None, mid("t", 4096))
    assert answers.is_served_between(other)
    assert asker.answer(asked).code == 0


# What consumers say of themselves


def table(queues: int) -> bytes:
    listed = ",".join(
        f'{{"brokerName":"broker-a","queueId":{n},"topic":"{"t" * LONGEST_TOPIC}"}}:{1 << 60}'
        for n in range(queues)
    )
    return f'{{"messageQueueTable":{{{listed}}}}}'.encode()


def test_a_consumer_of_as_many_queues_as_clients_may_ask_for_is_listed(
    server: Server, client: RemotingClient
) -> None:
    with RemotingClient(server.address) as member:
        body = heartbeat("c", [consumer("g", {"t": "*"})], [])
        assert member.ask(HEARTBEAT, None, body).code == 0
        for queues, listed in ((1024, True), (2048, False)):
            asked = client.send(STATUS, {"topic": "t", "group": "g"})
            member.reply(member.next_request(ASK_STATUS), body=table(queues))
            answer = client.answer(asked)
            assert answer.code == 0
            assert (answer.body.count(b"queueId") == queues) is listed


def test_what_consumers_say_is_parsed_between_others(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock, answers: Answers
) -> None:
    with RemotingClient(stepped.address) as member:
        body = heartbeat("c", [consumer("g", {"t": "*"})], [])
        assert member.ask(HEARTBEAT, None, body).code == 0
        asked = asker.send(STATUS, {"topic": "t", "group": "g"})
        request = member.next_request(ASK_STATUS)
        clock.stop_after(25)
        member.reply(request, body=table(1024))
        assert answers.is_served_between(other)
        assert asker.answer(asked).body.count(b"queueId") == 1024
    assert clock.looks > 100


def test_what_consumers_say_is_bounded_together(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resets, "_STATUS_BYTES_OF_ALL", 100_000)
    members = [RemotingClient(server.address) for _ in range(4)]
    for number, member in enumerate(members):
        body = heartbeat(f"c{number}", [consumer("g", {"t": "*"})], [])
        assert member.ask(HEARTBEAT, None, body).code == 0
    asked = client.send(STATUS, {"topic": "t", "group": "g"})
    for member in members:
        member.reply(member.next_request(ASK_STATUS), body=table(256))
    answer = client.answer(asked)
    assert (answer.code, answer.body) == (1, b"")
    assert "100000 bytes" in (answer.remark or "")
    for member in members:
        member.close()


@pytest.mark.parametrize("code", [HEARTBEAT, LOCK, UNLOCK])
def test_a_long_body_waits_for_its_turn(
    stepped: Server,
    clock: Clock,
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    """Those of one address are parsed one after the other, and one of another between."""
    parsed: list[bytes] = []
    loads = fields.loads

    def noted(text: bytes) -> Any:
        parsed.append(b"second" if b"second" in text else b"first")
        return loads(text)

    monkeypatch.setattr(fields, "loads", noted)
    many = [RemotingClient(stepped.address) for _ in range(12)]
    body = {
        HEARTBEAT: heartbeat("first", [consumer(f"g{n}", {"t": "*"}) for n in range(300)], [])
    }.get(code, mid("first", 2000))
    assert len(body) > 64 << 10
    clock.stop_after(4)
    asked = [one.send(code, None, body) for one in many]
    assert clock.stopped.wait(SECONDS)
    with RemotingClient(stepped.address, source="127.0.0.2") as other:
        number = other.send(code, None, body.replace(b"first", b"second"))
        clock.go_on()
        assert other.answer(number).code == 0
        assert len(answers.seen) < 6
    for one, its in zip(many, asked, strict=True):
        assert one.answer(its).code == 0
        one.close()
    assert sorted(parsed) == [b"first"] * 12 + [b"second"]


def test_a_group_of_many_values_is_refused(server: Server, client: RemotingClient) -> None:
    entry = b'{"groupName":"g","attributes":{"a":[' + b",".join([b"1"] * 900) + b"]}}"
    assert client.ask(200, None, entry).code == 0
    answer = client.ask(200, None, b"[" + b"[]," * 20_000 + b"0]")
    assert (answer.code, answer.remark) == (
        1, "the body is no JSON of at most 1000 values, got 40002",
    )  # fmt: skip
