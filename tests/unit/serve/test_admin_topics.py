"""Topics as operators have them, good input and bad."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire.objecttext import MessageQueue, loads
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

BAD_NAMES = ["", " ", "../../x", "a/b", "a@b", "a b", "\u00fc", "a" * 128, "a\0b"]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("orders", 2)
        for number in range(5):
            made.store.put("orders", b"%d" % number, queue_id=0, tags="A")
        made.store.flush()
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def settle(server: Server) -> None:
    end = server.store.stats()["wrote_position"]
    while server.store.stats()["dispatched_position"] < end:
        pass


def made(topic: str, **changes: object) -> dict[str, object]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 5,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", **changes,
    }  # fmt: skip


def test_a_topic_is_made_and_changed(server: Server, client: RemotingClient) -> None:
    answer = client.ask(17, made("made"))
    assert (answer.code, answer.remark, answer.fields) == (0, "not set any response code", None)
    entry = server.store.registry.get("made")
    assert entry is not None
    assert (entry.read_queue_nums, entry.write_queue_nums, entry.perm) == (3, 5, 6)
    assert client.ask(17, made("made", readQueueNums=8, writeQueueNums=8, perm=4)).code == 0
    route = client.ask(105, {"topic": "made"}).json["queueDatas"][0]
    assert (route["readQueueNums"], route["writeQueueNums"], route["perm"]) == (8, 8, 4)


def test_bad_values_make_nothing(server: Server, client: RemotingClient) -> None:
    bad: list[dict[str, object]] = [
        {"readQueueNums": "many"}, {"readQueueNums": -1}, {"writeQueueNums": 1 << 30},
        {"perm": 16}, {"perm": -1}, {"topicFilterType": "NO_TAG"}, {"topicSysFlag": "x"},
    ]  # fmt: skip
    for changes in bad:
        assert client.ask(17, made("made", **changes)).code == 1, changes
        assert "made" not in server.store
    fields = made("made")
    del fields["perm"]
    assert client.ask(17, fields).remark == "the custom field <perm> is null"


def test_bad_names_are_refused_everywhere(server: Server, client: RemotingClient) -> None:
    for name in BAD_NAMES:
        is_path = name in ("", "../../x", "a/b", "a\0b")
        for code in (17, 202, 215, 216, 300, 303, 308, 321) if is_path else (17,):
            answer = client.ask(code, made(name, group="g", queueId=0, index=0, count=1))
            assert answer.code == 1, (name, code)
            assert "topic" in str(answer.remark)
    assert list(server.store.topics) == ["orders"]


def test_the_brokers_own_topics_are_not_changed(client: RemotingClient) -> None:
    for name in ("TBW102", "broker-a", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x"):
        for code in (17, 215):
            answer = client.ask(code, made(name))
            assert answer.code == 1
            assert answer.remark == f"The topic[{name}] is conflict with system topic."


def test_a_deleted_topic_is_gone_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Server(path, Settings(), StoreConfig.small()) as server:
        server.store.create_topic("gone", 2)
        server.store.put("gone", b"1")
        with RemotingClient(server.address) as client:
            assert client.ask(215, {"topic": "gone"}).code == 0
            assert client.ask(215, {"topic": "gone"}).code == 0
            assert client.ask(105, {"topic": "gone"}).code == 17
            assert client.ask(202, {"topic": "gone"}).code == 17
    with Server(path, Settings(), StoreConfig.small()) as server:
        with RemotingClient(server.address) as client:
            assert client.ask(105, {"topic": "gone"}).code == 17
        assert "gone" not in server.store
    with rmqstore.open(path, "r") as store:
        assert "gone" not in store


def test_the_state_of_queues(server: Server, client: RemotingClient) -> None:
    settle(server)
    table = loads(client.ask(202, {"topic": "orders"}).body)["offsetTable"]
    last = server.store["orders"][0][4].store_timestamp
    assert table == {
        MessageQueue("broker-a", 0, "orders"): {
            "lastUpdateTimestamp": last, "maxOffset": 5, "minOffset": 0,
        },
        MessageQueue("broker-a", 1, "orders"): {
            "lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0,
        },
    }  # fmt: skip
    missing = client.ask(202, {"topic": "nowhere"})
    assert (missing.code, missing.remark) == (17, "topic[nowhere] not exist")


def test_units_of_a_queue(server: Server, client: RemotingClient) -> None:
    settle(server)
    asked: dict[str, object] = {"topic": "orders", "queueId": 0, "index": 1, "count": 2}
    answer = client.ask(321, asked)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    messages = server.store["orders"][0][1:3]
    assert answer.json == {
        "maxQueueIndex": 5,
        "minQueueIndex": 0,
        "queueData": [
            {
                "eval": False,
                "physicOffset": message.physical_offset,
                "physicSize": message.store_size,
                "tagsCode": ord("A"),
            }
            for message in messages
        ],
    }
    assert len(client.ask(321, {**asked, "count": 1 << 30}).json["queueData"]) == 4
    assert client.ask(321, {**asked, "count": -1}).json["queueData"] == []
    beyond = client.ask(321, {**asked, "index": 5})
    assert (beyond.code, beyond.body) == (0, b"")
    assert beyond.remark == "Index 5 of 0@orders is not exist!"
    missing = client.ask(321, {**asked, "queueId": 1})
    assert (missing.code, missing.remark) == (1, "1@orders is not exist!")
    offline = client.ask(321, {**asked, "consumerGroup": "g"}).json
    assert offline["filterData"] == "g@orders is not online!"
    assert client.ask(321, {**asked, "consumerGroup": "../g"}).code == 1


def test_ext_units_of_a_queue(tmp_path: Path) -> None:
    config = StoreConfig.small(enable_consume_queue_ext=True)
    with Server(tmp_path / "store", Settings(), config) as server:
        server.store.put("orders", b"1", queue_id=0, tags="A")
        settle(server)
        with RemotingClient(server.address) as client:
            asked: dict[str, object] = {"topic": "orders", "queueId": 0, "index": 0, "count": 1}
            [unit] = client.ask(321, asked).json["queueData"]
        stored = server.store["orders"][0][0].store_timestamp
        assert unit["tagsCode"] < -(1 << 31)
        assert loads(unit["extendDataJson"].encode()) == {
            "msgStoreTime": stored, "size": 20, "tagsCode": ord("A"),
        }  # fmt: skip


def test_groups_that_consume_a_topic(server: Server, client: RemotingClient) -> None:
    assert client.ask(300, {"topic": "orders"}).json == {"groupList": []}
    server.store.progress.commit("orders", "b", 0, 1)
    server.store.progress.commit("orders", "a", 0, 1)
    server.store.progress.commit("other", "c", 0, 1)
    assert client.ask(300, {"topic": "orders"}).json == {"groupList": ["a", "b"]}


def test_all_entries_and_the_brokers_own_topics(server: Server, client: RemotingClient) -> None:
    answer = client.ask(21)
    table = answer.json["topicConfigTable"]
    assert answer.fields == {}
    assert answer.json["dataVersion"]["counter"] == 1
    assert table["orders"]["writeQueueNums"] == 2
    assert table["TBW102"]["perm"] == 7
    listed = client.ask(305).json["topicList"]
    assert {"TBW102", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= set(listed)


def test_cleaning_leaves_what_is_used(server: Server, client: RemotingClient) -> None:
    assert client.ask(316).code == 0
    assert client.ask(306).code == 0
    assert server.store["orders"][0][0].body == b"0"


def test_the_lists_are_those_of_no_topics_where_none_are_made_at_a_send() -> None:
    settings = Settings(auto_create=False)
    with (
        Server(None, settings, StoreConfig.small()) as server,
        RemotingClient(server.address) as client,
    ):
        assert "TBW102" not in client.ask(206).json["topicList"]
        assert client.ask(105, {"topic": "TBW102"}).code == 17
