"""What the gateway's tests share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from rmqstore import StoreConfig
from rmqstore.serve import page as page_module
from rmqstore.serve.admin import forwarding, resets
from rmqstore.serve.network import connection, turns
from rmqstore.serve.server import Server
from rmqstore.serve.settings import Settings
from support.chromium import Page, find_chromium
from support.remoting import RemotingClient
from support.turns import Answers, Clock


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Return a function that waits until something holds, and fails after a minute."""

    def wait(holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return wait


@pytest.fixture(autouse=True)
def patient_forwarding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have consumers that are asked answer within a minute: on a busy machine 5 s are too few."""
    monkeypatch.setattr(resets, "_STATUS_SECONDS", 60.0)
    monkeypatch.setattr(forwarding, "_SECONDS", 60.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Return a clock by which a step takes a millisecond."""
    made = Clock()
    for module in (turns, connection):
        monkeypatch.setattr(module, "perf_counter", made)
    yield made
    made.go_on()


@pytest.fixture
def answers(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(clock, monkeypatch)


@pytest.fixture
def stepped(clock: Clock) -> Iterator[Server]:
    """Return a server whose steps take a millisecond."""
    with Server(None, Settings(), StoreConfig.small()) as made:
        made.store.create_topic("t", 2)
        yield made


@pytest.fixture
def asker(stepped: Server) -> Iterator[RemotingClient]:
    """Return the client that makes work."""
    with RemotingClient(stepped.address) as made:
        yield made


@pytest.fixture
def other(stepped: Server) -> Iterator[RemotingClient]:
    """Return a client that wants to be served meanwhile."""
    with RemotingClient(stepped.address) as made:
        assert made.ask(105, {"topic": "t"}).code == 0
        yield made


@pytest.fixture
def fresh_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the page's figures made anew for each request: the server is made after this."""
    monkeypatch.setattr(page_module, "_REST", 0)


@pytest.fixture
def program() -> str:
    """Where Chromium is."""
    found = find_chromium()
    if found is None:
        assert not os.environ.get("CI"), "there is no chromium"
        pytest.skip("there is no chromium")
    return found


@pytest.fixture
def browse(server: Server, program: str) -> Iterator[Callable[..., Page]]:
    """Return what opens the page, which is live then."""
    opened: list[Page] = []

    def browse(topic: str = "", *, dark: bool = False, size: tuple[int, int] = (1100, 900)) -> Page:
        page = Page(program, f"http://{server.metrics_address}/#{topic}", dark=dark, size=size)
        opened.append(page)
        page.wait_for("document.querySelector('#state')?.textContent === 'live'")
        return page

    yield browse
    for page in opened:
        page.close()
