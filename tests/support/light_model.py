"""A model of light queues, a list by queue, and their contents in a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

PREFIX = "%LMQ%"


@dataclass
class LightModel:
    """Bodies by light queue, in order."""

    queues: dict[str, list[bytes]] = field(default_factory=dict)

    def put(self, body: bytes, names: Iterable[str]) -> dict[str, int]:
        """Take a message; return its offset in each of its queues, in their order."""
        offsets = {}
        for name in names:
            full = full_name(name)
            if full not in offsets:
                queue = self.queues.setdefault(full, [])
                offsets[full] = len(queue)
                queue.append(body)
        return offsets

    def assert_holds(self, store: Any, begun: Iterable[str] = ()) -> None:
        """Each queue is there with exactly its messages, and no other light queue is.

        Those ``begun`` by a killed put may be there, empty: files come before the record.
        """
        light = {name for name in store.topics if name.startswith(PREFIX)}
        empty = light - self.queues.keys()
        assert self.queues.keys() <= light
        assert empty <= {full_name(name) for name in begun}
        assert not any(store[name][0].max_offset for name in empty)
        for name, bodies in self.queues.items():
            queue = store[name][0]
            assert [n for n, one in store[name].items() if one.max_offset] == [0], name
            assert (queue.min_offset, queue.max_offset) == (0, len(bodies)), name
            assert [message.body for message in queue] == bodies, name
            assert [m.body for m in store.get(name, 0, 0, len(bodies) + 1).messages] == bodies
            for offset, message in enumerate(queue):
                own = (message.topic, message.queue_id) == (name, 0)
                places = {name: message.queue_offset} if own else named(message)
                assert places[name] == offset, (name, offset)


def full_name(name: str) -> str:
    """The name of a light queue, with or without its prefix."""
    return name if name.startswith(PREFIX) else PREFIX + name


def named(message: Any) -> dict[str, int]:
    """The queue offset by further queue, from the message's properties."""
    names = message.properties.get("INNER_MULTI_DISPATCH")
    offsets = message.properties.get("INNER_MULTI_QUEUE_OFFSET")
    if names is None or offsets is None:
        return {}
    return dict(zip(names.split(","), map(int, offsets.split(",")), strict=True))
