"""Where the queues of topics are, as each client asks and reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from rmqstore.base.foreign import cut
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

ROUTE, SEND = 105, 310
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
# Fields beside the topic, language and version of the clients that were recorded.
CLIENTS: dict[str, tuple[dict[str, object], str, int]] = {
    "Java 4.9.3": ({}, "JAVA", 399),
    "Java 5.3.3": ({"acceptStandardJsonOnly": "true"}, "JAVA", 479),
    "Go": ({}, "GO", 317),
    "C++": ({"AccessKey": "", "OnsChannel": "ALIYUN", "Signature": "k0T4QIj0="}, "CPP", 63),
    "Node": ({}, "JAVA", 121),
    "Rust": ({}, "RUST", 474),
}


def made(**settings: Any) -> Server:
    return Server(None, Settings(**settings), StoreConfig.small())


def text_of(server: Server, *, perm: int, queues: int, order: str = "") -> bytes:
    broker = (
        f'{{"brokerAddrs":{{"0":"{server.address}"}},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster","enableActingMaster":false}'
    )
    queue = (
        f'{{"brokerName":"broker-a","perm":{perm},"readQueueNums":{queues},'
        f'"topicSysFlag":0,"writeQueueNums":{queues}}}'
    )
    return (
        f'{{"brokerDatas":[{broker}],"filterServerTable":{{}},{order}"queueDatas":[{queue}]}}'
    ).encode()


@pytest.mark.parametrize(("fields", "language", "version"), CLIENTS.values(), ids=CLIENTS)
def test_each_client_gets_the_same_route(
    fields: dict[str, object], language: str, version: int
) -> None:
    with made() as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", 4)
        answer = client.ask(
            ROUTE, {"topic": "orders", **fields}, language=language, version=version
        )
        assert (answer.code, answer.remark, answer.fields) == (0, None, None)
        assert answer.body == text_of(server, perm=6, queues=4)


@pytest.mark.parametrize(
    ("topic", "perm", "queues"),
    [
        ("TBW102", 7, 8), ("SELF_TEST_TOPIC", 6, 1), ("BenchmarkTest", 6, 1024),
        ("DefaultCluster", 7, 16), ("broker-a", 7, 1), ("OFFSET_MOVED_EVENT", 6, 1),
        ("SCHEDULE_TOPIC_XXXX", 6, 18), ("DefaultCluster_REPLY_TOPIC", 6, 1),
    ],
)  # fmt: skip
def test_every_broker_has_these_topics(topic: str, perm: int, queues: int) -> None:
    with made() as server, RemotingClient(server.address) as client:
        assert client.ask(ROUTE, {"topic": topic}).body == text_of(server, perm=perm, queues=queues)
        assert topic not in server.store.topics  # until something is sent to it


@pytest.mark.parametrize(
    "topic",
    ["unknown", "%RETRY%unknown", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC", "", " ",
     "../../x", "a b", "a@b", "\u6771\u4eac", "a\n", "x" * 128, "x" * 1024],
)  # fmt: skip
def test_a_topic_that_is_not_there(topic: str) -> None:
    with made() as server, RemotingClient(server.address) as client:
        answer = client.ask(ROUTE, {"topic": topic})
        assert (answer.code, answer.fields, answer.body) == (17, None, b"")
        remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
        assert answer.remark == cut(remark)


def test_a_request_without_a_topic() -> None:
    with made() as server, RemotingClient(server.address) as client:
        none = client.ask(ROUTE)
        assert (none.code, none.remark) == (1, "the custom field <topic> is null")
        assert client.ask(ROUTE, {"topic": "x" * 1025}).code == 1


def test_a_topic_whose_name_would_be_a_path_has_no_route() -> None:
    # 4.9.3 makes the retry topics of groups of any name, and its topics.json has them.
    with made() as server, RemotingClient(server.address) as client:
        registry = server.store._registry
        with registry.lock:
            registry.put(TopicConfig("%RETRY%../../x", 1, 1))
        assert client.ask(ROUTE, {"topic": "%RETRY%../../x"}).code == 17


def test_what_an_entry_says_is_in_the_route() -> None:
    with made() as server, RemotingClient(server.address) as client:
        registry = server.store._registry
        with registry.lock:
            registry.put(TopicConfig("t", 3, 5, 4, topic_sys_flag=2))
        (queues,) = client.ask(ROUTE, {"topic": "t"}).json["queueDatas"]
        assert queues == {
            "brokerName": "broker-a", "perm": 4, "readQueueNums": 3, "topicSysFlag": 2,
            "writeQueueNums": 5,
        }  # fmt: skip
        # A broker's file may have its own topics changed: the file is right.
        with registry.lock:
            registry.put(TopicConfig("TBW102", 16, 16, 7))
        assert client.ask(ROUTE, {"topic": "TBW102"}).body == text_of(server, perm=7, queues=16)


def test_without_auto_create_no_topic_is_made_after_the_default() -> None:
    with made(auto_create=False) as server, RemotingClient(server.address) as client:
        assert client.ask(ROUTE, {"topic": "TBW102"}).code == 17
        registry = server.store._registry
        with registry.lock:  # as a broker leaves it
            registry.put(TopicConfig("TBW102", 8, 8, 7))
        assert client.ask(ROUTE, {"topic": "TBW102"}).body == text_of(server, perm=6, queues=8)
        assert client.ask(ROUTE, {"topic": "broker-a"}).body == text_of(server, perm=7, queues=1)


def test_an_orderly_topic() -> None:
    with made() as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", 4)
        key: dict[str, object] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
        assert client.ask(100, {**key, "value": "broker-a:4"}).code == 0
        assert client.ask(ROUTE, {"topic": "orders"}).body == text_of(
            server, perm=6, queues=4, order='"orderTopicConf":"broker-a:4",'
        )
        assert client.ask(102, key).code == 0
        assert client.ask(ROUTE, {"topic": "orders"}).body == text_of(server, perm=6, queues=4)


def test_a_broker_that_may_not_be_written_to() -> None:
    with made() as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", 4)
        assert client.ask(205, {"brokerName": "broker-a"}).code == 0
        assert client.ask(ROUTE, {"topic": "orders"}).body == text_of(server, perm=4, queues=4)
        assert client.ask(327, {"brokerName": "broker-a"}).code == 0
        assert client.ask(ROUTE, {"topic": "orders"}).body == text_of(server, perm=6, queues=4)
        assert client.ask(ROUTE, {"topic": "TBW102"}).json["queueDatas"][0]["perm"] == 7


@pytest.mark.parametrize(
    ("host", "port", "shown"),
    [("broker.example", 10911, "broker.example:10911"), ("192.0.2.7", 9876, "192.0.2.7:9876"),
     ("2001:db8::7", 9876, "[2001:db8::7]:9876")],
)  # fmt: skip
def test_the_address_that_is_advertised(host: str, port: int, shown: str) -> None:
    with made(advertise=(host, port)) as server:
        name = f"127.0.0.1:{server.gateway.settings.port}"
        with RemotingClient(name) as client:
            (broker,) = client.ask(ROUTE, {"topic": "TBW102"}).json["brokerDatas"]
            assert broker["brokerAddrs"] == {"0": shown}


def test_each_client_is_told_the_address_that_it_dialled() -> None:
    with made(host="0.0.0.0") as server:
        port = server.gateway.settings.port
        for host in ("127.0.0.1", "127.0.0.2"):
            with RemotingClient(f"{host}:{port}") as client:
                (broker,) = client.ask(ROUTE, {"topic": "TBW102"}).json["brokerDatas"]
                assert broker["brokerAddrs"] == {"0": f"{host}:{port}"}


def test_topics_are_in_the_next_route(wait_until: Callable[[Callable[[], object]], None]) -> None:
    with made() as server, RemotingClient(server.address) as client:
        store = server.store
        assert client.ask(ROUTE, {"topic": "new"}).code == 17
        store.put("new", b"made by another thread")
        wait_until(lambda: client.ask(ROUTE, {"topic": "new"}).code == 0)
        with store._registry.lock:
            entry = store._registry.get("new")
            assert entry is not None
            store._registry.put(dataclasses.replace(entry, perm=2))
        assert client.ask(ROUTE, {"topic": "new"}).json["queueDatas"][0]["perm"] == 2
        store.delete_topic("new")
        assert client.ask(ROUTE, {"topic": "new"}).code == 17
