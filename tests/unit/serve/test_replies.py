"""SEND_REPLY_MESSAGE and PUSH_REPLY_MESSAGE_TO_CLIENT: who gets a reply, and what is stored."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
from collections.abc import Iterator

import pytest

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve.network.connection import Connection
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.wire.frames import Request
from support.remoting import Frame, RemotingClient

HEART_BEAT, ROUTE, REPLY, REPLY_V2, PUSH = 34, 105, 324, 325, 326
TOPIC = "DefaultCluster_REPLY_TOPIC"
SMALL = StoreConfig.small()
BORN = 1795190866485
LONG = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip


@pytest.fixture(params=[SMALL, SMALL.replace(flush_disk_type="SYNC_FLUSH")])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(None, Settings(), request.param) as made:
        yield made


@pytest.fixture
def asker(server: Server) -> Iterator[RemotingClient]:
    """A client that waits for replies, as producer ``asker@1``."""
    with RemotingClient(server.address) as made:
        body = {
            "clientID": "asker@1", "consumerDataSet": [], "producerDataSet": [{"groupName": "g"}]
        }  # fmt: skip
        assert made.ask(HEART_BEAT, None, json.dumps(body).encode()).code == 0
        yield made


@pytest.fixture
def replier(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def fields(client: str | None = "asker@1", **other: object) -> dict[str, object]:
    properties = "MSG_TYPE\1reply\2CORRELATION_ID\1c-1\2TTL\x018000\2"
    if client is not None:
        properties += f"REPLY_TO_CLIENT\1{client}\2"
    return {
        "a": "rep-g", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": BORN, "h": "7",
        "i": properties, "j": "2", "k": "false", "m": "false",
    } | other  # fmt: skip


def remark(answer: Frame) -> str:
    assert answer.remark is not None
    return answer.remark


@pytest.mark.parametrize("code", [REPLY, REPLY_V2])
def test_pushed_and_stored(
    server: Server, asker: RemotingClient, replier: RemotingClient, code: int
) -> None:
    sent = fields(f=1)
    if code == REPLY:
        sent = {LONG[name]: value for name, value in sent.items()}
    before = server.store.clock.now()
    number = replier.send(code, sent, b"deflated")
    push = asker.next_request(PUSH)
    assert push.flag == 0
    assert push.body == b"deflated"
    pushed = dict(push.fields or {})
    properties = dict(entry.split("\1") for entry in pushed.pop("properties").split("\2"))
    assert before <= int(properties.pop("PUSH_REPLY_TIME")) <= server.store.clock.now()
    assert properties == {
        "MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "8000", "REPLY_TO_CLIENT": "asker@1"
    }  # fmt: skip
    assert before <= int(pushed.pop("storeTimestamp")) <= server.store.clock.now()
    assert pushed == {
        "producerGroup": "rep-g", "topic": TOPIC, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "1", "bornTimestamp": str(BORN),
        "flag": "7", "reconsumeTimes": "2", "unitMode": "false",
        "bornHost": f"/{replier.name}", "storeHost": f"/{server.address}",
    }  # fmt: skip
    asker.reply(push)
    answer = replier.answer(number)
    assert (answer.code, answer.remark) == (0, None)
    message = server.store[TOPIC][0][0]
    assert answer.fields == {
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": message.msg_id,
        "queueId": "0", "queueOffset": "0",
    }  # fmt: skip
    # Stored as it was sent: nothing is added.
    assert message.properties == properties
    assert message.raw_body == b"deflated"
    assert (message.flag, message.sys_flag, message.reconsume_times) == (7, 1, 2)
    assert (message.born_timestamp, message.born_host) == (BORN, replier.name)
    assert message.store_host == server.address
    assert server.store.registry.get(TOPIC).write_queue_nums == 1  # type: ignore[union-attr]


def test_a_client_that_does_not_answer_in_10_seconds(
    server: Server,
    asker: RemotingClient,
    replier: RemotingClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def ask(
        connection: Connection,
        code: int,
        fields: object,
        body: bytes,
        *,
        asker: Connection,
        seconds: float,
    ) -> Request:
        assert code == PUSH
        waits.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(Connection, "ask", ask)
    answer = replier.ask(REPLY_V2, fields(), b"x")
    assert waits == [10.0]
    assert (answer.code, remark(answer)) == (1, "push reply message to asker@1fail.")
    assert server.store[TOPIC][0][0].body == b"x"


def test_a_client_that_refuses(
    server: Server, asker: RemotingClient, replier: RemotingClient
) -> None:
    number = replier.send(REPLY_V2, fields(), b"1")
    asker.reply(asker.next_request(PUSH), code=1)
    answer = replier.answer(number)
    assert (answer.code, answer.remark) == (1, "push reply message to asker@1fail.")
    assert answer.fields is not None
    assert answer.fields["msgId"] == server.store[TOPIC][0][0].msg_id


def test_a_client_that_goes(server: Server, asker: RemotingClient, replier: RemotingClient) -> None:
    number = replier.send(REPLY_V2, fields(), b"1")
    asker.next_request(PUSH)
    asker.close()
    answer = replier.answer(number)
    assert (answer.code, answer.remark) == (1, "push reply message to asker@1fail.")
    answer = replier.ask(REPLY_V2, fields(), b"2")
    assert answer.code == 1
    assert answer.remark == "push reply message fail, channel of <asker@1> not found."
    assert [message.body for message in server.store.scan(TOPIC)] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
        ("nobody@2", "push reply message fail, channel of <nobody@2> not found."),
    ],
)
def test_nobody_to_push_to(
    server: Server, replier: RemotingClient, client: str | None, words: str
) -> None:
    """Stored all the same."""
    answer = replier.ask(REPLY_V2, fields(client), b"reply to warm")
    assert (answer.code, answer.remark) == (1, words)
    message = server.store[TOPIC][0][0]
    assert answer.fields == {
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": message.msg_id,
        "queueId": "0", "queueOffset": "0",
    }  # fmt: skip
    assert message.body == b"reply to warm"


@pytest.mark.parametrize(
    ("other", "code", "words"),
    [
        ({"b": ""}, 1, "The specified topic is blank."),
        ({"b": "a/b"}, 1, "The specified topic contains illegal characters, allowing only "
                          "^[%|a-zA-Z0-9_-]+$"),
        ({"b": "x" * 128}, 1, "The specified topic is longer than topic max length."),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16,
         "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"b": "none", "c": "none"}, 17, "topic[none] not exist, apply first please!"),
        ({"e": 1}, 1, "request queueId[1] is illegal, TopicConfig "
                      f"[topicName={TOPIC}, readQueueNums=1, writeQueueNums=1, perm=RW-, "
                      "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: "),
        ({"e": "one"}, 1, "the custom field <e> must be "),
    ],
)  # fmt: skip
def test_refused(
    server: Server, asker: RemotingClient, replier: RemotingClient,
    other: dict[str, object], code: int, words: str,
) -> None:  # fmt: skip
    answer = replier.ask(REPLY_V2, fields(**other), b"1")
    assert answer.code == code
    assert remark(answer).startswith(words)
    assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert list(server.store.topics) == []
    assert asker.is_quiet(0.05)


def test_a_field_that_is_missing(server: Server, replier: RemotingClient) -> None:
    sent = fields()
    del sent["g"]
    assert remark(replier.ask(REPLY_V2, sent, b"1")) == "the custom field <g> is null"


def test_a_queue_that_the_broker_chooses(server: Server, replier: RemotingClient) -> None:
    answer = replier.ask(REPLY_V2, fields(None, b="mine", e=-1, d=3), b"1")
    assert answer.fields is not None
    queue_id = int(answer.fields["queueId"])
    assert queue_id in range(3)
    assert server.store["mine"][queue_id][0].body == b"1"
    route = replier.ask(ROUTE, {"topic": "mine"}).json["queueDatas"][0]
    assert (route["readQueueNums"], route["writeQueueNums"], route["perm"]) == (3, 3, 6)


def test_topics_are_made_up_to_a_limit() -> None:
    settings = Settings(limits=Limits(topics=3))
    with Server(None, settings, SMALL) as server, RemotingClient(server.address) as replier:
        answers = [replier.ask(REPLY_V2, fields(None, b=f"t{i}"), b"1") for i in range(3)]
        assert [answer.code for answer in answers] == [1, 1, 17]
        assert remark(answers[2]).startswith("topic[t2] not exist, apply first please!\n")
        assert sorted(server.store.topics) == ["t0", "t1"]


def test_no_topics_are_made() -> None:
    settings = Settings(auto_create=False)
    with Server(None, settings, SMALL) as server, RemotingClient(server.address) as replier:
        answer = replier.ask(REPLY_V2, fields(None, b="new"), b"1")
        assert answer.code == 17
        assert remark(answer).startswith("topic[new] not exist, apply first please!\n")
        assert remark(replier.ask(REPLY_V2, fields(None), b"1")).startswith("reply message prop")
        assert list(server.store.topics) == [TOPIC]


@pytest.mark.long
def test_a_client_that_does_not_read(server: Server, replier: RemotingClient) -> None:
    """Replies to it fail at once, and are not kept for it."""
    with RemotingClient(server.address) as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = {
            "clientID": "deaf@1", "consumerDataSet": [], "producerDataSet": [{"groupName": "g"}]
        }  # fmt: skip
        assert deaf.ask(HEART_BEAT, None, json.dumps(body).encode()).code == 0
        sent = [replier.send(REPLY_V2, fields("deaf@1"), bytes(1 << 20)) for _ in range(40)]
        answers = [replier.answer(sent.pop())]
        with contextlib.suppress(TimeoutError):
            for number in sent[::-1]:
                answers.append(replier.answer(number, 1.0))
        assert {remark(answer) for answer in answers} == {"push reply message to deaf@1fail."}
        assert server.gateway.replies.shares.taken < 32 << 20


def test_too_many_replies_at_a_time(
    server: Server, asker: RemotingClient, replier: RemotingClient
) -> None:
    shares = server.gateway.replies.shares
    everything = (("others",), shares.most)
    shares.take(*everything)
    answer = replier.ask(REPLY_V2, fields(), b"1")
    assert answer.code == 2
    assert remark(answer) == "[OVERLOAD]system busy, start flow control for a while"
    shares.give(*everything)
    number = replier.send(REPLY_V2, fields(), b"2")
    asker.reply(asker.next_request(PUSH))
    assert replier.answer(number).code == 0
    assert shares.taken == 0


def test_a_reply_that_waits_keeps_no_parsed_properties(
    server: Server, asker: RemotingClient, replier: RemotingClient
) -> None:
    """They would take some twenty times as much as is counted."""
    named = "".join(f"{n:x}\1v\2" for n in range(4000))
    sent = fields()
    number = replier.send(REPLY_V2, sent | {"i": f"{sent['i']}{named}"}, b"x")
    push = asker.next_request(PUSH)
    assert named in (push.fields or {})["properties"]

    def kept() -> int:
        found = [one for one in gc.get_objects() if isinstance(one, dict) and "f9f" in one]
        return sum(one["f9f"] == "v" for one in found)  # not Python's own table of words

    assert server.in_loop(kept) == 0
    asker.reply(push)
    assert replier.answer(number).code == 0
    properties = server.store[TOPIC][0][0].properties
    assert len(properties) == 4004
    assert properties["f9f"] == "v"
