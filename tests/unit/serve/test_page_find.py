"""Messages found on the page by key or id, and a body on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import rmqstore
from rmqstore.errors import StoreError
from rmqstore.serve.page import messages
from rmqstore.serve.server import Server
from support.pages import get, raw

pytestmark = pytest.mark.pure


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(messages, "_FIND_SECONDS", 60.0)  # of a busy machine a second is little
    with rmqstore.serve(metrics_port=0) as made:
        yield made


def find(server: Server, text: str, topic: str = "") -> dict[str, Any]:
    status, _, body = get(server, f"/api/find?text={quote(text)}&topic={quote(topic)}")
    assert status == 200
    assert b"secret" not in body
    found: dict[str, Any] = json.loads(body)
    return found


def offsets(found: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(one["topic"], one["queue_id"], one["queue_offset"]) for one in found["messages"]]


def test_by_key(server: Server) -> None:
    store = server.store
    for number in range(3):
        store.put(
            "orders", b"secret", queue_id=1, keys=["k", f"k{number}"], tags="paid",
            properties={"state": "new"}, born_timestamp=1000,
        )  # fmt: skip
    store.put("news", b"secret", queue_id=0, keys=["k"])
    found = find(server, "k1", "orders")
    [one] = found["messages"]
    message = store["orders"][1][1]
    assert one["at"] == str(message.physical_offset)
    assert (one["stored"], one["born"]) == (message.store_timestamp, 1000)
    assert (one["tags"], one["keys"], one["bytes"]) == ("paid", "k k1", 6)
    assert (one["id"], one["msg_id"]) == (message.uniq_key, message.msg_id)
    assert one["properties"]["state"] == "new"
    assert (found["more"], found["topics_left_out"], found["error"]) == (False, 0, "")
    assert offsets(find(server, "k", "orders")) == [("orders", 1, n) for n in (2, 1, 0)]
    assert offsets(find(server, "k"))[0] == ("news", 0, 0)
    assert len(find(server, "k")["messages"]) == 4
    assert find(server, "k3")["messages"] == []
    assert find(server, "k", "missing")["messages"] == []


def test_by_id(server: Server) -> None:
    store = server.store
    store.put("orders", b"secret", queue_id=0)
    put = store.put("orders", b"secret", queue_id=0)
    message = store["orders"][0][1]
    assert message.physical_offset == put.physical_offset
    for text in (message.msg_id, message.uniq_key):
        for topic in ("", "orders"):
            assert offsets(find(server, text, topic)) == [("orders", 0, 1)]
    assert offsets(find(server, message.msg_id, "other")) == [("orders", 0, 1)]
    no_record = message.msg_id[:-16] + f"{put.physical_offset + 1:016X}"
    assert find(server, no_record)["messages"] == []


def test_the_newest_of_many(server: Server) -> None:
    for _ in range(25):
        server.store.put("orders", b"secret", queue_id=0, keys=["k"])
    found = find(server, "k", "orders")
    assert offsets(found) == [("orders", 0, number) for number in range(24, 4, -1)]
    assert found["more"]


def test_a_search_of_all_topics_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c", "TBW102"):  # the last is the system's
        server.store.put(name, b"x", queue_id=0, keys=["k"])
    monkeypatch.setattr(messages, "_FIND_SECONDS", -1.0)
    found = find(server, "k")
    assert offsets(found) == [("a", 0, 0)]
    assert found["topics_left_out"] == 2
    assert offsets(find(server, "k", "TBW102")) == [("TBW102", 0, 0)]


@pytest.mark.parametrize("text", ["", "%ff", "%00", "a%20b", "%ED%A0%80", "..%2F..", "k" * 10_000])
def test_any_text(server: Server, text: str) -> None:
    server.store.put("orders", b"x", queue_id=0, keys=["k"])
    for query in (f"text={text}&topic=orders", f"text=k&topic={text}", f"text={text}"):
        status, _, body = get(server, f"/api/find?{query}")
        assert status == 200
        assert len(json.loads(body)["messages"]) == (query == "text=k&topic=")


def test_damage_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        server.store.put(name, b"x", queue_id=0, keys=["k"])
    query = messages._query

    def damaged(store: Any, topic: str, key: str) -> Any:
        if topic == "a":
            raise StoreError("index/1 is damaged" + "x" * 5000)
        return query(store, topic, key)

    monkeypatch.setattr(messages, "_query", damaged)
    found = find(server, "k")
    assert offsets(found) == [("b", 0, 0)]
    assert found["error"].startswith("index/1 is damaged")
    assert len(found["error"]) < 2100


def test_a_body_on_request(server: Server) -> None:
    store = server.store
    at = [store.put("orders", body, queue_id=0).physical_offset
          for body in (b"<b>hello</b>", b"x" * 5000)]  # fmt: skip
    short, long = (json.loads(get(server, f"/api/body?at={one}")[2]) for one in at)
    assert short == {"text": "<b>hello</b>", "is_text": True, "is_cut": False}
    assert (len(long["text"]), long["is_cut"]) == (2000, True)


@pytest.mark.parametrize("at", ["", "-1", "1", "x", "1e3", "\u00b2", "9" * 19, "9" * 5000])
def test_no_body(server: Server, at: str) -> None:
    server.store.put("orders", b"x", queue_id=0)
    assert get(server, f"/api/body?at={quote(at)}")[0] == 404
    assert get(server, "/api/body")[0] == 404


@pytest.mark.parametrize("path", ["/api/find?text=k", "/api/body?at=0"])
def test_it_is_as_closed_as_the_page(server: Server, path: str) -> None:
    server.store.put("orders", b"x", queue_id=0, keys=["k"])
    assert get(server, path)[0] == 200
    assert get(server, path, Host="evil.example")[0] == 403
    assert get(server, path, Sec_Fetch_Site="cross-site")[0] == 403
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    assert raw(server, head.encode()).startswith(b"HTTP/1.1 405 ")
