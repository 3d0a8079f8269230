"""Messages that go through the handlers of sends: checks, words, and what is stored."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve.server import Server
from rmqstore.serve.wire.batches import parts_of_batch
from rmqstore.serve.wire.frames import Refusal
from support.remoting import Frame, RemotingClient

Send = Callable[..., Frame]
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    config = StoreConfig.small().replace(flush_disk_type=request.param)
    with rmqstore.serve(tmp_path / "store", config=config) as made:
        made.gateway.shared.hot_sends = False
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


@pytest.fixture
def send(client: RemotingClient) -> Send:
    def one(body: bytes = b"body", code: int = 310, **changed: object) -> Frame:
        fields = {
            "a": "Producer", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0",
            "g": "1795190702924", "h": "7", "i": "TAGS\x01t\x02WAIT\x01true", "j": "0",
            "k": "false", "m": "false", **changed,
        }  # fmt: skip
        return client.ask(code, {k: v for k, v in fields.items() if v is not None}, body)

    return one


def test_a_plain_message(server: Server, client: RemotingClient, send: Send) -> None:
    answer = send(b"hello")
    assert answer.code == 0
    assert answer.fields is not None
    assert {k: v for k, v in answer.fields.items() if k != "msgId"} == {
        "queueId": "1", "queueOffset": "0", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion",
    }  # fmt: skip
    message = server.store.message(answer.fields["msgId"])
    assert message.body == b"hello"
    assert message.properties == {"TAGS": "t", "CLUSTER": "DefaultCluster"}
    assert message.born_host == client.name
    assert message.store_host == server.address
    assert (message.flag, message.sys_flag, message.born_timestamp) == (7, 0, 1795190702924)
    assert server.store["orders"].write_queue_nums == 4


def test_long_names_and_a_queue_of_the_brokers_choice(
    server: Server, client: RemotingClient
) -> None:
    answer = client.ask(10, {
        "producerGroup": "g", "topic": "long", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 2, "queueId": -1, "sysFlag": 1, "bornTimestamp": 5, "flag": 0,
        "properties": "", "reconsumeTimes": 3, "batch": "0",
    }, b"\x00deflated")  # fmt: skip
    assert answer.code == 0
    assert answer.fields is not None
    message = server.store.at(int(answer.fields["msgId"][16:], 16))
    assert message.raw_body == b"\x00deflated"
    assert str(message.queue_id) == answer.fields["queueId"] in ("0", "1")
    assert (message.sys_flag, message.reconsume_times) == (1, 3)


@pytest.mark.parametrize(
    ("changed", "code", "remark"),
    [
        ({"b": " "}, 1, "The specified topic is blank."),
        ({"b": "a/b"}, 1,
         "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ({"b": "t" * 128}, 1, "The specified topic is longer than topic max length."),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16,
         "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"c": "none"}, 17, "topic[orders] not exist, apply first please!" + FAQ),
        ({"e": None}, 1, "the custom field <e> is null"),
        ({"i": "DELAY\x01x"}, 1, 'For input string: "x"'),
        ({"b": "%RETRY%a/b"}, 1,
         "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
    ],
)  # fmt: skip
def test_refused(
    server: Server, send: Send, changed: dict[str, object], code: int, remark: str
) -> None:
    answer = send(**changed)
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
    assert list(server.store.scan()) == []


def test_a_queue_that_is_none(client: RemotingClient, send: Send) -> None:
    answer = send(e=99)
    assert (answer.code, answer.remark) == (
        1,
        "request queueId[99] is illegal, TopicConfig [topicName=orders, readQueueNums=4, "
        "writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] "
        f"Producer: {client.name}",
    )


def test_a_message_too_large(server: Server, send: Send) -> None:
    answer = send(b"x" * (server.store.config.max_message_size + 1))
    assert answer.code == 13
    assert answer.remark is not None
    assert answer.remark.startswith("the message is illegal")


def test_delayed(server: Server, send: Send) -> None:
    answer = send(b"later", i="DELAY\x013\x02WAIT\x01true\x02TAGS\x01t")
    assert answer.fields is not None
    assert (answer.code, answer.fields["queueId"]) == (0, "1")
    [delayed] = server.store.delayed()
    assert (delayed.level, delayed.message.topic, delayed.message.queue_id) == (3, "orders", 1)
    assert delayed.message.properties["WAIT"] == "true"


def test_a_half_message(server: Server, send: Send) -> None:
    answer = send(b"half", f=4, i="TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01u")
    assert answer.fields is not None
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "1", "0")
    [doubt] = server.store.in_doubt()
    assert (doubt.message.topic, doubt.message.queue_id) == ("orders", 1)
    assert doubt.producer_group == "p"
    assert list(server.store["RMQ_SYS_TRANS_HALF_TOPIC"]) == [0]


@pytest.mark.parametrize(
    ("changed", "where"),
    [({"j": 15}, "%RETRY%g"), ({"j": 16}, "%DLQ%g"), ({"j": 2, "l": 2}, "%DLQ%g")],
)
def test_retries_and_dead_letters(
    server: Server, send: Send, changed: dict[str, object], where: str
) -> None:
    assert send(b"again", b="%RETRY%g", e=0, **changed).code == 0
    [message] = server.store.scan()
    assert message.topic == where
    assert list(server.store[where]) == [0]


def batch(*items: tuple[bytes, str]) -> bytes:
    made = b""
    for body, text in items:
        rest = text.encode()
        inner = struct.pack(">iiii", 0, 0, 3, len(body)) + body
        inner += struct.pack(">h", len(rest)) + rest
        made += struct.pack(">i", len(inner) + 4) + inner
    return made


def test_a_batch(server: Server, send: Send) -> None:
    send(b"first")
    body = batch((b"a", "KEYS\x01k\x02UNIQ_KEY\x01u\x02"), (b"", ""), (b"c", "WAIT\x01true"))
    answer = send(body, 320, i="WAIT\x01true", m="true")
    assert answer.code == 0
    assert answer.fields is not None
    ids = answer.fields["msgId"].split(",")
    stored = [server.store.message(one) for one in ids]
    assert [message.body for message in stored] == [b"a", b"", b"c"]
    assert [message.queue_offset for message in stored] == [1, 2, 3]
    assert answer.fields["queueOffset"] == "1"
    cluster = {"CLUSTER": "DefaultCluster"}
    assert [message.properties for message in stored] == [
        {"KEYS": "k", "UNIQ_KEY": "u", **cluster}, cluster, {"WAIT": "true", **cluster},
    ]  # fmt: skip
    ends = [message.physical_offset + message.store_size for message in stored]
    assert [message.physical_offset for message in stored[1:]] == ends[:-1]


@pytest.mark.parametrize("spoilt", [
    lambda body: body[:-1],
    lambda body: body + b"\0",
    lambda body: body[:16] + b"\xff" + body[17:],
    lambda body: b"",
])  # fmt: skip
def test_a_batch_that_lies(server: Server, send: Send, spoilt: Callable[[bytes], bytes]) -> None:
    whole = batch((b"a", "KEYS\x01k"), (b"b", "KEYS\x01l"))
    assert send(spoilt(whole), 320, m="true").code == 13
    assert list(server.store.scan()) == []


def test_topics_are_made_no_more(server: Server, send: Send, tmp_path: Path) -> None:
    shares = server.gateway.produced_topics._shares
    shares.take((), shares.most)
    assert send().code == 17
    with rmqstore.serve(tmp_path / "other", auto_create=False) as other:
        other.gateway.shared.hot_sends = False
        with RemotingClient(other.address) as client:
            fields = {"a": "g", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
            assert client.ask(310, fields).code == 17
            other.store.create_topic("t")
            assert client.ask(310, fields).code == 0


def test_oneway_is_not_answered(server: Server, client: RemotingClient, send: Send) -> None:
    client.tell(310, {"a": "g", "b": "a/b"})
    assert send().code == 0
    assert client.is_quiet(0.05)


def test_how_many_properties_there_may_be(server: Server, send: Send) -> None:
    """More than can be stored are refused before they are parsed."""
    most = "".join(f"{n:x}\1v\2" for n in range(4500))  # 31,000 bytes
    assert send(i=most).code == 0
    assert len(server.store["orders"][1][0].properties) == 4501
    for number in (8192, 8193, 15_000):
        refused = send(i="a\1v\2" * number)
        assert refused.code == (0 if number == 8192 else 13), number
        assert (refused.fields or {})["TRACE_ON"] == "true"


@pytest.mark.parametrize("size", [0, 10, 4000])
def test_a_batch_is_not_read_further_than_it_could_be_stored(size: int) -> None:
    """An empty record has 91 bytes, its part of the batch 22."""
    most = 4 << 20
    rows = most // (91 + size) + 1
    one = struct.pack(">iiiii", 0, 0, 0, 0, size) + bytes(size) + struct.pack(">h", 0)
    assert len(parts_of_batch(one * (rows - 1), most)) == rows - 1
    for wrong in (b"", b"no message"):
        with pytest.raises(Refusal) as raised:
            parts_of_batch(one * rows + wrong, most)
        assert raised.value.answer.code == 13
        assert "message is illegal" in (raised.value.answer.remark or "")
