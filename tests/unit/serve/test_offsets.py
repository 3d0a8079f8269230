"""Offsets of groups and queues over the wire, and that they survive a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.consuming import distance
from rmqstore.serve.consuming.distance import Distance
from rmqstore.serve.settings import Settings
from support.remoting import RemotingClient
from support.retention_stores import CONFIG as RETAINED
from support.retention_stores import put_hours
from support.serving import on_loop

QUERY, UPDATE = 14, 15
CONFIG = StoreConfig.small()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, Settings(), CONFIG) as made:
        made.store.create_topic("orders", 2)
        for number in range(10):
            made.store.put("orders", b"%d" % number, queue_id=0)
        made.store.get("orders", 0, 9)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def query(client: RemotingClient, group: str, topic: str = "orders", queue: int = 0) -> Any:
    answer = client.ask(QUERY, {"consumerGroup": group, "topic": topic, "queueId": queue})
    assert answer.fields is not None
    return int(answer.fields["offset"]) if answer.code == 0 else (answer.code, answer.remark)


def update(client: RemotingClient, group: str, offset: int, **other: Any) -> Any:
    asked = {"consumerGroup": group, "topic": "orders", "queueId": 0, "commitOffset": offset}
    return client.ask(UPDATE, asked | other)


def test_a_new_group_begins_at_the_first_message(client: RemotingClient) -> None:
    assert query(client, "new") == 0
    assert query(client, "new", queue=1) == 0
    assert query(client, "new", "unknown") == 0


def test_what_is_committed_is_answered(server: Server, client: RemotingClient) -> None:
    answer = update(client, "g", 7)
    assert (answer.code, answer.fields, answer.remark) == (0, {}, None)
    assert query(client, "g") == 7
    asked = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 3}
    client.tell(UPDATE, asked)
    assert query(client, "g") == 3
    assert query(client, "g", queue=1) == 0
    assert server.store.offsets["orders", "g"] == {0: 3}
    server.store.create_topic("%RETRY%g", 1)
    assert update(client, "g", 5, topic="%RETRY%g").code == 0
    assert query(client, "g", "%RETRY%g") == 5


def test_what_is_committed_again_ends_in_the_core(server: Server, client: RemotingClient) -> None:
    def ended() -> int:
        return server.gateway.sends.requests().get(UPDATE, 0)

    def tell(**other: Any) -> None:
        asked = {"consumerGroup": "again", "topic": "orders", "queueId": 0, "commitOffset": 4}
        client.tell(UPDATE, asked | other)

    before = ended()
    handled = server.gateway.requests[UPDATE]
    tell()
    assert (query(client, "again"), ended() - before) == (4, 0)
    tell()
    tell(queueId="+0", commitOffset="004")
    assert (query(client, "again"), ended() - before) == (4, 2)
    tell(commitOffset=5)
    assert (query(client, "again"), ended() - before) == (5, 2)
    for other in ({"commitOffset": 4}, {"queueId": 1}, {"topic": "unknown"}, {"commitOffset": -1},
                  {"consumerGroup": "others\u00e4"}, {"queueId": "x"}):  # fmt: skip
        tell(**other)
    assert (query(client, "again"), ended() - before) == (4, 2)
    assert query(client, "again", queue=1) == 4
    assert server.gateway.requests[UPDATE] - handled == 8
    server.store.progress.commit("orders", "again", 0, 6)
    tell()  # it is not what is there any more
    assert (query(client, "again"), ended() - before) == (4, 2)
    assert update(client, "again", 4).code == 0  # somebody waits for the answer
    server.gateway.shared.hot_sends = False
    tell()
    assert (query(client, "again"), ended() - before) == (4, 2)
    server.gateway.shared.hot_sends = True
    server.store.delete_group("again", offsets=True)
    tell()
    assert (query(client, "again"), ended() - before) == (4, 2)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"topic": "unknown"}, 17), ({"topic": "../x"}, 1), ({"consumerGroup": "a@b"}, 1),
        ({"queueId": -1}, 1), ({"queueId": 1 << 31}, 1), ({"commitOffset": "x"}, 1),
        ({"commitOffset": 1 << 63}, 1), ({"commitOffset": -1}, 0),
    ],
)  # fmt: skip
def test_what_is_not_committed(
    server: Server, client: RemotingClient, other: dict[str, Any], code: int
) -> None:
    before = dict(server.store.offsets)
    assert update(client, "other", 7, **other).code == code
    assert dict(server.store.offsets) == before


def test_a_new_group_where_the_first_messages_are_gone(
    client: RemotingClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client then asks for the end, as its program wants."""
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    monkeypatch.setattr(Distance, "is_far", lambda *_: True)
    assert query(client, "far") == (22, remark)
    update(client, "far", 2)
    assert query(client, "far") == 2


def test_a_new_group_where_the_first_files_are_deleted(tmp_path: Path) -> None:
    with Server(tmp_path, Settings(), RETAINED) as server, RemotingClient(server.address) as client:
        put_hours(server.store, 20)
        assert query(client, "new", "t") == 0
        assert server.store.delete_expired(before=server.store.clock.now()).files > 0
        assert server.store.queue_bounds("t", 0)[0] > 0
        answer = client.ask(QUERY, {"consumerGroup": "new", "topic": "t", "queueId": 0})
        assert answer.code == 22
        assert query(client, "new", "t", queue=7) == 0  # which has no messages at all


def test_far_is_more_than_40_percent_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pull then has 8 messages at most, or those that are whole in 64 KiB."""
    size = 20_000
    memory = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 100 * size}
    monkeypatch.setattr(distance, "os", SimpleNamespace(sysconf=memory.__getitem__))
    with Server(None, Settings(), CONFIG) as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", 2)
        for _ in range(60):
            server.store.put("orders", b"x" * size, queue_id=0)
        for _ in range(20):
            server.store.put("orders", b"x", queue_id=1)

        def pulled(offset: int, queue: int = 0) -> int:
            answer = client.ask(11, {
                "consumerGroup": "g", "topic": "orders", "queueId": queue, "queueOffset": offset,
                "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                "subscription": "*", "subVersion": 0,
            })  # fmt: skip
            assert answer.code == 0
            assert answer.fields is not None
            return int(answer.fields["nextBeginOffset"]) - offset

        assert pulled(0) == 3  # 64 KiB
        assert pulled(30) == 13  # within 40 % of the end: 256 KiB
        assert pulled(0, queue=1) == 20
        for _ in range(60):
            server.store.put("orders", b"x" * size, queue_id=0)
        server.in_loop(setattr, server.gateway.distance, "_looked", -1.0)  # the end is looked at
        assert pulled(0, queue=1) == 8


def test_what_is_far_is_read_in_smaller_pieces(server: Server, client: RemotingClient) -> None:
    def limits(offset: int, ratio: int) -> tuple[int, int]:
        store = server.store
        made = Distance(store)
        made._near = {0: 100, 40: 1 << 40}[ratio]
        return made.limits("orders", 0, offset)

    assert limits(0, 40) == (32, 256 << 10)
    assert limits(0, 0) == (8, 64 << 10)
    assert limits(10, 0) == (32, 256 << 10)


def test_the_limits_of_a_pull_are_settings() -> None:
    config = CONFIG.replace(
        max_transfer_count_on_message_in_memory=7,
        max_transfer_bytes_on_message_in_memory=700,
        max_transfer_count_on_message_in_disk=3,
        max_transfer_bytes_on_message_in_disk=300,
        access_message_in_memory_max_ratio=0,
    )
    with Server(None, Settings(), config) as server:
        server.store.create_topic("orders", 1)
        for _ in range(2):
            server.store.put("orders", b"x", queue_id=0)
        made = Distance(server.store)
        assert made.limits("orders", 0, 0) == (3, 300)  # far: of the memory nothing is near
        assert made.limits("orders", 0, 2) == (7, 700)


def test_ends_and_times(server: Server, client: RemotingClient) -> None:
    def ask(code: int, field: str = "offset", **other: Any) -> int:
        answer = client.ask(code, {"topic": "orders", "queueId": 0} | other)
        assert (answer.code, answer.remark) == (0, None)
        assert answer.fields is not None
        assert list(answer.fields) == [field]
        return int(answer.fields[field])

    first = server.store["orders"][0][0].store_timestamp
    last = server.store["orders"][0][9].store_timestamp
    assert (ask(30), ask(31)) == (10, 0)
    assert (ask(30, queueId=1), ask(31, topic="unknown")) == (0, 0)
    assert ask(32, "timestamp") == first
    assert ask(32, "timestamp", queueId=1) == ask(32, "timestamp", topic="unknown") == -1
    queue = server.store["orders"][0]
    for millis in (first - 1000, first, last, last + 1000, 0, -1, (1 << 63) - 1):
        at = min(max(millis, 0), 1 << 61)
        assert ask(29, timestamp=millis) == queue.offset_at(at, "nearest")
        assert ask(29, timestamp=millis, boundaryType="LOWER") == queue.offset_at(at, "lower")
        assert ask(29, timestamp=millis, boundaryType="upper") == max(
            queue.offset_at(at, "upper"), 0
        )
    assert ask(29, timestamp=first, queueId=1) == ask(29, timestamp=first, topic="unknown") == 0
    assert client.ask(30, {"topic": "a/b", "queueId": 0}).code == 1
    assert client.ask(30, {"topic": "orders"}).code == 1


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    with Server(tmp_path, Settings(), CONFIG) as server:
        server.store.create_topic("orders", 2)
        server.store.put("orders", b"1", queue_id=0)
        with RemotingClient(server.address) as client:
            update(client, "g", 1)
    assert OffsetTable.load(tmp_path).offsets == {("orders", "g"): {0: 1}}
    with Server(tmp_path, Settings(), CONFIG) as server, RemotingClient(server.address) as client:
        assert query(client, "g") == 1


def test_offsets_are_written_while_it_runs(tmp_path: Path) -> None:
    with Server(tmp_path, Settings(), CONFIG) as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", 2)
        update(client, "g", 1)
        server.store.clock.advance(6)
        server.store.housekeeper.run_due()
        assert OffsetTable.load(tmp_path).offsets == {("orders", "g"): {0: 1}}
        assert on_loop(server, lambda gateway: gateway.store.progress.get("orders", "g")) == {0: 1}
