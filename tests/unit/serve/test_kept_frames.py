"""Incomplete frames: the owner that leaves most pays, not who comes last."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rmqstore import StoreConfig
from rmqstore.serve.accounts.account import Account
from rmqstore.serve.accounts.acl import Acl
from rmqstore.serve.accounts.addresses import AddressRule
from rmqstore.serve.network import memory
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from rmqstore.serve.wire.frames import Request
from support.remoting import RemotingClient
from support.serving import wait_until
from support.unread import OPEN, is_settled, silent

KIB, MIB = 1 << 10, 1 << 20
MOST = 4 * MIB
ACCOUNT = Account("a", "secret-secret", AddressRule("*"), False, 12, 12, {})
HEADER = b'{"code":105,"extFields":{"topic":"TBW102","AccessKey":"a"},"opaque":7}'


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close all clients."""
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture(params=[None, Acl([ACCOUNT])], ids=["open", "accounts"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    settings = Settings(acl=request.param, limits=Limits(read_buffers=MOST))
    with Server(None, settings, StoreConfig.small()) as made:
        yield made


def frame(size: int) -> bytes:
    return struct.pack(">ii", 4 + len(HEADER) + size, len(HEADER)) + HEADER + bytes(size)


def begun(server: Server, size: int, source: str) -> RemotingClient:
    """Return a client that has sent all of a frame but its last byte."""
    client = silent(server, source)
    client.socket.setblocking(False)
    data = memoryview(frame(size))[:-1]
    client.socket.sendall(b"")
    client.socket.settimeout(0.2)
    try:
        while data:
            data = data[client.socket.send(data) :]
    except TimeoutError:
        pass
    client.socket.settimeout(60)
    client.left = bytes(data)  # type: ignore[attr-defined]
    return client


def finish(client: Any) -> None:
    client.socket.sendall(client.left + b"\0")
    assert client.answer(7).code == 0


def kept(server: Server) -> int:
    found: int = server.in_loop(lambda: server.gateway.connections.kept_frames.taken)
    return found


def test_who_sends_a_large_frame_beside_many_is_served(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    many = [begun(server, 190 * KIB, "127.0.0.2") for _ in range(30)]
    wait_until(lambda: kept(server) > MOST // 3)
    victim = begun(server, MIB, "127.0.0.3")
    finish(victim)
    assert victim.ask(105, {"topic": "TBW102", "AccessKey": "a"}).code == 0
    assert not [one for one in caplog.records if "127.0.0.3" in one.getMessage()]
    assert kept(server) < MOST + 300 * KIB
    for one in many:
        one.close()
    assert is_settled(server)


@pytest.mark.long
def test_many_of_one_owner_are_served_in_turn(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """More than its share, one after the other, and none is closed."""
    sizes = [400 * KIB] * 10
    many = [begun(server, size, "127.0.0.2") for size in sizes]
    assert kept(server) <= MOST // 2 + 11 * (64 * KIB) + 400 * KIB
    over = server.gateway.connections.kept_frames._over
    wait_until(lambda: server.in_loop(lambda: sum(map(len, over.values()))) > 3)
    small = silent(server, "127.0.0.2")
    assert small.ask(105, {"topic": "TBW102", "AccessKey": "a"}).code == 0
    for one in many:
        finish(one)
    assert not [one for one in caplog.records if "closed" in one.getMessage()]
    assert is_settled(server)


@pytest.mark.long
def test_who_does_not_go_on_is_passed_over(server: Server) -> None:
    many = [begun(server, 700 * KIB, "127.0.0.2") for _ in range(5)]
    finish(many[-1])
    for one in many[:-1]:
        one.close()
    assert is_settled(server)


def test_of_too_much_the_largest_owner_pays(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    greedy = [begun(server, 300 * KIB, "127.0.0.2") for _ in range(8)]
    others = [begun(server, 400 * KIB, f"127.0.0.{number}") for number in range(10, 16)]
    wait_until(lambda: "bytes of frames are not complete" in caplog.text)
    named = [one.getMessage() for one in caplog.records if "not complete" in one.getMessage()]
    assert all(one.startswith("127.0.0.2:") for one in named)
    for one in others:
        finish(one)
    for one in (*greedy, *others):
        one.close()
    assert is_settled(server)


def test_a_frame_just_under_the_share(server: Server) -> None:
    client = silent(server)
    client.socket.sendall(frame(MOST // 3 - 70 * KIB))
    assert client.answer(7).code == 0
    assert is_settled(server)


def test_memory_is_given_back_for_many_frames(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory, "_trim", given.append)
    monkeypatch.setattr(memory, "_SECONDS", 0.01)
    for one in [begun(server, 200 * KIB, "127.0.0.2") for _ in range(7)]:
        one.close()
    wait_until(lambda: given)
    assert is_settled(server)


def test_answers_that_waited_for_the_disk_are_kept_no_longer() -> None:
    config = StoreConfig.small(flush_disk_type="SYNC_FLUSH")
    with Server(None, Settings(), config) as server, RemotingClient(server.address) as client:
        server.store.create_topic("orders", queue_nums=1)
        fields = {"a": "p", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0,
                  "i": "", "j": 0, "k": "false", "m": "false"}  # fmt: skip
        asked = [client.send(310, fields, b"x") for _ in range(200)]
        assert all(client.answer(one).code == 0 for one in asked)
        assert is_settled(server)


def binary_frame(value: bytes) -> bytes:
    """Return a request 105 with a header of type ROCKETMQ, that has one field."""
    name = b"topic"
    fields = struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value
    header = struct.pack(">hBhiiii", 105, 0, 399, 7, 0, 0, len(fields)) + fields
    return struct.pack(">iI", 4 + len(header), len(header) | 1 << 24) + header


LARGE_FRAMES = {
    "body": frame(3 * MIB),  # with what is behind it, within the bound
    "fields": binary_frame(b"\xff" * 250_000),  # each byte is three as UTF-8
    "both": binary_frame(b"\xff" * 250_000) + frame(2 * MIB),
    "beside small ones": frame(0) * 100 + frame(MIB) + frame(0) * 100,
}


@pytest.mark.parametrize("sent", LARGE_FRAMES.values(), ids=LARGE_FRAMES.keys())
@pytest.mark.parametrize("behind", [0, 1, 100])
def test_a_large_frame_leaves_no_memory(server: Server, sent: bytes, behind: int) -> None:
    """What has come behind it, as the beginning of the next one, is kept alone."""
    client = silent(server)
    assert client.ask(105, {"topic": "TBW102", "AccessKey": "a"}).code == 0
    (connection,) = server.gateway.connections.open
    first = server.in_loop(lambda: connection._reader)
    client.socket.sendall(sent + frame(1000)[:behind])
    client.answer(7)
    wait_until(lambda: server.in_loop(lambda: connection._reader.kept) == behind)
    reader = server.in_loop(lambda: connection._reader)
    assert reader is not first  # which has the room of its longest text
    blocks = [one for one in gc.get_referents(reader) if one is not Request and one is not None]
    assert sum(memoryview(one).nbytes for one in blocks) < (128 * KIB if behind else 1)
    client.socket.sendall(frame(1000)[behind:])
    wait_until(lambda: server.in_loop(lambda: not connection._reader.kept))
    assert client.ask(105, {"topic": "TBW102", "AccessKey": "a"}).code == 0
    assert is_settled(server)


def test_small_frames_keep_their_reader(server: Server) -> None:
    with RemotingClient(server.address) as client:
        assert client.ask(105, {"topic": "TBW102", "AccessKey": "a"}).code == 0
        (connection,) = server.gateway.connections.open
        first = server.in_loop(lambda: connection._reader)
        client.socket.sendall(frame(100) * 500)
        wait_until(lambda: server.gateway.requests[105] == 501)
        for _ in range(5):
            client.socket.sendall(frame(100 * KIB))
            assert client.answer(7).code == 0
        assert server.in_loop(lambda: connection._reader) is first
