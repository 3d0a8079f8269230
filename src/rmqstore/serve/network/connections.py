"""The connections of a gateway, and counts over all of them.

Source: ``broker/client/ClientHousekeepingService.java``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqstore.serve.network.channel import Channel
from rmqstore.serve.network.keptframes import KeptFrames
from rmqstore.serve.network.memory import LARGE, OF_TLS, give_back_soon
from rmqstore.serve.network.unread import Unread

if TYPE_CHECKING:
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings

__all__ = ["Connections"]

C = TypeVar("C", bound=Channel)

_CLOSE_SECONDS = 1.0  # for clients to read the last writes


class Connections(Generic[C]):
    """Connections of a gateway; used only in its loop."""

    def __init__(self, work: Work, settings: Settings) -> None:
        limits = settings.limits
        self.open: set[C] = set()
        self.connecting: set[C] = set()  # accepted, not open yet
        self.refused = 0  # closed at once, beyond the limit
        self.lost: list[Callable[[C], object]] = []  # called with each lost connection
        self.unread = Unread(work.loop, work.log, limits.write_buffer)
        self.kept_frames = KeptFrames(work.loop, work.log, self.open, limits.read_buffers)
        self.unanswered = 0  # bytes of requests answered later, and of answers not on the disk
        self.stopping = False  # new connections are closed at once
        self._most_unanswered = limits.unanswered
        self._loop = work.loop
        self._advertise = settings.advertise
        self._advertised: str | None = None
        self._gone_bytes = 0  # of clients gone since memory was last given back

    @property
    def unanswered_room(self) -> int:
        """Bytes left for requests until they are answered, shared by all clients."""
        return self._most_unanswered - self.unanswered

    def store_host(self, dialled: tuple[str, int]) -> str:
        """Return the ``ip:port`` in records for a connection to one of our addresses."""
        if self._advertised is not None:
            return self._advertised
        host, port = self._advertise or dialled
        try:
            family: int = ipaddress.ip_address(host.partition("%")[0]).version
            host = host.partition("%")[0]
        except ValueError:  # a name, resolved once
            host, family = _looked_up(host, dialled[0])
        text = f"[{host}]:{port}" if family == 6 else f"{host}:{port}"
        if self._advertise is not None:
            self._advertised = text
        return text

    def connected(self, connection: C) -> None:
        """Note a new connection."""
        self.connecting.discard(connection)
        self.open.add(connection)

    def disconnected(self, connection: C) -> None:
        """Forget a connection, and its client's state."""
        self.open.discard(connection)
        self._gone_bytes += self.unread.forget(connection) + self.kept_frames.forget(connection)
        self._gone_bytes += OF_TLS if connection.has_tls else 0
        if connection.is_slow or self._gone_bytes > LARGE:
            self._gone_bytes = 0
            give_back_soon(self._loop)
        for callback in self.lost:
            callback(connection)

    def cease(self) -> None:
        """Read no more requests, and take no new connections."""
        self.stopping = True
        for connection in list(self.open):
            connection.cease()

    def close(self) -> None:
        """Close the connections after their pending writes."""
        for connection in list(self.open):
            connection.close()

    async def end(self) -> None:
        """Wait briefly for closed connections to end, and abort the others."""
        deadline = self._loop.time() + _CLOSE_SECONDS
        while self.open and self._loop.time() < deadline:
            await asyncio.sleep(0.001)
        for connection in list(self.open):
            connection.abort()


def _looked_up(name: str, otherwise: str) -> tuple[str, int]:
    """Return address and family (4 or 6) of a name; of ``otherwise`` if it has none."""
    try:
        return socket.gethostbyname(name), 4
    except OSError:
        return otherwise, ipaddress.ip_address(otherwise).version
