"""CONSUMER_SEND_MSG_BACK: the records that a real broker stored, checks in its order, its words."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.files import paths
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from rmqstore.serve.wire.frames import FAQ
from support.remoting import Frame, RemotingClient

BACK = 36
GROUP = "orders-group"
SMALL = StoreConfig.small()
NUMBERS = itertools.count()
BROKERS = StoreConfig(  # the sizes of tests/data/stores
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=6000,
    max_hash_slot_num=1000, max_index_num=4000,
)  # fmt: skip
# All but what the log itself decides: offsets, store time, store message id.
FIELDS = (
    "topic", "queue_id", "body", "raw_body", "tags", "keys", "properties", "flag", "sys_flag",
    "store_size", "born_timestamp", "born_host", "store_host", "reconsume_times",
    "prepared_transaction_offset", "body_crc", "uniq_key",
)  # fmt: skip


def give_back(
    client: RemotingClient, offset: object, level: object = 0, group: str = "g", **more: object
) -> Frame:
    version = more.pop("version", 399)
    fields = {"offset": offset, "group": group, "delayLevel": level, **more}
    return client.ask(BACK, fields, version=version)


def is_done(answer: Frame) -> bool:
    return (answer.code, answer.remark, answer.fields, answer.body) == (0, None, None, b"")


def newest(store: rmqstore.MessageStore) -> rmqstore.Message:
    return max(store.scan(), key=lambda message: message.physical_offset)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None, Settings(), SMALL) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def test_records_are_those_of_the_real_broker(
    tmp_path: Path, broker_copy: Callable[[str, Path], object]
) -> None:
    """Each message that the broker's consumer gave back is given back once more, over the wire."""
    broker_copy("broker-clean", tmp_path)
    compared = 0
    with Server(tmp_path / "broker-clean", Settings(), BROKERS) as server:
        store = server.store
        scheduled = list(store["SCHEDULE_TOPIC_XXXX"][2])
        retried = list(store[f"%RETRY%{GROUP}"][0])
        dead = list(store[f"%DLQ%{GROUP}"][0])
        by_id = {message.msg_id: message for queue in store["orders"].values() for message in queue}
        given_up = {message.properties["ORIGIN_MESSAGE_ID"]: message for message in dead}
        with RemotingClient(server.address) as client:
            for theirs in scheduled:
                message = by_id[theirs.properties["ORIGIN_MESSAGE_ID"]]
                assert is_done(give_back(client, message.physical_offset, 0, GROUP))
                ours = newest(store)
                for name in FIELDS:
                    assert getattr(ours, name) == getattr(theirs, name), name
                compared += 1
            for message in retried:
                theirs = given_up[message.properties["ORIGIN_MESSAGE_ID"]]
                answer = give_back(client, message.physical_offset, 0, GROUP, maxReconsumeTimes=1)
                assert is_done(answer)
                ours = newest(store)
                for name in FIELDS:
                    assert getattr(ours, name) == getattr(theirs, name), name
                compared += 1
    assert compared == len(retried) * 2 == 26


def test_group_and_topics_are_made(server: Server, client: RemotingClient) -> None:
    store = server.store
    offset = store.put("orders", b"1").physical_offset
    assert is_done(give_back(client, offset, group="billing"))
    assert "billing" in store.groups
    assert "%DLQ%billing" not in store
    assert is_done(give_back(client, offset, -1, group="billing"))
    assert is_done(give_back(client, offset, 0, group="units", unitMode="true"))
    for name in ("%RETRY%billing", "%DLQ%billing", "%RETRY%units"):
        topic = store[name]
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    flags = [store.registry.get(f"%RETRY%{name}").topic_sys_flag for name in ("billing", "units")]
    assert flags == [0, 2]


@pytest.mark.parametrize(
    ("tried", "asked", "level"),
    [(0, 0, 3), (1, 0, 4), (15, 0, 18), (0, 7, 7), (9, 40, 18), (0, "1", 1)],
)
def test_the_level_grows_with_the_tries(
    server: Server, client: RemotingClient, tried: int, asked: object, level: int
) -> None:
    store = server.store
    store.create_topic("orders", 1)
    done = store.core.put_stored("orders", 0, b"1", "KEYS\x01k", reconsume_times=tried)
    assert is_done(give_back(client, done.physical_offset, asked))
    back = newest(store)
    assert (back.topic, back.queue_id) == ("SCHEDULE_TOPIC_XXXX", level - 1)
    [data] = json.loads(client.ask(105, {"topic": back.topic}).body)["queueDatas"]
    assert data["readQueueNums"] == 18
    assert back.reconsume_times == tried + 1
    assert back.properties == {
        "KEYS": "k", "RETRY_TOPIC": "orders", "WAIT": "false", "DELAY": str(level),
        "ORIGIN_MESSAGE_ID": done.msg_id, "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("of_group", "of_request", "version", "tried", "dead"),
    [
        (16, None, 399, 15, False), (16, None, 399, 16, True), (3, None, 399, 3, True),
        (16, 1, 399, 1, True), (1, 5, 399, 4, False), (1, 5, 120, 4, True), (16, 0, 121, 0, True),
        (16, -1, 399, 0, True), (16, 1, 63, 1, False),
    ],
)  # fmt: skip
def test_how_often(
    server: Server,
    client: RemotingClient,
    of_group: int,
    of_request: int | None,
    version: int,
    tried: int,
    dead: bool,
) -> None:
    """The request's times count from V3_4_9 on, else the group's."""
    store = server.store
    store.create_topic("orders", 1)
    group = f"often{next(NUMBERS)}"
    store.create_group(group, retry_max=of_group)
    done = store.core.put_stored("orders", 0, b"1", "", reconsume_times=tried)
    more = {} if of_request is None else {"maxReconsumeTimes": of_request}
    assert is_done(give_back(client, done.physical_offset, group=group, version=version, **more))
    back = newest(store)
    assert (back.topic == f"%DLQ%{group}") == dead
    if dead:
        assert (back.queue_id, back.properties["DELAY"]) == (0, "0")
        assert "REAL_TOPIC" not in back.properties
    assert back.reconsume_times == tried + 1


def test_a_retried_message_keeps_where_it_came_from(
    server: Server, client: RemotingClient, wait_until: Callable[[Callable[[], object]], None]
) -> None:
    store = server.store
    put = store.put("orders", b"1")
    assert is_done(give_back(client, put.physical_offset, 1))
    store.clock.advance(1.1)
    wait_until(lambda: "%RETRY%g" in store and store["%RETRY%g"][0].max_offset == 1)
    [retried] = store["%RETRY%g"][0]
    assert retried.properties["RETRY_TOPIC"] == "orders"
    assert is_done(give_back(client, retried.physical_offset, 0, maxReconsumeTimes=1))
    dead = newest(store)
    assert dead.topic == "%DLQ%g"
    assert dead.reconsume_times == 2
    assert dead.properties["RETRY_TOPIC"] == "orders"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == put.msg_id


def test_offsets_that_are_no_message(server: Server, client: RemotingClient) -> None:
    """Among them what a body holds: it looks like a record, and is none."""
    store = server.store
    forged_at = 4096
    shift = store.put("orders", b"1", queue_id=0)
    whole = store.core.put_stored("orders", 0, b"", "").physical_offset
    del shift
    probe = store.core.put_stored("orders", 0, b"B" * 8, "")
    start = store.at(probe.physical_offset)
    body_at = 84 + 4  # of a record with IPv4 hosts
    forged_at = start.physical_offset + start.store_size + body_at
    forged = rmqstore._core.encode_record(
        "orders", b"forged", queue_id=0, queue_offset=2, physical_offset=forged_at
    )
    carrier = store.core.put_stored("orders", 0, forged, "")
    assert store.at(forged_at).body == b"forged"  # it is a record by its bytes alone
    end = carrier.physical_offset + store.at(carrier.physical_offset).store_size
    before = len(list(store.scan()))
    for offset in (forged_at, whole + 1, end, end + 1, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)):
        answer = give_back(client, offset)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
    assert len(list(store.scan())) == before
    assert "g" not in store.groups
    assert "%RETRY%g" not in store


@pytest.mark.parametrize(
    "group", ["", "../../x", "sub/../../../x1", "a@b", "g" * 121, "a b", "\xe4"]
)
def test_groups_that_are_none(server: Server, client: RemotingClient, group: str) -> None:
    store = server.store
    offset = store.put("orders", b"1").physical_offset
    answer = give_back(client, offset, -1, group)
    assert answer.code == 1
    assert (answer.remark or "").startswith("group must be 1 to 120 of [%|a-zA-Z0-9_-], got ")
    assert not [topic for topic in store.topics if topic.endswith((group, "x1")) and group]
    assert newest(store).physical_offset == offset


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"group": "g", "delayLevel": 0}, "the custom field <offset> is null"),
        ({"offset": 0, "delayLevel": 0}, "the custom field <group> is null"),
        ({"offset": 0, "group": "g"}, "the custom field <delayLevel> is null"),
        ({"offset": "x", "group": "g", "delayLevel": 0}, "<offset> must be"),
        ({"offset": "1" * 400, "group": "g", "delayLevel": 0}, "<offset> must be"),
        ({"offset": 0, "group": "g", "delayLevel": 1 << 31}, "<delayLevel> must be"),
        (
            {"offset": 0, "group": "g", "delayLevel": 0, "maxReconsumeTimes": "\xb2"},
            "Times> must be",
        ),
        ({"offset": 0, "group": "g" * 5000, "delayLevel": 0}, "<group> must be at most"),
        (None, "the custom field <offset> is null"),
    ],
)
def test_fields(
    server: Server, client: RemotingClient, fields: dict[str, object] | None, says: str
) -> None:
    before = (sorted(server.store.topics), len(list(server.store.scan())))
    answer = client.ask(BACK, fields)
    assert answer.code == 1
    assert says in (answer.remark or "")
    assert len(answer.remark or "") < 400
    assert (sorted(server.store.topics), len(list(server.store.scan()))) == before


def test_groups_that_are_not_made() -> None:
    with (
        Server(None, Settings(auto_create_groups=False), SMALL) as server,
        RemotingClient(server.address) as client,
    ):
        offset = server.store.put("orders", b"1").physical_offset
        answer = give_back(client, offset)
        assert answer.code == 26
        assert answer.remark == f"subscription group not exist, g {FAQ}"
        server.store.create_group("g")
        assert is_done(give_back(client, offset))


def test_a_retry_topic_that_may_not_be_written(server: Server, client: RemotingClient) -> None:
    store = server.store
    offset = store.put("orders", b"1").physical_offset
    store.create_topic("%RETRY%g", 1, perm=4)
    for where in (offset, 1 << 40):  # the topic is looked at first
        answer = give_back(client, where)
        assert answer.code == 16
        assert answer.remark == "the topic[%RETRY%g] sending message is forbidden"


def test_a_group_without_retry_queues(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, "a", config=SMALL) as store:
        store.put("orders", b"1")
        store.create_group("g")
    file = tmp_path / "config" / paths.SUBSCRIPTION_GROUP_JSON
    file.write_text(file.read_text().replace('"retryQueueNums":1', '"retryQueueNums":0'))
    assert '"retryQueueNums":0' in json.dumps(json.loads(file.read_text()), separators=(",", ":"))
    with (
        Server(tmp_path, Settings(), SMALL) as server,
        RemotingClient(server.address) as client,
    ):
        assert is_done(give_back(client, 0))
        assert [message.topic for message in server.store.scan()] == ["orders"]


def test_what_the_store_does_not_take(server: Server, client: RemotingClient) -> None:
    """Properties that grow beyond their limit: the status' name, as a broker answers."""
    store = server.store
    store.create_topic("orders", 1)
    done = store.core.put_stored("orders", 0, b"1", "a\x01" + "x" * 32_700)
    answer = give_back(client, done.physical_offset)
    assert answer.code == 1
    assert answer.remark in ("PROPERTIES_SIZE_EXCEEDED", "MESSAGE_ILLEGAL")
    assert len(list(store.scan())) == 1


def test_oneway_and_the_disk(tmp_path: Path) -> None:
    """Nothing is answered to who does not ask; with SYNC_FLUSH it is on the disk when answered."""
    config = SMALL.replace(flush_disk_type="SYNC_FLUSH")
    with (
        Server(tmp_path / "s", Settings(), config) as server,
        RemotingClient(server.address) as client,
    ):
        store = server.store
        offset = store.put("orders", b"1").physical_offset
        client.tell(BACK, {"offset": offset, "group": "g", "delayLevel": 1})
        client.tell(BACK, {"offset": offset, "group": "../g", "delayLevel": 1})
        assert is_done(give_back(client, offset, 1))
        assert is_done(give_back(client, offset, -1))
        assert store.stats()["flush_behind_bytes"] == 0
        topics = sorted(message.topic for message in store.scan())
        assert topics == ["%DLQ%g", "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX", "orders"]


def test_limits_stop_nothing_that_was_acknowledged(
    tmp_path: Path, wait_until: Callable[[Callable[[], object]], None]
) -> None:
    """Neither one that was lowered since, nor what the retry topic's longer name adds."""
    group = "g" * 120
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.create_group(group, retry_max=2)
        places = [
            store.put("orders", bytes(size), queue_id=0).physical_offset
            for size in (10, 1000, 1800, 30_000)
        ]
    config = SMALL.replace(max_message_size=100)
    with (
        Server(tmp_path / "s", Settings(), config) as server,
        RemotingClient(server.address) as client,
    ):
        for _ in range(2):
            assert all(is_done(give_back(client, place, 1, group)) for place in places)
            server.store.clock.advance(2)
            wait_until(lambda: not server.store.delayed())
            places = [one.physical_offset for one in server.store[f"%RETRY%{group}"].messages()]
            places = places[-4:]
        assert all(is_done(give_back(client, place, 1, group)) for place in places)
        sizes = [len(one.body) for one in server.store[f"%DLQ%{group}"].messages()]
        assert sorted(sizes) == [10, 1000, 1800, 30_000]
