"""Look-ups of messages by clients: by id and by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.settings import Settings
from support.remoting import Frame, RemotingClient
from support.serving import bodies

LONG_MAX = (1 << 63) - 1


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        for number in range(100):
            made.store.put("orders", b"%d" % number, queue_id=0, keys=["all", f"k{number}"])
        made.store.get("orders", 0, 99)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def query(client: RemotingClient, key: str, **other: Any) -> Frame:
    asked = {"topic": "orders", "key": key, "maxNum": 64, "beginTimestamp": 0,
             "endTimestamp": LONG_MAX}  # fmt: skip
    return client.ask(12, asked | other)


def test_a_message_by_its_place(server: Server, client: RemotingClient) -> None:
    message = server.store["orders"][0][5]
    answer = client.ask(33, {"offset": message.physical_offset})
    assert (answer.code, answer.fields, answer.remark) == (0, None, None)
    assert rmqstore.decode_record(answer.body) == message
    for offset in (message.physical_offset + 1, -1, LONG_MAX, 1 << 40):
        answer = client.ask(33, {"offset": offset})
        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
        assert (answer.fields, answer.body) == (None, b"")
    assert client.ask(33, {}).code == 1


def test_messages_by_key(server: Server, client: RemotingClient) -> None:
    answer = query(client, "k7")
    assert (answer.code, answer.remark, bodies(answer)) == (0, None, [b"7"])
    newest = server.store["orders"][0][99]
    assert answer.fields == {
        "indexLastUpdateTimestamp": str(newest.store_timestamp),
        "indexLastUpdatePhyoffset": str(newest.physical_offset),
    }
    assert bodies(query(client, "all")) == [b"%d" % n for n in range(36, 100)]
    assert bodies(query(client, "all", maxNum=1000)) == [b"%d" % n for n in range(36, 100)]
    assert bodies(query(client, "all", maxNum=2)) == [b"98", b"99"]
    unique = server.store["orders"][0][9].uniq_key
    assert unique is not None
    answer = query(client, unique, maxNum=0, _UNIQUE_KEY_QUERY="true")
    assert bodies(answer) == [b"9"]
    assert len(bodies(query(client, "all", _UNIQUE_KEY_QUERY="true"))) == 32


def test_times_of_a_query(server: Server, client: RemotingClient) -> None:
    time = server.store["orders"][0][50].store_timestamp
    for begin, end in ((time, time), (-5, time), (time, LONG_MAX)):
        found = bodies(query(client, "k50", beginTimestamp=begin, endTimestamp=end))
        assert found == [b"50"]
    for begin, end in ((time + 60_000, LONG_MAX), (0, time - 60_000), (5, 1), (-9, -5)):
        assert query(client, "k50", beginTimestamp=begin, endTimestamp=end).code == 22


@pytest.mark.parametrize(
    "other", [{"key": "none"}, {"topic": "unknown"}, {"topic": "../x"}, {"key": ""}, {"maxNum": 0},
              {"maxNum": -1}]
)  # fmt: skip
def test_nothing_is_found(client: RemotingClient, other: dict[str, Any]) -> None:
    answer = query(client, **({"key": "k1"} | other))
    assert (answer.code, answer.body) == (22, b"")
    assert answer.remark == "can not find message, maybe time range not correct"
    assert answer.fields is not None
    assert set(answer.fields) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


def test_a_store_without_an_index() -> None:
    with (
        Server(None, Settings(), StoreConfig.small()) as server,
        RemotingClient(server.address) as client,
    ):
        answer = query(client, "k")
        assert answer.code == 22
        assert answer.fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


def test_records_that_are_too_many_for_a_frame(server: Server, client: RemotingClient) -> None:
    for number in range(4):
        server.store.put("big", bytes([number]) * (3 << 20), queue_id=0, keys="big")
    answer = query(client, "big", topic="big")
    assert [body[0] for body in bodies(answer)] == [2, 3]
