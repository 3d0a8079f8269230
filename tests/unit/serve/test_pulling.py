"""Pulls over the wire: what is checked, what comes back, and what is held."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rmqstore.config.store_config import StoreConfig
from rmqstore.serve import Server
from rmqstore.serve.network.connection import Connection
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.wire.frames import FAQ
from rmqstore.types import GetStatus
from support.remoting import Frame, RemotingClient
from support.serving import bodies, consumer, end_holds, heartbeat, on_loop, wait_until

COMMIT, SUSPEND, SUBSCRIPTION, LITE = 1, 2, 4, 16


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("orders", 4)
        for number in range(40):
            made.store.put("orders", b"%d" % number, queue_id=0, tags=f"t{number % 2}",
                           properties={"n": str(number)})  # fmt: skip
        made.store.get("orders", 0, 39)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def fields(group: str = "g", topic: str = "orders", **other: Any) -> dict[str, object]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": SUBSCRIPTION, "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    } | {name: str(value) for name, value in other.items()}  # fmt: skip


def pull(client: RemotingClient, *, code: int = 11, **other: Any) -> Frame:
    return client.ask(code, fields(**other))


def place(frame: Frame) -> tuple[int, str | None, int, int, int]:
    assert frame.fields is not None
    assert frame.fields["suggestWhichBrokerId"] == "0"
    return (
        frame.code, frame.remark, *(int(frame.fields[name])
        for name in ("nextBeginOffset", "minOffset", "maxOffset")),
    )  # fmt: skip


@pytest.mark.parametrize("code", [11, 361])
def test_records_are_those_stored(server: Server, client: RemotingClient, code: int) -> None:
    answer = pull(client, code=code, queueOffset=3, maxMsgNums=5)
    assert place(answer) == (0, "FOUND", 8, 0, 40)
    messages = server.store.get("orders", 0, 3, 5).messages
    assert answer.body == b"".join(server.store.core.record_bytes(one) for one in messages)
    assert bodies(answer) == [b"3", b"4", b"5", b"6", b"7"]


def test_at_most_32_messages_and_what_a_client_of_5_wants(client: RemotingClient) -> None:
    assert len(bodies(pull(client, maxMsgNums=1000))) == 32
    assert len(bodies(pull(client, maxMsgNums=0))) == 1
    one = len(pull(client, maxMsgNums=1).body)
    assert len(bodies(pull(client, maxMsgBytes=one * 3 + 20))) == 3
    assert len(bodies(pull(client, maxMsgBytes=1))) == 1


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ({"subscription": "t1"}, range(1, 40, 2)),
        ({"subscription": "t0||t1", "maxMsgNums": 4}, range(4)),
        ({"subscription": " t1 || "}, range(1, 40, 2)),
        ({"subscription": "t1", "expressionType": "TAG"}, range(1, 40, 2)),
        ({"subscription": "n > 35", "expressionType": "SQL92"}, range(36, 40)),
        ({"subscription": ""}, range(32)),
    ],
)
def test_filters_of_the_request(client: RemotingClient, other: Any, wanted: range) -> None:
    answer = pull(client, **other)
    assert bodies(answer) == [b"%d" % number for number in wanted][:32]


@pytest.mark.parametrize(
    ("queue", "offset", "expected"),
    [
        (0, 40, (19, "OFFSET_OVERFLOW_ONE", 40, 0, 40)),
        (0, 41, (21, "OFFSET_OVERFLOW_BADLY", 0, 0, 40)),
        (0, -1, (21, "OFFSET_TOO_SMALL", 0, 0, 40)),
        (1, 0, (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)),
        (1, 5, (21, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)),
    ],
)
def test_statuses(client: RemotingClient, queue: int, offset: int, expected: Any) -> None:
    answer = pull(client, queueId=queue, queueOffset=offset)
    assert place(answer) == expected
    assert answer.body == b""


def test_nothing_matched_goes_on(client: RemotingClient) -> None:
    asked = {"subscription": "other", "sysFlag": SUBSCRIPTION | SUSPEND}
    answer = pull(client, **asked, suspendTimeoutMillis=10_000)
    assert place(answer) == (20, "NO_MATCHED_MESSAGE", 40, 0, 40)


def refused(client: RemotingClient, **other: Any) -> tuple[int, str | None]:
    answer = pull(client, **other)
    assert answer.fields == {}
    assert answer.body == b""
    return answer.code, answer.remark


def test_checks_in_their_order(server: Server, client: RemotingClient) -> None:
    store = server.store
    store.create_topic("secret", 1, perm=2)
    store.create_group("closed")
    groups = store.group_entries
    groups.put(dataclasses.replace(groups.get("closed"), consume_enable=False))
    assert pull(client, group="../x", topic="unknown").code == 1
    assert refused(client, group="closed", topic="unknown", queueId=9) == (
        16, "subscription group no permission, closed",
    )  # fmt: skip
    assert refused(client, topic="unknown", queueId=9) == (
        17, "topic[unknown] not exist, apply first please! " + FAQ,
    )  # fmt: skip
    assert refused(client, topic="secret", queueId=9) == (
        16, "the topic[secret] pulling message is forbidden",
    )  # fmt: skip
    for queue in (4, -1):
        assert refused(client, queueId=queue, subscription="x >", expressionType="SQL92") == (
            1, f"queueId[{queue}] is illegal, topic:[orders] topicConfig.readQueueNums:[4] "
               f"consumer:[/{client.name}]",
        )  # fmt: skip
    for expression, kind in (("x >", "SQL92"), ("", "SQL92"), ("||", "TAG"), ("x", "GROOVY")):
        assert refused(client, subscription=expression, expressionType=kind) == (
            23, "parse the consumer's subscription failed",
        )  # fmt: skip
    missing = fields()
    del missing["queueOffset"]
    assert client.ask(11, missing).code == 1
    assert pull(client, queueOffset="x").code == 1


def test_the_subscription_of_the_heartbeat(server: Server, client: RemotingClient) -> None:
    asked = {"group": "beating", "sysFlag": 0}
    none = "the consumer's group info not exist"
    assert refused(client, **asked) == (24, none + FAQ)
    client.ask(34, None, heartbeat("c", [consumer("beating", {"orders": "t1"}, version=5)]))
    assert refused(client, group="beating", topic="%RETRY%beating", sysFlag=0) == (
        24, "the consumer's subscription not exist" + FAQ,
    )  # fmt: skip
    assert refused(client, **asked, subVersion=6) == (
        25, "the consumer's subscription not latest",
    )  # fmt: skip
    for version in (0, 5):
        assert len(bodies(pull(client, **asked, subVersion=version, subscription=""))) == 20
    client.ask(34, None, heartbeat("c", [
        consumer("beating", {"orders": "n < 3"}, version=7, kind="SQL92")]))  # fmt: skip
    assert len(bodies(pull(client, **asked, subVersion=7))) == 3
    client.ask(34, None, heartbeat("c", [
        consumer("beating", {"orders": "n <"}, version=8, kind="SQL92")]))  # fmt: skip
    assert refused(client, **asked, subVersion=8)[0] == 27
    client.ask(34, None, heartbeat("c", [
        consumer("beating", {"orders": "*"}, version=9, messageModel="BROADCASTING")]))  # fmt: skip
    groups = server.store.group_entries
    groups.put(dataclasses.replace(groups.get("beating"), consume_broadcast_enable=False))
    assert refused(client, **asked) == (
        16, "the consumer group[beating] can not consume by broadcast way",
    )  # fmt: skip


def test_a_group_that_nobody_makes() -> None:
    settings = Settings(auto_create_groups=False)
    with Server(None, settings, StoreConfig.small()) as server:
        server.store.create_topic("orders")
        with RemotingClient(server.address) as client:
            assert refused(client, group="new") == (
                26, "subscription group [new] does not exist, " + FAQ,
            )  # fmt: skip


def test_the_commit_offset_of_a_pull_is_kept(server: Server, client: RemotingClient) -> None:
    def committed() -> int | None:
        return server.store.progress.get("orders", "committing").get(0)

    pull(client, group="committing", commitOffset=7)
    assert committed() is None
    pull(client, group="committing", commitOffset=7, sysFlag=SUBSCRIPTION | COMMIT)
    wait_until(lambda: committed() == 7)


def hold(client: RemotingClient, millis: int = 20_000, **other: Any) -> int:
    return client.send(11, fields(**other, suspendTimeoutMillis=millis)
                       | {"sysFlag": SUBSCRIPTION | SUSPEND})  # fmt: skip


def held(server: Server) -> int:
    return on_loop(server, lambda gateway: len(gateway.holds))


def test_a_pull_is_held_until_a_message_comes(server: Server, client: RemotingClient) -> None:
    number = hold(client, 600_000, topic="orders", queueId=2)
    assert client.is_quiet(0.05)
    server.store.put("orders", b"elsewhere", queue_id=3)
    assert client.is_quiet(0.05)
    server.store.put("orders", b"here", queue_id=2)
    answer = client.answer(number)  # long before its time
    assert place(answer) == (0, "FOUND", 1, 0, 1)
    assert bodies(answer) == [b"here"]
    assert held(server) == 0


def test_a_message_that_does_not_match_wakes_nobody(client: RemotingClient, server: Server) -> None:
    server.store.create_topic("filtered", 2)
    for queue, (expression, kind) in enumerate((("t1", "TAG"), ("n > 5", "SQL92"))):
        number = hold(
            client, topic="filtered", queueId=queue, subscription=expression, expressionType=kind
        )
        wait_until(lambda: held(server) == 1)
        for _ in range(3):
            server.store.put("filtered", b"no", queue_id=queue, tags="t0", properties={"n": "1"})
        assert client.is_quiet(0.05)
        server.store.put("filtered", b"yes", queue_id=queue, tags="t1", properties={"n": "9"})
        answer = client.answer(number)
        assert place(answer) == (0, "FOUND", 4, 0, 4)
        assert bodies(answer) == [b"yes"]


def test_a_held_pull_ends_in_time(client: RemotingClient, server: Server) -> None:
    server.store.create_topic("quiet", 1)
    answer = client.answer(hold(client, 60, topic="quiet"))
    assert place(answer) == (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
    answer = client.answer(hold(client, 60, queueOffset=40))
    assert place(answer) == (19, "OFFSET_OVERFLOW_ONE", 40, 0, 40)
    number = hold(client, 600_000, topic="quiet", subscription="t1")
    wait_until(lambda: held(server) == 1)
    server.store.put("quiet", b"no", queue_id=0, tags="t0")
    server.store.get("quiet", 0, 0)  # it is in its queue
    end_holds(server)
    answer = client.answer(number)
    assert place(answer) == (20, "NO_MATCHED_MESSAGE", 1, 0, 1)
    assert held(server) == 0


@pytest.mark.parametrize(
    ("status", "code", "is_held"),
    [(GetStatus.MESSAGE_WAS_REMOVING, 20, False), (GetStatus.OFFSET_FOUND_NULL, 19, True)],
)
def test_files_that_go_while_they_are_read(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch,
    status: GetStatus, code: int, is_held: bool,
) -> None:  # fmt: skip
    """Of a log's file the client asks again at once; of a queue's it may wait."""
    monkeypatch.setattr(server.store.core, "pull", lambda *_, **__: (status, 17, 3, 40, 0, b""))
    assert place(pull(client, queueOffset=5)) == (code, status.name, 17, 3, 40)
    number = hold(client, 600_000, queueOffset=5)
    if is_held:
        wait_until(lambda: held(server) == 1)
        end_holds(server)
    assert place(client.answer(number)) == (code, status.name, 17, 3, 40)


def test_pulls_of_a_slow_reader_wait(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what a client does not read would pile up here."""
    server.store.create_topic("slow", 1)
    slow = True
    asked = []

    def is_slow(connection: Connection) -> bool:
        asked.append(connection)
        return slow

    number = hold(client, topic="slow")
    wait_until(lambda: held(server) == 1)
    monkeypatch.setattr(Connection, "is_slow", property(is_slow))
    server.store.put("slow", b"1", queue_id=0)
    wait_until(lambda: len(asked) > 3)  # it is looked at again and again
    assert held(server) == 1
    assert client.is_quiet(0.05)
    slow = False
    assert bodies(client.answer(number)) == [b"1"]
    assert held(server) == 0


def test_many_held_pulls_end_in_time(client: RemotingClient, server: Server) -> None:
    server.store.create_topic("idle", 1)
    began = time.monotonic()
    numbers = [hold(client, 1_000, topic="idle") for _ in range(600)]
    for number in numbers:
        assert client.answer(number).code == 19
    assert time.monotonic() - began >= 0.99
    assert held(server) == 0


def test_a_pull_that_may_not_be_held(client: RemotingClient) -> None:
    for flag, millis in ((SUBSCRIPTION, 10_000), (SUBSCRIPTION | SUSPEND, 0)):
        answer = pull(client, queueOffset=40, sysFlag=flag, suspendTimeoutMillis=millis)
        assert answer.code == 19


def test_a_lost_connection_leaves_no_hold(server: Server) -> None:
    with RemotingClient(server.address) as client:
        for queue in range(1, 4):
            hold(client, queueId=queue, queueOffset=server.store.queue_bounds("orders", queue)[1])
        wait_until(lambda: held(server) == 3)
    wait_until(lambda: held(server) == 0)


def test_holds_are_limited_and_end_with_the_gateway() -> None:
    settings = Settings(limits=Limits(held_pulls=5))
    with Server(None, settings, StoreConfig.small()) as server:
        server.store.create_topic("t", 4)
        with RemotingClient(server.address) as client:
            numbers = [hold(client, topic="t", queueId=queue) for queue in range(3)]
            assert client.answer(numbers[2]).code == 19
            server.store.put("t", b"1", queue_id=0)
            assert client.answer(numbers[0]).code == 0
            assert held(server) == 1
            hold(client, topic="t", queueId=3)
            wait_until(lambda: held(server) == 2)
            server.close()
            with pytest.raises(ConnectionResetError):
                client.answer(numbers[1])


def test_a_topic_deleted_while_a_pull_waits(server: Server, client: RemotingClient) -> None:
    server.store.create_topic("going", 1)
    number = hold(client, 300, topic="going")
    wait_until(lambda: held(server) == 1)
    server.store.delete_topic("going")
    answer = client.answer(number)
    assert (answer.code, answer.fields) == (17, {})


def test_a_backlog_that_does_not_match_is_passed(server: Server, client: RemotingClient) -> None:
    """Of one pull the store reads 800 units at most."""
    server.store.create_topic("long", 1)
    number = hold(client, topic="long", subscription="t1")
    wait_until(lambda: held(server) == 1)
    server.store.put_many("long", [b"x"] * 20_000, queue_id=0, tags="t0")
    server.store.put("long", b"yes", queue_id=0, tags="t1")
    answer = client.answer(number)
    assert place(answer) == (0, "FOUND", 20_001, 0, 20_001)
    assert bodies(answer) == [b"yes"]
