"""``rmqstore serve``: each option does what it says, seen by a client."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from support.remoting import Frame, RemotingClient
from support.serve_command import LIMIT, Served
from support.unprivileged import REMEDY, run_unprivileged

pytestmark = pytest.mark.pure

Serve = Callable[..., Served]
TLS = Path(__file__).parents[2] / "data" / "tls"
SENDS = 40
ACCOUNTS = """
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""


def send(client: RemotingClient, topic: str = "orders") -> Frame:
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
              "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
    return client.ask(310, fields, b"x")


def syncs(page: str) -> float:
    """How often the log was forced to the disk."""
    with urllib.request.urlopen(f"{page}metrics", timeout=LIMIT) as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith("rmqstore_commit_log_syncs_total{"):
                return float(line.rpartition(" ")[2])
    raise AssertionError("there is no such figure")


@pytest.mark.parametrize("in_file", ["ASYNC_FLUSH", None])
def test_flush_sync(serve: Serve, tmp_path: Path, in_file: str | None) -> None:
    """Each of these messages is on the disk before the next one is sent."""
    conf = tmp_path / "broker.conf"
    conf.write_text(f"flushDiskType={in_file}\n" if in_file else "fileReservedTime=5\n")
    line = serve(
        tmp_path / "store", "--port", 0, "--flush", "sync", "--metrics", 0, "-c", conf
    ).first_line()
    with RemotingClient(line["address"]) as client:
        for _ in range(SENDS):
            assert send(client).code == 0
    assert syncs(line["page"]) >= SENDS


def test_flush_async(serve: Serve, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SYNC_FLUSH\nflushIntervalCommitLog=600000\n")
    line = serve(
        tmp_path / "store", "--port", 0, "--flush", "async", "--metrics", 0, "-c", conf
    ).first_line()
    with RemotingClient(line["address"]) as client:
        for _ in range(SENDS):
            assert send(client).code == 0
    assert syncs(line["page"]) < SENDS


def test_acl(serve: Serve, tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    line = serve(tmp_path / "store", "--port", 0, "--acl", accounts).first_line()
    with RemotingClient(line["address"]) as client:
        answer = send(client)
    assert answer.code == 1
    assert "AclException" in str(answer.remark)


def test_tls(serve: Serve, tmp_path: Path) -> None:
    served = serve(
        tmp_path / "store", "--port", 0, "--tls-cert", TLS / "cert.pem",
        "--tls-key", TLS / "key.pem",
    )  # fmt: skip
    address = served.first_line()["address"]
    context = ssl.create_default_context(cafile=TLS / "cert.pem")
    with RemotingClient(address, LIMIT) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        assert send(client).code == 0


def test_tls_only(serve: Serve, tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    pair = ("--tls-cert", TLS / "cert.pem", "--tls-key", TLS / "key.pem", "--acl", accounts)
    served = serve(tmp_path / "store", "--port", 0, *pair)
    with RemotingClient(served.first_line()["address"]) as client:
        assert send(client).code == 1
    _, _, logged = served.stop()
    (warned,) = [one["message"] for one in logged if "plain text" in one["message"]]
    assert warned.endswith("; --tls-only refuses it")
    served = serve(tmp_path / "store", "--port", 0, *pair, "--tls-only")
    with RemotingClient(served.first_line()["address"]) as client, pytest.raises(ConnectionError):
        send(client)
    _, _, logged = served.stop()
    assert not [one for one in logged if "plain text" in one["message"]]


def test_no_auto_create(serve: Serve, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for options, code in (((), 0), (("--no-auto-create",), 17)):
        served = serve(store, "--port", 0, *options)
        with RemotingClient(served.first_line()["address"]) as client:
            answer = send(client, f"made-{code}")
            assert answer.code == code, answer.remark
        assert served.stop()[0] == 0
    text = (store / "config" / "topics.json").read_text()
    assert "made-0" in text
    assert "made-17" not in text


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    directory = tmp_path / "locked"
    directory.mkdir(mode=0o555)
    for path, said in (
        (directory, f"{directory}/lock: cannot be opened: Permission denied"),
        (directory / "store", f"{directory}/store: Permission denied"),
    ):
        done = run_unprivileged("-m", "rmqstore", "serve", path, "--port", "0")
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr == f"rmqstore: {said}{REMEDY}\n"
    assert list(directory.iterdir()) == []


def test_a_store_that_cannot_be_written(serve: Serve, tmp_path: Path) -> None:
    store = tmp_path / "store"
    served = serve(store, "--port", 0)
    served.first_line()
    assert served.stop()[0] == 0
    for parent, _, names in os.walk(store):
        for name in names:
            (Path(parent) / name).chmod(0o444)
        Path(parent).chmod(0o555)
    done = run_unprivileged("-m", "rmqstore", "serve", store, "--port", "0")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"rmqstore: {store}/lock: cannot be opened: Permission denied{REMEDY}\n"


def test_the_log_has_the_error(tmp_path: Path) -> None:
    """A fault of ours is one line of the log, with its traceback as a field."""
    code = """
import sys
from rmqstore.serve.topics.routes import Routes
def broken(*_):
    raise RuntimeError("broken on purpose")
Routes.handlers = lambda self: {105: broken}
from rmqstore.cli import main
main(["serve", sys.argv[1], "--port", "0"])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "store"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with RemotingClient(address) as client:
            assert client.ask(105, {"topic": "t"}).code == 1
        process.terminate()
        _, errors = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.communicate()
    logged = [json.loads(line) for line in errors.splitlines()]
    (failed,) = [one for one in logged if one["level"] == "error"]
    assert failed["message"] == "request 105 failed"
    assert failed["error"].startswith("Traceback (most recent call last):\n")
    assert failed["error"].endswith("RuntimeError: broken on purpose")
    assert all("error" not in one for one in logged if one is not failed)
