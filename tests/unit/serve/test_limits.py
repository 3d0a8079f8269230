"""What clients can make a gateway keep is bounded, and the others do not notice."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.consuming.locks import LOCK_MILLIS, LockedQueue, Locks
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.wire.frames import Answer, Request
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

ROUTE = 105
SMALL = StoreConfig.small()
PARTIAL = struct.pack(">ii", 16 << 20, 100)


def server_with(path: Path | None = None, **limits: Any) -> Server:
    return Server(path, Settings(limits=Limits(**limits)), SMALL)


def is_served(client: RemotingClient) -> bool:
    return client.ask(ROUTE, {"topic": "TBW102"}).code == 0


def is_closed(client: RemotingClient) -> bool:
    try:
        client.socket.settimeout(60)
        while client.socket.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def connection_of(server: Server, client: RemotingClient) -> Any:
    return next(one for one in server.gateway.connections.open if one.peer == client.name)


def test_one_connection_too_many(wait_until: Callable[..., None]) -> None:
    with server_with(connections=3) as server:
        kept = [RemotingClient(server.address) for _ in range(3)]
        assert all(is_served(one) for one in kept)
        for _ in range(20):
            with RemotingClient(server.address) as late:
                assert is_closed(late)
        assert all(is_served(one) for one in kept)
        kept.pop().close()
        wait_until(lambda: server.in_loop(lambda: len(server.gateway.connections.open)) == 2)
        with RemotingClient(server.address) as another:
            assert is_served(another)
        for one in kept:
            one.close()


def test_only_whole_frames_count_as_traffic(wait_until: Callable[..., None]) -> None:
    with (
        server_with() as server,
        RemotingClient(server.address) as slow,
        RemotingClient(server.address) as other,
    ):
        assert is_served(slow)
        assert is_served(other)
        connection = server.in_loop(lambda: connection_of(server, slow))

        def age() -> None:
            for one in server.gateway.connections.open:
                one.last_used -= 121

        server.in_loop(age)
        before = connection.last_used
        slow.socket.sendall(PARTIAL)
        wait_until(lambda: connection.kept == 8)
        slow.socket.sendall(b"x")
        wait_until(lambda: connection.kept == 9)
        assert connection.last_used == before
        assert is_served(other)
        server.in_loop(server.gateway.clients.close_silent)
        assert is_closed(slow)
        assert is_served(other)


def test_a_silent_client_that_does_not_read_is_gone(wait_until: Callable[..., None]) -> None:
    with (
        server_with(write_buffer=1 << 16, idle_seconds=1000) as server,
        RemotingClient(server.address) as slow,
    ):
        assert is_served(slow)
        connection = server.in_loop(lambda: connection_of(server, slow))
        answer = bytes(1 << 20)

        def fill() -> bool:
            connection.write(answer)
            return bool(connection.is_slow)

        wait_until(lambda: server.in_loop(fill))
        connection.last_used -= 1001
        server.in_loop(server.gateway.clients.close_silent)
        wait_until(lambda: not server.in_loop(lambda: server.gateway.connections.open))


def test_incomplete_frames_of_all_are_bounded(
    wait_until: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        server_with(read_buffers=1 << 20) as server,
        RemotingClient(server.address) as large,
        RemotingClient(server.address) as small,
        RemotingClient(server.address) as other,
    ):
        large.socket.sendall(PARTIAL + bytes(700 << 10))
        wait_until(lambda: server.gateway.connections.kept_frames.taken == 8 + (700 << 10))
        header = b'{"code":105,"extFields":{"topic":"TBW102"},"opaque":77}'
        size = 600 << 10
        frame = struct.pack(">ii", 4 + len(header) + size, len(header)) + header + bytes(size)
        small.socket.sendall(frame[:-1])
        assert is_closed(large)
        assert "bytes of frames are not complete" in caplog.text
        small.socket.sendall(frame[-1:])
        assert small.answer(77).code == 0
        assert is_served(other)
        assert server.in_loop(lambda: server.gateway.connections.kept_frames.taken) == 0


def test_who_leaves_an_incomplete_frame_is_not_counted(wait_until: Callable[..., None]) -> None:
    with server_with() as server:
        for _ in range(3):
            with RemotingClient(server.address) as client:
                client.socket.sendall(PARTIAL + bytes(1000))
                wait_until(lambda: server.gateway.connections.kept_frames.taken == 1008)
            wait_until(lambda: server.gateway.connections.kept_frames.taken == 0)


def test_requests_to_who_does_not_read_are_bounded(wait_until: Callable[..., None]) -> None:
    with (
        server_with(write_buffer=1 << 16) as server,
        RemotingClient(server.address) as slow,
        RemotingClient(server.address) as other,
    ):
        assert is_served(slow)
        connection = server.in_loop(lambda: connection_of(server, slow))

        def notify() -> bool:
            for _ in range(1000):
                connection.notify(40, {"consumerGroup": "g" * 100})
            transport = connection._transport
            assert transport is None or transport.get_write_buffer_size() < (1 << 18)
            return not connection.is_open

        wait_until(lambda: server.in_loop(notify))
        assert is_served(other)
        assert is_closed(slow)


def test_requests_that_are_answered_later_are_bounded(wait_until: Callable[..., None]) -> None:
    begun: list[int] = []
    with (
        server_with() as server,
        RemotingClient(server.address) as many,
        RemotingClient(server.address) as other,
    ):
        gate = server.in_loop(asyncio.Event)

        async def wait(connection: Any, request: Any) -> Answer:
            begun.append(request.opaque)
            await gate.wait()
            return Answer()

        server.in_loop(server.gateway.handlers.__setitem__, 7777, wait)
        asked = [many.send(7777) for _ in range(500)]
        wait_until(lambda: len(begun) == 64)
        assert is_served(other)
        assert len(begun) == 64
        server.in_loop(gate.set)
        assert all(many.answer(one).code == 0 for one in asked)
        assert begun == asked


def test_no_file_is_left_for_a_connection(
    wait_until: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Accepting is not tried over and over meanwhile, and those that are connected are served."""
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    said = "no connection is accepted for a second"
    with server_with() as server, RemotingClient(server.address) as known:
        assert is_served(known)
        with socket.socket() as late:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            least = os.dup(late.fileno())
            os.close(least)
            begun = time.monotonic()
            resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
            try:
                late.connect(("127.0.0.1", server.gateway.settings.port))
                wait_until(lambda: said in caplog.text)
                for _ in range(50):
                    assert is_served(known)
                said_so_often = caplog.text.count(said)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert said_so_often <= 1 + time.monotonic() - begun
            wait_until(lambda: server.in_loop(lambda: len(server.gateway.connections.open)) == 2)


@pytest.mark.parametrize("code", [25, 50, 51, 53, 54, 318])
def test_what_is_never_done(code: int) -> None:
    with server_with() as server, RemotingClient(server.address) as client:
        before = server.store.config
        body = b"rmqAddressServerDomain=x\nrocketmqHome=/tmp/x\nconfigStorePath=/tmp/x\n"
        answer = client.ask(code, {"accessKey": "a", "secretKey": "b" * 9, "topic": "t"}, body)
        assert (answer.code, answer.remark) == (16, f"request type {code} is not permitted")
        assert answer.body == b""
        assert server.store.config == before


def test_locks_beyond_the_most_cost_little() -> None:
    """Those that are expired are found without a look at the others."""
    now = [0]
    locks = Locks(lambda: now[0], most=3000)
    queues = [LockedQueue("t", "b", number) for number in range(3000)]
    assert len(locks.lock("g", queues[:1000], "c", "a")) == 1000
    looked = locks._groups["g"] = _Counting(locks._groups["g"])
    assert locks.lock("g", queues[1000:], "d", "a") == []
    assert len(locks.lock("other", queues[1000:], "d", "a")) == 334
    assert looked.passes == 0
    now[0] = LOCK_MILLIS
    assert locks.lock("other", queues[2000:], "d", "a") == []
    assert looked.passes == 0
    now[0] = LOCK_MILLIS + 1
    assert len(locks.lock("g", queues[1000:2000], "d", "a")) == 1000


class _Counting(dict[Any, Any]):
    """Counts how often all of it is looked at."""

    passes = 0

    def items(self) -> Any:
        self.passes += 1
        return super().items()


def test_a_held_pull_keeps_no_body(wait_until: Callable[..., None]) -> None:
    with server_with(held_bytes=20_000) as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", queue_nums=1)
        pull = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0,
                "maxMsgNums": 1, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 60_000,
                "subVersion": 0, "subscription": "paid", "other": "x" * 50_000}  # fmt: skip
        held = client.send(11, pull, bytes(1 << 20))
        wait_until(lambda: len(server.gateway.holds))
        (hold,) = server.gateway.holds._holds.values()
        request = hold.pull.request
        assert (request.body, request.fields) == (b"", {"subscription": "paid"})
        large = client.send(11, {**pull, "subscription": "||".join(["paid"] * 2000)})
        wait_until(lambda: len(server.gateway.holds) == 2)
        assert client.ask(11, pull).code == 19  # no room: answered at once
        server.store.put("orders", b"1", tags="paid", queue_id=0)
        for opaque in (held, large):
            assert client.answer(opaque).code == 0
        wait_until(lambda: not len(server.gateway.holds))
        assert server.gateway.holds._sizes.taken == 0


def test_an_answer_that_is_not_due_is_not_given_twice() -> None:
    with server_with(offsets=1) as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", queue_nums=2)
        pull = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0,
                "maxMsgNums": 1, "sysFlag": 5, "commitOffset": "one", "suspendTimeoutMillis": 0,
                "subVersion": 0, "subscription": "*"}  # fmt: skip
        assert client.ask(11, pull).code == 1
        assert client.is_quiet(0.1)
        for queue_id in range(2):  # the second offset is one too many
            assert client.ask(11, {**pull, "commitOffset": 0, "queueId": queue_id}).code == 19
        assert client.is_quiet(0.1)
        assert server.store.offsets[("orders", "g")] == {0: 0}


def test_offsets_are_bounded(tmp_path: Path) -> None:
    commit = {"topic": "orders", "queueId": 0, "commitOffset": 1}
    with server_with(tmp_path, offsets=6) as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", queue_nums=2)
        for group in "abc":
            assert client.ask(15, {**commit, "consumerGroup": group}).code == 0
        for other in ({"consumerGroup": "d"}, {"consumerGroup": "a", "queueId": 1}):
            answer = client.ask(15, {**commit, **other})
            assert (answer.code, answer.remark) == (
                1,
                "there are 3 offsets already: the share of the group "
                f"{other['consumerGroup']} or of 127.0.0.1 is used up",
            )
        answer = client.ask(314, {"srcGroup": "a", "destGroup": "d", "offline": "true"})
        assert answer.code == 1
        assert client.ask(15, {**commit, "consumerGroup": "b", "commitOffset": 2}).code == 0
        assert server.store.offsets[("orders", "b")] == {0: 2}
    with server_with(tmp_path, offsets=3) as server, RemotingClient(server.address) as client:
        assert client.ask(15, {**commit, "consumerGroup": "d"}).code == 1
        assert client.ask(207, {"groupName": "c", "removeOffset": "true"}).code == 0
        assert client.ask(15, {**commit, "consumerGroup": "d"}).code == 0


def heartbeat(group: str, expression: str) -> bytes:
    one = {"topic": "orders", "subString": expression, "subVersion": len(expression)}
    consumer = {"groupName": group, "subscriptionDataSet": [one]}
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()


def test_subscriptions_of_all_are_bounded() -> None:
    with (
        server_with(subscription_bytes=60_000) as server,
        RemotingClient(server.address) as client,
        RemotingClient(server.address) as other,
    ):
        clients = server.gateway.clients
        assert client.ask(34, None, heartbeat("a", "x" * 9000)).code == 0
        assert client.ask(34, None, heartbeat("b", "x" * 9000)).code == 0
        refused = client.ask(34, None, heartbeat("c", "x" * 9000))
        assert (refused.code, refused.remark) == (
            1,
            "subscriptions have 18524 bytes already: the share of 127.0.0.1 or of "
            f"{client.name} is used up",
        )
        assert set(clients.groups) == {"a", "b"}
        assert client.ask(34, None, heartbeat("b", "x" * 9001)).code == 0  # in place of the old
        assert other.ask(34, None, heartbeat("b", "x" * 9001)).code == 0
        assert client.ask(35, {"clientID": "c", "consumerGroup": "a"}).code == 0
        assert client.ask(34, None, heartbeat("c", "x" * 9000)).code == 0
        for one in (client, other):
            for group in "bc":
                one.ask(35, {"clientID": "c", "consumerGroup": group})
        assert (clients.groups, clients._sizes.taken) == ({}, 0)


def test_subscriptions_are_counted_as_they_are_in_memory() -> None:
    """A text has four bytes a letter where one of them is no plain one."""
    with server_with(subscription_bytes=60_000) as server, RemotingClient(server.address) as client:
        wide = "\N{GRINNING FACE}"
        assert client.ask(34, None, heartbeat("a", "x" * 14_800 + wide)).code == 0
        assert 59_200 < server.gateway.clients._sizes.taken < 60_000
        assert client.ask(35, {"clientID": "c", "consumerGroup": "a"}).code == 0
        assert client.ask(34, None, heartbeat("a", "x" * 15_000 + wide)).code == 1
        assert client.ask(34, None, heartbeat("a", "x" * 59_700)).code == 0
        assert client.ask(35, {"clientID": "c", "consumerGroup": "a"}).code == 0
        assert server.gateway.clients._sizes.taken == 0


def test_bodies_of_requests_that_are_answered_later_are_bounded(
    wait_until: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[int] = []
    with (
        server_with(write_buffer=1 << 20, read_buffers=8 << 20) as server,
        RemotingClient(server.address) as many,
        RemotingClient(server.address) as other,
    ):
        gate = server.in_loop(asyncio.Event)

        async def wait(connection: Any, request: Any) -> Answer:
            begun.append(request.opaque)
            await gate.wait()
            return Answer()

        server.in_loop(server.gateway.handlers.__setitem__, 7777, wait)
        body = bytes(1500 << 10)
        asked = [many.send(7777, None, body) for _ in range(3)]
        wait_until(lambda: len(begun) == 3)
        assert is_served(other)
        threading.Thread(target=lambda: asked.append(many.send(7777, None, body))).start()
        wait_until(lambda: server.gateway.connections.kept_frames.taken >= 3 * len(body))
        assert is_served(other)
        assert len(begun) == 3  # the fourth one waits until a body is gone
        server.in_loop(gate.set)
        wait_until(lambda: len(begun) == 4)
        wait_until(lambda: len(asked) == 4)
        assert all(many.answer(one).code == 0 for one in asked)
        wait_until(lambda: server.gateway.connections.kept_frames.taken == 0)


def test_a_message_that_waits_for_the_disk_keeps_no_body() -> None:
    """What waits is the answer; the message is in the log."""
    held: list[int] = []
    config = SMALL.replace(flush_disk_type="SYNC_FLUSH")
    with Server(None, Settings(), config) as server, RemotingClient(server.address) as client:
        hold = server.gateway.durable.hold

        def remember(stop: int, callback: Any) -> None:
            held.append(server.gateway.connections.unanswered)
            assert not any(isinstance(one, Request) for one in gc.get_referents(callback))
            hold(stop, callback)

        server.in_loop(setattr, server.gateway.durable, "hold", remember)
        fields = {"a": "p", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0,
                  "i": "DELAY\x011\x02", "j": 0, "k": "false", "m": "false"}  # fmt: skip
        for _ in range(2):  # the first one waits for its topics
            assert client.ask(310, fields, b"x" * 1000).code == 0
        assert 200 < held[-1] < 1000
        assert server.in_loop(lambda: server.gateway.connections.unanswered) == 0
        assert server.store["SCHEDULE_TOPIC_XXXX"][0][0].body == b"x" * 1000
