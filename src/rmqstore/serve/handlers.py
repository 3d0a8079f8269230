"""Handlers by request code: each module of handlers has its own part of the table.

Source: ``broker/BrokerController.java registerProcessor``.
"""

from __future__ import annotations

from rmqstore.serve.consuming import clients, locks, lookups, offsets, pulling
from rmqstore.serve.gateway import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[int, Handler] = {
    **clients.HANDLERS,
    **locks.HANDLERS,
    **lookups.HANDLERS,
    **offsets.HANDLERS,
    **pulling.HANDLERS,
}
