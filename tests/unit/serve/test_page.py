"""The metrics port: who is answered, what is shown, and the page in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import select
import struct
import sys
import time
from collections.abc import Iterator

import pytest

import rmqstore
from rmqstore.serve.figures import http
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Limits, Settings
from support.pages import get, open_to, raw
from support.ports import quiet_port
from support.remoting import RemotingClient
from support.serving import wait_until

pytestmark = pytest.mark.pure  # and the browser is no program for a preloaded sanitizer


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve(metrics_port=0) as made:
        yield made


def test_the_files_and_their_policy(server):
    for path, kind in (
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/plot.js", "text/javascript"),
        ("/find.js", "text/javascript"),
        ("/page.css", "text/css"),
    ):
        status, headers, body = get(server, path)
        assert status == 200
        assert headers["Content-Type"].startswith(kind)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not re.search(rb"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", body)
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", body)


def test_only_this_machine_s_names_are_answered(server):
    assert get(server, "/api/overview", Host="evil.example")[0] == 403
    assert get(server, "/api/overview", Host="127.0.0.1.evil.example:80")[0] == 403
    assert get(server, "/api/overview", Host="localhost:1234")[0] == 200
    assert get(server, "/api/overview", Host="[::1]:80")[0] == 200
    assert get(server, "/api/overview", Sec_Fetch_Site="cross-site")[0] == 403
    assert get(server, "/api/overview", Sec_Fetch_Site="same-origin")[0] == 200
    assert server.metrics_address.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\n\r\n", 403),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://[bad HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /?" + b"a=1&" * 100 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70000 + b"\r\n\r\n", 400),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\r\n\r\n", 400),
    ],
)
def test_bad_requests(server, request_, status):
    assert raw(server, request_).startswith(b"HTTP/1.1 %d " % status)
    assert get(server, "/")[0] == 200


def test_head_has_no_body(server):
    head, _, body = raw(server, b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").partition(
        b"\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""


def test_figures(server):
    store = server.store
    for n in range(30):
        store.put("orders", b"%d" % n, queue_id=n % 4, tags="paid")
    with store.consumer("orders", group="billing") as orders:
        for _ in orders:
            orders.commit()
    store.put("orders", b"late", queue_id=1)
    figures = json.loads(get(server, "/api/overview")[2])
    assert figures["address"] == server.address
    assert figures["puts"] == 31
    (topic,) = [one for one in figures["topics"] if one["name"] == "orders"]
    assert (topic["queues"], topic["messages"], topic["system"]) == (4, 31, False)
    (group,) = figures["groups"]
    assert (group["group"], group["topic"], group["messages"]) == ("billing", "orders", 1)
    newest = json.loads(get(server, "/api/topic?name=orders")[2])["messages"]
    assert [one["text"] for one in newest] == ["late", *(str(n) for n in range(29, 10, -1))]
    assert get(server, "/api/topic?name=none")[0] == 404
    assert get(server, "/api/topic")[0] == 404


def test_bodies_are_bounded(server):
    server.store.put("big", b"x" * 3_000_000)
    server.store.put("big", b"\xff\x00" * 5000)
    status, _, body = get(server, "/api/topic?name=big")
    assert status == 200
    assert len(body) < 20_000
    binary, long = json.loads(body)["messages"]
    assert (long["is_cut"], long["bytes"], long["text"]) == (True, 3_000_000, "x" * 2000)
    assert (binary["is_text"], binary["is_cut"]) == (False, True)
    assert binary["text"].startswith("ff 00 ff 00")


def test_metrics(server):
    server.store.put("orders", b"1")
    status, headers, body = get(server, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    text = body.decode()
    assert "rocketmq_producer_offset{" in text
    assert 'rmqstore_connections{broker="broker-a",cluster="DefaultCluster"} 0.0' in text


def samples(server: Server) -> dict[str, float]:
    """What is scraped, by name and labels as they are written."""
    status, _, body = get(server, "/metrics")
    assert status == 200
    lines = [line for line in body.decode().splitlines() if line and line[0] != "#"]
    found = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    assert len(found) == len(lines)  # none twice
    return found


def named(found: dict[str, float], name: str, **labels: str) -> float:
    """The one sample of a name with these labels."""
    (value,) = [
        value
        for key, value in found.items()
        if key.partition("{")[0] == name
        and all(f'{label}="{text}"' in key for label, text in labels.items())
    ]
    return value


def test_what_clients_do_is_in_the_metrics(server, monkeypatch):
    server.store.create_topic("orders", queue_nums=1)
    send = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
            "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
    pull = {"consumerGroup": "billing", "topic": "orders", "queueId": 0, "queueOffset": 0,
            "maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 60_000,
            "subVersion": 0, "subscription": "*"}  # fmt: skip
    one = {"topic": "orders", "subString": "*", "subVersion": 1}
    beat = {
        "clientID": "c", "producerDataSet": [{"groupName": "shop"}],
        "consumerDataSet": [{"groupName": "billing", "subscriptionDataSet": [one]}],
    }  # fmt: skip
    with RemotingClient(server.address) as client:
        assert client.ask(34, None, json.dumps(beat).encode()).code == 0
        for number in range(3):
            assert client.ask(310, send, b"%d" % number).code == 0
        assert client.ask(10, {**pull}).code == 1
        assert client.ask(11, pull).code == 0
        assert client.ask(36, {"group": "billing", "offset": 0, "delayLevel": 3}).code == 0
        assert client.ask(9999).code == 3
        assert client.ask(8888).code == 3
        client.send(11, {**pull, "queueOffset": 3})
        client.socket.sendall(bytes([0, 0, 16, 0, 0, 0, 16]))
        deadline = time.monotonic() + 60
        while not (len(server.gateway.holds) and server.gateway.connections.kept_frames.taken):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        size = server.store["orders"][0][0].store_size
        rates = server.gateway.rates
        now = server.gateway.work.loop.time()
        server.in_loop(monkeypatch.setattr, rates, "_now", lambda: int(now * 1000))
        server.in_loop(rates.sample_seconds)
        server.gateway.connections.refused = 5
        found, held_bytes = samples(server), server.gateway.holds.taken
    broker = {"cluster": "DefaultCluster", "broker": "broker-a"}
    of_topic = {**broker, "topic": "orders"}
    of_group = {**of_topic, "group": "billing"}
    assert named(found, "rocketmq_producer_tps", **of_topic) == pytest.approx(0.3)
    assert named(found, "rocketmq_producer_message_size", **of_topic) == pytest.approx(0.3 * size)
    assert named(found, "rocketmq_consumer_tps", **of_group) == pytest.approx(0.3)
    assert named(found, "rocketmq_consumer_message_size", **of_group) == pytest.approx(0.3 * size)
    assert named(found, "rocketmq_send_back_nums", **of_group) == pytest.approx(0.1)
    assert named(found, "rocketmq_group_count", group="billing") == 1
    assert named(found, "rocketmq_producer_count", **broker, group="shop") == 1
    runtime = "rocketmq_brokeruntime_"
    assert named(found, runtime + "msg_put_total_today_now", cluster="DefaultCluster") == 4
    assert named(found, runtime + "msg_gettotal_today_now") >= 3
    for name in ("puttotal", "gettotal"):
        for day in ("today", "yesterday"):
            assert named(found, f"{runtime}msg_{name}_{day}morning") == 0
    labels = {key[key.index("{") :] for key in found if key.startswith(runtime)}
    assert len(labels) == 1  # the store's figures have the same
    assert named(found, "rmqstore_connections", **broker) == 1
    assert named(found, "rmqstore_held_pulls", **broker) == 1
    assert named(found, "rmqstore_held_pull_bytes", **broker) == held_bytes > 2048
    assert named(found, "rmqstore_queue_locks", **broker) == 0
    assert named(found, "rmqstore_read_buffer_bytes", **broker) == 7
    assert named(found, "rmqstore_unanswered_bytes", **broker) == 0
    assert named(found, "rmqstore_write_buffer_bytes", **broker) == 0
    assert named(found, "rmqstore_refused_connections_total", **broker) == 5
    counts = {"34": 1, "310": 3, "10": 1, "11": 2, "36": 1, "unknown": 2}
    for code, count in counts.items():
        assert named(found, "rmqstore_requests_total", **broker, code=code) == count


@pytest.mark.long
def test_the_rates_of_the_broker(server, wait_until):
    store = server.store
    wait_until(lambda: store.stats()["putTps"])  # after a second there are two samples
    for _ in range(10):
        store.put("orders", b"x", queue_id=0)
    for number in range(30):
        store.get("orders", 0, number % 10)

    def are_shown() -> bool:
        broker = {"cluster": "DefaultCluster", "broker": "broker-a"}
        found = samples(server)
        puts, gets = (named(found, f"rocketmq_broker_{name}", **broker) for name in ("tps", "qps"))
        return 0 < puts < gets

    wait_until(are_shown)


def test_requests_are_counted_which_ever_way_they_go(server):
    server.store.create_topic("orders", queue_nums=1)
    short = {"a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
             "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
    names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",
             "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
             "batch")  # fmt: skip
    long = dict(zip(names, short.values(), strict=True))
    part = struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)
    with RemotingClient(server.address) as client:
        for hot in (True, False):
            server.gateway.shared.hot_sends = hot
            for code, fields, body in (
                (310, short, b"x"), (10, long, b"x"), (10, long, b"y"),
                (320, {**short, "m": "true"}, part * 4),
            ):  # fmt: skip
                assert client.ask(code, fields, body).code == 0
            assert server.gateway.sends.requests() == {310: 1, 10: 2, 320: 1}
    found = samples(server)
    for code, count in {"310": 2, "10": 4, "320": 2}.items():
        assert named(found, "rmqstore_requests_total", code=code) == count


def test_connections_beyond_the_most_are_counted():
    settings = Settings(limits=Limits(connections=1))
    small = rmqstore.StoreConfig.small()
    server = Server(None, settings, small, metrics_port=0)
    with server, RemotingClient(server.address) as client:
        assert client.ask(105, {"topic": "TBW102"}).code == 0
        for _ in range(3):
            with RemotingClient(server.address) as another:
                assert another.socket.recv(1) == b""
        assert named(samples(server), "rmqstore_refused_connections_total") == 3


def test_a_port_in_use_leaves_nothing(server, tmp_path):
    port = int(server.metrics_address.split(":")[1])
    with pytest.raises(OSError, match="in use"):
        rmqstore.serve(tmp_path / "store", metrics_port=port)
    assert not (tmp_path / "store").exists()


def test_without_the_client_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match="prometheus-client"):
        rmqstore.serve(tmp_path / "store", metrics_port=0)
    assert not (tmp_path / "store").exists()


def test_a_start_that_fails_lets_go_of_the_port(server, tmp_path):
    (tmp_path / "file").write_text("no directory")
    port = quiet_port()
    for _ in range(2):
        with pytest.raises(OSError, match="file"):
            rmqstore.serve(tmp_path / "file", metrics_port=port)
    with rmqstore.serve(metrics_port=port) as made:
        assert made.metrics_address == f"127.0.0.1:{port}"


@pytest.mark.long
def test_connections_to_the_page_are_few(server, monkeypatch):
    """64 that say nothing; for each one more the oldest of them is closed."""
    monkeypatch.setattr(http, "_READ_SECONDS", 600.0)  # none is closed for its silence
    silent = [open_to(server) for _ in range(64)]
    wait_until(lambda: server.in_loop(lambda: len(server._metrics._serving)) == 64)
    for path in ("/metrics", "/", "/api/overview"):
        assert get(server, path)[0] == 200
    wait_until(lambda: len(select.select(silent, [], [], 0)[0]))
    [oldest] = select.select(silent, [], [], 0)[0]
    assert oldest is silent[0]
    silent += [open_to(server) for _ in range(100)]
    wait_until(lambda: len(select.select(silent, [], [], 0)[0]) == 100)
    assert server.in_loop(lambda: len(server._metrics._serving)) == 64
    assert set(silent[-64:]).isdisjoint(select.select(silent, [], [], 0)[0])
    assert get(server, "/metrics")[0] == 200
    for one in silent:
        one.close()
    wait_until(lambda: not server.in_loop(lambda: server._metrics._awaiting))


def test_who_does_not_read_the_page_leaves_room(server):
    async def huge(query):
        return http.Reply(bytes(16 << 20))

    server.in_loop(server._metrics._resources.__setitem__, "/huge", huge)
    slow = [open_to(server) for _ in range(64)]
    for one in slow:
        one.sendall(b"GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: len(select.select(slow, [], [], 0)[0]) == 64)
    for path in ("/metrics", "/"):
        assert get(server, path)[0] == 200
    assert server.in_loop(lambda: len(server._metrics._serving)) <= 64
    for one in slow:
        one.close()


@pytest.mark.long
def test_where_all_are_answered_one_more_is_closed(server):
    asked, go_on = [], asyncio.Event()

    async def slow(query):
        asked.append(1)
        await go_on.wait()
        return http.Reply(b"done")

    server.in_loop(server._metrics._resources.__setitem__, "/slow", slow)
    clients = [open_to(server) for _ in range(64)]
    for one in clients:
        one.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: len(asked) == 64)
    with open_to(server) as late:
        assert late.recv(1) == b""
    server.in_loop(go_on.set)
    for one in clients:
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")
        one.close()
    assert get(server, "/")[0] == 200


def test_who_says_nothing_to_the_page_is_gone(server, monkeypatch):
    assert (http._READ_SECONDS, http._WRITE_SECONDS) == (10, 10)
    monkeypatch.setattr(http, "_READ_SECONDS", 0.05)
    for says in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
        with open_to(server) as silent:
            silent.sendall(says)
            assert silent.recv(1) == b""


def test_who_does_not_read_the_page_is_gone(server, monkeypatch):
    monkeypatch.setattr(http, "_WRITE_SECONDS", 0.05)

    async def huge(query):
        return http.Reply(bytes(64 << 20))

    server.in_loop(server._metrics._resources.__setitem__, "/huge", huge)
    with open_to(server) as slow:
        slow.sendall(b"GET /huge HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert select.select([slow], [], [], 60)[0]
        wait_until(lambda: server.in_loop(lambda: len(server._metrics._serving)) == 0)
        read = 0
        with contextlib.suppress(ConnectionResetError):
            while part := slow.recv(1 << 20):
                read += len(part)
        assert read < 64 << 20  # what was not taken is not kept
