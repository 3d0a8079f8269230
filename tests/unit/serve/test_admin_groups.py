"""Groups and their progress as operators have them, good input and bad."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire.objecttext import MessageQueue, loads
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

GROUP = {
    "brokerId": 0, "consumeBroadcastEnable": False, "consumeEnable": True,
    "consumeFromMinEnable": False, "groupName": "made", "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 3, "retryQueueNums": 2, "whichBrokerWhenConsumeSlowly": 1,
}  # fmt: skip
BAD_NAMES = ["", " ", "../../x", "a/b", "a@b", "\u00fc", "a" * 121, "%RETRY%" + "a" * 120]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("orders", 2)
        for queue_id, count in ((0, 5), (1, 3)):
            for number in range(count):
                made.store.put("orders", b"%d" % number, queue_id=queue_id)
        made.store.flush()
        until = time.monotonic() + 60
        while made.store.queue_bounds("orders", 1) != (0, 3) and time.monotonic() < until:
            time.sleep(0.001)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def commit(server: Server, group: str, *offsets: int, topic: str = "orders") -> None:
    for queue_id, offset in enumerate(offsets):
        server.store.progress.commit(topic, group, queue_id, offset)


def stored(server: Server, queue_id: int, offset: int) -> int:
    return server.store["orders"][queue_id][offset].store_timestamp


def test_a_group_is_made_and_deleted(server: Server, client: RemotingClient) -> None:
    answer = client.ask(200, None, json.dumps(GROUP).encode())
    assert (answer.code, answer.fields, answer.body) == (0, None, b"")
    body = client.ask(201).json
    assert body["subscriptionGroupTable"]["made"] == GROUP
    assert "TOOLS_CONSUMER" in body["subscriptionGroupTable"]
    assert list(server.store.groups) == ["made"]
    assert server.store.groups["made"].retry_max == 3
    commit(server, "made", 1, 1)
    assert client.ask(207, {"groupName": "made", "removeOffset": "false"}).code == 0
    assert server.store.offsets[("orders", "made")] == {0: 1, 1: 1}
    assert client.ask(207, {"groupName": "made", "removeOffset": "true"}).code == 0
    assert list(server.store.groups) == []


BAD_BODIES = [
        b"", b"null", b"[]", b"{}", b"{", b"[" * 100_000, b"\xff",
        b'{"groupName":1}', b'{"groupName":"../x"}', b'{"groupName":"a@b"}',
        b'{"groupName":"g","retryMaxTimes":"x"}', b'{"groupName":"g","consumeEnable":1}',
        b'{"groupName":"g","brokerId":"x"}',
]  # fmt: skip


def test_a_group_that_cannot_be_read_is_not_made(server: Server, client: RemotingClient) -> None:
    for body in BAD_BODIES:
        assert client.ask(200, None, body).code == 1, body[:40]
    assert list(server.store.groups) == []


def test_what_is_unknown_of_a_group_is_left_out(server: Server, client: RemotingClient) -> None:
    body = {**GROUP, "attributes": {"a": "b"}, "groupSysFlag": 0}
    assert client.ask(200, None, json.dumps(body).encode()).code == 0
    assert client.ask(201).json["subscriptionGroupTable"]["made"] == GROUP


def test_bad_names_are_refused_everywhere(server: Server, client: RemotingClient) -> None:
    for name in BAD_NAMES:
        fields: dict[str, object] = {
            "consumerGroup": name, "producerGroup": name, "group": name, "groupName": name,
            "srcGroup": name, "destGroup": "g", "topic": "orders", "timestamp": 0,
            "clientId": "c", "msgId": "0" * 32,
        }  # fmt: skip
        for code in (203, 204, 207, 208, 222, 223, 303, 307, 309, 314):
            assert client.ask(code, fields).code == 1, (name, code)
    assert not server.store.groups


def test_the_progress_of_a_group(server: Server, client: RemotingClient) -> None:
    assert client.ask(208, {"consumerGroup": "g"}).body == b'{"consumeTps":0.0,"offsetTable":{}}'
    commit(server, "g", 4, 0)
    commit(server, "g", 1, topic="unknown")
    answer = loads(client.ask(208, {"consumerGroup": "g"}).body)
    first, second = (MessageQueue("broker-a", queue_id, "orders") for queue_id in (0, 1))
    assert answer == {
        "consumeTps": 0.0,
        "offsetTable": {
            first: {
                "brokerOffset": 5, "consumerOffset": 4, "lastTimestamp": stored(server, 0, 3),
            },
            second: {"brokerOffset": 3, "consumerOffset": 0, "lastTimestamp": 0},
        },
    }  # fmt: skip
    assert loads(client.ask(208, {"consumerGroup": "g", "topic": "orders"}).body) == answer
    assert client.ask(208, {"consumerGroup": "g", "topic": "a/b"}).code == 1
    assert client.ask(208).remark == "the custom field <consumerGroup> is null"


def test_the_progress_of_all_groups(server: Server, client: RemotingClient) -> None:
    server.store.create_group("g")
    commit(server, "g", 4, 1)
    answer = loads(client.ask(317, {"isOrder": "false"}).body)
    assert answer["brokerAddr"] == server.address
    assert answer["totalDiff"] == 3
    [of_group] = [each["g"] for each in answer["consumeStatsList"] if "g" in each]
    assert [len(one["offsetTable"]) for one in of_group] == [2]
    assert loads(client.ask(317, {"isOrder": "true"}).body)["totalDiff"] == 0


def test_times_of_progress(server: Server, client: RemotingClient) -> None:
    commit(server, "g", 2)
    spans = client.ask(303, {"topic": "orders", "group": "g"}).json["consumeTimeSpanSet"]
    assert [span["messageQueue"]["queueId"] for span in spans] == [0, 1]
    assert spans[0]["minTimeStamp"] == stored(server, 0, 0)
    assert spans[0]["maxTimeStamp"] == stored(server, 0, 4)
    assert spans[0]["consumeTimeStamp"] == stored(server, 0, 1)
    assert spans[1]["consumeTimeStamp"] == stored(server, 1, 0)
    assert 0 <= spans[0]["delayTime"] < 3_600_000
    assert client.ask(303, {"topic": "nowhere", "group": "g"}).code == 17


def test_corrections(server: Server, client: RemotingClient) -> None:
    commit(server, "slow", 1, 1)
    commit(server, "fast", 4, 3)
    asked: dict[str, object] = {"topic": "orders", "filterGroups": "", "compareGroup": "fast"}
    assert loads(client.ask(308, asked).body) == {"correctionOffsets": {0: 1, 1: 1}}
    asked = {"topic": "orders", "filterGroups": "slow", "compareGroup": "slow"}
    most = (1 << 63) - 1
    assert loads(client.ask(308, asked).body) == {"correctionOffsets": {0: most, 1: most}}
    assert server.store.offsets[("orders", "slow")] == {0: 1, 1: 1}  # 4.9.3 removes it
    assert client.ask(308, {"topic": "orders", "compareGroup": "../x"}).code == 1


def test_offsets_are_cloned(server: Server, client: RemotingClient) -> None:
    commit(server, "from", 4, 2)
    asked: dict[str, object] = {"srcGroup": "from", "destGroup": "to", "offline": "true"}
    assert client.ask(314, asked).code == 0
    assert server.store.offsets[("orders", "to")] == {0: 4, 1: 2}
    assert client.ask(314, {**asked, "destGroup": "a@b"}).code == 1


def test_tables_of_offsets(server: Server, client: RemotingClient) -> None:
    nothing = client.ask(43)
    assert (nothing.code, nothing.remark) == (1, "No consumer offset in this broker")
    commit(server, "g", 4, 2)
    assert loads(client.ask(43).body) == {"offsetTable": {"orders@g": {0: 4, 1: 2}}}
    assert loads(client.ask(45).body) == {"offsetTable": {}}
    server.store.put("orders", b"later", delay_level=3)
    server.store.flush()
    until = time.monotonic() + 60
    while not server.store.delayed() and time.monotonic() < until:
        time.sleep(0.001)
    assert loads(client.ask(45).body) == {"offsetTable": {3: 0}}


def test_nobody_is_connected(client: RemotingClient) -> None:
    answer = client.ask(203, {"consumerGroup": "g"})
    assert (answer.code, answer.remark) == (206, "the consumer group[g] not online")
    answer = client.ask(204, {"producerGroup": "p"})
    assert (answer.code, answer.remark) == (1, "the producer group[p] not exist")
    answer = client.ask(307, {"consumerGroup": "g", "clientId": "c"})
    assert (answer.code, answer.remark) == (1, "The Consumer <g> <c> not online")
    answer = client.ask(223, {"group": "g", "topic": "orders"})
    assert answer.remark == "No Any Consumer online in the consumer group: [g]"


def test_a_reset_without_consumers(server: Server, client: RemotingClient) -> None:
    asked: dict[str, object] = {
        "topic": "orders", "group": "g", "timestamp": 0, "isForce": "true",
    }  # fmt: skip
    answer = client.ask(222, {**asked, "topic": "nowhere"})
    assert answer.code == 1
    assert "no topic in this broker. topic=nowhere" in str(answer.remark)
    assert client.ask(222, asked).remark == "THe consumer group <g> not exist"
    commit(server, "g", 4, 2)
    answer = client.ask(222, asked)
    assert (answer.code, answer.remark) == (
        206,
        "Consumer not online, so can not reset offset, Group: g Topic: orders Timestamp: 0",
    )
    assert client.ask(222, {**asked, "timestamp": "noon"}).code == 1


def test_a_message_that_is_none_is_not_consumed(client: RemotingClient) -> None:
    for msg_id in ("", "xyz", "0" * 31, "g" * 32, "0" * 16 + "f" * 16, "0" * 56):
        asked = {"consumerGroup": "g", "clientId": "c", "msgId": msg_id}
        assert client.ask(309, asked).code == 1, msg_id


def test_an_offset_behind_the_end_of_its_queue(server: Server, client: RemotingClient) -> None:
    """The store may have lost its end, or the topic was made anew: groups are listed all the same.

    Behind the last unit the file of a queue has zeros.
    """
    commit(server, "ahead", 6, 1 << 62)
    of_group = loads(client.ask(208, {"consumerGroup": "ahead"}).body)["offsetTable"]
    assert of_group[MessageQueue("broker-a", 0, "orders")] == {
        "brokerOffset": 5, "consumerOffset": 6, "lastTimestamp": 0,
    }  # fmt: skip
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"ahead"}]}'
    assert client.ask(34, None, body).code == 0  # 317 lists groups that have an entry
    assert client.ask(317, {"isOrder": "false"}).code == 0
    spans = loads(client.ask(303, {"topic": "orders", "group": "ahead"}).body)
    assert [one["consumeTimeStamp"] for one in spans["consumeTimeSpanSet"]] == [-1, -1]
