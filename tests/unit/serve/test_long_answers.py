"""Long answers, and what else one request has to do: some a turn, other clients between."""

from __future__ import annotations

import json
import threading

import pytest

from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.serve.network.connection import Connection
from rmqstore.serve.server import Server
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.turns import SECONDS, Answers, Clock

ROUTE, HEARTBEAT, LOCK = 105, 34, 41
QUEUES = 4096


def ask_of(stepped: Server, code: int) -> tuple[dict[str, object] | None, bytes]:
    """Make what a request has long to do with, and return its fields and body."""
    store = stepped.store
    store.create_topic("big", QUEUES)
    if code in (HEARTBEAT, 222):
        store.create_group("g")
    if code in (208, 222, 308, 314, 317, 43):
        store.create_group("g")
        for queue_id in range(QUEUES):
            store.progress.commit("big", "g", queue_id, 0)
    if code == 321:
        store.put_many("t", [b"x"] * QUEUES, queue_id=0)
    if code in (21, 206):
        with store.registry.lock:
            for number in range(QUEUES):
                store.registry.enter(TopicConfig(f"t{number}", 1, 1))
    if code == 201:
        for number in range(QUEUES):
            store.group_entries.enter(GroupConfig(f"g{number}"))
    if code == 219:
        for number in range(QUEUES):
            stepped.gateway.nameserver.values.put("n", f"k{number}", "value", "owner")
    fields: dict[int, dict[str, object]] = {
        219: {"namespace": "n"},
        202: {"topic": "big"},
        203: {"consumerGroup": "g"},
        208: {"consumerGroup": "g"},
        222: {"topic": "big", "group": "g", "timestamp": 0, "isForce": "true"},
        303: {"topic": "big", "group": "g"},
        308: {"topic": "big"},
        314: {"srcGroup": "g", "destGroup": "h", "offline": "true"},
        317: {"isOrder": "false"},
        321: {"topic": "t", "queueId": 0, "index": 0, "count": QUEUES},
    }
    body = b""
    if code == HEARTBEAT:
        body = heartbeat("c", [consumer(f"g{n}", {"t": "*"}) for n in range(700)], ["p"])
        assert len(body) > 200_000
    if code == LOCK:
        one = {"topic": "big", "brokerName": stepped.gateway.settings.broker}
        queues = [{**one, "queueId": queue_id} for queue_id in range(QUEUES)]
        body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
    return fields.get(code), body


LONG = (21, HEARTBEAT, LOCK, 43, 201, 202, 203, 206, 208, 219, 222, 303, 308, 314, 317, 321)


@pytest.mark.parametrize("code", LONG)
def test_others_are_served_while_a_long_answer_is_built(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    code: int,
) -> None:
    fields, body = ask_of(stepped, code)
    if code in (203, 222):
        wanted = "||".join(map(str, range(QUEUES))) if code == 203 else "*"
        beat = heartbeat("c", [consumer("g", {"big": wanted})], [])
        assert asker.ask(HEARTBEAT, None, beat).code == 0
    clock.stop_after(20)
    answers.seen.clear()
    asked = asker.send(code, fields, body)
    behind = asker.send(ROUTE, {"topic": "t"})
    assert answers.is_served_between(other)
    answer = asker.answer(asked)
    assert answer.code == 0
    assert asker.answer(behind).code == 0  # a connection's next request waits for it
    assert answers.clients == [other.name, asker.name, asker.name]
    if code not in (HEARTBEAT, 314, 308):
        assert len(answer.body) > 4 * QUEUES
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)


@pytest.mark.parametrize("code", [203, 321])
def test_the_tags_of_a_subscription_are_listed_between_others(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    code: int,
) -> None:
    """One may have 64 KiB of them."""
    tags = [f"{number:x}" for number in range(10_000)]
    beat = heartbeat("c", [consumer("g", {"t": "||".join(tags)})], [])
    assert asker.ask(HEARTBEAT, None, beat).code == 0
    stepped.store.put("t", b"x", queue_id=0)
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 0, "index": 0, "count": 1}
    clock.stop_after(300)
    asked = asker.send(code, fields)
    assert answers.is_served_between(other)
    found = asker.answer(asked).json
    one = found["subscriptionData"] if code == 321 else found["subscriptionTable"]["t"]
    assert one["tagsSet"] == tags
    assert one["codeSet"][:2] + one["codeSet"][-1:] == [48, 49, 1_543_995]


def test_long_answers_are_built_one_after_the_other(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock, answers: Answers
) -> None:
    fields, _ = ask_of(stepped, 202)
    first = asker.send(202, fields)
    second = other.send(202, fields)
    bodies = {asker.answer(first).body, other.answer(second).body}
    assert len(bodies) == 1
    assert sorted(answers.clients[-2:]) == sorted([asker.name, other.name])


def test_an_answer_that_nobody_waits_for_is_not_built_further(
    stepped: Server, asker: RemotingClient, other: RemotingClient, clock: Clock
) -> None:
    fields, _ = ask_of(stepped, 202)
    clock.stop_after(20)
    asker.send(202, fields)
    assert clock.stopped.wait(SECONDS)
    before = clock.looks
    asker.close()
    clock.go_on()
    wait_until(lambda: len(stepped.gateway.connections.open) == 1)
    assert other.ask(202, fields).code == 0
    assert clock.looks - before < 1.7 * QUEUES / 16 * 2
    wait_until(lambda: len(stepped.gateway.answers._answering) == 0)


def test_a_heartbeat_with_too_many_topics_is_refused_as_soon_as_that_is_seen(
    stepped: Server, asker: RemotingClient
) -> None:
    topics = {f"t{number}": "*" for number in range(800)}
    body = heartbeat("c", [consumer(f"g{n}", topics) for n in range(8)], [])
    refused = asker.ask(HEARTBEAT, None, body)
    assert refused.code == 1
    assert refused.remark == "a heartbeat may have 1000 subscriptions, got 1600"
    assert stepped.gateway.clients.groups == {}


def test_members_learn_of_many_changes_between_others(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
) -> None:
    """One that is gone leaves its groups at once; the members of each are told in turns."""
    body = heartbeat("c", [consumer(f"g{n}", {"t": "*"}) for n in range(500)], [])
    assert asker.ask(HEARTBEAT, None, body).code == 0
    with RemotingClient(stepped.address) as leaving:
        again = heartbeat("d", [consumer(f"g{n}", {"t": "*"}) for n in range(500)], [])
        assert leaving.ask(HEARTBEAT, None, again).code == 0
        wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
        assert asker.ask(ROUTE, {"topic": "t"}).code == 0
        asker.pushed.clear()
        clock.stop_after(4)
    assert answers.is_served_between(other)
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    assert asker.ask(ROUTE, {"topic": "t"}).code == 0
    told = [frame.fields["consumerGroup"] for frame in asker.pushed if frame.fields]
    assert sorted(told) == sorted(f"g{n}" for n in range(500))


def test_the_queues_of_all_topics_are_not_looked_at(
    stepped: Server, asker: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a hundred thousand, and a look at them is no work in steps."""
    store = stepped.store
    store.put("t", b"later", delay_level=2, queue_id=0)
    store.flush()
    queue_files = store.core.queue_files

    def looked() -> dict[str, list[int]]:
        assert threading.current_thread() is not stepped._thread
        return queue_files()

    monkeypatch.setattr(store.core, "queue_files", looked)
    wait_until(lambda: asker.ask(45).body == b'{"offsetTable":{2:0}}')
    assert asker.ask(28).json["table"]["scheduleMessageOffset_2"] == "0,1"
    asked: dict[str, object] = {"topic": "t", "group": "g", "consumerGroup": "g", "queueId": 1}
    assert asker.ask(321, asked).remark == "1@t is not exist!"
    for code in (14, 21, 29, 30, 31, 32, 43, 202, 206, 208, 300, 303, 308, 317):
        answer = asker.ask(code, asked | {"timestamp": 0})
        assert "AssertionError" not in (answer.remark or ""), code


def test_members_of_one_group_are_told_among_hundreds_of_changes_by_another(
    stepped: Server, asker: RemotingClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    notify = Connection.notify

    def noted(connection: Connection, code: int, fields: dict[str, str]) -> bool:
        told.append(fields["consumerGroup"])
        return notify(connection, code, fields)

    monkeypatch.setattr(Connection, "notify", noted)
    clients = stepped.gateway.clients
    with RemotingClient(stepped.address) as other:
        for one, count in ((asker, 300), (other, 1)):
            groups = [consumer(f"{one.name}-{n}".replace(".", "_").replace(":", "_"), {"t": "*"})
                      for n in range(count)]  # fmt: skip
            assert one.ask(HEARTBEAT, None, heartbeat("c", groups, [])).code == 0
        wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
        told.clear()

        def change_all() -> None:  # the other's group comes last
            for group in clients.groups.values():
                clients.notify(group, group.owners)

        stepped.in_loop(change_all)
        wait_until(lambda: len(told) == 301)
        assert told.index(groups[0]["groupName"]) == 1


def test_those_who_join_a_group_together_cost_one_notification(
    stepped: Server, asker: RemotingClient, clock: Clock
) -> None:
    group = heartbeat("c", [consumer("g", {"t": "*"})], [])
    assert asker.ask(HEARTBEAT, None, group).code == 0
    clients = stepped.gateway.clients

    def change() -> None:
        (one,) = clients.groups.values()
        for number in range(100):
            clients.notify(one, ("127.0.0.1", f"127.0.0.1:{number}"))

    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    assert asker.ask(ROUTE, {"topic": "t"}).code == 0
    asker.pushed.clear()
    stepped.in_loop(change)
    wait_until(lambda: stepped.in_loop(lambda: len(stepped.gateway.work.turns)) == 0)
    assert asker.ask(ROUTE, {"topic": "t"}).code == 0
    assert len(asker.pushed) == 1


@pytest.mark.parametrize("code", [207, 215])
def test_rates_are_forgotten_between_others(
    stepped: Server,
    asker: RemotingClient,
    other: RemotingClient,
    clock: Clock,
    answers: Answers,
    code: int,
) -> None:
    stepped.store.create_topic("gone", 1)
    rates = stepped.gateway.rates
    for number in range(5000):
        rates.got(f"g{number}", "t", 1, 1)
    for topic, group in (("gone", "g1"), ("t", "gone"), ("gone-not", "gone-not")):
        rates.got(group, topic, 1, 1)
    numbers, sizes = (rates._items[name] for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE"))
    key = "gone@g1" if code == 215 else "t@gone"
    clock.stop_when(lambda: key in sizes and key not in numbers)
    asked = asker.send(code, {"topic": "gone", "groupName": "gone"})
    assert answers.is_served_between(other)
    assert asker.answer(asked).code == 0
    assert len(numbers) == len(sizes) == 5002
    assert numbers.keys() >= {"gone-not@gone-not", "t@gone" if code == 215 else "gone@g1"}
