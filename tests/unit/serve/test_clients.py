"""Groups of consumers and producers over the wire, as the real clients say them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Limits, Settings
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, on_loop, wait_until

pytestmark = pytest.mark.pure

CHANGED = 40


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        yield made


def client(server: Server) -> RemotingClient:
    return RemotingClient(server.address)


def members(asker: RemotingClient, group: str) -> list[str] | None:
    answer = asker.ask(38, {"consumerGroup": group})
    assert answer.fields == {}
    if answer.code:
        assert (answer.code, answer.remark) == (1, f"no consumer for this group, {group}")
        return None
    return sorted(answer.json["consumerIdList"])


def told(client: RemotingClient, group: str) -> int:
    """How often a client was told that a group changed, once nothing else is coming."""
    members(client, "flush")  # answers come in order, behind what was written before
    count = 0
    while client.pushed:
        frame = client.pushed.popleft()
        assert (frame.code, frame.flag, frame.fields) == (CHANGED, 2, {"consumerGroup": group})
        count += 1
    return count


def test_a_heartbeat_makes_group_and_retry_topic(server: Server) -> None:
    with client(server) as one:
        answer = one.ask(34, None, heartbeat("c1", [consumer("made", {"orders": "a || b"})]))
        assert (answer.code, answer.fields, answer.body) == (0, None, b"")
        assert answer.header["version"] == 399
    store = server.store
    assert store.groups["made"].retry_max == 16
    topic = store.registry.get("%RETRY%made")
    assert topic is not None
    assert (topic.perm, topic.read_queue_nums, topic.write_queue_nums) == (6, 1, 1)
    server.in_loop(server.gateway.new_groups._save_files)
    files = json.loads((server_path(server) / "config/subscriptionGroup.json").read_text())
    assert files["subscriptionGroupTable"]["made"]["consumeEnable"] is True


def server_path(server: Server) -> Any:
    from pathlib import Path

    return Path(server.store.path)


def test_members_are_told_when_members_or_topics_change(server: Server) -> None:
    with client(server) as one, client(server) as two:

        def beat(who: RemotingClient, name: str, topics: dict[str, str], version: int = 1) -> None:
            body = heartbeat(name, [consumer("g", topics, version=version)])
            assert who.ask(34, None, body).code == 0

        assert members(one, "g") is None
        beat(one, "c1", {"t": "*"})
        assert (told(one, "g"), members(one, "g")) == (1, ["c1"])
        beat(one, "c1", {"t": "*"})
        assert told(one, "g") == 0
        beat(two, "c2", {"t": "*"})
        assert (told(one, "g"), told(two, "g")) == (1, 1)
        assert members(one, "g") == members(two, "g") == ["c1", "c2"]
        beat(one, "c1", {"t": "a"}, version=2)  # another expression of the same topic
        assert (told(one, "g"), told(two, "g")) == (0, 0)
        beat(one, "c1", {"t": "*", "u": "*"})
        assert (told(one, "g"), told(two, "g")) == (1, 1)
        beat(one, "c1", {"u": "*"})
        assert (told(one, "g"), told(two, "g")) == (1, 1)
        answer = two.ask(35, {"clientID": "c2", "consumerGroup": "g"})
        assert (answer.code, answer.fields) == (0, {})
        assert (told(one, "g"), told(two, "g"), members(one, "g")) == (1, 0, ["c1"])
        beat(two, "c2", {"u": "*"})
        told(one, "g")
    with client(server) as three:
        wait_until(lambda: members(three, "g") is None)


def test_a_group_is_not_told_of_who_was_no_member(server: Server) -> None:
    with client(server) as one, client(server) as two:
        beat = heartbeat("c1", [consumer("theirs", {"t": "*"})])
        assert one.ask(34, None, beat).code == 0
        told(one, "theirs")
        for _ in range(3):
            assert two.ask(35, {"clientID": "c1", "consumerGroup": "theirs"}).code == 0
        assert two.ask(34, None, heartbeat("c2", [consumer("other", {"t": "*"})])).code == 0
        assert two.ask(35, {"clientID": "c2", "consumerGroup": "theirs"}).code == 0
        assert told(one, "theirs") == 0
        assert members(one, "theirs") == ["c1"]


def test_a_group_that_is_not_told(server: Server) -> None:
    def beat(who: RemotingClient, name: str) -> None:
        assert who.ask(34, None, heartbeat(name, [consumer("quiet", {"t": "*"})])).code == 0

    def configure(asker: RemotingClient, tells: bool) -> None:
        config = {"groupName": "quiet", "notifyConsumerIdsChangedEnable": tells}
        assert asker.ask(200, None, json.dumps(config).encode()).code == 0

    with client(server) as one, client(server) as two:
        configure(one, False)
        beat(one, "c1")
        beat(two, "c2")
        assert (told(one, "quiet"), told(two, "quiet")) == (0, 0)
        assert members(one, "quiet") == ["c1", "c2"]
        configure(one, True)
        two.ask(35, {"clientID": "c2", "consumerGroup": "quiet"})
        assert told(one, "quiet") == 1


def test_a_connection_that_is_lost_leaves_its_groups(server: Server) -> None:
    with client(server) as one:
        one.ask(34, None, heartbeat("c1", [consumer("lost", {"t": "*"})]))
        with client(server) as two:
            two.ask(34, None, heartbeat("c2", [consumer("lost", {"t": "*"})], ["lost-p"]))
            assert told(one, "lost") == 2
            assert on_loop(server, lambda g: len(g.clients.producers("lost-p"))) == 1
            assert on_loop(server, lambda g: g.clients.client_of("c2") is not None)
        assert one.next_request(CHANGED).fields == {"consumerGroup": "lost"}
        assert members(one, "lost") == ["c1"]
        assert on_loop(server, lambda g: g.clients.producers("lost-p")) == []
        assert on_loop(server, lambda g: g.clients.client_of("c2")) is None


def test_a_silent_client_is_closed() -> None:
    settings = Settings(limits=Limits(idle_seconds=-1.0))
    with Server(None, settings, StoreConfig.small()) as server, client(server) as one:
        one.ask(34, None, heartbeat("c1", [consumer("g", {"t": "*"})], ["p"]))
        on_loop(server, lambda g: g.clients.close_silent())
        with pytest.raises(ConnectionResetError):
            one.next_request(999)
        assert on_loop(server, lambda g: (g.clients.groups, g.clients.producer_groups)) == ({}, {})


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (("CONSUME_FROM_TIMESTAMP", "CONSUME_ACTIVELY", "BROADCASTING"), None),
        ((5, 0, 0), ("CONSUME_FROM_TIMESTAMP", "CONSUME_ACTIVELY", "BROADCASTING")),
        ((0, 1, 1), ("CONSUME_FROM_LAST_OFFSET", "CONSUME_PASSIVELY", "CLUSTERING")),
        (("4", "1", "1"), ("CONSUME_FROM_FIRST_OFFSET", "CONSUME_PASSIVELY", "CLUSTERING")),
    ],
)
def test_dialects(server: Server, said: tuple[Any, ...], meant: tuple[str, ...] | None) -> None:
    """C++ sends ordinals, subVersion as text, and leaves out what Java writes."""
    body = json.dumps({
        "clientID": "28182-127.0.0.1@DEFAULT",
        "consumerDataSet": [{
            "consumeFromWhere": said[0], "consumeType": said[1], "groupName": "cpp",
            "messageModel": said[2],
            "subscriptionDataSet": [
                {"subString": "a||b", "subVersion": "1795191566383", "topic": "T"}
            ],
        }],
    }).encode() + b"\n"  # fmt: skip
    with client(server) as one:
        assert one.ask(34, None, body, language="CPP", version=63).code == 0
        group = on_loop(server, lambda g: g.clients.group("cpp"))
        assert (group.consume_from_where, group.consume_type, group.message_model) == (
            meant or said
        )
        assert group.subscriptions["T"].to_json() == {
            "classFilterMode": False, "codeSet": [97, 98], "expressionType": "TAG",
            "subString": "a||b", "subVersion": 1795191566383, "tagsSet": ["a", "b"], "topic": "T",
        }  # fmt: skip
        (member,) = group.clients.values()
        assert (member.client_id, member.language, member.version) == (
            "28182-127.0.0.1@DEFAULT", "CPP", 63,
        )  # fmt: skip
    wait_until(lambda: on_loop(server, lambda g: g.clients.group("cpp")) is None)


BAD = [
    b"", b"[]", b"{", b"[" * 100_000, b"{}", b'{"clientID":7}', b'{"clientID":""}',
    b'{"clientID":"c","consumerDataSet":7}', b'{"clientID":"c","consumerDataSet":[7]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"../../x"}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"a@b"}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":9}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"X"}]}',
    b'{"clientID":"c","producerDataSet":[{"groupName":null}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"a/b"}]}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"a",'
    b'"subVersion":1.5}]}]}',
    heartbeat("c", [consumer("g" * 121, {"t": "*"})]),
    heartbeat("c", [consumer("g", {f"t{n}": "*" for n in range(1001)})]),
]  # fmt: skip


@pytest.mark.parametrize("body", BAD)
def test_bad_heartbeats_are_refused_and_change_nothing(server: Server, body: bytes) -> None:
    before = on_loop(server, lambda g: (len(g.clients.groups), len(list(g.store.group_entries))))
    with client(server) as one:
        answer = one.ask(34, None, body)
        assert answer.code == 1
        assert answer.remark
        assert one.ask(38, {"consumerGroup": "g"}).code == 1  # the connection lives
    after = on_loop(server, lambda g: (len(g.clients.groups), len(list(g.store.group_entries))))
    assert after == before


def test_check_client_config(server: Server) -> None:
    def check(kind: str | None, expression: str) -> tuple[int, bool]:
        subscription = {"topic": "t", "expressionType": kind, "subString": expression}
        body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription})
        answer = one.ask(46, None, body.encode())
        return answer.code, answer.remark is not None

    with client(server) as one:
        assert check("TAG", "a || b") == (0, False)
        assert check(None, "*") == (0, False)
        assert check("SQL92", "amount > 5 and region = 'eu'") == (0, False)
        assert check("SQL92", "amount >") == (23, True)
        assert check("SQL92", "") == (0, False) or check("SQL92", "") == (23, True)
        assert check("GROOVY", "x") == (23, True)
        assert one.ask(46, None, b"").code == 0
        assert one.ask(46, None, b"7").code == 1


def test_a_connection_without_requests_is_closed(server: Server) -> None:
    with client(server) as one:
        assert members(one, "nobody") is None

        def age(gateway: Any) -> None:
            for connection in gateway.connections.open:
                if connection.peer == one.name:
                    connection.last_used -= 121
            gateway.clients.close_silent()

        on_loop(server, age)
        with pytest.raises(ConnectionResetError):
            one.next_request(999)


def test_a_thousand_groups_come_at_a_time(server: Server) -> None:
    """They are entered at once, and the files are not written for each."""
    with client(server) as one:
        for batch in range(10):
            groups = [consumer(f"many-{batch}-{n}", {"t": "*"}) for n in range(100)]
            assert one.ask(34, None, heartbeat("c", groups)).code == 0
        assert server.store.registry.get("%RETRY%many-9-99") is not None
        assert members(one, "many-9-99") == ["c"]
        names = on_loop(server, lambda g: len(g.clients._consumes))
        assert names == 1
    wait_until(lambda: on_loop(server, lambda g: len(g.clients.groups)) == 0)
    assert on_loop(server, lambda g: (g.clients._consumes, g.clients._produces)) == ({}, {})

    def written() -> bool:
        files = server_path(server) / "config"
        return all("many-9-99" in (files / name).read_text()
                   for name in ("subscriptionGroup.json", "topics.json"))  # fmt: skip

    wait_until(written)
