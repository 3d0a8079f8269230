"""``rmqstore serve``: what it says, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rmqstore
from support.remoting import RemotingClient
from support.serve_command import LIMIT

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(serve, tmp_path, number):
    served = serve(tmp_path / "store", "--port", 0)
    line = served.first_line()
    assert re.fullmatch(r"127\.0\.0\.1:\d+", line["address"])
    assert line["address"] in line["message"]
    assert line["file_reserved_hours"] == 72
    assert line["store"] == str(tmp_path / "store")
    with RemotingClient(line["address"]) as client:
        assert client.ask(105, {"topic": "TBW102"}).code == 0
        code, _, logged = served.stop(number)
    assert code == 0
    assert any("72 hours" in one["message"] for one in logged)
    assert all(one.keys() >= {"time", "level", "message"} for one in logged)
    assert not (tmp_path / "store" / "abort").exists()
    with rmqstore.open(tmp_path / "store") as store:
        assert store.recovery.clean


def test_options_reach_the_server(serve, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "fileReservedTime=5\nmappedFileSizeCommitLog=1048576\nmappedFileSizeCommitLgo=1\n"
    )
    served = serve(
        tmp_path / "store", "--port", 0, "--flush", "sync", "--no-auto-create", "--metrics", 0,
        "--advertise", "localhost:7777", "-c", conf,
    )  # fmt: skip
    line = served.first_line()
    assert line["address"] == "localhost:7777"
    assert line["file_reserved_hours"] == 5
    assert line["page"].startswith("http://127.0.0.1:")
    code, output, _ = served.stop()
    assert code == 0
    assert "mappedFileSizeCommitLgo" in output


def test_a_broker_conf_rules_what_is_not_said(serve, tmp_path):
    conf = tmp_path / "broker.conf"
    with rmqstore.serve() as other:
        names = f"brokerName=shop-a\nlistenPort={other.gateway.port}\n"
        conf.write_text(names + "autoCreateTopicEnable=false\n")
        code, output, _ = serve(tmp_path / "store", "-c", conf).end()
        assert (code, output) == (4, f"rmqstore: {other.address}: Address already in use\n")
        for option, perm in (((), None), (("--auto-create",), 7)):
            served = serve(tmp_path / "store", "-c", conf, "--port", 0, *option)
            with RemotingClient(served.first_line()["address"]) as client:
                answer = client.ask(105, {"topic": "TBW102"})
                assert answer.code == (17 if perm is None else 0)
                if perm is not None:
                    (queues,) = answer.json["queueDatas"]
                    assert (queues["brokerName"], queues["perm"]) == ("shop-a", perm)
            assert served.stop()[0] == 0
    conf.write_text("brokerName=a b\n")
    code, output, _ = serve(tmp_path / "store", "-c", conf).end()
    assert code == 2
    assert output.startswith(f"rmqstore: {conf}, line 1: brokerName is 'a b', must be")
    assert output.count("\n") == 1


def test_a_warning_where_others_can_connect(serve, tmp_path):
    served = serve(tmp_path / "store", "--port", 0, "--listen", "0.0.0.0")
    served.first_line()
    code, _, logged = served.stop()
    assert code == 0
    warned = [one["message"] for one in logged if one["level"] == "warning"]
    assert any("without accounts and TLS" in one for one in warned)


def test_a_port_in_use(serve, tmp_path):
    with rmqstore.serve() as server:
        port = server.address.split(":")[1]
        code, output, _ = serve(tmp_path / "store", "--port", port).end()
    assert (code, output) == (4, f"rmqstore: {server.address}: Address already in use\n")
    assert not (tmp_path / "store").exists()


def test_an_address_that_is_not_ours(serve, tmp_path):
    code, output, _ = serve(tmp_path / "store", "--port", 0, "--listen", "192.0.2.77").end()
    assert code == 4
    assert re.fullmatch(r"rmqstore: 192\.0\.2\.77:0: Cannot assign requested address\n", output)


def test_a_store_that_is_locked(serve, tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()):
        code, output, _ = serve(tmp_path / "store", "--port", 0).end()
    assert code == 3
    assert output.count("\n") == 1
    assert "the store is open elsewhere" in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tls-cert", "x"], "--tls-cert and --tls-key are given together"),
        (["--tls-cert", "no.pem", "--tls-key", "no.key"], "No such file"),
        (["--advertise", "nowhere"], "advertise must be 'HOST:PORT'"),
        (["--port", "70000"], "--port"),
        (["--flush", "later"], "--flush"),
    ],
)
def test_wrong_options_are_one_line(serve, tmp_path, arguments, text):
    code, output, _ = serve(tmp_path / "store", *arguments).end()
    assert code in {2, 4}
    assert text in output
    assert output.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_a_directory_of_something_else(serve, tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    code, output, _ = serve(tmp_path).end()
    assert code == 2
    assert "holds something else than a store" in output


def test_the_second_signal_ends_it_at_once(tmp_path):
    code = """
import sys, threading
from rmqstore.serve.server import Server
def close(self):
    print("closing", flush=True)
    threading.Event().wait()
Server.close = close
from rmqstore.cli import main
main(["serve", sys.argv[1], "--port", "0"])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "store"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "closing\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 1
    finally:
        process.kill()
        process.communicate()


def test_in_a_terminal_it_is_a_line_for_people(tmp_path):
    import pty

    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqstore", "serve", tmp_path / "store", "--port", "0"],
        stdout=terminal, stderr=terminal,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    os.close(terminal)
    try:
        text = b""
        while b"\n" not in text:
            text += os.read(main, 4096)
        assert re.match(
            rb"rmqstore: serving \S+ at 127\.0\.0\.1:\d+, name server and broker; messages are "
            rb"kept for 72 hours\r\n",
            text,
        ), text
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)
    assert not Path(tmp_path / "store" / "abort").exists()
