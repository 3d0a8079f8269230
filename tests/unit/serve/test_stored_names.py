"""Topics whose names no client may use any more: read, consumed and deleted, but not put to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.serve import Server
from support.remoting import RemotingClient
from support.serving import bodies, consumer, heartbeat
from support.stored_names import CONFIG, COUNT, NAMES, write_log

pytestmark = pytest.mark.pure

LONG_MAX = (1 << 63) - 1
ALL = [b"%d" % number for number in range(COUNT)]
OLD = [name for name in NAMES if not rmqstore.files.paths.is_topic_name(name)]
GROUP = {"consumerGroup": "g"}
PULL = GROUP | {
    "queueId": 1, "queueOffset": 0, "maxMsgNums": 32, "suspendTimeoutMillis": 0,
    "subscription": "*", "subVersion": 0, "expressionType": "TAG",
}  # fmt: skip
SEND = {"a": "p", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
        "k": "false", "m": "false"}  # fmt: skip
PLAIN = {
    "producerGroup": "p", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 1,
    "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0,
    "unitMode": "false", "batch": "false",
}  # fmt: skip
BATCH = bytes.fromhex("000000180000000000000000000000000000000178" + "0000")


def make_store(root: Path) -> None:
    """Make a store as an old broker left it: the log, and the topics' entries."""
    write_log(root, NAMES)
    (root / "config").mkdir()
    topics = TopicTable(root)
    for name in NAMES:
        topics.put(TopicConfig(name, 2, 2))
    topics.save()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("names") / "store"
    make_store(root)
    with rmqstore.serve(root, config=CONFIG) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def queues(*topics: str) -> bytes:
    entries = [{"brokerName": "broker-a", "queueId": 1, "topic": topic} for topic in topics]
    return json.dumps(GROUP | {"clientId": "c", "mqSet": entries}).encode()


@pytest.mark.parametrize("name", [*OLD, "plain"])
def test_it_is_consumed(server: Server, client: RemotingClient, name: str) -> None:
    topic = {"topic": name}
    queue = topic | GROUP | {"queueId": 1}
    assert name in client.ask(206).json["topicList"]
    assert client.ask(105, topic).json["queueDatas"][0]["readQueueNums"] == 2
    group = consumer("g", {"plain": "*", name: "A"})
    assert client.ask(34, None, heartbeat("c", [group])).code == 0
    assert client.ask(46, None, json.dumps({
        "clientId": "c", "group": "g", "subscriptionData": {"topic": name, "subString": "A"},
    }).encode()).code == 0  # fmt: skip
    assert [one["topic"] for one in client.ask(41, None, queues(name)).json["lockOKMQSet"]] == [
        name
    ]
    assert len(server.gateway.locks) == 1
    assert client.ask(42, None, queues(name)).code == 0
    assert len(server.gateway.locks) == 0
    assert client.ask(14, queue).fields == {"offset": "0"}
    for flag in (4, 0):  # the subscription is the request's, and the heartbeat's
        assert bodies(client.ask(11, topic | PULL | {"sysFlag": flag, "commitOffset": 0})) == ALL
    answer = client.ask(15, queue | {"commitOffset": 3})
    if "@" in name:
        assert (answer.code, "'@'" in str(answer.remark)) == (1, True)
        assert bodies(client.ask(11, topic | PULL | {"sysFlag": 5, "commitOffset": 3})) == ALL
        assert client.is_quiet(0.05)  # the commit in the pull is refused without a second answer
    else:
        assert answer.code == 0
        assert client.ask(14, queue).fields == {"offset": "3"}
    assert client.ask(35, {"clientID": "c", "consumerGroup": "g"}).code == 0
    server.store.progress.save()


@pytest.mark.parametrize("name", [*OLD, "plain"])
def test_admins_see_it(server: Server, client: RemotingClient, name: str) -> None:
    topic = {"topic": name}
    queue = topic | {"queueId": 1}
    assert client.ask(30, queue).fields == {"offset": str(COUNT)}
    assert client.ask(31, queue).fields == {"offset": "0"}
    assert client.ask(32, queue).fields == {"timestamp": "1700000000000"}
    assert client.ask(29, queue | {"timestamp": 1_700_000_005_000}).fields == {"offset": "5"}
    found = client.ask(12, topic | {
        "key": "k3", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": LONG_MAX
    })  # fmt: skip
    assert bodies(found) == [b"3"]
    assert client.ask(351, topic).json["topicName"] == name
    for code in (202, 300, 303, 308, 321, 208):
        fields = queue | GROUP | {"group": "g", "index": 0, "count": 9}
        answer = client.ask(code, fields)
        assert (answer.code, bool(answer.body)) == (0, True), (code, answer)
    answer = client.ask(222, topic | {"group": "none", "timestamp": 0, "isForce": "true"})
    assert (answer.code, answer.remark) == (1, "THe consumer group <none> not exist")
    mode = json.dumps(topic | GROUP | {"mode": "PULL"}).encode()
    assert client.ask(401, None, mode).code == 0


@pytest.mark.parametrize("name", OLD)
def test_it_is_not_put_to(server: Server, client: RemotingClient, name: str) -> None:
    end = server.store.stats()["wrote_position"]
    before = server.store.registry.get(name)
    making = {"defaultTopic": "TBW102", "readQueueNums": 9, "writeQueueNums": 9, "perm": 6}
    requests: list[tuple[int, dict[str, Any], bytes]] = [
        (10, PLAIN | {"topic": name}, b"x"),
        (310, SEND | {"b": name}, b"x"),
        (320, SEND | {"b": name, "m": "true"}, BATCH),
        (324, PLAIN | {"topic": name}, b"x"),
        (325, SEND | {"b": name}, b"x"),
        (17, making | {"topic": name}, b""),
    ]
    for code, fields, body in requests:
        answer = client.ask(code, fields, body)
        assert answer.code == 1, code
        assert "The specified topic" in str(answer.remark)
    assert server.store.stats()["wrote_position"] == end
    assert server.store.registry.get(name) == before


@pytest.mark.parametrize("name", ["o.o", "../x", "a/b", "", ".", "\ud800", "x" * 999])
def test_a_topic_that_is_not_there_enters_no_table(
    server: Server, client: RemotingClient, name: str
) -> None:
    """Nor may a commit make one; a subscription stands for as long as its client is there."""
    before = list(server.store.registry), server.store.progress.count
    topic = {"topic": name}
    assert client.ask(105, topic).code == 17
    assert client.ask(15, topic | GROUP | {"queueId": 0, "commitOffset": 1}).code in (1, 17)
    answer = client.ask(41, None, queues(name))
    assert answer.code == 1 or answer.json["lockOKMQSet"] == []
    assert client.ask(202, topic).code in (1, 17)
    assert client.ask(321, topic | {"queueId": 0, "index": 0, "count": 1}).code == 1
    client.ask(215, topic)
    assert len(server.gateway.locks) == 0
    assert (list(server.store.registry), server.store.progress.count) == before


def test_long_topics_are_charged(server: Server, client: RemotingClient) -> None:
    """A heartbeat may name topics that are not there, of any length that its bytes pay for."""
    most = server.gateway.settings.limits.subscription_bytes
    name = "\u00e9" * 16_000
    group = consumer("long", {name[:-1]: "*", name: "*"})
    assert client.ask(34, None, heartbeat("long", [group])).code == 0
    assert 32_000 < server.gateway.clients.groups["long"].size < most


def test_it_is_given_back_and_deleted(tmp_path: Path) -> None:
    make_store(tmp_path)
    with (
        rmqstore.serve(tmp_path, config=CONFIG) as server,
        RemotingClient(server.address) as client,
    ):
        store = server.store
        for name in OLD:
            [offset] = [one.physical_offset for one in store.get(name, 1, 2, 1).messages]
            back = {"offset": offset, "group": "g", "originTopic": name}
            assert client.ask(36, back | {"delayLevel": -1}).code == 0
            assert store["%DLQ%g"][0][-1].properties["RETRY_TOPIC"] == name
            commit = GROUP | {"topic": name, "queueId": 1, "commitOffset": 5}
            assert client.ask(15, commit).code == ("@" in name)
        for name in OLD[::2]:
            assert client.ask(215, {"topic": name}).code == 0
            assert client.ask(105, {"topic": name}).code == 17
            assert client.ask(216, {"topic": name}).code == 0
    left = {*OLD[1::2], "plain", "x" * 127, "%RETRY%g", "%DLQ%g"}
    for mode in ("r", "r+"):
        with rmqstore.open(tmp_path, mode, config=CONFIG) as store:  # type: ignore[call-overload]
            assert set(store) == left
            assert store.offsets == {(name, "g"): {1: 5} for name in OLD[1::2] if "@" not in name}
