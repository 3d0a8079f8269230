"""The fixture ``rmq_server``: trouble on demand, time, and what was sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import rmqstore
from rmqstore.serve.testing.rules import RequestRules
from rmqstore.testing import RmqServer
from support.remoting import RemotingClient

pytestmark = pytest.mark.pure

ROUTE = 105
TBW = {"topic": "TBW102"}
HEARTBEAT = 34


def send_fields(topic: str) -> dict[str, object]:
    return {
        "a": "G", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795190702924",
        "h": "0", "i": "psly\x01psly\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def test_a_code_fails_so_often(rmq_server):
    rmq_server.fail(ROUTE, 14, times=2)
    with RemotingClient(rmq_server.address) as client, RemotingClient(rmq_server.address) as other:
        assert client.ask(HEARTBEAT, None, b"{}").code != 14
        assert client.ask(ROUTE, TBW).code == 14
        assert other.ask(ROUTE, TBW).code == 14
        assert client.ask(ROUTE, TBW).code == 0


def test_a_send_that_fails_is_not_stored(rmq_server):
    rmq_server.fail(310, 2)
    rmq_server.fail(310, 10)
    with RemotingClient(rmq_server.address) as client:
        first = client.ask(310, send_fields("orders"), b"1")
        assert first.code == 2
        assert first.fields["MSG_REGION"] == "DefaultRegion"
        assert client.ask(310, send_fields("orders"), b"2").code == 10
        assert client.ask(310, send_fields("orders"), b"3").code == 0
    assert [one.body for one in rmq_server.wait_for("orders", 1, timeout=60)] == [b"3"]


def test_dropped_requests_have_no_answer_and_no_effect(rmq_server):
    rmq_server.drop(310)
    rmq_server.drop(times=2)
    with RemotingClient(rmq_server.address) as client:
        sent = client.send(310, send_fields("orders"), b"1")
        for _ in range(2):
            client.send(ROUTE, TBW)
        asked = client.send(ROUTE, TBW)
        assert client.answer(asked).code == 0
        with pytest.raises((TimeoutError, OSError)):
            client.answer(sent, 0.05)
    assert "orders" not in rmq_server.store


def test_delays(rmq_server):
    rmq_server.delay(150, ROUTE)
    with RemotingClient(rmq_server.address) as client:
        begun = time.monotonic()
        late = client.send(ROUTE, TBW)
        early = client.send(3333)
        assert client.answer(early).code == 3
        assert client.answer(late).code == 0
        assert time.monotonic() - begun >= 0.14
        rmq_server.delay(3_600_000)
        rmq_server.delay(0)
        assert client.ask(ROUTE, TBW).code == 0
        rmq_server.delay(20)
        order = [client.send(ROUTE, TBW) for _ in range(20)]
        for opaque in order:
            assert client.answer(opaque).code == 0


def test_a_delayed_request_fails_late(rmq_server):
    rmq_server.delay(30, ROUTE)
    rmq_server.fail(ROUTE, 1)
    with RemotingClient(rmq_server.address) as client:
        begun = time.monotonic()
        assert client.ask(ROUTE, TBW).code == 1
        assert time.monotonic() - begun >= 0.025


def test_a_delayed_request_of_a_client_that_is_gone(rmq_server, monkeypatch, wait_until):
    gateway, due = rmq_server.gateway, []
    go_on = RequestRules._go_on
    monkeypatch.setattr(RequestRules, "_go_on", lambda *all_of_it: due.append(all_of_it))
    rmq_server.delay(1, 310)
    with RemotingClient(rmq_server.address) as client:
        client.send(310, send_fields("orders"), b"1")
        wait_until(lambda: due)
    wait_until(lambda: not gateway.connections.open)
    rmq_server.in_loop(go_on, *due[0])
    assert gateway.requests[310] == 0
    assert "orders" not in rmq_server.store


def test_connections_are_closed_and_come_again(rmq_server):
    client = RemotingClient(rmq_server.address)
    assert client.ask(ROUTE, TBW).code == 0
    rmq_server.close_connections()
    with suppress(ConnectionResetError):
        assert client.socket.recv(1) == b""
    client.socket.close()
    with RemotingClient(rmq_server.address) as again:
        assert again.ask(ROUTE, TBW).code == 0


def test_the_clock_makes_delayed_messages_due(rmq_server):
    rmq_server.store.put("later", b"1", delay_level=18)  # two hours
    with pytest.raises(TimeoutError, match=r"topic 'later' has 0 messages after 0\.05 s, not 1"):
        rmq_server.wait_for("later", 1, timeout=0.05)
    before = rmq_server.clock.now()
    rmq_server.clock.advance(7200)
    assert rmq_server.clock.now() - before >= 7_200_000
    assert [one.body for one in rmq_server.wait_for("later", 1, timeout=60)] == [b"1"]


def test_waiting_for_what_comes(rmq_server):
    assert rmq_server.wait_for("none", 0) == []

    def put() -> None:
        for n in range(6):
            rmq_server.store.put("t", b"%d" % n)

    putting = threading.Timer(0.05, put)
    putting.start()
    found = rmq_server.wait_for("t", 6, timeout=60)
    putting.join()
    assert [one.body for one in found] == [b"%d" % n for n in range(6)]


def test_waiting_at_the_wrong_topic(rmq_server):
    def said(topic: str, n: int = 1) -> str:
        with pytest.raises(TimeoutError) as raised:
            rmq_server.wait_for(topic, n, timeout=0.01)
        return str(raised.value)

    assert (
        said("payments") == "topic 'payments' has 0 messages after 0.01 s, not 1; no topic has any"
    )
    rmq_server.store.put("payment", b"1")
    rmq_server.wait_for("payment", 1, timeout=60)  # it is in its queue
    assert said("payments").endswith(", not 1; did you mean 'payment'?")
    assert said("orders").endswith(", not 1; there are messages in 'payment'")
    assert said("payment", 2).endswith("'payment' has 1 message after 0.01 s, not 2")


@pytest.mark.long
def test_a_failure_shows_the_line_of_the_test(tmp_path):
    test = "def test_it(rmq_server):\n    rmq_server.wait_for('t', 1, timeout=0.01)\n"
    (tmp_path / "test_it.py").write_text(test)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert run.returncode == 1, run.stdout
    assert "topic 't' has 0 messages" in run.stdout
    assert "under_test.py" not in run.stdout
    assert "deadline" not in run.stdout


def test_wrong_arguments(rmq_server):
    with pytest.raises(TypeError, match=r"code must be int, such as 310 .*, not str"):
        rmq_server.fail("310", 1)
    with pytest.raises(TypeError, match="code must be int, such as 11 for a pull, not str"):
        rmq_server.drop("pull")
    with pytest.raises(TypeError, match="response must be int"):
        rmq_server.fail(310, None)
    with pytest.raises(ValueError, match="times must be 1 or more, got 0"):
        rmq_server.fail(310, 1, times=0)
    with pytest.raises(ValueError, match="code must be 0 to 32767"):
        rmq_server.drop(-1)
    with pytest.raises(ValueError, match="ms must be 0 to 3600000"):
        rmq_server.delay(float("nan"))
    with pytest.raises(TypeError, match="ms must be a number"):
        rmq_server.delay("1")
    with pytest.raises(TypeError, match="topic must be str"):
        rmq_server.wait_for(1, 1)
    with pytest.raises(ValueError, match="n must be 0 or more"):
        rmq_server.wait_for("t", -1)


def test_without_rules_sends_take_the_short_way(rmq_server):
    assert rmq_server.gateway.shared.hot_sends
    rmq_server.fail(310, 1)
    assert not rmq_server.gateway.shared.hot_sends
    with RemotingClient(rmq_server.address) as client:
        client.ask(310, send_fields("t"), b"")
    assert rmq_server.gateway.shared.hot_sends
    rmq_server.delay(1, 99)
    assert not rmq_server.gateway.shared.hot_sends
    rmq_server.delay(0, 99)
    assert rmq_server.gateway.shared.hot_sends


def test_a_closed_server_takes_no_rules():
    with RmqServer() as server:
        pass
    with pytest.raises(RuntimeError, match="is closed"):
        server.fail(310, 1)
    assert not Path(server.store.path).exists()


@pytest.mark.long
@pytest.mark.parametrize("processes", [0, 2])
def test_in_a_suite_of_its_own(tmp_path, processes):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_it(rmq_server, n):\n"
        "    rmq_server.store.put('t', b'%d' % n)\n"
        "    assert rmq_server.wait_for('t', 1, timeout=60)[0].body == b'%d' % n\n"
    )
    left = tmp_path / "temporary"
    left.mkdir()
    plugin = (
        [] if "rmqstore.testing" in sys.modules and _installed() else ["-p", "rmqstore.testing"]
    )
    spread = ["-n", str(processes)] if processes else ["-p", "no:xdist"]
    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *spread,
         "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "TMPDIR": str(left), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "4 passed" in shown.stdout, shown.stdout + shown.stderr
    assert [one for one in left.iterdir() if one.name.startswith("rmqstore-")] == []


def _installed() -> bool:
    from importlib.metadata import entry_points

    return any(one.value == "rmqstore.testing" for one in entry_points(group="pytest11"))


def test_routes_are_json(rmq_server):
    with RemotingClient(rmq_server.address) as client:
        assert json.loads(client.ask(ROUTE, TBW).body)["queueDatas"]


# Topics from the start


def test_topics_at_the_start_are_in_routes(tmp_path: Path) -> None:
    with RmqServer(tmp_path / "store", topics=("payments", "orders")) as server:
        server.make_topics("returns", queue_nums=2)
        server.make_topics("payments", queue_nums=16)  # it is there
        with RemotingClient(server.address) as client:
            for topic, nums in (("payments", 4), ("orders", 4), ("returns", 2)):
                route = client.ask(105, {"topic": topic})
                assert route.code == 0
                assert route.json["queueDatas"][0]["readQueueNums"] == nums
    with rmqstore.open(tmp_path / "store") as store:
        assert list(store) == ["orders", "payments", "returns"]


@pytest.mark.parametrize("topics", ["payments", b"payments", 1, None])
def test_topics_are_names(topics: object) -> None:
    with pytest.raises(TypeError, match="topics must be an iterable of str"):
        RmqServer(topics=topics)  # type: ignore[arg-type]


def test_a_name_that_cannot_be_leaves_all_unmade(tmp_path: Path) -> None:
    with RmqServer(tmp_path / "store") as server:
        for names in (("good", "a b"), ("good", ""), ("good", None)):
            with pytest.raises((ValueError, TypeError), match="name must be "):
                server.make_topics(*names)  # type: ignore[arg-type]
        for queue_nums in (0, 65537):
            with pytest.raises(ValueError, match="queue_nums must be "):
                server.make_topics("good", queue_nums=queue_nums)
        for wrong in ("4", True):
            with pytest.raises(TypeError, match="queue_nums must be "):
                server.make_topics("good", queue_nums=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="perm must be "):
            server.store.create_topic("good", perm=True)
        assert "good" not in server.store
        server.make_topics("good", "good")
        assert list(server.store) == ["good"]
    with pytest.raises(rmqstore.MessageIllegalError):
        RmqServer(tmp_path / "new", topics=["good", "a b"])
    assert not (tmp_path / "new").exists()
    with pytest.raises(rmqstore.StoreClosedError):
        server.make_topics("late")


@pytest.mark.parametrize("topics", [["a b"], [""], [None], ["x" * 128]])
def test_topics_that_cannot_be_are_refused_and_nothing_runs(topics: list[str]) -> None:
    before = {one.name for one in threading.enumerate()}
    with pytest.raises((TypeError, rmqstore.MessageIllegalError)):
        RmqServer(topics=topics)
    assert "rmq-serve" not in {one.name for one in threading.enumerate()} - before


def test_options_of_a_server() -> None:
    with RmqServer(flush="sync", vip=False) as server:
        assert server.store.config.flush_disk_type == "SYNC_FLUSH"
        assert len(server._sockets) == 1
    with pytest.raises(TypeError, match="ports"):
        RmqServer(ports=1)
