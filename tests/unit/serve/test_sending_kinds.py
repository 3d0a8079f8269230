"""Sends that are no plain messages: delays, half messages, retries, batches, synchronous flush.

Each test runs both ways: through the handlers, and from the frame in the core where it may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from support import sends
from support.remoting import RemotingClient
from support.sends import BATCH, BORN, FAQ, ILLEGAL, LONG, OK, SHORT, made, only, send


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


# ---- what is not a plain message


@pytest.mark.parametrize("flag", [0x10, 0x20, 0x30, 0x31, -(1 << 31), -1 & ~0xC])
def test_bits_of_addresses_are_those_of_the_addresses(
    server: Server, client: RemotingClient, flag: int
) -> None:
    # With a broker the record would have other lengths than it says.
    assert send(client, "orders", b"x", sysFlag=flag, properties="TAGS\1t").code == 0
    assert send(client, "orders", b"y").code == 0
    message, second = server.store["orders"][0]
    assert (message.sys_flag & 0x30, message.raw_body) == (0, b"x")
    assert (message.born_host, message.tags) == (client.name, "t")
    assert second.body == b"y"


@pytest.mark.parametrize(
    ("level", "stored"), [("1", 1), ("3", 3), ("18", 18), ("19", 18), ("1000000000", 18), ("+2", 2)]
)
def test_delayed(server: Server, client: RemotingClient, level: str, stored: int) -> None:
    text = f"UNIQ_KEY\1u\2WAIT\1true\2DELAY\1{level}\2TAGS\1t"
    answer = send(client, "orders", b"later", queueId=2, properties=text)
    message = only(server, "SCHEDULE_TOPIC_XXXX", stored - 1)
    assert answer.fields == {
        **OK, "msgId": message.msg_id, "queueId": "2", "queueOffset": "0",
    }  # fmt: skip
    assert message.properties == {
        "UNIQ_KEY": "u", "WAIT": "true", "DELAY": str(stored), "TAGS": "t",
        "CLUSTER": "DefaultCluster", "REAL_TOPIC": "orders", "REAL_QID": "2",
    }  # fmt: skip
    assert len(server.store["orders"][2]) == 0


def test_the_first_delayed_message_makes_a_queue_for_each_level(
    server: Server, client: RemotingClient
) -> None:
    """As with a broker, which makes the topic when it starts: admins look through its queues."""
    for _ in range(2):
        route = json.loads(client.ask(105, {"topic": "SCHEDULE_TOPIC_XXXX"}).body)
        assert [data["readQueueNums"] for data in route["queueDatas"]] == [18]
        assert send(client, "orders", b"later", properties="DELAY\x0118").code == 0
    written = json.loads(Path(server.store.path, "config", "topics.json").read_bytes())
    assert written["topicConfigTable"]["SCHEDULE_TOPIC_XXXX"]["writeQueueNums"] == 18


def test_delayed_messages_come_at_their_time(server: Server, client: RemotingClient) -> None:
    assert send(client, "orders", b"later", properties="DELAY\x015\2WAIT\1true").code == 0  # 1 m
    server.store.clock.advance(61)
    sends.wait_for(lambda: len(server.store["orders"][0]) == 1)
    message = only(server, "orders", 0)
    assert message.body == b"later"
    assert message.born_host == client.name
    assert message.store_host == server.address


@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_delay(server: Server, client: RemotingClient, level: str) -> None:
    assert send(client, "orders", b"now", properties=f"DELAY\1{level}").code == 0
    assert only(server, "orders", 0).properties["DELAY"] == level


@pytest.mark.parametrize("level", ["x", "", " 1", "1.0", "+", "-", "+-5", "\u0663", "9" * 11])
def test_a_delay_that_is_none(server: Server, client: RemotingClient, level: str) -> None:
    answer = send(client, "orders", b"x", properties=f"DELAY\1{level}")
    if level:
        assert (answer.code, answer.fields) == (1, OK)
        assert answer.remark == f'For input string: "{level}"'
        assert len(server.store["orders"][0]) == 0
    else:  # such a property is none
        assert answer.code == 0


@pytest.mark.parametrize("word", ["true", "TRUE"])
def test_a_half_message(server: Server, client: RemotingClient, word: str) -> None:
    text = f"TRAN_MSG\1{word}\2PGROUP\1p\2UNIQ_KEY\1u\2WAIT\1true\2TAGS\1t"
    answer = send(client, "orders", b"half", queueId=3, sysFlag=4, flag=5, properties=text)
    message = only(server, "RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert answer.fields == {
        **OK, "msgId": message.msg_id, "queueId": "3", "queueOffset": "0",
    }  # fmt: skip
    assert message.properties == {
        "TRAN_MSG": word, "PGROUP": "p", "UNIQ_KEY": "u", "WAIT": "true", "TAGS": "t",
        "CLUSTER": "DefaultCluster", "REAL_TOPIC": "orders", "REAL_QID": "3",
    }  # fmt: skip
    assert (message.sys_flag, message.flag, message.body) == (0, 5, b"half")
    assert server.store.registry.get("RMQ_SYS_TRANS_HALF_TOPIC") == TopicConfig(
        "RMQ_SYS_TRANS_HALF_TOPIC", 1, 1
    )
    assert len(server.store["orders"][3]) == 0


@pytest.mark.parametrize("word", ["false", "yes", "1"])
def test_no_half_message(server: Server, client: RemotingClient, word: str) -> None:
    assert send(client, "orders", b"x", properties=f"TRAN_MSG\1{word}").code == 0
    assert only(server, "orders", 0).properties["TRAN_MSG"] == word


# ---- groups


@pytest.mark.parametrize(
    ("times", "most", "version", "dead"),
    [
        (0, None, 399, False), (15, None, 399, False), (16, None, 399, True),
        (2, 3, 399, False), (3, 3, 399, True), (17, 20, 399, False),
        (3, 3, 120, False), (16, 20, 120, True), (5, -1, 399, True),
    ],
)  # fmt: skip
def test_retries_and_dead_letters(
    server: Server, client: RemotingClient, times: int, most: int | None, version: int, dead: bool
) -> None:
    answer = send(
        client, "%RETRY%g", b"again", reconsumeTimes=times, maxReconsumeTimes=most,
        version=version, properties="RETRY_TOPIC\1orders\2DELAY\x010",
    )  # fmt: skip
    topic = "%DLQ%g" if dead else "%RETRY%g"
    message = only(server, topic, 0)
    assert answer.fields == {
        **OK, "msgId": message.msg_id, "queueId": "0", "queueOffset": "0",
    }  # fmt: skip
    assert message.reconsume_times == times
    assert message.properties == {
        "RETRY_TOPIC": "orders", "DELAY": "0", "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert server.store.registry.get(topic) == TopicConfig(topic, 1, 1)


def test_a_dead_letter_is_not_delayed(server: Server, client: RemotingClient) -> None:
    text = "RETRY_TOPIC\1orders\2DELAY\x0118"
    assert send(client, "%RETRY%g", b"x", reconsumeTimes=16, properties=text).code == 0
    assert only(server, "%DLQ%g", 0).properties["DELAY"] == "0"
    assert send(client, "%RETRY%g", b"y", reconsumeTimes=15, properties=text).code == 0
    message = only(server, "SCHEDULE_TOPIC_XXXX", 17)
    assert message.properties["REAL_TOPIC"] == "%RETRY%g"


def test_a_group_with_a_number_of_its_own(server: Server, client: RemotingClient) -> None:
    server.store.create_group("few", retry_max=2)
    assert send(client, "%RETRY%few", b"x", reconsumeTimes=1).code == 0
    assert send(client, "%RETRY%few", b"y", reconsumeTimes=2).code == 0
    assert only(server, "%RETRY%few", 0).body == b"x"
    assert only(server, "%DLQ%few", 0).body == b"y"


def test_groups_that_are_not_made(hot: bool) -> None:
    with made(hot=hot, auto_create_groups=False) as server:
        with RemotingClient(server.address) as client:
            answer = send(client, "%RETRY%g", b"x")
        assert (answer.code, answer.fields) == (26, OK)
        assert answer.remark == f"subscription group not exist, g {FAQ}"


def test_a_retry_topic_of_no_group(server: Server, client: RemotingClient) -> None:
    answer = send(client, "%RETRY%", b"x")
    assert (answer.code, answer.fields) == (1, OK)
    assert answer.remark == "The specified group is blank."


# ---- batches


def test_a_batch_is_one_run(server: Server, client: RemotingClient) -> None:
    rows = [
        (b"one", "TAGS\1t\2UNIQ_KEY\1u1\2", 1), (b"", "", -2),
        (b"three" * 99, "KEYS\1k\2WAIT\1true", 3),
    ]  # fmt: skip
    # The header of a 5.3.3 client has a key of its own, which is none of the messages'.
    answer = send(
        client, "orders", sends.batch(rows), code=BATCH, queueId=1, bornTimestamp=BORN,
        properties="WAIT\1true\2UNIQ_KEY\1header",
    )  # fmt: skip
    queue = server.store["orders"][1]
    messages = [queue[at] for at in range(3)]
    assert len(queue) == 3
    assert answer.fields == {
        **OK, "msgId": ",".join(m.msg_id for m in messages), "queueId": "1", "queueOffset": "0",
    }  # fmt: skip
    assert [m.body for m in messages] == [b"one", b"", b"three" * 99]
    assert [m.flag for m in messages] == [1, -2, 3]
    assert {(m.born_timestamp, m.born_host, m.store_host) for m in messages} == {
        (BORN, client.name, server.address)
    }
    cluster = {"CLUSTER": "DefaultCluster"}
    assert [m.properties for m in messages] == [
        {"TAGS": "t", "UNIQ_KEY": "u1", **cluster}, cluster,
        {"KEYS": "k", "WAIT": "true", **cluster},
    ]  # fmt: skip
    stops = [m.physical_offset + m.store_size for m in messages]
    assert [m.physical_offset for m in messages[1:]] == stops[:-1]
    again = send(client, "orders", sends.batch(rows[:1]), code=BATCH, queueId=1)
    assert (again.fields or {})["queueOffset"] == "3"


def test_a_batch_to_a_new_topic_and_a_picked_queue(server: Server, client: RemotingClient) -> None:
    body = sends.batch([(b"a", "", 0), (b"b", "", 0)])
    answer = send(client, "new", body, code=BATCH, queueId=-1)
    assert answer.fields is not None
    queue = server.store["new"][int(answer.fields["queueId"])]
    assert [queue[at].body for at in (0, 1)] == [b"a", b"b"]


def test_a_message_by_the_code_of_batches_and_the_reverse(
    server: Server, client: RemotingClient
) -> None:
    # The field decides, not the code.
    assert send(client, "orders", b"one", code=BATCH, batch="false").code == 0
    assert only(server, "orders", 0).body == b"one"
    body = sends.batch([(b"a", "", 0), (b"b", "", 0)])
    assert send(client, "orders", body, code=SHORT, queueId=1, batch="true").code == 0
    assert [server.store["orders"][1][at].body for at in (0, 1)] == [b"a", b"b"]


GOOD = sends.batch([(b"one", "a\1b", 0), (b"two", "c\1d", 0)])
EACH = len(GOOD) // 2


LYING = [
    b"", b"x", *(GOOD[:cut] for cut in (4, 19, 21, 24, EACH - 1, EACH + 1, len(GOOD) - 1)),
    GOOD + b"\0", GOOD + b"\0" * 21,
    *(
        GOOD[:at] + (value & 0xFFFFFFFF).to_bytes(4, "big") + GOOD[at + 4 :]
        for at in (16, EACH + 16)
        for value in (0, -1, 1, 7, EACH, 1 << 30, -(1 << 31))
    ),
    GOOD[:-5] + b"\x7f\xff" + GOOD[-3:], GOOD[:-5] + b"\xff\xff" + GOOD[-3:],
]  # fmt: skip


@pytest.mark.parametrize("body", LYING, ids=range(len(LYING)))
def test_a_batch_that_lies_is_stored_not_at_all(
    server: Server, client: RemotingClient, body: bytes
) -> None:
    answer = send(client, "orders", body, code=BATCH)
    assert (answer.code, answer.fields) == (13, OK)
    assert answer.remark is not None
    assert len(answer.remark) < 300
    assert len(server.store["orders"][0]) == 0
    assert send(client, "orders", GOOD, code=BATCH).code == 0
    assert len(server.store["orders"][0]) == 2


def test_sizes_and_checksums_of_a_batch_count_for_nothing(
    server: Server, client: RemotingClient
) -> None:
    # As with a broker: the bodies' and the properties' lengths say all.
    odd = b"\x7f" * 12 + GOOD[12:EACH] + b"\xff" * 12 + GOOD[EACH + 12 :]
    assert send(client, "orders", odd, code=BATCH).code == 0
    assert [message.body for message in server.store["orders"][0]] == [b"one", b"two"]


def test_a_batch_whose_properties_are_no_text(server: Server, client: RemotingClient) -> None:
    bad = GOOD.replace(b"a\1b", b"a\1\xff")
    assert send(client, "orders", bad, code=BATCH).code in (0, 13)
    assert len(server.store["orders"][0]) in (0, 2)
    assert send(client, "orders", b"y").code == 0


def test_too_large_a_batch(server: Server, client: RemotingClient) -> None:
    body = sends.batch([(bytes(100_000), "", 0)] * 43)
    answer = send(client, "orders", body, code=BATCH)
    assert (answer.code, answer.remark, answer.fields) == (13, ILLEGAL, OK)
    assert len(server.store["orders"][0]) == 0


# ---- synchronous flush


@pytest.mark.parametrize("wait", ["WAIT\1true", "WAIT\1false", "TAGS\1t", "WAIT\1"])
def test_what_is_answered_is_on_the_disk(hot: bool, wait: str) -> None:
    config = StoreConfig.small().replace(flush_disk_type="SYNC_FLUSH")
    with made(config, hot=hot) as server, RemotingClient(server.address) as client:
        for code in (LONG, SHORT):
            answer = send(client, "orders", b"x", code=code, properties=wait)
            assert answer.code == 0
        send(client, "orders", GOOD, code=BATCH, properties=wait)
        queue = server.store["orders"][0]
        assert len(queue) == 4
        assert all("WAIT" not in queue[at].properties for at in range(4))
        if wait != "WAIT\1false":
            assert server.store.stats()["flushed_position"] > queue[3].physical_offset


def test_answers_of_one_connection_may_overtake(hot: bool) -> None:
    config = StoreConfig.small().replace(flush_disk_type="SYNC_FLUSH")
    with made(config, hot=hot) as server, RemotingClient(server.address) as client:
        opaques = [
            client.send(SHORT, sends.fields_of(SHORT, "orders", queueId=at % 4), b"%d" % at)
            for at in range(200)
        ]
        answers = [client.answer(opaque) for opaque in opaques]
        assert all(answer.code == 0 for answer in answers)
        for at, answer in enumerate(answers):
            assert answer.fields is not None
            message = server.store["orders"][at % 4][int(answer.fields["queueOffset"])]
            assert message.body == b"%d" % at


# ---- limits, with what later steps add


@pytest.mark.parametrize("topic", ["t", "t" * 127], ids=len)
@pytest.mark.parametrize("kind", ["delayed", "half"])
def test_what_waits_is_taken_only_if_it_can_be_moved_on(hot: bool, topic: str, kind: str) -> None:
    text = "UNIQ_KEY\1u\2" + ("DELAY\0011" if kind == "delayed" else "TRAN_MSG\1true\2PGROUP\1p")
    config = StoreConfig.small(max_message_size=2000)
    with made(config, hot=hot) as server, RemotingClient(server.address) as client:
        store = server.store
        store.create_topic(topic, 1)
        codes = [
            send(client, topic, bytes(size), properties=text).code for size in range(1500, 1900)
        ]
        taken = codes.count(0)
        assert codes == [0] * taken + [13] * (400 - taken)
        assert 0 < taken < 400
        answer = send(client, topic, bytes(1900), properties=text)
        assert (answer.code, answer.remark) == (13, ILLEGAL)
        store.clock.advance(2)
        for one in store.in_doubt():
            one.commit()
        sends.wait_for(lambda: not store.delayed())
        sizes = [message.store_size for message in store[topic][0]]
        assert len(sizes) == taken
        waited = "SCHEDULE_TOPIC_XXXX" if kind == "delayed" else "RMQ_SYS_TRANS_HALF_TOPIC"
        assert max(*sizes, *(one.store_size for one in store[waited][0])) == 2000


def test_no_message_waits_for_the_topic_of_half_messages(
    server: Server, client: RemotingClient
) -> None:
    """A broker takes it, and throws it away when it is due."""
    server.store.create_topic("RMQ_SYS_TRANS_HALF_TOPIC", 1)
    answer = send(client, "RMQ_SYS_TRANS_HALF_TOPIC", b"x", properties="DELAY\0011")
    assert (answer.code, answer.remark) == (13, ILLEGAL)
    assert server.store.delayed() == []
