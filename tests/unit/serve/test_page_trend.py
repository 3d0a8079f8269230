"""Points of the last minutes: their rates and lag, their number, and their cost."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import rmqstore
from rmqstore.errors import StoreError
from rmqstore.serve.page import trend as trend_module
from rmqstore.serve.page.trend import Trend
from rmqstore.serve.server import Server
from support.pages import get
from support.serving import wait_until

pytestmark = [pytest.mark.pure, pytest.mark.usefixtures("fresh_figures")]


@pytest.fixture
def server() -> Iterator[Server]:
    with rmqstore.serve(metrics_port=0) as made:
        yield made


@pytest.fixture
def trend(server: Server) -> Trend:
    assert server._metrics is not None
    return server.in_loop(Trend, server.gateway.figures, server._metrics.aside)


def take(server: Server, trend: Trend) -> Any:
    """Take a point, and return it."""
    asyncio.run_coroutine_threadsafe(trend.take(), server._loop).result(60)
    return trend.points[-1]


def test_a_point(server: Server, trend: Trend) -> None:
    store = server.store
    for _ in range(30):
        store.put("orders", b"x", queue_id=0)
    for offset in range(10):
        store.get("orders", 0, offset, max_messages=1)
    store.progress.commit("orders", "billing", 0, 10)
    store.progress.commit("orders", "audit", 0, 25)
    began, _, _ = trend._totals
    at, put, got, lag = take(server, trend)
    assert put == pytest.approx(30 / (trend._totals[0] - began), abs=0.1)
    assert got == pytest.approx(put / 3, abs=0.1)
    assert lag == 25
    assert at == pytest.approx(trend._totals[0], abs=0.1)
    assert take(server, trend)[1:3] == (0, 0)  # since the point before


def test_the_ring_is_fixed(server: Server, trend: Trend) -> None:
    for _ in range(trend_module._POINTS + 5):
        take(server, trend)
    assert len(trend.points) == trend_module._POINTS == 120


def test_a_lag_that_takes_long_is_counted_seldom(
    server: Server, trend: Trend, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def slow(store: Any, online: Any, most: int) -> int:
        counted.append(1)
        threading.Event().wait(0.2)
        return 7

    monkeypatch.setattr(trend_module, "total_lag", slow)
    assert trend_module._REST == 20
    monkeypatch.setattr(trend_module, "_REST", 1000)  # of a busy machine: it rests for minutes
    assert [take(server, trend)[3] for _ in range(3)] == [7, 7, 7]
    assert counted == [1]
    trend._rest_until = server._loop.time()
    take(server, trend)
    assert counted == [1, 1]


def test_a_lag_that_cannot_be_counted_leaves_the_rates(
    server: Server, trend: Trend, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(server, trend)

    def fail(store: Any, online: Any, most: int) -> int:
        raise StoreError("torn")

    monkeypatch.setattr(trend_module, "total_lag", fail)
    trend._rest_until = 0.0
    take(server, trend)
    assert [point[3] for point in trend.points] == [0, None]
    assert trend._rest_until > 0.0


def test_points_are_in_the_overview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trend_module, "_EVERY", 0.01)
    with rmqstore.serve(metrics_port=0) as server:
        server.store.put("orders", b"x", queue_id=0)
        server.store.progress.commit("orders", "billing", 0, 0)

        def is_shown() -> bool:
            points = json.loads(get(server, "/api/overview")[2])["trend"]
            return len(points) > 2 and points[-1][3] == 1

        wait_until(is_shown)
