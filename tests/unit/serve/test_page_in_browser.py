"""The page in Chromium: what it shows of a server, and that it stays live."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest

import rmqstore
from rmqstore.serve.server import Server
from support.chromium import Page, find_chromium
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat

pytestmark = pytest.mark.pure  # the browser is no program for a preloaded sanitizer

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
BODIES = "[...document.querySelectorAll('#messages .line + pre')].map((one) => one.textContent)"
DARK, LIGHT = "rgb(20, 24, 28)", "rgb(246, 247, 248)"


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve(metrics_port=0) as made:
        yield made


@pytest.fixture
def browse(server: Server) -> Iterator[Callable[..., Page]]:
    """Return what opens the page, which is live then."""
    program = find_chromium()
    if program is None:
        assert not os.environ.get("CI"), "there is no chromium"
        pytest.skip("there is no chromium")
    opened: list[Page] = []

    def browse(topic: str = "", *, dark: bool = False) -> Page:
        page = Page(program, f"http://{server.metrics_address}/#{topic}", dark=dark)
        opened.append(page)
        page.wait_for("document.querySelector('#state')?.textContent === 'live'")
        return page

    yield browse
    for page in opened:
        page.close()


def row(table: str, name: str) -> str:
    """A script for the texts of the row that begins with a name; null if there is none."""
    return (
        f"[...document.querySelectorAll('#{table} tr')].map((row) => [...row.cells].map((cell) => "
        f"cell.textContent)).find((texts) => texts[0] === {json.dumps(name)})"
    )


def test_what_messages_say_is_text(server: Server, browse: Callable[..., Page]) -> None:
    store = server.store
    for n in range(5):
        store.put("orders", f"order {n} {HOSTILE}".encode(), properties={HOSTILE: HOSTILE})
    page = browse("orders")
    page.wait_for("document.querySelectorAll('#messages li').length === 5")
    assert page.text("#address") == server.address
    assert page.run(BODIES) == [f"order {n} {HOSTILE}" for n in reversed(range(5))]
    assert HOSTILE in str(page.text("#messages details pre"))
    assert page.run("document.title") == "rmqstore"
    assert page.run("document.querySelectorAll('img, #messages script').length") == 0


@pytest.mark.parametrize("dark", [True, False])
def test_colours_are_those_that_the_reader_prefers(browse: Callable[..., Page], dark: bool) -> None:
    page = browse(dark=dark)
    assert page.style("body", "background-color") == (DARK if dark else LIGHT)


def test_how_far_groups_are_behind(server: Server, browse: Callable[..., Page]) -> None:
    store = server.store
    for number in range(1234):
        store.put("orders", b"x", queue_id=number % 2)
    store.put("news", b"x", queue_id=0)
    store._commit_progress("orders", "billing", 0, 600)
    with RemotingClient(server.address) as client:
        groups = [
            consumer("fresh", {"orders": "*"}),
            consumer("all", {"news": "*"}, messageModel="BROADCASTING"),
        ]
        assert client.ask(34, None, heartbeat("c", groups)).code == 0
        page = browse()
        names = "[...document.querySelectorAll('#group_rows tr')].map(r => r.cells[0].textContent)"
        assert page.run(names) == ["fresh", "billing", "all"]
        assert page.run(row("group_rows", "fresh"))[:4] == ["fresh", "orders", "1", "1,234"]
        assert page.run(row("group_rows", "billing"))[:4] == ["billing", "orders", "0", "634"]
        assert page.run(row("group_rows", "all")) == ["all", "news", "1", "-", ""]
        late = "[...document.querySelectorAll('#group_rows td.late')].map(c => c.textContent)"
        assert page.run(late) == ["1,234", "634"]
        store._commit_progress("orders", "billing", 0, 617)
        store._commit_progress("orders", "billing", 1, 617)
        page.wait_for(f"({row('group_rows', 'billing')})?.[3] === '0'")
        assert page.run(row("group_rows", "billing"))[4] == ""


def test_by_how_much_groups_are_late(server: Server, browse: Callable[..., Page]) -> None:
    """Between the first message that is not consumed and the newest, of the queue that is worst."""
    store = server.store
    for queue, hours in ((0, 1.5), (1, 0.5)):
        store.put("orders", b"first", queue_id=queue)
        store.clock.advance(int(hours * 3600))
        store.put("orders", b"last", queue_id=queue)
    store._commit_progress("orders", "billing", 1, 0)
    page = browse()
    assert page.run(row("group_rows", "billing")) == ["billing", "orders", "0", "4", "90 min"]
    store._commit_progress("orders", "billing", 0, 1)
    page.wait_for(f"({row('group_rows', 'billing')})?.[4] === '30 min'")


def test_it_stays_live(server: Server, browse: Callable[..., Page]) -> None:
    store = server.store
    store.put("orders", b"first", queue_id=0)
    page = browse()
    # It has chosen the first topic that has messages.
    page.wait_for("document.querySelector('#messages pre')?.textContent === 'first'")
    for number in range(3):
        store.put("orders", b"%d" % number, queue_id=0)
        page.wait_for(f"document.querySelector('#messages pre').textContent === '{number}'")
    page.wait_for("document.querySelector('#puts').textContent === '4'")
    assert page.run(row("topic_rows", "orders"))[2] == "4"
    with RemotingClient(server.address) as client:
        client.ask(105, {"topic": "orders"})
        page.wait_for("document.querySelector('#connections').textContent === '1'")
    server.close()
    page.wait_for("document.querySelector('#state').textContent.includes('no answer')")


def test_rates(server: Server, browse: Callable[..., Page]) -> None:
    """Of a topic since the last look, of the server over ten seconds."""
    store = server.store
    store.put("orders", b"x", queue_id=0)
    store.put("quiet", b"x", queue_id=0)
    page = browse()
    assert page.run(row("topic_rows", "orders"))[3] == "0"
    for _ in range(1000):
        store.put("orders", b"x", queue_id=0)
        store.get("orders", 0, 0)
    over = "Number(({}).replace(',', '')) > {}"
    page.wait_for(over.format(f"({row('topic_rows', 'orders')})[3]", 50))
    assert page.run(row("topic_rows", "quiet"))[3] == "0"
    for name in ("put_rate", "get_rate"):
        page.wait_for(over.format(f"document.querySelector('#{name}').textContent", 1))


def test_a_click_on_a_topic_shows_its_newest_messages(
    server: Server, browse: Callable[..., Page]
) -> None:
    store = server.store
    for number in range(30):
        store.put("orders", b"order %d" % number, queue_id=number % 4, tags="paid")
    store.put("a", b"first", queue_id=0)
    page = browse()
    page.wait_for("document.querySelector('#topic_name').textContent === 'a'")
    page.run(
        "[...document.querySelectorAll('#topic_rows button')]"
        ".find((one) => one.textContent === 'orders').click()"
    )
    page.wait_for("document.querySelector('#topic_name').textContent === 'orders'")
    page.wait_for("document.querySelectorAll('#messages li').length === 20")
    assert page.run(BODIES) == [f"order {number}" for number in range(29, 9, -1)]
    assert page.text("#messages .tag") == "paid"
    assert page.run("location.hash") == "#orders"
    assert page.text("tr.chosen button") == "orders"
    page.wait_for("document.querySelector('#queues').textContent.includes('1: 0 to 8')")
