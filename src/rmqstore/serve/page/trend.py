"""Rates and lag of the last ten minutes, in a fixed ring."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from rmqstore.errors import StoreError
from rmqstore.serve.figures.lag import online_groups
from rmqstore.serve.page.groups import total_lag

if TYPE_CHECKING:
    from rmqstore.serve.figures.sources import GatewayFigures

__all__ = ["Trend"]

_EVERY = 5.0  # seconds
_POINTS = 120
_REST = 20  # the lag is counted for at most this part of the time


class Trend:
    """The last points: seconds of the loop, messages put and read a second, messages behind."""

    def __init__(self, sources: GatewayFigures, aside: Callable[..., Awaitable[int]]) -> None:
        self.points: deque[tuple[float, float, float, int | None]] = deque(maxlen=_POINTS)
        self._sources = sources
        self._aside = aside
        self._totals = self._read()
        self._lag: int | None = None  # None: not counted
        self._rest_until = 0.0
        self._taking: asyncio.Task[None] | None = None
        sources.work.every(_EVERY, self._begin, "sampling the page's figures")

    def _begin(self) -> None:
        if self._taking is None or self._taking.done():
            self._taking = self._sources.work.spawn(self.take())

    def _read(self) -> tuple[float, int, int]:
        counted = self._sources.store.core.figures()
        now = self._sources.work.loop.time()
        return now, counted["put_records"], counted["get_transferred"]

    async def take(self) -> None:
        """Take a point."""
        loop = self._sources.work.loop
        began = loop.time()
        if began >= self._rest_until:
            try:
                self._lag = await self._count()
            except (StoreError, OSError):
                self._lag = None
            self._rest_until = loop.time() + _REST * (loop.time() - began)
        try:
            before, totals = self._totals, self._read()
        except StoreError:
            return
        self._totals = totals
        seconds = max(0.001, totals[0] - before[0])
        put, got = ((new - old) / seconds for new, old in zip(totals[1:], before[1:], strict=True))
        self.points.append((round(totals[0], 1), round(put, 1), round(got, 1), self._lag))

    async def _count(self) -> int:
        """Count the lag in a thread."""
        sources = self._sources
        online = await sources.work.turns.run(online_groups(sources.clients))
        return await self._aside(total_lag, sources.store, online, sources.settings.limits.offsets)
