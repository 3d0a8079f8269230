"""Servers start, stop, and say why they cannot; whatever is imported first."""

from __future__ import annotations

import asyncio
import errno
import inspect
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore.serve.network.sockets import is_loopback, own_address, split_address
from rmqstore.serve.server import Server
from support.ports import quiet_port
from support.remoting import RemotingClient

ROUTE = 105
SMALL = rmqstore.StoreConfig.small()
LIMIT = 60  # seconds after which something counts as hung


def route_of(address: str, topic: str = "TBW102") -> dict:
    with RemotingClient(address) as client:
        return client.ask(ROUTE, {"topic": topic}).json


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """The directory in which temporary stores are made."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.mark.long
@pytest.mark.parametrize(
    "imports",
    [
        "import rmqstore",
        "import rmqstore, rmqstore.serve",
        "import rmqstore.serve.gateway, rmqstore",
        "import rmqstore; rmqstore.serve; import rmqstore.serve.wire.codes",
        "import rmqstore; from rmqstore import serve; assert serve is rmqstore.serve",
        "import rmqstore; from rmqstore.serve import serve; import rmqstore.serve.wire.frames",
    ],
)
def test_serve_is_called_whatever_is_imported(imports):
    code = f"{imports}\nwith rmqstore.serve() as server: print(server.address)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert shown.stdout.startswith("127.0.0.1:")
    assert shown.stderr == ""


def test_serve_has_the_signature_of_the_function():
    from rmqstore.serve.serving import serve

    assert inspect.signature(rmqstore.serve) == inspect.signature(serve)
    assert inspect.signature(rmqstore.aserve).parameters == inspect.signature(serve).parameters
    assert pickle.loads(pickle.dumps(rmqstore.serve)) is rmqstore.serve
    assert callable(rmqstore.serve)
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        rmqstore.serve.no_such  # noqa: B018


@pytest.mark.parametrize("function", [rmqstore.serve, rmqstore.aserve])
def test_the_arguments_of_serve_are_those_of_the_documentation(function):
    given = {
        "path": None, "port": 0, "listen": "127.0.0.1", "advertise": None, "flush": None,
        "auto_create": True, "tls": None, "acl": None, "metrics_port": None, "keep": None,
        "vip": True, "on_corruption": "raise", "verify": "tail", "config": None,
    }  # fmt: skip
    parameters = inspect.signature(function).parameters
    assert [(name, one.default) for name, one in parameters.items()] == list(given.items())
    kinds = {name: one.kind for name, one in parameters.items()}
    assert kinds.pop("path") == inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}


def test_importing_rmqstore_loads_no_server():
    code = "import rmqstore, sys; print(sorted({'asyncio', 'uvloop', 'ssl'} & sys.modules.keys()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_a_temporary_store_is_gone_afterwards(temporary):
    with rmqstore.serve() as server:
        server.store.put("t", b"1")
        path = Path(server.store.path)
        assert path.is_dir()
        brokers = route_of(server.address)["brokerDatas"]
        assert brokers[0]["brokerAddrs"] == {"0": server.address}
        assert path.parent == temporary
    assert list(temporary.iterdir()) == []
    assert server.closed
    assert server.store.closed
    assert "closed" in repr(server)


def test_a_store_is_made_kept_and_clean(tmp_path):
    with rmqstore.serve(tmp_path / "deep" / "store", config=SMALL, flush="sync") as server:
        done = server.store.put("t", b"1")
        assert server.store.config.flush_disk_type == "SYNC_FLUSH"
    assert not (tmp_path / "deep" / "store" / "abort").exists()
    with rmqstore.open(tmp_path / "deep" / "store") as store:
        assert store.at(done.physical_offset).store_host == server.address
    # Sizes are inferred from the files, the rest is a server's.
    with rmqstore.serve(tmp_path / "deep" / "store") as server:
        assert server.store.config.mapped_file_size_commit_log == 16 << 20
        assert server.store.config.file_reserved_time == 72
        assert server.store["t"].messages()
        assert server.store.recovery.clean


def test_retention_is_as_the_configuration_says(tmp_path):
    with rmqstore.serve(tmp_path / "a", config=SMALL) as server:
        assert server.store.config.file_reserved_time is None
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=5\nmappedFileSizeCommitLog=1048576\n")
    with rmqstore.serve(tmp_path / "b", config=conf) as server:
        assert server.store.config.file_reserved_time == 5
    with rmqstore.serve() as server:
        assert server.store.config.file_reserved_time == 72


def test_the_port_minus_two_is_for_the_vip_channel():
    with rmqstore.serve() as server:
        host, port = server.address.split(":")
        assert route_of(f"{host}:{int(port) - 2}")["brokerDatas"][0]["brokerAddrs"] == {
            "0": server.address
        }


def test_a_port_in_use(tmp_path):
    with rmqstore.serve(port=quiet_port()) as server:
        port = int(server.address.split(":")[1])
        with pytest.raises(OSError, match="in use") as caught:
            rmqstore.serve(tmp_path / "store", port=port)
        assert caught.value.errno == errno.EADDRINUSE
        assert caught.value.filename == server.address
        assert not (tmp_path / "store").exists()
        assert route_of(server.address)
    with rmqstore.serve(port=port) as again:  # at once
        assert again.address == server.address


def test_an_address_that_is_not_ours(tmp_path):
    for address in ("192.0.2.77", "no such name"):
        with pytest.raises(OSError, match="address") as caught:
            rmqstore.serve(tmp_path / "store", listen=address)
        assert caught.value.errno == errno.EADDRNOTAVAIL
        assert address in caught.value.filename


def test_a_store_that_is_locked(tmp_path):
    store = rmqstore.open(tmp_path / "store", "a", config=SMALL)
    with store, pytest.raises(rmqstore.StoreLockedError):
        rmqstore.serve(tmp_path / "store")
    with rmqstore.serve(tmp_path / "store") as server:
        with pytest.raises(
            rmqstore.StoreLockedError, match="is open for writing in this process already"
        ):
            rmqstore.open(tmp_path / "store", "r+")
        assert server.store.mode == "a"


def test_a_store_that_is_none(tmp_path):
    (tmp_path / "file").write_text("x")
    for made in (rmqstore.serve, lambda path: rmqstore.open(path, "a")):
        with pytest.raises(NotADirectoryError, match="is not a directory") as refused:
            made(tmp_path / "file")
        assert refused.value.filename == str(tmp_path / "file")
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        store.put("t", b"1")
    other = rmqstore.StoreConfig(mapped_file_size_commit_log=1 << 20)
    with pytest.raises(rmqstore.IncompatibleStoreError):
        rmqstore.serve(tmp_path / "store", config=other)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"port": "9876"}, TypeError, "port must be int"),
        ({"port": True}, TypeError, "port must be int"),
        ({"port": 70000}, ValueError, "port must be 0 to 65535, got 70000"),
        ({"metrics_port": -1}, ValueError, "metrics_port must be 0 to 65535"),
        (
            {"port": 9876, "metrics_port": 9874},
            ValueError,
            "a port other than 9876 and 9874, where",
        ),
        ({"listen": "127.0.0.1:9"}, ValueError, "an address without a port, which is port, got"),
        ({"listen": None}, TypeError, "listen must be str"),
        ({"listen": ""}, ValueError, "listen must be an address"),
        ({"advertise": "host"}, ValueError, "advertise must be 'HOST:PORT'"),
        ({"advertise": "host:0"}, ValueError, "advertise must be 'HOST:PORT'"),
        ({"advertise": "::1:80"}, ValueError, "advertise must be 'HOST:PORT'"),
        ({"flush": "SYNC_FLUSH"}, ValueError, "flush must be one of 'async', 'sync'"),
        ({"flush": 1}, TypeError, "flush must be 'async' or 'sync'"),
        ({"auto_create": 1}, TypeError, "auto_create must be bool"),
        ({"tls": "cert.pem"}, TypeError, "tls must be an SSLContext, or"),
        ({"tls": ("no.pem", "no.key")}, FileNotFoundError, "No such file"),
        ({"config": 5}, TypeError, "config must be a StoreConfig"),
        ({"path": 5}, TypeError, "path must be a path"),
        ({"path": "x", "config": "no.conf"}, FileNotFoundError, "no.conf"),
    ],
)
def test_wrong_arguments(temporary, arguments, error, text):
    for call in (rmqstore.serve, rmqstore.aserve):
        with pytest.raises(error, match=text):
            call(**arguments)
    assert list(temporary.iterdir()) == []


def test_addresses():
    assert split_address("a", "host:1") == ("host", 1)
    assert split_address("a", "[::1]:65535") == ("::1", 65535)
    assert is_loopback("127.0.0.5")
    assert not is_loopback("0.0.0.0")
    assert own_address("127.0.0.1") == "127.0.0.1"
    assert own_address("0.0.0.0") not in {"0.0.0.0", ""}


def test_what_is_advertised():
    with rmqstore.serve(advertise="localhost:12345") as server:
        assert server.address == "localhost:12345"
        port = server.gateway.settings.port
        brokers = route_of(f"127.0.0.1:{port}")["brokerDatas"]
        assert brokers[0]["brokerAddrs"] == {"0": "localhost:12345"}
        done = server.store.put("t", b"")
        assert server.store.at(done.physical_offset).store_host == "127.0.0.1:12345"


def test_a_warning_where_others_can_connect(caplog):
    with caplog.at_level(logging.WARNING, "rmqstore.serve"):
        server = rmqstore.serve(listen="0.0.0.0")
        server.close()
        assert not server.address.startswith("0.0.0.0")
        assert "reachable from other machines, without accounts and TLS" in caplog.text
        caplog.clear()
        with rmqstore.serve():
            pass
        assert "reachable" not in caplog.text


def test_close_from_any_thread():
    server = rmqstore.serve()
    client = RemotingClient(server.address)
    threads = [threading.Thread(target=server.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert server.store.closed
    assert client.socket.recv(1) == b""
    client.socket.close()
    server.close()
    with pytest.raises(RuntimeError, match="closed"):
        server.in_loop(print)


def test_close_in_its_own_loop(wait_until):
    server = rmqstore.serve()
    server.gateway.work.loop.call_soon_threadsafe(server.close)
    wait_until(lambda: server.store.closed)


def test_an_error_that_would_end_the_loop(caplog, wait_until):
    with rmqstore.serve() as server:

        def leave() -> None:
            raise SystemExit(3)

        server.gateway.work.loop.call_soon_threadsafe(leave)
        wait_until(lambda: "goes on" in caplog.text)
        assert route_of(server.address)
    assert server.store.closed


def test_a_loop_that_was_stopped():
    server = rmqstore.serve()
    server.gateway.work.loop.call_soon_threadsafe(server.gateway.work.loop.stop)
    server._thread.join(LIMIT)
    server.close()
    assert server.store.closed
    assert not Path(server.store.path).exists()


def test_what_is_being_answered_is_answered():
    release = threading.Event()
    begun = threading.Event()

    async def slow(connection, request):
        from rmqstore.serve.wire.frames import Answer

        begun.set()
        await asyncio.get_running_loop().run_in_executor(None, release.wait, LIMIT)
        return Answer(fields={"late": "yes"})

    server = rmqstore.serve()
    server.in_loop(server.gateway.handlers.__setitem__, 7777, slow)
    with RemotingClient(server.address) as client:
        opaque = client.send(7777)
        assert begun.wait(LIMIT)
        closing = threading.Thread(target=server.close)
        closing.start()
        release.set()
        assert client.answer(opaque).fields == {"late": "yes"}
        closing.join(LIMIT)
    assert server.store.closed


def test_a_store_that_fails_while_serving(tmp_path, caplog):
    server = rmqstore.serve(tmp_path / "store", config=SMALL)
    server.store.core.set_failed(errno.EIO, "commitlog", "cannot be forced to the disk")
    server.in_loop(server._watch)
    server.in_loop(server._watch)
    assert caplog.text.count("the store failed, messages are refused") == 1
    with pytest.raises(rmqstore.StoreFailedError):
        server.store.put("t", b"")
    assert route_of(server.address)
    with pytest.raises(rmqstore.StoreFailedError):  # it cannot be flushed
        server.close()
    assert server.closed


def test_a_part_that_does_not_stop(tmp_path, caplog):
    """What the other parts have to save they save."""

    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"late"}]}'
    with rmqstore.serve(tmp_path) as server, RemotingClient(server.address) as client:
        server.gateway.work.closing.insert(0, fail)
        assert client.ask(34, None, body).code == 0
    assert "a part of the gateway did not stop" in caplog.text
    assert (tmp_path / "config" / "subscriptionGroup.json").read_text().count('"late"') > 0


@pytest.mark.long
def test_a_child_leaves_it_alone(tmp_path):
    code = """
import os, sys, rmqstore
server = rmqstore.serve(sys.argv[1])
server.store.put("t", b"1")
child = os.fork()
if child == 0:
    server.close()
    sys.exit(0)  # through atexit
assert os.waitpid(child, 0)[1] == 0
server.store.put("t", b"2")
server.close()
"""
    shown = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, tmp_path / "store"],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")
    assert not (tmp_path / "store" / "abort").exists()
    with rmqstore.open(tmp_path / "store") as store:
        assert len(list(store["t"].messages())) == 2


def test_the_end_of_the_program_closes_it(tmp_path):
    code = (
        "import sys, rmqstore; a = rmqstore.serve(sys.argv[1]); b = rmqstore.serve();"
        "a.store.put('t', b'1'); print(b.store.path)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "store"],
        capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    assert not (tmp_path / "store" / "abort").exists()
    assert not Path(shown.stdout.strip()).exists()


def test_without_uvloop():
    code = """
import asyncio, sys
sys.modules["uvloop"] = None
sys.modules["orjson"] = None
import rmqstore
from support.remoting import RemotingClient
with rmqstore.serve() as server, RemotingClient(server.address) as client:
    assert type(server.gateway.work.loop).__module__.startswith("asyncio"), server.gateway.work.loop
    assert client.ask(105, {"topic": "TBW102"}).code == 0
print("done")
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert (shown.stdout, shown.stderr) == ("done\n", "")


def test_with_uvloop():
    uvloop = pytest.importorskip("uvloop")
    with rmqstore.serve() as server:
        assert isinstance(server.gateway.work.loop, uvloop.Loop)


def test_in_asyncio(tmp_path):
    async def program() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with rmqstore.aserve(tmp_path / "store", config=SMALL) as server:
            assert isinstance(server, Server)
            assert await asyncio.to_thread(route_of, server.address)
            await server.store.aput("t", b"1")
        assert server.store.closed
        assert ticks > 10  # the loop went on meanwhile
        server = await rmqstore.aserve(tmp_path / "store")
        assert len(list(server.store["t"].messages())) == 1
        server.close()
        with pytest.raises(OSError, match="address"):
            async with rmqstore.aserve(listen="192.0.2.77"):
                raise AssertionError
        ticking.cancel()

    asyncio.run(asyncio.wait_for(program(), LIMIT))
    assert not (tmp_path / "store" / "abort").exists()


def test_a_start_that_is_cancelled(tmp_path):
    async def program() -> None:
        starting = asyncio.create_task(rmqstore.aserve(tmp_path / "store")._start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(asyncio.wait_for(program(), LIMIT))
    deadline = time.monotonic() + LIMIT
    while True:  # nobody has it any more
        try:
            rmqstore.open(tmp_path / "store", "a").close()
        except rmqstore.StoreLockedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


def test_too_many_open_files_are_no_busy_loop(caplog):
    with rmqstore.serve() as server:

        class Full:
            def __init__(self, real: socket.socket) -> None:
                self.real = real

            def accept(self):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            def fileno(self) -> int:
                return self.real.fileno()

        with caplog.at_level(logging.WARNING, "rmqstore.serve"):
            server.in_loop(server._accept, Full(server._sockets[1]))
        assert "no connection is accepted for a second: [Errno 24]" in caplog.text
        assert route_of(server.address)


def test_signals_are_the_program_s():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with rmqstore.serve():
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_json_of_a_route_is_standard():
    with rmqstore.serve() as server, RemotingClient(server.address) as client:
        assert json.loads(client.ask(ROUTE, {"topic": "TBW102"}).body)
