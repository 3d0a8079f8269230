"""A client of very many groups: bounded, and coming and going between the requests of others."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.network.turns import ended
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.turns import SECONDS, Answers, Clock

pytestmark = pytest.mark.pure

HEARTBEAT, LEAVE, IDS, CONSUMERS, PRODUCERS, ALL = 34, 35, 38, 203, 204, 328
MOST = 1000


def consumers(names: range) -> list[dict[str, object]]:
    return [consumer(f"g{n}", {"t": "*"}) for n in names]


def producers(names: range) -> list[str]:
    return [f"p{n}" for n in names]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def test_groups_of_a_connection_are_bounded(server: Server, client: RemotingClient) -> None:
    """Also where each heartbeat has others; those that it has left are not counted."""
    for part in range(2):
        names = range(500 * part, 500 * (part + 1))
        assert client.ask(HEARTBEAT, None, heartbeat("c", [], producers(names))).code == 0
        assert client.ask(HEARTBEAT, None, heartbeat("c", consumers(names), [])).code == 0
    more = range(MOST, MOST + 1)
    for body in (heartbeat("c", [], producers(more)), heartbeat("c", consumers(more), [])):
        refused = client.ask(HEARTBEAT, None, body)
        assert (refused.code, refused.remark) == (
            1, "a client may have 1000 consumer and 1000 producer groups, has 1000",
        )  # fmt: skip
    assert client.ask(HEARTBEAT, None, heartbeat("c", [], producers(range(5)))).code == 0
    assert client.ask(LEAVE, {"clientID": "c", "producerGroup": "p3"}).code == 0
    assert client.ask(HEARTBEAT, None, heartbeat("c", [], producers(more))).code == 0
    known = server.gateway.clients
    assert server.in_loop(lambda: (len(known.groups), len(known.producer_groups))) == (MOST, MOST)


def test_a_client_leaves_its_groups_between_others(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock, answers: Answers
) -> None:
    """At no time is it in some of its groups, and not in others."""
    body = heartbeat("c", consumers(range(MOST)), producers(range(MOST)))
    assert asker.ask(HEARTBEAT, None, body).code == 0
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    known = stepped.gateway.clients
    clock.stop_when(lambda: len(known.producer_groups) < 500)
    asker.close()
    assert clock.stopped.wait(SECONDS)
    assert len(known.groups) == MOST
    assert known._named == {}
    assert {known.group(f"g{n}") for n in range(MOST)} == {None}
    assert {known.consumer(f"g{n}", "c") for n in range(MOST)} == {None}
    assert [known.producers(f"p{n}") for n in range(MOST)] == [[]] * MOST
    assert ended(known.groups_of("t")) == []
    assert answers.is_served_between(other)
    assert other.ask(IDS, {"consumerGroup": "g999"}).code == 1
    assert other.ask(ALL).json == {"data": {}}
    wait_until(lambda: stepped.in_loop(lambda: (known.groups, known.producer_groups)) == ({}, {}))
    assert (known._members.taken, known._sizes.taken, known._owners) == (0, 0, {})


def test_who_comes_while_the_last_one_leaves_begins_anew(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock
) -> None:
    first = [consumer(f"g{n}", {"t": "old"}, version=9) for n in range(MOST)]
    body = heartbeat("c", first, producers(range(MOST)))
    assert asker.ask(HEARTBEAT, None, body).code == 0
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    known = stepped.gateway.clients
    clock.stop_when(lambda: len(known.producer_groups) < 900)
    asker.close()
    assert clock.stopped.wait(SECONDS)
    names = [f"g{n}" for n in (0, 500, 999)]
    again = [consumer(name, {"t": "new"}, version=1) for name in names]
    number = other.send(HEARTBEAT, None, heartbeat("d", again, ["p999"]))
    clock.go_on()
    assert other.answer(number).code == 0
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    for name in names:
        assert other.ask(IDS, {"consumerGroup": name}).json == {"consumerIdList": ["d"]}
        group = known.groups[name]
        assert group.subscriptions["t"].expression == "new"
        assert list(group.clients) == list(known._consumes)
    assert (set(known.groups), set(known.producer_groups)) == (set(names), {"p999"})
    assert known._members.taken == 4
    assert known._sizes.taken == 3 * 260


@pytest.mark.parametrize("code", [CONSUMERS, PRODUCERS, ALL])
def test_lists_of_clients_are_written_between_others(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    code: int,
) -> None:
    topics = {f"t{n}": "a || b" for n in range(MOST)} if code == CONSUMERS else {"t": "*"}
    body = heartbeat("c", [consumer("g", topics)], producers(range(MOST)))
    assert asker.ask(HEARTBEAT, None, body).code == 0
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    fields = {CONSUMERS: {"consumerGroup": "g"}, PRODUCERS: {"producerGroup": "p1"}}.get(code)
    if code == PRODUCERS:  # of one group
        connection = next(iter(stepped.gateway.clients.producer_groups["p1"].values()))
        members = {object(): connection for _ in range(MOST)}
        stepped.gateway.clients.producer_groups["p1"] = members  # type: ignore[assignment]
    clock.stop_after(12)
    asked = asker.send(code, fields)
    assert answers.is_served_between(other)
    answer = asker.answer(asked)
    assert answer.code == 0
    if code == CONSUMERS:
        assert len(json.loads(answer.body)["subscriptionTable"]) == MOST
    elif code == PRODUCERS:
        assert len(json.loads(answer.body)["connectionSet"]) == MOST
    else:
        assert len(json.loads(answer.body)["data"]) == MOST


def test_an_answer_that_is_no_frame_is_not_built_to_its_end(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqstore.serve.wire import objecttext

    assert client.ask(HEARTBEAT, None, heartbeat("c", [], producers(range(MOST)))).code == 0
    monkeypatch.setattr(objecttext, "MAX_FRAME", 10_000)
    answer = client.ask(ALL)
    assert (answer.code, answer.body) == (1, b"")
    assert answer.remark == "the answer would have more than 10000 bytes"
