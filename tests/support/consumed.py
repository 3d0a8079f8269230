"""Messages put for consumers, and the ones they got."""

from __future__ import annotations

from collections.abc import Iterable

import rmqstore

QUEUES = 4


def fill(store: rmqstore.MessageStore, count: int, topic: str = "orders") -> None:
    for number in range(count):
        tag = "paid" if number % 2 else "created"
        store.put(topic, b"%d" % number, queue_id=number % QUEUES, tags=tag)


def bodies(messages: Iterable[rmqstore.Message]) -> list[int]:
    """Return the bodies as numbers, in order."""
    return sorted(int(message.body) for message in messages)
