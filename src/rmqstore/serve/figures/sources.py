"""Sources of a gateway's figures: objects read by the metrics and the page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore._core import ClientSends
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.serve.consuming.holding import Holds
    from rmqstore.serve.consuming.locks import Locks
    from rmqstore.serve.figures.rates import Rates
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.connections import Connections
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.store import MessageStore

__all__ = ["GatewayFigures"]


@dataclass(frozen=True, slots=True)
class GatewayFigures:
    """Sources of figures; read in the loop, except the store."""

    store: MessageStore
    settings: Settings
    work: Work
    connections: Connections[Connection]
    clients: Clients
    holds: Holds
    locks: Locks
    rates: Rates
    sends: ClientSends  # counts the requests handled by the core
    requests: Counter[int]  # by code, of all others
