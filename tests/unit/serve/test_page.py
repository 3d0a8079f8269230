"""The metrics port: who is answered, what is shown, and the page in a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

import rmqstore
from rmqstore.serve.server import Server

pytestmark = pytest.mark.pure  # and the browser is no program for a preloaded sanitizer

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve(metrics_port=0) as made:
        yield made


def get(server: Server, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(f"http://{server.metrics_address}{path}", headers=names)
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def raw(server: Server, request: bytes) -> bytes:
    host, port = server.metrics_address.split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_files_and_their_policy(server):
    for path, kind in (
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
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


def test_a_port_in_use_leaves_nothing(server, tmp_path):
    port = int(server.metrics_address.split(":")[1])
    with pytest.raises(OSError, match="in use"):
        rmqstore.serve(tmp_path / "store", metrics_port=port)
    rmqstore.serve(tmp_path / "store").close()  # its lock is free


@pytest.fixture
def chromium() -> str:
    if shutil.which("chromium") is None:
        script = "scripts/need_chromium.sh"
        code = subprocess.run([script], capture_output=True, check=False).returncode
        if code == 3 or (code and not os.environ.get("CI")):
            pytest.skip("there is no chromium")
    found = shutil.which("chromium")
    assert found, "there is no chromium"
    return found


def test_the_page_in_a_browser(server, chromium, tmp_path):
    store = server.store
    for n in range(5):
        store.put("orders", f"order {n} {HOSTILE}".encode(), properties={HOSTILE: HOSTILE})
    with store.consumer("orders", group="billing") as orders:
        next(iter(orders))
        orders.commit()
    shown = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={tmp_path}", "--virtual-time-budget=4000", "--dump-dom",
         f"http://{server.metrics_address}/#orders"],
        capture_output=True, text=True, timeout=110, check=True,
    ).stdout  # fmt: skip
    assert "<title>rmqstore</title>" in shown
    assert server.address in shown
    assert ">live<" in shown
    assert "billing" in shown
    for n in range(5):
        assert f"<pre>order {n} &lt;script&gt;document.title='owned'&lt;/script&gt;&lt;img" in shown
    assert "owned</title>" not in shown
    assert "<img" not in shown
