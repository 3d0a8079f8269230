"""The page in Chromium: what it shows of a server, and that it stays live."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore._core import encode_record
from rmqstore.serve.server import Server
from support.chromium import Page
from support.remoting import RemotingClient
from support.serving import consumer, heartbeat
from support.stored_names import NAMES

# The browser is no program for a preloaded sanitizer, and in CI it is installed first.
pytestmark = [pytest.mark.pure, pytest.mark.long]

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
BODIES = "[...document.querySelectorAll('#messages .line + pre')].map((one) => one.textContent)"
DARK, LIGHT = "rgb(20, 24, 28)", "rgb(246, 247, 248)"


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve(metrics_port=0) as made:
        yield made


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
    store.progress.commit("orders", "billing", 0, 600)
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
        store.progress.commit("orders", "billing", 0, 617)
        store.progress.commit("orders", "billing", 1, 617)
        page.wait_for(f"({row('group_rows', 'billing')})?.[3] === '0'")
        assert page.run(row("group_rows", "billing"))[4] == ""


def test_by_how_much_groups_are_late(server: Server, browse: Callable[..., Page]) -> None:
    """Between the first message that is not consumed and the newest, of the queue that is worst."""
    store = server.store
    for queue, hours in ((0, 1.5), (1, 0.5)):
        store.put("orders", b"first", queue_id=queue)
        store.clock.advance(int(hours * 3600))
        store.put("orders", b"last", queue_id=queue)
    store.progress.commit("orders", "billing", 1, 0)
    page = browse()
    assert page.run(row("group_rows", "billing")) == ["billing", "orders", "0", "4", "90 min"]
    store.progress.commit("orders", "billing", 0, 1)
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
    seen = threading.Event()

    def traffic() -> None:
        while not seen.wait(0.002):
            store.put("orders", b"x", queue_id=0)
            store.get("orders", 0, 0)

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        over = "Number(({}).replace(',', '')) > {}"
        page.wait_for(over.format(f"({row('topic_rows', 'orders')})[3]", 5))
        assert page.run(row("topic_rows", "quiet"))[3] == "0"
        for name in ("put_rate", "get_rate"):
            page.wait_for(over.format(f"document.querySelector('#{name}').textContent", 1))
    finally:
        seen.set()
        thread.join()


def test_a_click_on_a_topic_shows_its_newest_messages(
    server: Server, browse: Callable[..., Page]
) -> None:
    store = server.store
    for number in range(30):
        store.put("orders", b"order %d" % number, queue_id=number % 4, tags="paid")
    for _ in range(31):  # the busiest topic is shown first
        store.put("z", b"first", queue_id=0)
    page = browse()
    page.wait_for("document.querySelector('#topic_name').textContent === 'z'")
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


@pytest.mark.parametrize("typed", ["%DLQ%billing", "%25DLQ%25billing"])
def test_a_topic_of_the_address(server: Server, browse: Callable[..., Page], typed: str) -> None:
    """A percent sign of a name, escaped or not."""
    server.store.put("orders", b"x", queue_id=0)
    server.store.put("%DLQ%billing", b"dead", queue_id=0)
    page = browse(typed)
    page.wait_for("document.querySelector('#topic_name').textContent === '%DLQ%billing'")
    assert page.run(BODIES) == ["dead"]


# Elements whose content is wider than they are, or that reach over the card or the window they
# are in.
OVERFLOWING = """[...document.body.querySelectorAll('*')].filter((one) => {
  if (!one.offsetParent || one.matches('.skip, thead, thead *')) return false;
  const box = one.getBoundingClientRect();
  const card = one.closest('section, .figures div, header, footer') || document.body;
  const room = card.getBoundingClientRect();
  return box.right > Math.min(room.right, innerWidth) + 0.5 || box.left < room.left - 0.5
    || (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline');
}).map((one) => `${one.tagName}#${one.id}.${one.className}: ${one.textContent.slice(0, 40)}`)"""
# Figures of a store that was in use for long, until the next refresh.
LARGE = """showOverview({...last, at: last.at + 1,
  topics: last.topics.map((one) => ({...one, queues: 1024, messages: 123456789012,
    end: one.end + 123456, bytes: 9.9e14, growth: 9.9e8})),
  groups: last.groups.map((one) => ({...one, consumers: 9999, messages: 12345678901,
    late: 1e10, expires: 1}))})"""
CUT = """[...document.querySelectorAll('tbody')].some((one) =>
  one.closest('.rows').scrollHeight > one.closest('.rows').clientHeight + 1)"""


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("width", [320, 390, 770, 1100, 1280])
def test_nothing_is_wider_than_its_card(
    server: Server, browse: Callable[..., Page], width: int, dark: bool
) -> None:
    store = server.store
    long = "x" * 100
    for number in range(20):
        store.put(
            f"orders-of-the-company_{number}" if number else long,
            (long * 5).encode(),
            queue_id=number % 4,
            tags=long,
            keys=[long, "key"],
            properties={long: long},
        )
    store.put("%DLQ%a-group-with-a-long-name-of-the-billing-department", b"x", queue_id=0)
    for level in range(1, 19):
        store.put(long, b"later", delay_level=level, queue_id=0)
    groups = [consumer(f"g{n}-{long}"[:110], {long: "*", "orders-of-the-company_1": "*"})
              for n in range(8)]  # fmt: skip
    with RemotingClient(server.address) as client:
        assert client.ask(34, None, heartbeat("c", groups)).code == 0
        page = browse(long, dark=dark, size=(width, 844))
        page.wait_for("document.querySelectorAll('#messages li').length > 0")
        page.wait_for("document.querySelectorAll('#group_rows tr').length === 12")
        page.run(f"find('{long}', '{long}')")
        page.wait_for("document.querySelectorAll('#found li').length === 1")
        page.run("document.querySelector('#found button').click()")
        page.wait_for("document.querySelector('#found .line + pre') !== null")
        for one in ("#messages", "#found"):
            page.run(f"document.querySelector('{one} details').open = true")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run(OVERFLOWING) == []
        assert not page.run(CUT)
        assert page.run(f"{LARGE}; {OVERFLOWING}") == []
        page.run("for (const one of document.querySelectorAll('.note button')) one.click()")
        page.wait_for("document.querySelectorAll('#topic_rows tr').length === 21")
        assert page.run("document.querySelectorAll('#group_rows tr').length") == 16
        assert page.run(OVERFLOWING) == []
        assert not page.run(CUT)


def test_topics_of_users_come_first_and_the_busiest_of_them(
    server: Server, browse: Callable[..., Page]
) -> None:
    for name, count in (
        ("%DLQ%g", 9), ("%RETRY%g", 9), ("DefaultCluster", 9), ("broker-a", 9), ("TBW102", 9),
        ("DefaultCluster_REPLY_TOPIC", 9), ("rmq_sys_x", 9), ("a", 1), ("z", 3), ("m", 2),
    ):  # fmt: skip
        for _ in range(count):
            server.store.put(name, b"x", queue_id=0)
    page = browse()
    page.wait_for("document.querySelector('#topic_name').textContent === 'z'")
    names = "[...document.querySelectorAll('#topic_rows button')].map((one) => one.textContent)"
    assert page.run(names) == ["z", "m", "a", "%DLQ%g"]
    page.run("document.querySelector('#system').click()")
    assert len(page.run(names)) == 10
    assert page.run(names)[:4] == ["z", "m", "a", "%DLQ%g"]


@pytest.mark.parametrize(
    "hash_", ["%", "%E2%82", "%ff", "a%2", "\ud7ff", "%00", "<b>", "__proto__"]
)
def test_any_hash(server: Server, browse: Callable[..., Page], hash_: str) -> None:
    """The script goes on: it shows figures, and a topic once somebody chooses one."""
    server.store.put("orders", b"first", queue_id=0)
    page = browse(hash_)
    page.wait_for("document.querySelector('#puts').textContent === '1'")
    page.wait_for("document.querySelectorAll('#topic_rows button').length === 1")
    page.run("document.querySelector('#topic_rows button').click()")
    page.wait_for("document.querySelector('#messages pre')?.textContent === 'first'")
    assert page.run("location.hash") == "#orders"


TIMES = [0, -1, -(1 << 62), 8_640_000_000_000_000, 8_640_000_000_000_001, (1 << 63) - 1]
CONFIG = rmqstore.StoreConfig.small(file_reserved_time=None)


def test_any_store(tmp_path: Path, program: str) -> None:
    """Names that brokers once let be made, and times of which there is no date."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    log = b""
    for offset, time in enumerate(TIMES):
        for name in NAMES:
            log += encode_record(
                name, b"%d" % time, queue_id=0, queue_offset=offset, physical_offset=len(log),
                born_timestamp=time, store_timestamp=time, born_host="127.0.0.1:1",
                store_host="127.0.0.1:2",
            )  # fmt: skip
    size = CONFIG.mapped_file_size_commit_log
    (root / "commitlog" / f"{0:020}").write_bytes(log.ljust(size, b"\0"))
    with rmqstore.serve(root, metrics_port=0, config=CONFIG) as server:
        page = Page(program, f"http://{server.metrics_address}/#%")
        try:
            page.wait_for("document.querySelector('#state')?.textContent === 'live'")
            page.wait_for("document.querySelectorAll('#topic_rows tr').length > 0")
            page.run("document.querySelector('#topics_more').click()")
            for name in NAMES:
                page.run(
                    "[...document.querySelectorAll('#topic_rows button')]"
                    f".find((one) => one.textContent === {json.dumps(name)}).click()"
                )
                page.wait_for(
                    f"document.querySelector('#topic_name').textContent === {json.dumps(name)}"
                )
                assert page.run(BODIES) == [str(one) for one in reversed(TIMES)]
            times = "[...document.querySelectorAll('#messages time')].map((one) => one.textContent)"
            shown = page.run(times)
            assert shown[0].endswith(" ms")
            assert shown[2:3] == ["+275760-09-13 00:00:00.000Z"]
            assert page.text("#state") == "live"
        finally:
            page.close()


def test_a_name_that_is_no_text(browse: Callable[..., Page]) -> None:
    """Bytes that are no UTF-8 are asked for as they are, and no half of a pair stops the script."""
    page = browse()
    assert page.run("encoded('a\\udcff\\udc80 \\ud83d\\ude00')") == "a%ff%80%20%F0%9F%98%80"
    assert page.run("encoded('\\ud800x\\udc00')") == "%EF%BF%BDx%EF%BF%BD"
    page.run("choose('a\\ud800')")
    assert page.run("location.hash") == "#a%EF%BF%BD"
