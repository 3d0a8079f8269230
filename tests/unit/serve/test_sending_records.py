"""Plain sends over the wire: what is stored, what is answered, which topics are made, and refusals.

Each test runs both ways: through the handlers, and from the frame in the core where it may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Limits
from support import sends
from support.remoting import RemotingClient
from support.sends import BATCH, BORN, FAQ, ILLEGAL, LONG, OK, SHORT, made, only, send
from support.serving import wait_until


@pytest.fixture(params=[True, False], ids=["core", "handlers"])
def hot(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def server(hot: bool) -> Iterator[Server]:
    with made(hot=hot) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as client:
        yield client


# ---- plain messages


@pytest.mark.parametrize("code", [LONG, SHORT])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "rocketmq"])
def test_each_field_is_in_the_record(
    server: Server, client: RemotingClient, code: int, binary: bool
) -> None:
    text = "KEYS\1k1 k2\2UNIQ_KEY\1AB\2WAIT\1true\2TAGS\1t\2psly\1K\u00f6ln \u6771\U0001f680"
    answer = send(
        client, "orders", b"body \x00\xff", code=code, binary=binary, queueId=3, flag=-7,
        bornTimestamp=BORN, reconsumeTimes=2, properties=text,
    )  # fmt: skip
    message = only(server, "orders", 3)
    assert answer.code == 0
    assert answer.remark is None
    assert answer.fields == {
        **OK, "msgId": message.msg_id, "queueId": "3", "queueOffset": "0",
    }  # fmt: skip
    assert message.body == b"body \x00\xff"
    assert message.properties == {
        "KEYS": "k1 k2", "UNIQ_KEY": "AB", "TAGS": "t", "psly": "K\u00f6ln \u6771\U0001f680",
        "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert (message.flag, message.sys_flag, message.reconsume_times) == (-7, 0, 2)
    assert (message.born_timestamp, message.born_host) == (BORN, client.name)
    assert message.store_host == server.address
    assert message.prepared_transaction_offset == 0
    assert server.store.message(message.msg_id).queue_offset == 0
    assert [one.queue_offset for one in server.store.query("orders", "k2")] == [0]


def test_numbers_and_truth_as_other_clients_send_them(
    server: Server, client: RemotingClient
) -> None:
    # C++: numbers where Java has text, 0 and 1 for booleans, fields of its own.
    answer = send(
        client, "orders", b"x", code=LONG, queueId=1, sysFlag=0, flag=0, batch="0", unitMode="0",
        language="CPP", version=63, AccessKey="", OnsChannel="ALIYUN", Signature="J7Zb=",
    )  # fmt: skip
    assert answer.code == 0
    # 5.x: the broker's name.
    assert send(client, "orders", b"y", queueId=1, n="broker-a", version=479).code == 0
    # Go: no reconsumeTimes to speak of, an empty text of properties.
    assert send(client, "orders", b"z", queueId=1, properties="", language="GO").code == 0
    assert [m.body for m in server.store["orders"][1]] == [b"x", b"y", b"z"]
    assert server.store["orders"][1][2].properties == {"CLUSTER": "DefaultCluster"}


def test_a_deflated_body_stays_as_it_is(server: Server, client: RemotingClient) -> None:
    packed = sends.deflated(b"a" * 5000)
    assert send(client, "orders", packed, queueId=0, sysFlag=1).code == 0
    message = only(server, "orders", 0)
    assert bytes(message.raw_body) == packed
    assert message.body == b"a" * 5000
    assert message.sys_flag == 1


def test_the_broker_picks_a_queue(server: Server, client: RemotingClient) -> None:
    for _ in range(64):
        answer = send(client, "orders", b"x", queueId=-1)
        assert answer.code == 0
        assert answer.fields is not None
        queue = server.store["orders"][int(answer.fields["queueId"])]
        assert queue[-1].queue_offset == int(answer.fields["queueOffset"])
    assert all(len(server.store["orders"][queue]) for queue in range(4))


def test_oneway_messages_are_stored_and_never_answered(
    server: Server, client: RemotingClient
) -> None:
    for queue in (0, 1, 99):  # the last is refused
        send(client, "orders", b"x", queueId=queue, oneway=True)
    send(client, "new", b"x", oneway=True)
    assert send(client, "orders", b"y", queueId=2).code == 0
    assert client.is_quiet(0.05)
    assert [len(server.store["orders"][queue]) for queue in range(4)] == [1, 1, 1, 0]
    # Its topic is written to disk first, and the client does not wait for that.
    wait_until(lambda: "new" in server.store and len(server.store["new"][0]) == 1)


def test_an_empty_body(server: Server, client: RemotingClient) -> None:
    assert send(client, "orders", b"").code == 0
    assert only(server, "orders", 0).body == b""


def test_properties_that_are_none_are_left_out(server: Server, client: RemotingClient) -> None:
    text = "a\1b\2\2junk\2\1x\2c\1\2d\1e\2"
    assert send(client, "orders", b"x", properties=text).code == 0
    assert only(server, "orders", 0).properties == {
        "a": "b", "d": "e", "CLUSTER": "DefaultCluster",
    }  # fmt: skip


def test_over_ipv6(hot: bool) -> None:
    sends.need_ipv6()
    with made(hot=hot, host="::1") as server, RemotingClient(server.address) as client:
        answer = send(client, "orders", b"x")
        message = only(server, "orders", 0)
        assert message.sys_flag == 0x30
        assert message.born_host == client.name
        assert message.store_host == server.address
        assert answer.fields is not None
        assert answer.fields["msgId"] == message.msg_id
        assert len(message.msg_id) == 56
        assert server.store.message(message.msg_id).body == b"x"


def test_the_advertised_address_is_the_store_host(hot: bool) -> None:
    with made(hot=hot, advertise=("192.0.2.7", 10911)) as server:
        with RemotingClient(f"127.0.0.1:{server.gateway.settings.port}") as client:
            answer = send(client, "orders", b"x")
        message = only(server, "orders", 0)
        assert message.store_host == "192.0.2.7:10911"
        assert answer.fields is not None
        assert answer.fields["msgId"] == message.msg_id
        assert message.msg_id.startswith("C000020700002A9F")


# ---- topics


def test_a_topic_is_made_like_the_default(server: Server, client: RemotingClient) -> None:
    assert send(client, "Topic1", b"x", queueId=2, defaultTopicQueueNums=4).code == 0
    entry = server.store.registry.get("Topic1")
    assert entry == TopicConfig("Topic1", 4, 4, 6)
    assert only(server, "Topic1", 2).body == b"x"
    assert client.ask(105, {"topic": "Topic1"}).json["queueDatas"][0]["writeQueueNums"] == 4


@pytest.mark.parametrize(
    ("default", "asked", "queues"),
    [("TBW102", 16, 8), ("TBW102", 1, 1), ("DefaultCluster", 99, 16), ("broker-a", 4, 1)],
)
def test_how_many_queues_it_has(
    server: Server, client: RemotingClient, default: str, asked: int, queues: int
) -> None:
    assert send(client, "t", b"x", defaultTopic=default, defaultTopicQueueNums=asked).code == 0
    assert server.store.registry.get("t") == TopicConfig("t", queues, queues, 6)


def test_producers_of_a_unit(server: Server, client: RemotingClient) -> None:
    for topic, flag in (("t", 1), ("%RETRY%g", 2)):
        assert send(client, topic, b"x", unitMode="true").code == 0
        entry = server.store.registry.get(topic)
        assert entry is not None
        assert entry.topic_sys_flag == flag


@pytest.mark.parametrize("default", ["orders", "missing", "", "SELF_TEST_TOPIC", "../x"])
def test_a_default_that_is_not_inherited(
    server: Server, client: RemotingClient, default: str
) -> None:
    answer = send(client, "t", b"x", defaultTopic=default)
    assert (answer.code, answer.fields) == (17, OK)
    assert answer.remark == f"topic[t] not exist, apply first please!{FAQ}"
    assert "t" not in server.store.topics


def test_without_auto_create(hot: bool) -> None:
    with made(hot=hot, auto_create=False) as server, RemotingClient(server.address) as client:
        registry = server.store.registry
        for _ in range(2):
            answer = send(client, "t", b"x")
            assert answer.code == 17
            assert answer.remark == f"topic[t] not exist, apply first please!{FAQ}"
            with registry.lock:  # a broker's file may have the default
                registry.put(TopicConfig("TBW102", 8, 8, 7))
        assert send(client, "%RETRY%g", b"x").code == 0  # made for groups all the same
        assert "t" not in server.store.topics


def test_only_so_many_topics_are_made(hot: bool) -> None:
    with made(hot=hot, limits=Limits(topics=5)) as server, RemotingClient(server.address) as client:
        codes = [send(client, f"t{number}", b"x").code for number in range(5)]
        assert codes == [0, 0, 0, 17, 17]
        assert send(client, "t1", b"x").code == 0
        assert send(client, "orders", b"x").code == 0


@pytest.mark.parametrize(
    ("topic", "queues"),
    [("BenchmarkTest", 1024), ("SELF_TEST_TOPIC", 1), ("OFFSET_MOVED_EVENT", 1), ("TBW102", 8)],
)
def test_topics_that_every_broker_has_may_be_sent_to(
    server: Server, client: RemotingClient, topic: str, queues: int
) -> None:
    assert send(client, topic, b"x", queueId=queues - 1).code == 0
    assert only(server, topic, queues - 1).body == b"x"
    entry = server.store.registry.get(topic)
    assert entry is not None
    assert entry.write_queue_nums == queues


@pytest.mark.parametrize("code", [SHORT, BATCH])
def test_a_refused_message_enters_none_of_them(
    server: Server, client: RemotingClient, code: int
) -> None:
    assert send(client, "BenchmarkTest", b"x", code=code, queueId=1024).code == 1
    assert set(server.store.topics) == {"orders"}


# ---- refused


BLANK = "The specified topic is blank."
CHARACTERS = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
TOO_LONG = "The specified topic is longer than topic max length."


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        ("", 1, BLANK), (" ", 1, BLANK), ("\t\n", 1, BLANK),
        ("a b", 1, CHARACTERS), ("../../x", 1, CHARACTERS), ("a@b", 1, CHARACTERS),
        ("\u00e4", 1, CHARACTERS), ("a\0", 1, CHARACTERS), ("a\n", 1, CHARACTERS),
        ("x" * 128, 1, TOO_LONG), ("x" * 1000, 1, TOO_LONG),
        ("SCHEDULE_TOPIC_XXXX", 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("code_of_request", [LONG, SHORT, BATCH])
def test_topics_that_are_refused(
    server: Server, client: RemotingClient, topic: str, code: int, remark: str,
    code_of_request: int,
) -> None:  # fmt: skip
    body = sends.batch([(b"x", "", 0)]) if code_of_request == BATCH else b"x"
    answer = send(client, topic, body, code=code_of_request)
    assert (answer.code, answer.remark, answer.fields) == (code, remark, OK)
    assert set(server.store.topics) == {"orders"}


def test_the_longest_topic(server: Server, client: RemotingClient) -> None:
    assert send(client, "x" * 127, b"x").code == 0
    assert only(server, "x" * 127, 0).topic == "x" * 127


@pytest.mark.parametrize("queue", [4, 99, (1 << 31) - 1])
@pytest.mark.parametrize("code", [LONG, SHORT, BATCH])
def test_a_queue_that_is_not_there(
    server: Server, client: RemotingClient, queue: int, code: int
) -> None:
    body = sends.batch([(b"x", "", 0)]) if code == BATCH else b"x"
    answer = send(client, "orders", body, code=code, queueId=queue)
    assert (answer.code, answer.fields) == (1, OK)
    assert answer.remark == (
        f"request queueId[{queue}] is illegal, TopicConfig [topicName=orders, readQueueNums=4, "
        "writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] "
        f"Producer: {client.name}"
    )


def test_more_queues_to_read_than_to_write(server: Server, client: RemotingClient) -> None:
    registry = server.store.registry
    with registry.lock:
        registry.put(TopicConfig("shrunk", 4, 2))
    assert send(client, "shrunk", b"x", queueId=3).code == 0  # as a broker takes it
    assert send(client, "shrunk", b"x", queueId=4).code == 1
    assert all(
        int((send(client, "shrunk", b"x", queueId=-1).fields or {})["queueId"]) < 2
        for _ in range(16)
    )
    with registry.lock:
        registry.put(TopicConfig("none", 4, 0))
    assert send(client, "none", b"x", queueId=-1).code == 1
    with RemotingClient(server.address) as other:
        update = {
            "topic": "shrunk", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 0,
            "perm": 6,
        }  # fmt: skip
        assert other.ask(17, update).code == 0
    assert send(client, "shrunk", b"x", queueId=-1).code == 1


@pytest.mark.parametrize("code", [LONG, SHORT])
@pytest.mark.parametrize(
    "missing",
    ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
     "bornTimestamp", "flag"],
)  # fmt: skip
def test_a_field_that_is_missing(client: RemotingClient, code: int, missing: str) -> None:
    name = sends.SHORT_NAMES[missing] if code == SHORT else missing
    left_out: dict[str, Any] = {} if missing == "topic" else {missing: None}
    topic = None if missing == "topic" else "orders"
    answer = send(client, topic, b"x", code=code, **left_out)
    assert (answer.code, answer.fields) == (1, OK)
    assert answer.remark == f"the custom field <{name}> is null"


def test_no_fields_at_all(client: RemotingClient) -> None:
    for code in (LONG, SHORT, BATCH):
        answer = client.ask(code, None, b"x")
        assert answer.code == 1
        assert answer.fields == OK


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queueId", "x"), ("queueId", ""), ("queueId", "1.5"), ("queueId", str(1 << 31)),
        ("sysFlag", "0x1"), ("flag", "\u0661"), ("bornTimestamp", str(1 << 63)),
        ("bornTimestamp", "9" * 400), ("defaultTopicQueueNums", "four"),
        ("reconsumeTimes", "?"),
    ],
)  # fmt: skip
def test_a_field_that_is_no_number(
    server: Server, client: RemotingClient, name: str, value: str
) -> None:
    answer = send(client, "orders", b"x", **{name: value})
    assert (answer.code, answer.fields) == (1, OK)
    assert answer.remark is not None
    assert len(answer.remark) < 300
    assert send(client, "orders", b"y").code == 0
    assert only(server, "orders", 0).body == b"y"


def test_too_large(server: Server, client: RemotingClient) -> None:
    assert send(client, "orders", bytes(5 << 20)).code == 13
    answer = send(client, "orders", b"x", properties="k\1" + "v" * 32_767)
    assert (answer.code, answer.remark, answer.fields) == (13, ILLEGAL, OK)
    assert send(client, "orders", b"x", properties="k\1" + "v" * 32_000).code == 0
    most = server.store.config.max_message_size
    assert send(client, "orders", bytes(most - 500)).code == 0
    assert len(server.store["orders"][0]) == 2


def test_properties_longer_than_any(client: RemotingClient) -> None:
    answer = send(client, "orders", b"x", properties="k\1" + "v" * 150_000)
    assert (answer.code, answer.fields) == (13, OK)
    assert send(client, "orders", b"x").code == 0


def test_a_store_that_takes_nothing(hot: bool) -> None:
    with made(hot=hot) as server, RemotingClient(server.address) as client:
        assert send(client, "orders", b"x").code == 0
        server.store.close()
        answer = send(client, "orders", b"x")
        assert (answer.code, answer.fields) == (14, OK)
        assert answer.remark is not None
        assert answer.remark.startswith(
            "service not available now. It may be caused by one of the following reasons: "
        )
