"""How connections begin, and which end by themselves: addresses, ports, time that runs out."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.serve.consuming import clients
from rmqstore.serve.consuming.locks import LockedQueue, Locks
from rmqstore.serve.network import sockets
from rmqstore.serve.network.sockets import listen, unmapped
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from support.remoting import RemotingClient
from support.serving import wait_until

pytestmark = pytest.mark.pure

DATA = Path(__file__).parents[2] / "data" / "tls"
PAIR = (DATA / "cert.pem", DATA / "key.pem")
SMALL = rmqstore.StoreConfig.small()
SEND = {"a": "p", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "",
        "j": 0, "k": "false", "m": "false"}  # fmt: skip
ACCOUNTS = """
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
"""


@pytest.fixture(params=["uvloop", "asyncio"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setitem(sys.modules, "uvloop", None)


def tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*PAIR)
    return context


def ends(client: socket.socket) -> bool:
    """Tell whether the server closes a connection, having said nothing."""
    client.settimeout(60)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


# Addresses


@pytest.mark.usefixtures("loops")
def test_a_client_of_ipv4_on_a_socket_of_ipv6() -> None:
    """It is given, and its records have, addresses as it knows them."""
    try:
        server = rmqstore.serve(listen="::")
    except OSError as error:
        pytest.skip(f"no IPv6: {error}")
    with server:
        port = server.gateway.settings.port
        try:
            client = RemotingClient(f"127.0.0.1:{port}")
        except ConnectionRefusedError:
            pytest.skip("sockets of IPv6 are not for IPv4 (net.ipv6.bindv6only)")
        with client:
            (broker,) = client.ask(105, {"topic": "TBW102"}).json["brokerDatas"]
            assert broker["brokerAddrs"] == {"0": f"127.0.0.1:{port}"}
            for hot in (True, False):
                server.gateway.shared.hot_sends = hot
                answer = client.ask(310, SEND, b"x")
                message = server.store.message(answer.fields["msgId"])
                assert message.born_host == client.name
                assert message.store_host == f"127.0.0.1:{port}"
                assert len(answer.fields["msgId"]) == 32
            assert [one.peer for one in server.gateway.connections.open] == [client.name]
        with RemotingClient(f"[::1]:{port}") as client:
            (broker,) = client.ask(105, {"topic": "TBW102"}).json["brokerDatas"]
            assert broker["brokerAddrs"] == {"0": f"[::1]:{port}"}
            answer = client.ask(310, SEND, b"x")
            assert server.store.message(answer.fields["msgId"]).born_host == client.name


def test_addresses_that_are_mapped() -> None:
    assert unmapped("::ffff:192.0.2.1") == "192.0.2.1"
    for other in ("192.0.2.1", "::1", "::ffff:1", "fe80::1%eth0.1", "2001:db8::ffff:1"):
        assert unmapped(other) == other


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("tls", [False, True])
def test_small_frames_are_sent_at_once(tls: bool) -> None:
    settings = Settings(tls=tls_context() if tls else None)
    with Server(None, settings, SMALL) as server, RemotingClient(server.address) as client:
        if tls:
            context = ssl.create_default_context(cafile=PAIR[0])
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        assert client.ask(105, {"topic": "TBW102"}).code == 0

        def no_delay() -> int:
            (connection,) = server.gateway.connections.open
            accepted = connection._transport.get_extra_info("socket")
            return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

        assert server.in_loop(no_delay)


# Ports


@pytest.mark.parametrize("busy", [0, 1, 5, 64])
def test_a_free_port_is_one_whose_neighbour_is_free(
    monkeypatch: pytest.MonkeyPatch, busy: int
) -> None:
    mains: list[socket.socket] = []
    bind = sockets.bind

    def bind_but_the_neighbours(host: str, port: int) -> socket.socket:
        if port != 0 and len(mains) <= busy:
            raise OSError(errno.EADDRINUSE, "in use", f"{host}:{port}")
        made = bind(host, port)
        if port == 0:
            mains.append(made)
        return made

    monkeypatch.setattr(sockets, "bind", bind_but_the_neighbours)
    if busy == 64:
        with pytest.raises(sockets.VipPortError, match="the VIP channel"):
            listen("127.0.0.1", 0)
        assert all(one.fileno() == -1 for one in mains)
        return
    made = listen("127.0.0.1", 0)
    ports = [one.getsockname()[1] for one in made]
    for one in made:
        assert one.fileno() != -1
        one.close()
    assert all(one.fileno() == -1 for one in mains)
    assert ports == [ports[0], ports[0] - 2]
    assert len(mains) == busy + 1


# Time that runs out


def test_silent_connections_are_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the gateway itself, while one that asks now and then stays."""
    assert (Limits().idle_seconds, clients._SCAN_SECONDS) == (120, 10)
    monkeypatch.setattr(clients, "_SCAN_SECONDS", 0.02)
    with (
        Server(None, Settings(), SMALL) as server,
        RemotingClient(server.address) as silent,
        RemotingClient(server.address) as other,
    ):
        for one in (silent, other):
            assert one.ask(105, {"topic": "TBW102"}).code == 0

        def age(seconds: float) -> None:
            for connection in server.gateway.connections.open:
                connection.last_used -= seconds

        server.in_loop(age, 100.0)
        time.sleep(0.1)  # some scans, which close nobody
        assert other.ask(105, {"topic": "TBW102"}).code == 0
        server.in_loop(age, 21.0)
        assert ends(silent.socket)
        assert other.ask(105, {"topic": "TBW102"}).code == 0
        assert f"{silent.name}: closed: it was silent for too long" in caplog.text


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("says", ["nothing", "one byte", "half a handshake"])
def test_who_does_not_begin_is_gone(says: str) -> None:
    assert Limits().handshake_seconds == 10
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.create_default_context(cafile=PAIR[0]).wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    data = outgoing.read()
    said = {"nothing": b"", "one byte": data[:1], "half a handshake": data[: len(data) // 2]}[says]
    settings = Settings(tls=tls_context(), limits=Limits(handshake_seconds=0.1))
    with Server(None, settings, SMALL) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), 60) as slow:
            slow.sendall(said)
            assert ends(slow)
        wait_until(lambda: server.in_loop(lambda: not server.gateway.connections.connecting))
        server.gateway.settings = Settings(tls=settings.tls)
        with RemotingClient(server.address) as other:
            assert other.ask(105, {"topic": "TBW102"}).code == 0


@pytest.mark.usefixtures("loops")
def test_who_does_not_begin_counts_as_connected() -> None:
    settings = Settings(tls=tls_context(), limits=Limits(connections=2))
    with Server(None, settings, SMALL) as server, RemotingClient(server.address) as first:
        assert first.ask(105, {"topic": "TBW102"}).code == 0
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), 60) as silent:
            with socket.create_connection((host, int(port)), 60) as late:
                assert ends(late)
            silent.sendall(b"\x16\x03\x01\x00\x05junk!")
            silent.settimeout(60)
            while silent.recv(100):
                pass
        wait_until(lambda: server.in_loop(lambda: not server.gateway.connections.connecting))
        with RemotingClient(server.address) as again:
            assert again.ask(105, {"topic": "TBW102"}).code == 0


# What is said at the start, and what is bounded without a word


@pytest.mark.parametrize(
    ("acl", "tls", "missing"),
    [
        (False, False, "accounts and TLS"),
        (True, False, "TLS"),
        (False, True, "accounts"),
        (True, True, None),
    ],
)
def test_what_is_missing_where_others_can_connect(
    acl: bool, tls: bool, missing: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    caplog.set_level(logging.WARNING, "rmqstore.serve")
    options: dict[str, Any] = {"acl": accounts if acl else None, "tls": PAIR if tls else None}
    with rmqstore.serve(listen="0.0.0.0", **options) as server:
        port = server.gateway.settings.port
    said = [one.getMessage() for one in caplog.records if "reachable" in one.getMessage()]
    wanted = f"0.0.0.0:{port} is reachable from other machines, without {missing}"
    assert said == ([wanted] if missing else [])


def test_how_much_there_may_be() -> None:
    limits = Limits()
    assert (limits.connections, limits.held_pulls) == (1024, 40_000)
    assert (limits.topics, limits.offsets) == (24_000, 200_000)
    with rmqstore.serve() as server:
        assert server.gateway.settings.limits == limits


def test_how_many_locks_there_may_be() -> None:
    locks = Locks(lambda: 0)
    queues = [LockedQueue("t", "b", number) for number in range(100_001)]
    assert len(locks.lock("g", queues, "c", "a")) == 33_334
    assert len(locks.lock("h", queues, "c", "b")) == 22_222
    assert len(locks) == 55_556


def test_how_many_members_groups_may_have() -> None:
    with rmqstore.serve() as server:
        assert server.gateway.clients._members.most == 200_000


def test_connections_are_accepted_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served in between, however many come at once."""
    with Server(None, Settings(), SMALL) as server:
        turns: list[int] = [0]
        gate = threading.Event()
        has_room = server._places.has_room

        def count() -> None:
            turns.append(0)
            server._loop.call_soon(count)

        def counted(descriptor: int, origin: str) -> bool:
            turns[-1] += 1
            return has_room(descriptor, origin)

        monkeypatch.setattr(server._places, "has_room", counted)
        server._loop.call_soon_threadsafe(gate.wait)
        server._loop.call_soon_threadsafe(count)
        many = [RemotingClient(server.address) for _ in range(60)]
        gate.set()
        assert all(one.ask(105, {"topic": "TBW102"}).code == 0 for one in many)
        assert sum(turns) == 60
        assert max(turns) == 8
        for one in many:
            one.close()
