"""What the tools of 5.3.3 ask a broker, and 4.9.3 does not know; and their clients' delays."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator

import pytest

import rmqstore
from rmqstore.serve.server import Server
from rmqstore.serve.wire.objecttext import loads
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat

pytestmark = pytest.mark.pure

FIVE = 479  # V5_3_3
SEND = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve() as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as client:
        yield client


def test_one_topic(server: Server, client: RemotingClient) -> None:
    server.store.create_topic("orders", 3, order=True, perm=4)
    assert client.ask(351, {"topic": "orders", "lo": "true"}).json == {
        "attributes": {}, "order": True, "perm": 4, "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG", "topicName": "orders", "topicSysFlag": 0,
        "writeQueueNums": 3,
    }  # fmt: skip
    assert client.ask(351, {"topic": "TBW102"}).json["perm"] == 7
    gone = client.ask(351, {"topic": "gone"})
    assert (gone.code, gone.remark) == (17, "No topic in this broker. topic: gone")
    assert client.ask(351).code == client.ask(351, {"topic": "a/b"}).code == 1


def test_one_group(server: Server, client: RemotingClient) -> None:
    entry = {"groupName": "g", "retryMaxTimes": 3}
    assert client.ask(200, None, json.dumps(entry).encode()).code == 0
    found = client.ask(352, {"group": "g"}).json
    assert (found["groupName"], found["retryMaxTimes"]) == ("g", 3)
    assert found["attributes"] == {}
    assert found["consumeTimeoutMinute"] == 15
    assert client.ask(352, {"group": "TOOLS_CONSUMER"}).code == 0
    assert client.ask(352, {"group": "new"}).json["retryMaxTimes"] == 16
    assert "new" not in server.store.groups
    assert client.ask(352, {"group": "../g"}).code == client.ask(352).code == 1


def test_a_group_that_is_not_made_by_a_look(tmp_path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("autoCreateSubscriptionGroup=false\n")
    with rmqstore.serve(config=conf) as server, RemotingClient(server.address) as client:
        gone = client.ask(352, {"group": "new"})
        assert (gone.code, gone.remark) == (26, "No group in this broker")


def test_all_producers(server: Server, client: RemotingClient) -> None:
    assert client.ask(328).json == {"data": {}}
    beat = {"clientID": "c", "producerDataSet": [{"groupName": "p"}, {"groupName": "q"}]}
    assert client.ask(34, None, json.dumps(beat).encode(), version=FIVE).code == 0
    data = client.ask(328).json["data"]
    assert set(data) == {"p", "q"}
    [one] = data["p"]
    assert one["clientId"] == "c"
    assert one["language"] == "JAVA"
    assert one["remoteIP"] == f"/{client.name}"
    assert one["version"] == FIVE
    assert abs(one["lastUpdateTimestamp"] - server.store.clock.now()) < 60_000


def test_no_slaves(server: Server, client: RemotingClient) -> None:
    server.store.put("t", b"x")
    found = client.ask(907).json
    assert found["master"] is True
    assert found["haConnectionInfo"] == []
    assert found["inSyncSlaveNums"] == 0
    assert found["masterCommitLogMaxOffset"] == server.store.stats()["wrote_position"]


def test_the_mode_of_a_group(server: Server, client: RemotingClient) -> None:
    server.store.create_topic("t")

    def set_mode(topic: str = "t", group: str = "g", mode: str = "PULL") -> tuple[int, str | None]:
        body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": 0}
        answer = client.ask(401, None, json.dumps(body).encode())
        return answer.code, answer.remark

    assert set_mode() == (0, None)
    assert set_mode(mode="POP")[0] == 3
    assert set_mode("gone") == (17, "topic[gone] not exist")
    assert set_mode("%RETRY%g") == (16, "retry topic is not allowed to set mode")
    assert set_mode(group="../g")[0] == set_mode("a/b")[0] == 1
    for body in (b"", b"[]", b"{", b"\xff", b"{}" + bytes(70_000)):
        assert client.ask(401, None, body).code == 1


def test_both_ways_to_spell_a_rate(client: RemotingClient) -> None:
    table = client.ask(28).json["table"]
    assert table["getTransferredTps"] == table["getTransferedTps"]
    assert len(table["getTransferredTps"].split(" ")) == 3


def test_what_is_pulled_counts_as_consumed(server: Server, client: RemotingClient) -> None:
    for _ in range(3):
        server.store.put("t", b"x", queue_id=0)
    server.store._commit_progress("t", "g", 0, 2)
    for version, pulled in ((FIVE, 2), (399, None)):
        answer = client.ask(208, {"consumerGroup": "g", "topic": "t"}, version=version)
        for queue, one in loads(answer.body)["offsetTable"].items():
            if queue.queue_id == 0:
                assert (one["consumerOffset"], one.get("pullOffset")) == (2, pulled)


def batch(properties: bytes) -> bytes:
    row = struct.pack(">iiii", 0, 0, 0, 1) + b"x" + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", 4 + len(row)) + row


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("code", [310, 320])
def test_delays_of_five_are_warned_of_once_a_client(
    server: Server, client: RemotingClient, caplog: pytest.LogCaptureFixture, name: str, code: int
) -> None:
    server.store.create_topic("t")
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    text = f"{name}\x0130"
    fields = {**SEND, "i": text} if code == 310 else {**SEND, "m": "true"}
    body = b"x" if code == 310 else batch(text.encode())
    assert client.ask(310, {**SEND, "i": "TIMER\x011\x02TIMER_LEVEL_X\x011"}, b"x").code == 0
    assert not caplog.records
    with RemotingClient(server.address) as other:
        for _ in range(3):
            assert client.ask(code, fields, body).code == 0
        assert other.ask(code, fields, body).code == 0
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "a message to t does not wait for its arbitrary delay" in said[0]
    assert client.name in said[0]
    assert sum(len(queue) for queue in server.store["t"].values()) == 5
    assert dict(server.store["t"][0][1].properties)[name] == "30"


@pytest.mark.parametrize(
    "kind", ["", "DELAY\x011\x02", "TRAN_MSG\x01true\x02PGROUP\x01p\x02"]
)  # fmt: skip
def test_a_client_that_connects_again_is_not_warned_of_again(
    server: Server, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """And no message is called delivered: it may wait for its level, or for its transaction."""
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    fields = {**SEND, "i": f"{kind}TIMER_DELAY_SEC\x0130", "f": "4" if "TRAN" in kind else "0"}
    for name in ("one", "two", "one", "one"):
        with RemotingClient(server.address) as client:
            assert client.ask(34, None, heartbeat(name, None, ["p"])).code == 0
            for _ in range(2):
                assert client.ask(310, fields, b"x").code == 0
    warned = [one.getMessage() for one in caplog.records if "arbitrary delay" in one.getMessage()]
    assert len(warned) == 2
    assert "delivered" not in "".join(warned)


def test_one_rule_for_how_far_a_group_is_behind(server: Server, client: RemotingClient) -> None:
    """What was committed, and 0 for the other queues of the same topic; as mqadmin counts."""
    store = server.store
    for number in range(12):
        store.put("t", b"x", queue_id=number % 3)
    store.put("other", b"x", queue_id=0)
    store._commit_progress("t", "g", 1, 3)
    lag = store.lag()
    assert [(one.queue_id, one.committed, one.messages) for one in lag] == [
        (0, 0, 4), (1, 3, 1), (2, 0, 4),
    ]  # fmt: skip
    assert all(one.bytes > 0 for one in lag)
    answer = loads(client.ask(208, {"consumerGroup": "g"}).body)["offsetTable"]
    behind = {
        queue.queue_id: one["brokerOffset"] - one["consumerOffset"]
        for queue, one in answer.items()
        if one["brokerOffset"]
    }
    assert behind == {one.queue_id: one.messages for one in lag}
    store._progress.save()
    with rmqstore.open(store.path) as reader:
        assert [one.messages for one in reader.lag("g", "t")] == [4, 1, 4]
        assert reader.lag("g", "other") == []
    beat = heartbeat("c", [consumer("g", {"t": "*"})])
    assert client.ask(34, None, beat).code == 0
    from rmqstore.serve.figures.lag import counted_offsets, online_groups
    from rmqstore.serve.network.turns import ended

    online = server.in_loop(lambda: ended(online_groups(server.gateway.clients)))
    assert counted_offsets(store, online, 100) == {("t", "g"): {0: 0, 1: 3, 2: 0}}
