"""The port minus two, where clients send whose VIP channel is on: it is ours, or nobody's."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore.cli import main
from rmqstore.serve.network import sockets
from rmqstore.serve.server import Server
from support.ports import quiet_port, taken
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

SEND = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip


@pytest.fixture
def first() -> Iterator[Server]:
    """Return a server whose neighbours two ports on and back stay nobody's."""
    with rmqstore.serve(port=quiet_port()) as server:
        yield server


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_server_two_ports_on_does_not_start(first: Server, tmp_path: Path, listen: str) -> None:
    port = first.gateway.settings.port
    with pytest.raises(OSError, match="another port, or vip=False") as caught:
        rmqstore.serve(tmp_path / "store", port=port + 2, listen=listen)
    assert caught.value.errno == errno.EADDRINUSE
    assert str(caught.value.filename).endswith(f":{port}")
    assert f"not to port {port + 2}" in str(caught.value)
    assert not (tmp_path / "store").exists()
    with RemotingClient(first.address) as client:
        assert client.ask(310, SEND, b"x").code == 0
    taken("127.0.0.1", port + 2).close()  # it was given back


@pytest.mark.parametrize(
    ("held", "listen"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"),
     ("::1", "::1"), ("::", "::1"), ("127.0.0.1", "::")],
)  # fmt: skip
def test_whoever_has_it(first: Server, tmp_path: Path, held: str, listen: str) -> None:
    port = first.gateway.settings.port
    first.close()
    with taken(held, port - 2), pytest.raises(OSError, match="VIP channel"):
        rmqstore.serve(tmp_path / "store", port=port, listen=listen)


def test_without_it(first: Server, caplog: pytest.LogCaptureFixture) -> None:
    port = first.gateway.settings.port
    with caplog.at_level(logging.WARNING), rmqstore.serve(port=port + 2, vip=False) as second:
        assert len(second._sockets) == 1
        with RemotingClient(second.address) as client:
            assert client.ask(310, SEND, b"x").code == 0
        assert list(second.store) == ["t"]
    assert list(first.store) == []
    assert "VIP" not in caplog.text
    with pytest.raises(TypeError, match="vip must be bool"):
        rmqstore.serve(vip=1)  # type: ignore[arg-type]


def test_in_use_as_the_vip_port_of_another(first: Server, tmp_path: Path) -> None:
    port = first.gateway.settings.port
    with pytest.raises(OSError, match=f"perhaps a server on port {port} has it") as caught:
        rmqstore.serve(tmp_path / "store", port=port - 2)
    assert caught.value.filename == f"127.0.0.1:{port - 2}"
    with pytest.raises(OSError, match=f"perhaps a server on port {port} has it"):
        rmqstore.serve(tmp_path / "store", metrics_port=port - 2)


@pytest.mark.parametrize("port", [1, 2])
def test_a_port_that_has_none(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Bound:
        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", port

    def bind(host: str, port: int) -> Bound:
        asked.append(port)
        return Bound()

    monkeypatch.setattr(sockets, "bind", bind)
    assert len(sockets.listen("127.0.0.1", port)) == 1
    assert asked == [port]


def test_free_ports_keep_apart() -> None:
    with ExitStack() as servers:
        started = [servers.enter_context(rmqstore.serve()) for _ in range(12)]
        ports = [one.getsockname()[1] for server in started for one in server._sockets]
        assert len(ports) == len(set(ports)) == 24


def test_side_by_side_in_other_processes() -> None:
    program = (
        "import rmqstore, json\n"
        "with rmqstore.serve() as server:\n"
        "    print(json.dumps([one.getsockname()[1] for one in server._sockets]), flush=True)\n"
        "    input()\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    ports: list[int] = []
    for one in running:
        assert one.stdout is not None
        ports += json.loads(one.stdout.readline())
    for one in running:
        one.communicate(b"\n", timeout=60)
        assert one.returncode == 0
    assert len(set(ports)) == 6


@pytest.mark.parametrize("option", ["--port", "--metrics"])
def test_the_command_names_its_options(first: Server, tmp_path: Path, option: str) -> None:
    port = first.gateway.settings.port
    store = str(tmp_path / "store")
    free = [] if option == "--port" else ["--port", "0"]  # the default may be somebody else's
    found = CliRunner().invoke(main, ["serve", store, option, str(port - 2), *free])
    assert found.exit_code == 4
    assert f"127.0.0.1:{port - 2}: Address already in use; give another {option}" in found.output
    assert f"perhaps a server on port {port} has it" in found.output
    found = CliRunner().invoke(main, ["serve", store, "--port", str(port + 2)])
    assert found.exit_code == 4
    assert found.output.count("\n") == 1
    assert f"127.0.0.1:{port}: Address already in use; clients with the VIP" in found.output
    assert found.output.endswith("give another --port, or --no-vip\n")
    assert not Path(store).exists()
