"""File descriptors: connections leave some for the store, however many clients come."""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import rmqstore
from rmqstore.serve.network import descriptors
from rmqstore.serve.network.descriptors import leaves_room, raise_limit
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

SEND = {"a": "p", "c": "TBW102", "d": 4, "f": 0, "g": 1, "h": 0, "i": "KEYS\x01k\x02",
        "j": 0, "k": "false", "m": "false"}  # fmt: skip
CONF = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=6000\n"
NOFILE = resource.RLIMIT_NOFILE


@pytest.fixture
def many_files() -> Iterator[int]:
    """Let the test have as many files open as it may."""
    soft, hard = resource.getrlimit(NOFILE)
    raise_limit()
    yield resource.getrlimit(NOFILE)[0]
    resource.setrlimit(NOFILE, (soft, hard))


@contextmanager
def command(directory: Path, soft: int, hard: int) -> Iterator[tuple[str, int]]:
    """Run ``rmqstore serve`` with a limit of open files; gives its address and its process."""
    conf = directory / "broker.conf"
    conf.write_text(CONF)
    program = (
        "import resource, sys; from rmqstore.cli import main;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        "sys.exit(main(prog_name='rmqstore'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (directory / "errors").open("w") as errors, subprocess.Popen(
        [sys.executable, "-c", program, "serve", directory / "store", "--port", "0", "-c", conf],
        stdout=subprocess.PIPE, stderr=errors, env=environment,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["address"], process.pid
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def crowd(address: str, count: int, stack: ExitStack) -> tuple[int, int]:
    """Connect so many clients; return how many stay, and how many are closed."""
    host, port = address.split(":")
    poll = select.poll()
    named = {}
    for _ in range(count):
        one = stack.enter_context(socket.create_connection((host, int(port)), 60))
        named[one.fileno()] = one
        poll.register(one, select.POLLIN)
    closed = 0
    # Whoever came last is among the last that are accepted, and there is one that asks.
    with RemotingClient(address) as last, suppress(ConnectionError):
        last.ask(105, {"topic": "TBW102"})
    while ready := poll.poll(0):
        for number, _ in ready:
            poll.unregister(number)
            closed += 1
            with suppress(ConnectionError):
                assert named[number].recv(1) == b""
    return count - closed, closed


@pytest.mark.parametrize(("limit", "count"), [(256, 400), (1024, 1300)])
@pytest.mark.usefixtures("many_files")
def test_the_store_has_files_however_many_connect(tmp_path: Path, limit: int, count: int) -> None:
    with (
        command(tmp_path, limit, limit) as (address, _),
        ExitStack() as stack,
        RemotingClient(address) as client,
    ):
        assert client.ask(310, {**SEND, "b": "orders", "e": 0}, b"first").code == 0
        stay, closed = crowd(address, count, stack)
        assert closed > 0
        assert stay >= limit // 2 - 64  # what the process itself has
        # New topics, each a file of JSON and directories; new files of the log, and of queues.
        codes = Counter(
            client.ask(310, {**SEND, "b": f"topic{one // 6}", "e": one % 4}, bytes(200_000)).code
            for one in range(60)
        )
        assert codes == {0: 60}
        assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 10
        beat = {"clientID": "c", "consumerDataSet": [
            {"groupName": "g", "subscriptionDataSet": []}]}  # fmt: skip
        assert client.ask(34, {}, json.dumps(beat).encode()).code == 0
        pull = {"consumerGroup": "g", "topic": "topic9", "queueId": 0, "queueOffset": 0,
                "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                "subVersion": 0, "subscription": "*"}  # fmt: skip
        assert client.ask(11, pull).code == 0
    errors = (tmp_path / "errors").read_text()
    assert errors.count("the limit of open files (ulimit -n) is low") == 1
    assert "Too many open files" not in errors
    assert not (tmp_path / "store" / "abort").exists()


def test_the_command_has_as_many_files_as_it_may(tmp_path: Path) -> None:
    with command(tmp_path, 128, 300) as (_, pid):
        assert resource.prlimit(pid, NOFILE) == (300, 300)


def test_a_server_in_a_program_leaves_its_limit_alone() -> None:
    before = resource.getrlimit(NOFILE)
    with rmqstore.serve():
        assert resource.getrlimit(NOFILE) == before
    assert resource.getrlimit(NOFILE) == before


def test_what_a_program_has_open_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Descriptors that are not the server's: of those that are left it takes half at most."""
    before = resource.getrlimit(NOFILE)
    with (
        caplog.at_level(logging.WARNING, "rmqstore.serve"),
        Server(None, Settings(), rmqstore.StoreConfig.small()) as server,
        RemotingClient(server.address) as known,
        ExitStack() as stack,
    ):
        assert known.ask(105, {"topic": "TBW102"}).code == 0
        lowest = os.dup(known.socket.fileno())
        stack.callback(os.close, lowest)
        resource.setrlimit(NOFILE, (2 * (lowest + 20), before[1]))
        try:
            stay, closed = crowd(server.address, 20, stack)  # with its own 20 descriptors
            assert (stay + closed, closed > 5) == (20, True)
            assert server.in_loop(lambda: server.gateway.connections.refused) >= closed
            assert known.ask(310, {**SEND, "b": "new", "e": 0}, b"body").code == 0
        finally:
            resource.setrlimit(NOFILE, before)
    assert caplog.text.count("is low") == 1


def test_how_many_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = [1024]
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (limit[0], limit[0]))
    assert leaves_room(1024 - 256 - 1)
    assert not leaves_room(1024 - 256)
    limit[0] = 100
    assert leaves_room(49)
    assert not leaves_room(50)
    limit[0] = resource.RLIM_INFINITY
    assert leaves_room(1 << 30)


def test_a_limit_that_is_refused_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError

    before = resource.getrlimit(NOFILE)
    monkeypatch.setattr(descriptors.resource, "setrlimit", refuse)
    raise_limit()
    assert resource.getrlimit(NOFILE) == before


def test_ten_thousand_connections(many_files: int, wait_until: Callable[..., None]) -> None:
    """As many as there may be stay; the others are closed, one after the other."""
    limit = Limits().connections
    # Of each connection both ends are in this process, and a hundred at a time are too many.
    needed = 2 * limit + 2 * 100 + descriptors.RESERVED + 256
    if many_files < needed:
        pytest.skip(f"{many_files} open files may be, {needed} would be")
    with (
        rmqstore.serve(config=rmqstore.StoreConfig.small()) as server,
        RemotingClient(server.address) as other,
        ExitStack() as stack,
    ):
        assert other.ask(105, {"topic": "TBW102"}).code == 0
        assert crowd(server.address, limit - 2, stack) == (limit - 2, 0)
        wait_until(
            lambda: server.in_loop(lambda: len(server.gateway.connections.open)) == limit - 1
        )
        last = stack.enter_context(RemotingClient(server.address))
        assert last.ask(105, {"topic": "TBW102"}).code == 0
        for _ in range(90):
            with ExitStack() as late:
                assert crowd(server.address, 100, late) == (0, 100)
            assert other.ask(105, {"topic": "TBW102"}).code == 0
        assert server.in_loop(lambda: len(server.gateway.connections.open)) == limit
        stack.close()
        wait_until(lambda: server.in_loop(lambda: len(server.gateway.connections.open)) == 1)
        with RemotingClient(server.address) as again:
            assert again.ask(310, {**SEND, "b": "new", "e": 0}, b"body").code == 0
