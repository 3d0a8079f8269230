"""TLS and plain clients on one port."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.serve.server import Server
from support.remoting import RemotingClient
from support.serving import wait_until

pytestmark = pytest.mark.pure

DATA = Path(__file__).parents[2] / "data" / "tls"
PAIR = (DATA / "cert.pem", DATA / "key.pem")


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve(tls=PAIR) as made:
        made.store.create_topic("t")
        yield made


def secured(client: RemotingClient) -> None:
    context = ssl.create_default_context(cafile=PAIR[0])
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")


def route(client: RemotingClient) -> int:
    return client.ask(105, {"topic": "t"}).code


def test_both_on_one_port(server: Server) -> None:
    with RemotingClient(server.address) as plain, RemotingClient(server.address) as tls:
        secured(tls)
        assert (route(tls), route(plain)) == (0, 0)
        big = b"x" * 3_000_000
        fields = {"a": "g", "b": "t", "c": "", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
        assert tls.ask(310, fields, big).code == 0
        assert [message.body for message in server.store.scan()] == [big]
        pull = {
            "consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
            "subscription": "*",
        }  # fmt: skip
        assert big in tls.ask(11, pull).body


def test_no_handshake_after_all(server: Server) -> None:
    with RemotingClient(server.address) as other:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), 60) as broken:
            broken.sendall(b"\x16\x03\x01\x00\x05junk!")
            while broken.recv(100):
                pass
        with socket.create_connection((host, int(port)), 60):
            pass  # it says nothing
        assert route(other) == 0


def test_tls_to_a_plain_port() -> None:
    with rmqstore.serve() as server, RemotingClient(server.address) as client:
        with pytest.raises((ssl.SSLError, OSError)):
            secured(client)
        with RemotingClient(server.address) as other:
            assert other.ask(105, {"topic": "TBW102"}).code == 0


def test_a_pair_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no certificate with its key"):
        rmqstore.serve(tls=(PAIR[0], PAIR[0]))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for pair in ((PAIR[0], tmp_path / "key.pem"), (tmp_path / "key.pem", PAIR[1])):
        with pytest.raises(FileNotFoundError) as raised:
            rmqstore.serve(tls=pair)
        assert raised.value.filename == str(tmp_path / "key.pem")


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*PAIR)
    return made


@pytest.mark.parametrize("as_context", [False, True])
def test_tls_only(as_context: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A connection in plain text is closed before a byte of it is read, and said once."""
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    with rmqstore.serve(tls=(context(), "only") if as_context else (*PAIR, "only")) as server:
        server.store.create_topic("t")
        host, port = server.address.split(":")
        for dialled in (int(port), int(port) - 2, int(port)):
            with RemotingClient(f"{host}:{dialled}") as plain, pytest.raises(ConnectionError):
                route(plain)
        with RemotingClient(server.address) as tls:
            secured(tls)
            assert route(tls) == 0
        with socket.create_connection((host, int(port)), 60):
            pass  # it says nothing, and is gone
        with RemotingClient(server.address) as tls:
            secured(tls)
            assert route(tls) == 0
        assert server.in_loop(lambda: dict(server.gateway.requests)) == {105: 2}
    said = [one for one in caplog.messages if "does not begin with TLS" in one]
    assert len(said) == 1
    assert said[0].startswith("127.0.0.1:")


@pytest.mark.parametrize(
    "tls",
    ["only", ("only",), (None, "only"), (PAIR[0], "only", PAIR[1]), (*PAIR, "all"), (*PAIR, True),
     (context, "only"), (), (*PAIR, "only", "only")],
)  # fmt: skip
def test_what_tls_may_not_be(tls: object) -> None:
    with pytest.raises(TypeError, match="tls must be an SSLContext"):
        rmqstore.serve(tls=tls)  # type: ignore[arg-type]


def test_a_key_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("only").write_bytes(PAIR[1].read_bytes())
    with rmqstore.serve(tls=(PAIR[0], "only")) as server, RemotingClient(server.address) as plain:
        assert plain.ask(105, {"topic": "TBW102"}).code == 0


@pytest.mark.parametrize("tls", [None, PAIR, (*PAIR, "only")])
@pytest.mark.parametrize("acl", [False, True])
def test_plain_text_beside_accounts_is_warned_of(
    tls: tuple[Path, Path] | None, acl: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    path = tmp_path / "plain_acl.yml"
    path.write_text("accounts: [{accessKey: RocketMQ, secretKey: '12345678'}]")
    with rmqstore.serve(tls=tls, acl=path if acl else None):
        pass
    said = [one for one in caplog.messages if "plain text is taken beside TLS" in one]
    assert len(said) == (1 if acl and tls == PAIR else 0)
    assert all("tls=(certificate, key, 'only') refuses it" in one for one in said)


def hello() -> bytes:
    """Return the first record of a client."""
    out = ssl.MemoryBIO()
    begun = ssl.create_default_context(cafile=PAIR[0]).wrap_bio(
        ssl.MemoryBIO(), out, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    return out.read()


def opened(server: Server) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), 60)


def test_a_handshake_that_comes_byte_by_byte(server: Server) -> None:
    """It does not begin before its record is there, and is not looked for meanwhile."""
    data = hello()
    with opened(server) as slow, RemotingClient(server.address) as other:
        assert route(other) == 0
        for at in range(len(data) - 1):
            slow.sendall(data[at : at + 1])
        wait_until(lambda: len(server.in_loop(lambda: server.gateway.connections.connecting)) == 1)
        assert route(other) == 0
        asked = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - asked < 0.2
        slow.settimeout(0.05)
        with pytest.raises(TimeoutError):
            slow.recv(1)
        slow.settimeout(60)
        slow.sendall(data[-1:])
        assert slow.recv(1) == b"\x16"


def test_handshakes_begin_one_after_the_other(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are there at once, other clients are served in between."""
    begun: list[int] = []
    turns = [0]
    connect = server._loop.connect_accepted_socket

    def count() -> None:
        turns[0] += 1
        server._loop.call_soon(count)

    async def connected(made: Any, accepted: socket.socket, **how: Any) -> Any:
        begun.append(turns[0])
        return await connect(made, accepted, **how)

    data = hello()
    many = [opened(server) for _ in range(30)]
    wait_until(lambda: len(server.in_loop(lambda: server.gateway.connections.connecting)) == 30)
    loop = _Loop(server._loop, connected)
    monkeypatch.setattr(server, "_loop", loop)
    server.gateway.work.loop.call_soon_threadsafe(count)
    for one in many:
        one.sendall(data)
    for one in many:
        assert one.recv(1) == b"\x16"
        one.close()
    assert len(begun) == 30
    assert all(later - earlier >= 3 for earlier, later in pairwise(begun))


class _Loop:
    """A loop with another way to connect."""

    def __init__(self, real: Any, connected: Any) -> None:
        self.real = real
        self.connect_accepted_socket = connected

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
