"""A stop: whoever has just come is gone at once, and what was taken is answered and saved."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.serve import server as server_module
from rmqstore.serve.consuming import newgroups
from rmqstore.serve.network import answers as answers_module
from rmqstore.serve.network import connections as connections_module
from rmqstore.serve.network.work import Work
from rmqstore.serve.settings import Limits
from rmqstore.serve.wire.frames import Answer
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

TLS = Path(__file__).parents[2] / "data" / "tls"
LIMIT = 60  # seconds after which something counts as hung


@pytest.fixture(params=["uvloop", "asyncio"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a stop wait for connections that do not close until the test is hung."""
    monkeypatch.setattr(connections_module, "_CLOSE_SECONDS", 10.0 * LIMIT)
    monkeypatch.setattr(server_module, "_STOP_SECONDS", 10.0 * LIMIT)


def is_closed(client: socket.socket) -> bool:
    client.settimeout(LIMIT)
    with suppress(ConnectionResetError):
        return client.recv(1) == b""
    return True


def closed_in_time(server: rmqstore.serve.Server) -> bool:
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(LIMIT)
    return not closing.is_alive()


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("says", [b"", b"\x16", b"\0"])
@pytest.mark.parametrize("tls", [None, (TLS / "cert.pem", TLS / "key.pem")], ids=["", "tls"])
@pytest.mark.usefixtures("loops", "patient")
def test_a_client_that_has_just_connected(turns: int, says: bytes, tls: Any) -> None:
    """At whichever turn of the loop: its connection is made, being made, or closed before."""
    server = rmqstore.serve(tls=tls)
    limits = Limits(handshake_seconds=10.0 * LIMIT)
    server.gateway.settings = dataclasses.replace(server.gateway.settings, limits=limits)
    stop = server._stop
    with socket.socket() as client:

        async def connect_and_stop() -> None:
            client.connect(("127.0.0.1", server.gateway.settings.port))
            client.sendall(says)
            server._accept(server._sockets[0])
            assert len(server.gateway.connections.connecting) == 1
            for _ in range(turns):
                await asyncio.sleep(0)
            await stop()

        server._stop = connect_and_stop  # type: ignore[method-assign]
        assert closed_in_time(server)
        assert (server.gateway.connections.open, server.gateway.connections.connecting) == (
            set(),
            set(),
        )
        assert is_closed(client)


@pytest.mark.usefixtures("loops", "patient")
def test_clients_that_come_meanwhile() -> None:
    """While the last requests are answered, no others are taken."""
    release, begun = threading.Event(), threading.Event()

    async def slow(connection: Any, request: Any) -> Answer:
        begun.set()
        await asyncio.get_running_loop().run_in_executor(None, release.wait, LIMIT)
        return Answer(fields={"late": "yes"})

    server = rmqstore.serve()
    server.in_loop(server.gateway.handlers.__setitem__, 7777, slow)
    with RemotingClient(server.address) as client, socket.socket() as other:
        opaque = client.send(7777)
        assert begun.wait(LIMIT)
        stop = server._stop
        connected = threading.Event()

        async def connect_and_stop() -> None:
            other.connect(("127.0.0.1", server.gateway.settings.port))
            server._accept(server._sockets[0])
            server.gateway.connections.stopping = True  # before it has its transport
            connected.set()
            await stop()

        server._stop = connect_and_stop  # type: ignore[method-assign]
        closing = threading.Thread(target=server.close, daemon=True)
        closing.start()
        assert connected.wait(LIMIT)
        assert is_closed(other)
        assert closing.is_alive()
        release.set()
        assert client.answer(opaque).fields == {"late": "yes"}
        closing.join(LIMIT)
        assert not closing.is_alive()


def test_answers_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as long as one may wait for the disk."""
    assert rmqstore.StoreConfig().sync_flush_timeout < 1000 * answers_module._DRAIN_SECONDS
    waited: list[float] = []
    wait = asyncio.wait

    async def wait_less(tasks: Any, *, timeout: float) -> Any:
        waited.append(timeout)
        return await wait(tasks, timeout=0.01)

    async def never(connection: Any, request: Any) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        return Answer()

    begun = threading.Event()
    server = rmqstore.serve()
    server.in_loop(server.gateway.handlers.__setitem__, 7777, never)
    with RemotingClient(server.address) as client:
        client.send(7777)
        assert begun.wait(LIMIT)
        monkeypatch.setattr(asyncio, "wait", wait_less)
        assert closed_in_time(server)
        assert waited == [answers_module._DRAIN_SECONDS]
        assert client.socket.recv(1) == b""


def test_groups_are_saved_at_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newgroups, "_SAVE_SECONDS", 3600.0)
    beat = {"clientID": "c", "consumerDataSet": [{"groupName": "late", "subscriptionDataSet": []}]}
    saved = tmp_path / "config" / "subscriptionGroup.json"
    with rmqstore.serve(tmp_path) as server, RemotingClient(server.address) as client:
        assert client.ask(34, None, json.dumps(beat).encode()).code == 0
        assert not saved.exists() or "late" not in saved.read_text()
    assert "late" in json.loads(saved.read_text())["subscriptionGroupTable"]
    assert (
        "%RETRY%late"
        in json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    )


@pytest.mark.usefixtures("loops")
def test_a_gateway_that_cannot_be_made_leaves_no_open_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncio.AbstractEventLoop] = []
    new_loop = server_module._new_loop

    def new() -> asyncio.AbstractEventLoop:
        made.append(new_loop())
        return made[0]

    def fails(*_: object) -> None:
        raise OSError(5, "is made to fail")

    monkeypatch.setattr(server_module, "_new_loop", new)
    monkeypatch.setattr(Work, "every", fails)
    with pytest.raises(OSError, match="is made to fail"):
        rmqstore.serve()
    assert made[0].is_closed()
