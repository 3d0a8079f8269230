"""What the page does is bounded: of bodies, of those who ask, and of errors."""

from __future__ import annotations

import contextlib
import json
import select
import threading
import time
import zlib
from collections.abc import Iterator
from functools import partial

import pytest

import rmqstore
from rmqstore import bodies
from rmqstore.serve import page
from rmqstore.serve.page import messages as page_messages
from rmqstore.serve.server import Server
from support.pages import get, open_to
from support.serving import wait_until

pytestmark = [pytest.mark.pure, pytest.mark.usefixtures("fresh_figures")]


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve(metrics_port=0) as made:
        yield made


def compressed(kind: int, body: bytes) -> bytes:
    """A body, compressed: by LZ4 as kind 1, ZSTD as 2, else zlib."""
    if kind == 1:
        return pytest.importorskip("lz4.frame").compress(body)
    if kind == 2:
        return pytest.importorskip("zstandard").compress(body)
    return zlib.compress(body)


def zeros(kind: int) -> bytes:
    """64 MiB of zeros, compressed."""
    return compressed(kind, bytes(64 << 20))


def put_deflated(store: rmqstore.MessageStore, body: bytes, kind: int) -> None:
    flag = 1 | kind << 8
    store.core.put_stored(
        "bombs", 0, body, "", sys_flag=flag, born_timestamp=1, born_host="1.1.1.1:1"
    )


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_bodies_are_inflated_up_to_what_is_shown(server, kind, monkeypatch):
    whole = zeros(kind)
    body, is_whole = bodies.inflate_start(whole, kind << 8, 8000)
    assert (body, is_whole) == (bytes(8000), False)
    assert bodies.inflate_start(whole, kind << 8, 64 << 20) == (bytes(64 << 20), True)
    made = []
    inflate_start = page_messages.inflate_start

    def counted(*arguments):
        began = time.thread_time()
        found = inflate_start(*arguments)
        made.append((len(found[0]), time.thread_time() - began))
        return found

    monkeypatch.setattr(page_messages, "inflate_start", counted)
    for _ in range(20):
        put_deflated(server.store, whole, kind)
    _, _, reply = get(server, "/api/topic?name=bombs")
    messages = json.loads(reply)["messages"]
    assert [(one["bytes"], one["is_cut"], one["is_text"]) for one in messages] == [
        (len(whole), True, True)
    ] * 20
    assert [size for size, _ in made] == [8000] * 20
    # All of one takes 20 ms and more of the processor.
    assert sorted(seconds for _, seconds in made)[10] < 0.01


def test_what_is_no_stream_is_shown_as_it_is(server):
    for body in (b"plain", zlib.compress(bytes(range(256)))[:-20], b"", zlib.compress(b"short")):
        put_deflated(server.store, body, 0)
    _, _, reply = get(server, "/api/topic?name=bombs")
    texts = [one["text"] for one in json.loads(reply)["messages"]]
    assert texts[:2] == ["short", ""]
    assert all(one.startswith("[not inflated] ") for one in texts[2:])


def test_many_frames_are_no_work(server):
    """Of 4 MB of empty LZ4 frames, what follows each was copied once more."""
    lz4 = pytest.importorskip("lz4.frame")
    empty = lz4.compress(b"", store_size=False, content_checksum=False)
    stored = empty * ((1 << 20) // len(empty))
    began = time.thread_time()
    assert bodies.inflate_start(stored, 1 << 8, 8000) == (b"", True)
    assert time.thread_time() - began < 10  # of 1 MB, fed in pieces: linear


@pytest.mark.parametrize("kind", [1, 2])
def test_the_page_looks_at_some_frames_of_a_body(server, kind, monkeypatch):
    """20 bodies of empty frames alone, 4 MiB of ZSTD each, took it 80 s of the processor."""
    empty = compressed(kind, b"")
    short = compressed(kind, b"short")
    for frames in (999, 1000):
        put_deflated(server.store, empty * frames + short, kind)
    put_deflated(server.store, empty * 100_000, kind)
    began = []
    frames_of = bodies._inflate_frames

    def counted(frame_type, *arguments):
        def frame():
            began.append(frame_type)
            return frame_type()

        return frames_of(frame, *arguments)

    monkeypatch.setattr(bodies, "_inflate_frames", counted)
    _, _, reply = get(server, "/api/topic?name=bombs")
    messages = json.loads(reply)["messages"]
    assert [(one["text"], one["is_cut"]) for one in messages] == [
        ("", True), ("", True), ("short", False),
    ]  # fmt: skip
    assert len(began) == 3000


@pytest.mark.parametrize("path", ["/metrics", "/api/overview"])
def test_figures_are_made_once_for_all_who_ask_meanwhile(server, path, monkeypatch):
    """Those of 20,000 topics take a second: 60 who ask would keep the others for a minute."""
    go_on, entered = threading.Event(), threading.Semaphore(0)
    made = []
    stats = server.store.stats

    def slow():
        made.append(path)
        entered.release()
        assert go_on.wait(60)
        return stats()

    monkeypatch.setattr(server.store, "stats", slow)
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(open_to(server)) for _ in range(20)]
        for one in asked:
            one.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        assert entered.acquire(timeout=60)
        serving, awaiting = server._metrics._serving, server._metrics._awaiting
        wait_until(lambda: server.in_loop(lambda: (len(serving), len(awaiting))) == (20, 0))
        server.in_loop(lambda: next(iter(serving)).cancel())  # one does not wait for the end
        go_on.set()
        replies = [b"".join(iter(partial(one.recv, 1 << 16), b"")) for one in asked]
    assert sorted(one[:13] for one in replies) == [b"", *[b"HTTP/1.1 200 "] * 19]
    before = len(made)
    assert before <= 2  # /metrics takes them twice
    assert get(server, path)[0] == 200  # who asks later gets new ones
    assert len(made) > before


def test_an_error_of_the_page_is_a_printable_line(server, monkeypatch, caplog):
    """Its text may be of a path that is no UTF-8: the connection was closed without a reply."""

    def fail(store, name):
        raise ValueError("Z\udcfcrich\x1b[2J\n" + "x" * 100_000)

    monkeypatch.setattr(page, "topic_figures", fail)
    status, _, body = get(server, "/api/topic?name=t")
    assert status == 500
    assert body.startswith(rb"ValueError: Z\udcfcrich\x1b[2J\n")
    assert len(body) < 1100
    (line,) = [one for one in caplog.messages if "of the page failed" in one]
    assert line.isprintable()


@pytest.mark.long
def test_figures_do_not_wait_for_messages(server):
    """64 ask for messages whose reading does not end: few of them wait, and figures come."""
    go_on = threading.Event()
    entered = threading.Event()
    monkeypatch = pytest.MonkeyPatch()

    def held(store, name):
        entered.set()
        assert go_on.wait(60)
        return {"messages": []}

    monkeypatch.setattr(page, "topic_figures", held)
    asked = [open_to(server) for _ in range(40)]
    try:
        for one in asked:
            one.sendall(b"GET /api/topic?name=t HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert entered.wait(60)
        wait_until(lambda: server.in_loop(lambda: len(server._metrics._serving)) == 16)
        for path in ("/metrics", "/api/overview", "/"):
            assert get(server, path)[0] == 200
        refused = [one for one in asked if select.select([one], [], [], 0)[0]]
        assert len(refused) == 24
        assert all(one.recv(100).startswith(b"HTTP/1.1 503 ") for one in refused)
    finally:
        go_on.set()
        monkeypatch.undo()
    for one in asked:
        if one not in refused:
            assert one.recv(100).startswith(b"HTTP/1.1 200 ")
        one.close()
