"""``rmqstore serve``: what it says, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import rmqstore
from support.damaged_store import COUNT, flip, killed, make, read, records
from support.remoting import RemotingClient
from support.serve_command import LIMIT

pytestmark = pytest.mark.pure


@pytest.fixture
def hung_up():
    """SIGHUP as a terminal's programs have it: these tests may run under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hung_up")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
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
    assert logged[-1]["message"] == "stopped; the store is flushed and closed"
    assert all(one.keys() >= {"time", "level", "message"} for one in logged)
    assert not (tmp_path / "store" / "abort").exists()
    with rmqstore.open(tmp_path / "store") as store:
        assert store.recovery.clean


@pytest.mark.usefixtures("hung_up")
def test_a_closed_terminal_sends_its_signal_twice(serve, tmp_path):
    served = serve(tmp_path / "store", "--port", 0)
    served.first_line()
    for _ in range(20):  # from the shell and from the kernel, while the store is being closed
        served.process.send_signal(signal.SIGHUP)
        time.sleep(0.001)
    _, _, logged = served.end()
    assert logged[-1]["message"] == "stopped; the store is flushed and closed"
    assert not (tmp_path / "store" / "abort").exists()


def test_a_server_under_nohup_outlives_its_terminal(serve, tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        served = serve(tmp_path / "store", "--port", 0)
    finally:
        signal.signal(signal.SIGHUP, before)
    address = served.first_line()["address"]
    served.process.send_signal(signal.SIGHUP)
    with RemotingClient(address) as client:
        assert client.ask(105, {"topic": "TBW102"}).code == 0
    assert served.stop()[0] == 0


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
    code, _, logged = served.stop()
    assert code == 0
    (warned,) = (one for one in logged if "mappedFileSizeCommitLgo" in one["message"])
    assert warned["level"] == "warning"


@pytest.mark.parametrize(("keep", "hours", "said"),
                         [("5", 5, "for 5 hours"), ("forever", None, "for ever")])  # fmt: skip
def test_how_long_to_keep_is_said_here(serve, tmp_path, keep, hours, said):
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\n")
    for options in ((), ("-c", conf)):
        served = serve(tmp_path / "store", "--port", 0, "--keep", keep, *options)
        assert served.first_line().get("file_reserved_hours") == hours
        _, _, logged = served.stop()
        assert f"messages are kept {said}" in [one["message"] for one in logged]


def old_store(root: Path) -> int:
    """Make a store of three log files, two of them of messages that are a week old; their end."""
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=64 << 10)
    week = 7 * 24 * 3600
    with rmqstore.open(root, "a", config=config) as store:
        store.clock.advance(-week)
        while store.stats()["wrote_position"] < 100 << 10:
            store.put("t", b"x" * 1000)
        store.clock.advance(week)
        while store.stats()["wrote_position"] < 140 << 10:
            store.put("t", b"x" * 1000)
        return store.delete_expired(before=store.clock.now() - week * 500, dry_run=True).until


def test_a_warning_where_messages_are_too_old_already(serve, tmp_path):
    until = old_store(tmp_path / "store")
    assert until == 64 << 10
    for options, warns in (((), True), (("--keep", "forever"), False)):
        served = serve(tmp_path / "store", "--port", 0, *options)
        served.first_line()
        if warns:
            line = json.loads(served.process.stderr.readline())
            while "older than 72 h" not in line["message"]:
                line = json.loads(served.process.stderr.readline())
            assert line["level"] == "warning"
            assert f"1 file of the log, physical offsets 0 to {until}" in line["message"]
            assert "--keep" in line["message"]
        _, _, logged = served.stop()
        assert not any("older than" in one["message"] for one in logged)


def test_damage_that_good_messages_follow(serve, tmp_path):
    root = killed(make(tmp_path / "store"))
    record = records(root)[COUNT // 3]
    flip(root, record.physical_offset + 100, bit=16)
    code, output, _ = serve(root, "--port", 0).end()
    assert code == 4
    assert "--on-corruption fill loses no other record, verbs that only read show them" in output
    assert "on_corruption" not in output
    served = serve(root, "--port", 0, "--on-corruption", "fill")
    served.first_line()
    code, _, logged = served.stop()
    assert code == 0
    assert any(one["level"] == "warning" and "filled" in one["message"] for one in logged)
    assert len(read(root)) == COUNT - 1


def test_warnings_name_options(serve, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("aclEnable=true\nbrokerIP1=192.0.2.9\n")
    served = serve(tmp_path / "store", "--port", 0, "-c", conf)
    served.first_line()
    _, _, logged = served.stop()
    warned = [one["message"] for one in logged if one["level"] == "warning"]
    assert any("(--acl)" in one for one in warned)
    assert any("(--listen)" in one for one in warned)


def test_file_sizes_that_a_broker_conf_does_not_name(serve, tmp_path):
    small = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path / "store", "a", config=small) as store:
        store.put("t", b"1")
    conf = tmp_path / "broker.conf"
    conf.write_text("diskMaxUsedSpaceRatio=10\n")
    served = serve(tmp_path / "store", "--port", 0, "-c", conf)
    served.first_line()
    assert served.stop()[0] == 0
    conf.write_text("mappedFileSizeCommitLog=1048576\n")
    code, output, _ = serve(tmp_path / "store", "--port", 0, "-c", conf).end()
    assert code == 4
    assert f"({16 << 20}, not {1 << 20}); name the right size in the file of --config" in output


def test_a_broker_conf_rules_what_is_not_said(serve, tmp_path):
    conf = tmp_path / "broker.conf"
    with rmqstore.serve() as other:
        names = f"brokerName=shop-a\nlistenPort={other.gateway.settings.port}\n"
        conf.write_text(names + "autoCreateTopicEnable=false\n")
        code, output, _ = serve(tmp_path / "store", "-c", conf).end()
        assert code == 4
        assert output.startswith(f"rmqstore: {other.address}: Address already in use; ")
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
        said = f"rmqstore: {server.address}: Address already in use; give another"
        code, output, _ = serve(tmp_path / "store", "--port", port).end()
        perhaps = f"perhaps a server on port {int(port) + 2} has it, for the VIP channel"
        assert (code, output) == (4, f"{said} --port, or 0 for a free one; {perhaps}\n")
        assert not (tmp_path / "store").exists()
        code, output, _ = serve(tmp_path / "store", "--port", 0, "--metrics", port).end()
        assert code == 4
        assert output.splitlines()[-1] == f"{said} --metrics, or 0 for a free one; {perhaps}"


def test_an_address_that_is_not_ours(serve, tmp_path):
    code, output, _ = serve(tmp_path / "store", "--port", 0, "--listen", "192.0.2.77").end()
    assert code == 4
    assert output == "rmqstore: 192.0.2.77:0: not an address of this machine\n"
    code, output, _ = serve(tmp_path / "store", "--port", 0, "--listen", "no.such.invalid").end()
    assert code == 4
    assert output.startswith("rmqstore: no.such.invalid:0: the name has no address (")


def test_a_store_that_is_locked(serve, tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()):
        code, output, _ = serve(tmp_path / "store", "--port", 0).end()
    assert code == 3
    assert output.count("\n") == 1
    assert f"the store is open elsewhere by process {os.getpid()}" in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tls-cert", "x"], "--tls-cert and --tls-key are given together"),
        (["--tls-only"], "--tls-only needs --tls-cert and --tls-key"),
        (["--tls-cert", "no.pem", "--tls-key", "no.key"], "No such file"),
        (["--advertise", "nowhere"], "advertise must be 'HOST:PORT'"),
        (["--port", "70000"], "--port"),
        (["--port", "9876", "--metrics", "9876"], "--metrics must be a port other than 9876"),
        (["--port", "9876", "--metrics", "9874"], "--metrics must be a port other than 9876"),
        (["--listen", "127.0.0.1:9"], "--listen must be an address without a port, which is --po"),
        (["--listen", "[::1]:9"], "--listen must be an address without a port"),
        (["--keep", "0"], "--keep is '0', must be hours, 1 or more, or 'forever'"),
        (["--keep", "ever"], "--keep is 'ever', must be hours"),
        (["--on-corruption", "truncate"], "--on-corruption"),
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
        [sys.executable, "-m", "rmqstore", "serve", "data/store", "--port", "0"],
        stdout=terminal, stderr=terminal, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    os.close(terminal)
    try:
        text = b""
        while text.count(b"\n") < 2:
            text += os.read(main, 4096)
        assert re.match(
            rb"rmqstore: name server and broker at 127\.0\.0\.1:\d+\r\n"
            rb"rmqstore: store data/store, messages are kept for 72 hours\r\n",
            text,
        ), text
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
        with suppress(OSError):  # of a terminal that nobody has open any more
            while data := os.read(main, 4096):
                text += data
        assert text.endswith(b"rmqstore: stopped; the store is flushed and closed\r\n")
    finally:
        process.kill()
        process.wait()
        os.close(main)
    assert (tmp_path / "data" / "store").is_dir()
    assert not Path(tmp_path / "data" / "store" / "abort").exists()


def test_a_signal_that_does_not_interrupt_the_wait_ends_it() -> None:
    """As one that comes just before the wait: here another thread has it."""
    program = (
        "import signal, threading\n"
        "from rmqstore.cli.serve import _stop_on_signals\n"
        "wait = _stop_on_signals()\n"
        "kill = lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Timer(0.2, kill).start()\n"
        "wait()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=LIMIT, check=True)
