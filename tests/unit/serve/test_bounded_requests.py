"""What one request may cost: bodies, answers, names, and what others have a client asked."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore import StoreConfig
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.serve.admin import groups, progress, resets, topics
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.wire.frames import MAX_FRAME, Answer, Request
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat, wait_until
from support.unread import is_settled

SEND = {"a": "p", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "",
        "j": 0, "k": "false", "m": "false"}  # fmt: skip
BACK: dict[str, object] = {"delayLevel": 1, "originTopic": "orders", "maxReconsumeTimes": 16}


def server_with(**limits: Any) -> Server:
    return Server(None, Settings(limits=Limits(**limits)), StoreConfig.small())


@pytest.fixture
def server() -> Iterator[Server]:
    with server_with() as made:
        made.store.create_topic("orders", queue_nums=2)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[RemotingClient]:
    with RemotingClient(server.address) as made:
        yield made


def test_an_answer_that_is_no_frame_is_an_error(server: Server, client: RemotingClient) -> None:
    def huge(connection: Any, request: Any) -> Answer:
        return Answer(body=bytes(MAX_FRAME + 1))

    async def huge_later(connection: Any, request: Any) -> Answer:
        return huge(connection, request)

    server.in_loop(server.gateway.handlers.update, {7777: huge, 7778: huge_later})
    for code in (7777, 7778):
        answer = client.ask(code)
        assert (answer.code, answer.body) == (1, b"")
        assert str(MAX_FRAME) in (answer.remark or "")


def test_progress_of_too_many_queues_is_not_listed(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_MAX_QUEUES", 4)
    for group in "ab":
        assert client.ask(34, None, heartbeat(f"c{group}", [consumer(group, {})], [])).code == 0
        server.store.progress.commit("orders", group, 0, 1)
    assert len(client.ask(317, {"isOrder": "false"}).body) > 0
    server.store.progress.commit("orders", "a", 1, 1)
    server.store.create_topic("other", queue_nums=1)
    server.store.progress.commit("other", "a", 0, 1)
    assert client.ask(208, {"consumerGroup": "a"}).code == 0
    refused = client.ask(317, {"isOrder": "false"})
    assert (refused.code, refused.remark) == (1, "the answer would have more than 4 queues")
    monkeypatch.setattr(progress, "_MAX_QUEUES", 2)
    assert client.ask(208, {"consumerGroup": "a"}).code == 1
    assert client.ask(208, {"consumerGroup": "b"}).code == 0


def test_what_others_have_a_client_asked_does_not_pile_up() -> None:
    with (
        server_with(write_buffer=1 << 20) as server,
        RemotingClient(server.address) as slow,
        RemotingClient(server.address) as operator,
    ):
        assert slow.ask(34, None, heartbeat("slow", [consumer("g", {"orders": "*"})], [])).code == 0
        stored = server.store.put("orders", bytes(1 << 20))
        fields: dict[str, object] = {
            "consumerGroup": "g", "clientId": "slow", "msgId": stored.msg_id,
        }  # fmt: skip
        asked = [operator.send(309, fields) for _ in range(60)]
        remarks = []
        while not remarks:
            answer = operator.answer(asked.pop())
            remarks = [answer.remark] if "does not read" in (answer.remark or "") else []
        connection = next(one for one in server.gateway.connections.open if one.peer == slow.name)
        assert server.in_loop(lambda: connection.unwritten) < 4 << 20


def test_fields_of_requests_that_are_answered_later_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A text has four bytes a letter where one of them is no plain one."""
    monkeypatch.setattr(resets, "_STATUS_SECONDS", 1000.0)
    wide = "x" * 50_000 + "\N{GRINNING FACE}"
    status: dict[str, object] = {"topic": "orders", "group": "g", "other": wide}
    with (
        server_with(unanswered=2 << 20) as server,
        RemotingClient(server.address) as silent,
        RemotingClient(server.address) as other,
    ):
        gateway = server.gateway
        body = heartbeat("silent", [consumer("g", {"orders": "*"})], [])
        assert silent.ask(34, None, body).code == 0
        with RemotingClient(server.address) as gone:
            gone.send(223, status)
            wait_until(lambda: server.in_loop(lambda: gateway.connections.unanswered) > 200_000)
        wait_until(lambda: server.in_loop(lambda: gateway.connections.unanswered) == 0)
        many = [RemotingClient(server.address) for _ in range(6)]
        for one in many:
            for _ in range(20):
                one.send(223, status)
        wait_until(lambda: sum(one._paused for one in list(gateway.connections.open)) == 6)
        # All of it, and of each connection the request that it had begun with.
        assert (
            1 << 20
            < server.in_loop(lambda: gateway.connections.unanswered)
            < (2 << 20) + 6 * 203_000
        )
        assert server.in_loop(lambda: gateway.connections.kept_frames.taken) >= server.in_loop(
            lambda: gateway.connections.unanswered
        )
        key: dict[str, object] = {
            "topic": "orders", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1,
        }  # fmt: skip
        assert other.ask(12, key).code == 22  # is answered later, too
        assert silent.ask(34, None, body).code == 0
        silent.close()
        wait_until(lambda: server.in_loop(lambda: gateway.connections.unanswered) == 0)
        for one in many:
            one.close()


@pytest.mark.parametrize("letter", ["a", "\xe9", "\u4e00", "\N{GRINNING FACE}"])
def test_what_is_counted_is_what_is_kept(letter: str) -> None:
    """Also of fields that were passed on: as UTF-8 they are not kept beside themselves."""
    with (
        server_with() as server,
        RemotingClient(server.address) as silent,
        RemotingClient(server.address) as operator,
    ):
        body = heartbeat("c", [consumer("g", {"orders": "*"})], [])
        assert silent.ask(34, None, body).code == 0
        fields: dict[str, object] = {"consumerGroup": "g", "clientId": "c", "o": letter * 20_000}
        asked = operator.send(307, fields, b"body")
        request = silent.next_request(307)
        assert request.fields == fields

        def kept() -> list[int]:
            found = [one for one in gc.get_objects() if isinstance(one, Request)]
            return [one.held_bytes for one in found if one.code == 307]

        (size,) = server.in_loop(kept)
        assert size == server.in_loop(lambda: server.gateway.connections.unanswered)
        silent.reply(request)
        assert operator.answer(asked).code == 0
        assert is_settled(server)


@pytest.mark.parametrize(("size", "code"), [(14_000, 0), (16_000, 1)])
def test_fields_of_an_answer_that_is_passed_on(size: int, code: int) -> None:
    """Its body is bounded by what the asker has left unread; fields have four bytes a letter."""
    with (
        server_with() as server,
        RemotingClient(server.address) as member,
        RemotingClient(server.address) as operator,
    ):
        body = heartbeat("c", [consumer("g", {"orders": "*"})], [])
        assert member.ask(34, None, body).code == 0
        asked = operator.send(307, {"consumerGroup": "g", "clientId": "c"})
        opaque = member.next_request(307).opaque
        fields = {"o": "x" * (size - 1) + "\N{GRINNING FACE}"}
        header = json.dumps({"code": 0, "flag": 1, "opaque": opaque, "extFields": fields}).encode()
        member.socket.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
        answer = operator.answer(asked)
        assert answer.code == code
        if code:
            said = r"consumer <g> <c> answers with fields of 6\d{4} bytes, may have 65536"
            assert re.fullmatch(said, answer.remark or "")
        else:
            assert answer.fields == fields


def test_what_consumers_say_is_counted_before_they_are_asked() -> None:
    """Of one asker after the other, whoever is silent among them."""
    status: dict[str, object] = {"topic": "orders", "group": "g"}
    with (
        server_with(write_buffer=64 << 10) as server,
        RemotingClient(server.address) as first,
        RemotingClient(server.address) as second,
        RemotingClient(server.address) as operator,
        RemotingClient(server.address, source="127.0.0.2") as other,
    ):
        for number, one in enumerate((first, second)):
            body = heartbeat(f"c{number}", [consumer("g", {"orders": "*"})], [])
            assert one.ask(34, None, body).code == 0
        asked = [operator.send(223, status) for _ in range(5)]
        table = b'{"messageQueueTable":{"%s":1}}' % (b"x" * 100_000)
        for number in asked:
            for one in (first, second):
                request = one.next_request(221)
                assert server.in_loop(lambda: server.gateway.connections.unread.taken) == 512 << 10
                assert not any(frame.code == 221 for frame in one.pushed)
                one.reply(request, body=table)
            answer = operator.answer(number)
            assert (answer.code, len(answer.body) > 200_000) == (0, True)
        waits = operator.send(223, status)
        requests = [one.next_request(221) for one in (first, second)]
        of_other = other.send(223, {**status, "clientAddr": "c0"})  # it has a share of its own
        first.reply(first.next_request(221), body=table)
        assert len(other.answer(of_other).body) > 100_000
        for one, request in zip((first, second), requests, strict=True):
            one.reply(request)
        assert operator.answer(waits).json == {"consumerTable": {}}
        assert is_settled(server)


def test_requests_that_came_while_others_had_the_room_are_answered() -> None:
    with (
        server_with(unanswered=1 << 20) as server,
        RemotingClient(server.address) as client,
        RemotingClient(server.address) as other,
    ):
        gates = {"first": asyncio.Event(), "other": asyncio.Event()}

        async def later(connection: Any, request: Any) -> Answer:
            if request.fields["gate"] in gates:
                await gates[request.fields["gate"]].wait()
            return Answer()

        server.in_loop(server.gateway.handlers.__setitem__, 7777, later)
        first = client.send(7777, {"gate": "first"})
        wait_until(lambda: server.in_loop(lambda: server.gateway.connections.unanswered) > 0)
        waits = other.send(7777, {"gate": "other"}, bytes(2 << 20))
        wait_until(lambda: server.in_loop(lambda: server.gateway.connections.unanswered) > 2 << 20)
        second = client.send(7777, {"gate": "none"})
        wait_until(
            lambda: (
                server.in_loop(
                    lambda: sum(
                        one.kept > one.unanswered for one in server.gateway.connections.open
                    )
                )
                == 1
            )
        )
        server.in_loop(gates["first"].set)
        assert [client.answer(one).code for one in (first, second)] == [0, 0]
        server.in_loop(gates["other"].set)
        assert other.answer(waits).code == 0


def test_a_request_of_all_that_may_wait_is_answered() -> None:
    with server_with(unanswered=1 << 20) as server, RemotingClient(server.address) as client:
        begun: list[int] = []

        async def later(connection: Any, request: Any) -> Answer:
            await asyncio.sleep(0)
            begun.append(server.gateway.connections.unanswered)
            return Answer()

        server.in_loop(server.gateway.handlers.__setitem__, 7777, later)
        asked = [client.send(7777, {"one": "x" * 100_000}, bytes(10 << 20)) for _ in range(3)]
        assert [client.answer(one).code for one in asked] == [0, 0, 0]
        assert max(begun) < 11 << 20


def test_a_language_is_a_short_name(server: Server, client: RemotingClient) -> None:
    for language, seen in (("RUST", "RUST"), ("x" * 32, "x" * 32), ("x" * 33, "OTHER")):
        body = heartbeat("c", [consumer("g", {"orders": "*"})], [])
        assert client.ask(34, None, body, language=language).code == 0
        (member,) = client.ask(203, {"consumerGroup": "g"}).json["connectionSet"]
        assert member["language"] == seen


def test_a_group_is_a_short_text(server: Server, client: RemotingClient) -> None:
    body = json.dumps({"groupName": "g", "other": "x" * (64 << 10)}).encode()
    answer = client.ask(200, None, body)
    assert answer.code == 1
    assert answer.remark == f"the body must be at most 65536 bytes, got {len(body)}"
    assert client.ask(200, None, b'{"groupName":"g"}').code == 0
    assert list(server.store.groups) == ["g"]


def test_a_batch_that_is_too_long_is_not_looked_into(
    server: Server, client: RemotingClient
) -> None:
    item = struct.pack(">iiiiih", 22, 0, 0, 0, 0, 0)
    most = server.store.config.max_message_size
    for properties in ("WAIT\1true", "DELAY\x011"):  # in the core, and without it
        fields = {**SEND, "i": properties, "m": "true"}
        assert client.ask(320, fields, item * (most // len(item) + 1)).code == 13
        assert client.ask(320, fields, item).code == 0


def test_topics_and_groups_that_clients_make_are_bounded() -> None:
    with server_with(topics=5) as server, RemotingClient(server.address) as client:
        stored = server.store.put("orders", b"1")
        for number, code in enumerate((0, 0, 0, 17)):
            assert client.ask(310, {**SEND, "b": f"%RETRY%g{number}"}).code == code
        assert client.ask(310, {**SEND, "b": "%DLQ%g"}).code == 17
        assert client.ask(310, {**SEND, "b": "other"}).code == 17
        assert client.ask(310, {**SEND, "b": "%RETRY%g1"}).code == 0
        back = {**BACK, "offset": stored.physical_offset}
        for number in range(3):
            assert client.ask(36, {**back, "group": f"b{number}"}).code == 0
            server.store.progress.commit("orders", f"b{number}", 0, 1)
        refused = client.ask(36, {**back, "group": "b3"})
        assert (refused.code, refused.remark) == (
            1, "the group b3 is not made: there are 3 already, 3 of 127.0.0.1",
        )  # fmt: skip
        assert client.ask(36, {**back, "group": "b0"}).code == 0
        assert sorted(server.store.groups) == ["b0", "b1", "b2"]


def test_members_of_all_groups_are_bounded(server: Server, client: RemotingClient) -> None:
    known = server.gateway.clients
    known._members.most = 9
    with RemotingClient(server.address) as other:
        for one in (client, other):
            body = heartbeat(one.name, [consumer("g", {"orders": "*"})], ["p"])
            for _ in range(2):
                assert one.ask(34, None, body).code == 0
        more = heartbeat(client.name, [consumer("g", {"orders": "*"})], ["p", "q"])
        refused = client.ask(34, None, more)
        assert (refused.code, refused.remark) == (
            1,
            f"groups have 4 members already: the share of 127.0.0.1 or of {client.name} is used up",
        )  # fmt: skip
        assert set(known.producer_groups) == {"p"}
        assert other.ask(35, {"clientID": other.name, "producerGroup": "p"}).code == 0
        assert other.ask(35, {"clientID": other.name, "producerGroup": "p"}).code == 0
        assert client.ask(34, None, more).code == 0
    wait_until(lambda: server.in_loop(lambda: known._members.taken) == 3)


def test_topics_and_groups_that_operators_make_are_bounded(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_MAX_TOPICS", 2)
    monkeypatch.setattr(groups, "_MAX_GROUPS", 1)
    made: dict[str, object] = {
        "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    for name, code in (("t1", 0), ("t2", 1), ("t1", 0)):
        assert client.ask(17, {**made, "topic": name}).code == code
    for name, code in (("g1", 0), ("g2", 1), ("g1", 0)):
        assert client.ask(200, None, b'{"groupName":"%s"}' % name.encode()).code == code


TOPIC: dict[str, object] = {
    "defaultTopic": "TBW102", "perm": 7, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
    "order": "false",
}  # fmt: skip


def queues_of(server: Server, topic: str) -> tuple[int, int]:
    entry = server.store.registry.get(topic)
    assert entry is not None
    return entry.read_queue_nums, entry.write_queue_nums


def test_queues_that_clients_ask_for_are_bounded(server: Server, client: RemotingClient) -> None:
    def asked(topic: str, read: int, write: int) -> tuple[int, str | None]:
        fields = {**TOPIC, "topic": topic, "readQueueNums": read, "writeQueueNums": write}
        answer = client.ask(17, fields)
        return answer.code, answer.remark

    assert asked("t", 1024, 1024)[0] == 0
    for read, write in ((1025, 1), (1, 1025), (65_536, 65_536)):
        assert asked("more", read, write) == (
            1, f"more is not given {max(read, write)} queues: clients may ask for 1024, or for "
            "what defaultTopicQueueNums of the broker.conf has if that is more",
        )  # fmt: skip
    assert "more" not in server.store
    server.store.create_topic("large", queue_nums=4096)
    assert asked("large", 4096, 4096)[0] == 0  # as many as there are
    assert asked("large", 4097, 4096)[0] == 1
    assert asked("large", 8, 8)[0] == 0
    assert asked("large", 4096, 4096)[0] == 1
    assert queues_of(server, "large") == (8, 8)


def test_a_send_makes_no_more_queues_than_clients_may_ask_for() -> None:
    with server_with(queues=4) as server, RemotingClient(server.address) as client:
        server.store.create_topic("model", queue_nums=64, perm=7)
        fields = {**SEND, "b": "t", "c": "model", "d": 64}
        assert client.ask(310, fields).code == 0
        assert queues_of(server, "t") == (8, 8)  # as many as defaultTopicQueueNums has


def test_the_configuration_may_allow_more_queues() -> None:
    settings = Settings(default_queue_nums=4096)
    with (
        Server(None, settings, StoreConfig.small()) as server,
        RemotingClient(server.address) as client,
    ):
        fields = {**TOPIC, "topic": "t", "readQueueNums": 4096, "writeQueueNums": 4096}
        assert client.ask(17, fields).code == 0
        assert client.ask(17, {**fields, "readQueueNums": 4097}).code == 1


def test_retry_queues_that_clients_ask_for_are_bounded(
    server: Server, client: RemotingClient
) -> None:
    refused = client.ask(200, None, b'{"groupName":"g","retryQueueNums":1025}')
    assert refused.code == 1
    assert (refused.remark or "").startswith("%RETRY%g is not given 1025 queues: ")
    assert client.ask(200, None, b'{"groupName":"g","retryQueueNums":1024}').code == 0
    groups = server.store.group_entries
    with groups.lock:  # as a broker's operator may have it
        groups.put(GroupConfig("h", retry_queue_nums=5000))
    body = heartbeat("c", [consumer(name, {"orders": "*"}) for name in "gh"], [])
    assert client.ask(34, None, body).code == 0
    assert queues_of(server, "%RETRY%g") == queues_of(server, "%RETRY%h") == (1024, 1024)


def test_who_comes_while_the_files_are_written_does_not_wait(
    server: Server, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may take its time: the loop goes on, for members and for new groups."""
    begun, go_on = threading.Event(), threading.Event()
    save = ConfigFile.save

    def slow(self: ConfigFile, value: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        save(self, value)

    monkeypatch.setattr(ConfigFile, "save", slow)
    try:
        for name in "abc":
            body = heartbeat(name, [consumer(name, {"orders": "*"})], [])
            assert client.ask(34, None, body, seconds=20).code == 0
            assert begun.wait(60)
    finally:
        go_on.set()
    wait_until(lambda: server.gateway.new_groups._saving is None)
    file = Path(server.store.path, "config", "subscriptionGroup.json")
    assert sorted(json.loads(file.read_text())["subscriptionGroupTable"]) == ["a", "b", "c"]


def test_pulls_of_a_client_that_does_not_read_cost_nothing() -> None:
    with (
        server_with(write_buffer=1 << 16) as server,
        RemotingClient(server.address) as slow,
    ):
        server.store.create_topic("orders", queue_nums=1)
        pull: dict[str, object] = {
            "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0,
            "maxMsgNums": 1, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 60_000,
            "subVersion": 0, "subscription": "*",
        }  # fmt: skip
        asked = [slow.send(11, pull) for _ in range(200)]
        wait_until(lambda: len(server.gateway.holds) == 200)
        server.store.put("orders", bytes(200 << 10), queue_id=0)
        holds = server.gateway.holds
        wait_until(lambda: server.in_loop(lambda: sum(map(len, holds._slow.values()))))
        held = server.in_loop(lambda: len(holds))
        wait_until(lambda: server.in_loop(lambda: [len(one) for one in holds._slow.values()])
                   == [held])  # fmt: skip
        assert held > 0
        assert all(slow.answer(one).code == 0 for one in asked)
        wait_until(lambda: not server.in_loop(lambda: len(holds) + len(holds._slow)))


def test_a_name_of_megabytes_is_not_kept(client: RemotingClient) -> None:
    """The names that were checked last are kept; a body can have thousands of long ones."""
    bodies = [heartbeat("c", [consumer("g" * 500_000, {"orders": "*"})]),
              heartbeat("c", None, ["p" * 500_000])]  # fmt: skip
    tracemalloc.start()
    try:
        for code, body in [
            *((34, body) for body in bodies),
            (401, json.dumps({"topic": "t", "consumerGroup": "m" * 60_000}).encode()),
        ]:
            answer = client.ask(code, None, body)
            assert (answer.code, answer.remark) == (
                1, "The specified group is longer than group max length."
            )  # fmt: skip
        assert client.ask(105, {"topic": "orders"}).code == 0
        assert tracemalloc.get_traced_memory()[0] < 400_000
    finally:
        tracemalloc.stop()
