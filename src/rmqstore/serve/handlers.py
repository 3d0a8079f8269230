"""Which handler answers which request: each module of handlers has its own part of the table.

Source: ``broker/BrokerController.java registerProcessor``.
"""

from __future__ import annotations

from rmqstore.serve import (
    admin,
    clients,
    locks,
    lookups,
    nameserver,
    offsets,
    pulling,
    replies,
    retrying,
    routes,
    sending,
    transactions,
)
from rmqstore.serve.gateway import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[int, Handler] = {
    **clients.HANDLERS,
    **locks.HANDLERS,
    **lookups.HANDLERS,
    **offsets.HANDLERS,
    **pulling.HANDLERS,
    **replies.HANDLERS,
    **retrying.HANDLERS,
    **routes.HANDLERS,
    **sending.HANDLERS,
    **nameserver.HANDLERS,
    **admin.HANDLERS,
    **transactions.HANDLERS,
}
