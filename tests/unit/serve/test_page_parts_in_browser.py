"""The page in Chromium: find, what is not delivered, warnings, plots, bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import rmqstore
from rmqstore.serve.page import messages, trend
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from support.chromium import Page

# The browser is no program for a preloaded sanitizer, and in CI it is installed first.
pytestmark = [pytest.mark.pure, pytest.mark.long]

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
ITEMS = "[...document.querySelectorAll('{}')].map((one) => one.textContent)"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(trend, "_EVERY", 0.2)
    monkeypatch.setattr(messages, "_FIND_SECONDS", 60.0)  # of a busy machine a second is little
    config = rmqstore.StoreConfig.small(file_reserved_time=72)
    with Server(None, Settings(), config, metrics_port=0) as made:
        yield made


def submit(page: Page, text: str, topic: str = "") -> None:
    """Search as with the Enter key."""
    page.run(f"byId('find_text').value = {json.dumps(text)}")
    page.run(f"byId('find_topic').value = {json.dumps(topic)}")
    page.run("byId('find_form').requestSubmit()")


def note(page: Page, text: str) -> None:
    page.wait_for(f"document.querySelector('#find_note').textContent === {json.dumps(text)}")


def test_a_message_is_found_and_its_body_shown_on_request(
    server: Server, browse: Callable[..., Page]
) -> None:
    store = server.store
    for number in range(3):
        store.put(
            "orders", f"body {number} {HOSTILE}".encode(), queue_id=1, tags=HOSTILE,
            keys=[f"k{number}", "all"], properties={HOSTILE: HOSTILE},
        )  # fmt: skip
    store.put("z", b"x", queue_id=0)
    page = browse("z")
    submit(page, "k1", "orders")
    note(page, "1 message.")
    assert "body 1" not in page.run("document.body.innerText")
    line = page.run(ITEMS.format("#found .line span"))
    message = store["orders"][1][1]
    assert line[:3] == [
        "orders", "queue 1, offset 1", f"log offset {message.physical_offset}",
    ]  # fmt: skip
    assert HOSTILE in line
    assert {"keys k1 all", message.uniq_key, message.msg_id} <= set(line)
    assert f"{HOSTILE} = {HOSTILE}" in str(page.text("#found details pre"))
    page.run("document.querySelector('#found button').click()")
    page.wait_for("document.querySelector('#found .line + pre') !== null")
    assert page.text("#found .line + pre") == f"body 1 {HOSTILE}"
    assert page.run("document.activeElement === document.querySelector('#found .line + pre')")
    assert page.run("document.title") == "rmqstore"
    assert page.run("document.querySelectorAll('img').length") == 0
    submit(page, "all")
    note(page, "3 messages.")
    submit(page, message.msg_id)
    note(page, "1 message.")
    submit(page, "none")
    note(page, "No message has that key or id.")
    assert page.run("document.querySelectorAll('#found li').length") == 0
    assert page.run("location.search") == ""  # the form itself is not sent


def test_topics_are_offered_to_search_in(server: Server, browse: Callable[..., Page]) -> None:
    for name in ("orders", "TBW102"):
        server.store.put(name, b"x", queue_id=0)
    page = browse()
    page.run("byId('find_topic').focus()")
    names = "[...byId('find_topics').options].map((one) => one.value)"
    page.wait_for(f"({names}).length > 0")
    assert page.run(names) == ["orders"]


def test_what_is_not_delivered(server: Server, browse: Callable[..., Page]) -> None:
    store = server.store
    for level in (5, 5, 14):
        store.put("orders", b"later", delay_level=level, queue_id=0)
    for name, count in (("a", 2), ("b", 1)):
        for _ in range(count):
            store.put(f"%DLQ%{name}", b"dead", queue_id=0)
    store.begin("orders", b"half")
    page = browse()
    texts = [page.text(f"#{name}") for name in ("delayed", "dead", "in_doubt")]
    assert texts == ["3", "3", "1"]
    assert page.text("#delayed_note") == "Delayed by 60 s: 2, 10 min: 1"
    assert page.run(ITEMS.format("#dead_topics li")) == ["%DLQ%a 2", "%DLQ%b 1"]
    page.run("document.querySelectorAll('#dead_topics button')[1].click()")
    page.wait_for("document.querySelector('#topic_name').textContent === '%DLQ%b'")
    store.put("%DLQ%b", b"dead", queue_id=0)
    page.wait_for("document.querySelector('#dead').textContent === '4'")


def test_a_group_that_is_too_slow_for_retention(
    server: Server, browse: Callable[..., Page]
) -> None:
    store = server.store
    page = browse()
    assert page.style("#expiring", "display") == "none"
    while store.core.removable_files()[1] == 0:
        store.put("orders", bytes(200_000), queue_id=0)
    store.progress.commit("orders", "slow", 0, 1)
    store.clock.advance(66 * 3600 + 60)
    page.wait_for("!document.querySelector('#expiring').hidden")
    text = "Group slow has not consumed messages of orders that retention may delete in 6 h."
    assert page.run(ITEMS.format("#expiring li")) == [text]
    store.progress.commit("orders", "slow", 0, store["orders"][0].max_offset)
    page.wait_for("document.querySelector('#expiring').hidden")


def test_the_plots(server: Server, browse: Callable[..., Page]) -> None:
    store = server.store
    page = browse()
    store.progress.commit("orders", "slow", 0, 0)
    for _ in range(500):
        store.put("orders", b"x", queue_id=0)
    page.wait_for("document.querySelectorAll('#plots polyline')[0].points.numberOfItems > 3")
    page.wait_for("document.querySelectorAll('#plots svg')[1].ariaLabel.includes('behind 500,')")
    label = page.run("document.querySelector('#plots svg').ariaLabel")
    assert label.startswith("Messages a second: put ")
    tops = (
        "[...document.querySelectorAll('#plots polyline')].map((line) =>"
        " Math.min(...[...line.points].map((point) => point.y)))"
    )
    put, read, behind = page.run(tops)
    assert put == behind == 4  # the highest point is at the top
    assert read > 60
    assert page.run(ITEMS.format("#plots figcaption"))[1].endswith("behind 500, peak 500")
    assert page.run("document.querySelectorAll('[style]').length") == 0


def test_bytes_and_growth_of_topics(server: Server, browse: Callable[..., Page]) -> None:
    for _ in range(64):
        server.store.put("orders", bytes(16_000), queue_id=0)
    server.in_loop(server.gateway.rates.sample_seconds)
    page = browse()
    cells = "[...document.querySelector('#topic_rows tr').cells].map((one) => one.textContent)"
    page.wait_for(f"({cells})[5] !== ''")
    name, _, messages, _, size, growth = page.run(cells)
    total = 64 * server.store["orders"][0][0].store_size
    assert (name, messages, size) == ("orders", "64", f"~{total / 1024:,.1f} KiB")
    assert growth.endswith(" KiB/s")


def test_rows_stay_where_they_are_while_one_has_the_focus(
    server: Server, browse: Callable[..., Page]
) -> None:
    store = server.store
    for name, count in (("a", 3), ("b", 2)):
        for _ in range(count):
            store.put(name, b"x", queue_id=0)
    page = browse()
    page.run("document.querySelector('#topic_rows button').focus()")
    for name, count in (("b", 9), ("new", 20)):
        for _ in range(count):
            store.put(name, b"x", queue_id=0)
    cells = ITEMS.format("#topic_rows td:nth-child(3)")
    page.wait_for(f"String({cells}) === '3,11,20'")
    assert page.run(ITEMS.format("#topic_rows button")) == ["a", "b", "new"]
    page.run("document.activeElement.blur()")
    page.wait_for(f"String({cells}) === '20,11,3'")
    assert page.run(ITEMS.format("#topic_rows button")) == ["new", "b", "a"]
