"""What operators see of clients that are connected, and what reaches those clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire.objecttext import MessageQueue, dumps, loads
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until

pytestmark = pytest.mark.pure

FIRST, SECOND = (MessageQueue("broker-a", queue_id, "orders") for queue_id in (0, 1))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("orders", 2)
        for number in range(4):
            put = made.store.put("orders", b"%d" % number, queue_id=0)
            # A time that several have is, as with a broker, that of any of them.
            wait_until(lambda stored=put.store_timestamp: time.time() * 1000 > stored + 1)
        wait_until(lambda: made.store.queue_bounds("orders", 0) == (0, 4))
        for queue_id, offset in ((0, 3), (1, 0)):
            made.store.progress.commit("orders", "g", queue_id, offset)
        yield made


@pytest.fixture
def operator(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


@pytest.fixture
def member(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        body = heartbeat("c1", [consumer("g", {"orders": "A || B"})], ["p"])
        assert made.ask(34, None, body).code == 0
        yield made


def answered(
    operator: RemotingClient,
    member: RemotingClient,
    code: int,
    fields: dict[str, object],
    asked: int,
    body: bytes,
    reply: int = 0,
) -> tuple[Any, Any]:
    """Ask as an operator, answer as a member; return the answer and what the member was asked."""
    seen: list[Any] = []

    def reply_once() -> None:
        request = member.next_request(asked)
        seen.append(request)
        member.reply(request, reply, body)

    thread = threading.Thread(target=reply_once)
    thread.start()
    answer = operator.ask(code, fields)
    thread.join(60)
    return answer, seen[0]


def test_connections(server: Server, operator: RemotingClient, member: RemotingClient) -> None:
    one = {"clientAddr": member.name, "clientId": "c1", "language": "JAVA", "version": 399}
    body = operator.ask(203, {"consumerGroup": "g"}).json
    assert body["connectionSet"] == [one]
    assert body["consumeType"] == "CONSUME_PASSIVELY"
    assert body["messageModel"] == "CLUSTERING"
    assert body["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
    assert body["subscriptionTable"]["orders"]["tagsSet"] == ["A", "B"]
    assert operator.ask(204, {"producerGroup": "p"}).json == {"connectionSet": [one]}
    member.close()
    wait_until(lambda: operator.ask(203, {"consumerGroup": "g"}).code == 206)
    assert operator.ask(204, {"producerGroup": "p"}).code == 1


def test_groups_of_a_topic_are_those_online_too(
    server: Server, operator: RemotingClient, member: RemotingClient
) -> None:
    server.store.create_topic("other", 1)
    with RemotingClient(server.address) as second:
        second.ask(34, None, heartbeat("c2", [consumer("h", {"other": "*"})]))
        assert operator.ask(300, {"topic": "other"}).json == {"groupList": ["h"]}
        unit = operator.ask(
            321, {"topic": "orders", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "g"}
        ).json  # fmt: skip
        assert unit["subscriptionData"]["subString"] == "A || B"


def test_progress_leaves_out_topics_that_nobody_wants_any_more(
    server: Server, operator: RemotingClient, member: RemotingClient
) -> None:
    server.store.create_topic("left", 1)
    server.store.progress.commit("left", "g", 0, 0)
    table = loads(operator.ask(208, {"consumerGroup": "g"}).body)["offsetTable"]
    assert set(table) == {FIRST, SECOND}


def test_a_reset_reaches_the_consumers(
    server: Server, operator: RemotingClient, member: RemotingClient
) -> None:
    asked: dict[str, object] = {
        "topic": "orders", "group": "g", "timestamp": -1, "isForce": "true",
    }  # fmt: skip
    answer = operator.ask(222, asked)
    assert answer.code == 0
    assert loads(answer.body) == {"offsetTable": {FIRST: 4, SECOND: 0}}
    told = member.next_request(220)
    assert told.flag & 2
    assert told.fields is not None
    assert (told.fields["topic"], told.fields["group"]) == ("orders", "g")
    assert told.body == answer.body
    # Not beyond where the group is, unless it is forced; and back to a time.
    kept = operator.ask(222, {**asked, "isForce": "false"})
    assert loads(kept.body) == {"offsetTable": {FIRST: 3, SECOND: 0}}
    first = server.store["orders"][0][0].store_timestamp
    back = operator.ask(222, {**asked, "timestamp": first})
    assert loads(back.body)["offsetTable"][FIRST] == 0


def test_a_reset_of_a_cpp_consumer_is_a_list(server: Server, operator: RemotingClient) -> None:
    with RemotingClient(server.address) as cpp:
        body = heartbeat("c1", [consumer("g", {"orders": "*"})])
        assert cpp.ask(34, None, body, language="CPP").code == 0
        asked = {"topic": "orders", "group": "g", "timestamp": -1, "isForce": "true"}
        assert operator.ask(222, asked).code == 0
        assert cpp.next_request(220).json["offsetTable"] == [
            {"brokerName": "broker-a", "offset": 4, "queueId": 0, "topic": "orders"},
            {"brokerName": "broker-a", "offset": 0, "queueId": 1, "topic": "orders"},
        ]


def test_old_clients_are_not_asked(server: Server, operator: RemotingClient) -> None:
    with RemotingClient(server.address) as old:
        body = heartbeat("c1", [consumer("g", {"orders": "*"})])
        assert old.ask(34, None, body, version=20).code == 0
        asked = {"topic": "orders", "group": "g", "timestamp": -1, "isForce": "true"}
        for code in (222, 223):
            answer = operator.ask(code, asked)
            assert answer.code == 1
            assert "does not support this feature" in str(answer.remark)
        answer = operator.ask(307, {"consumerGroup": "g", "clientId": "c1"})
        assert "too low to finish" in str(answer.remark)


def test_where_consumers_are(operator: RemotingClient, member: RemotingClient) -> None:
    asked: dict[str, object] = {"topic": "orders", "group": "g"}
    body = dumps({"messageQueueTable": {FIRST: 7, SECOND: 0}})
    answer, seen = answered(operator, member, 223, asked, 221, body)
    assert seen.fields == asked
    assert loads(answer.body) == {"consumerTable": {"c1": {FIRST: 7, SECOND: 0}}}
    # What cannot be read, and what is an error, is left out.
    for bad, code in ((b"{", 0), (b"[]", 0), (b"", 0), (body, 1)):
        answer, _ = answered(operator, member, 223, asked, 221, bad, code)
        assert loads(answer.body) == {"consumerTable": {}}
    other = operator.ask(223, {**asked, "clientAddr": "another"})
    assert loads(other.body) == {"consumerTable": {}}


def test_a_request_is_passed_on_to_a_consumer(
    operator: RemotingClient, member: RemotingClient
) -> None:
    asked: dict[str, object] = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "false"}
    answer, seen = answered(operator, member, 307, asked, 307, b'{"properties":{}}')
    assert seen.fields == asked
    assert not seen.flag & 2
    assert (answer.code, answer.body) == (0, b'{"properties":{}}')
    missing = operator.ask(307, {**asked, "clientId": "c2"})
    assert missing.remark == "The Consumer <g> <c2> not online"


def test_a_message_is_consumed_at_once(
    server: Server, operator: RemotingClient, member: RemotingClient
) -> None:
    message = server.store["orders"][0][2]
    asked: dict[str, object] = {
        "consumerGroup": "g", "clientId": "c1", "msgId": message.msg_id,
    }  # fmt: skip
    answer, seen = answered(operator, member, 309, asked, 309, b'{"consumeResult":"CR_SUCCESS"}')
    assert seen.fields == {**asked, "brokerName": "broker-a"}
    assert len(seen.body) == message.store_size
    assert int.from_bytes(seen.body[28:36], "big") == message.physical_offset
    assert answer.json == {"consumeResult": "CR_SUCCESS"}


def test_a_consumer_that_goes_or_is_silent(
    operator: RemotingClient, member: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {"consumerGroup": "g", "clientId": "c1"}
    with monkeypatch.context() as patch:
        patch.setattr("rmqstore.serve.admin.forwarding._SECONDS", 0.1)
        answer = operator.ask(307, asked)
    assert answer.code == 207
    assert "Timeout" in str(answer.remark)
    number = operator.send(307, asked)
    member.next_request(307)  # the first one, which was not answered
    member.next_request(307)
    member.close()
    assert operator.answer(number).code == 1
