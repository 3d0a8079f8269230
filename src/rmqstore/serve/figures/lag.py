"""Lag of groups: counted as by ``store.lag()``, with the subscriptions of clients.

A connected group is listed before its first offset, when the store does not know it yet.

Source: ``broker/processor/AdminBrokerProcessor.java getConsumeStats``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqstore.consume.lag import with_uncommitted

if TYPE_CHECKING:
    from rmqstore.brokerfiles.offsets import Offsets
    from rmqstore.serve.consuming.clients import Clients
    from rmqstore.store import MessageStore

__all__ = ["OnlineGroup", "counted_offsets", "is_idle_retry", "online_groups"]

_RETRY = "%RETRY%"
_STEP = 256  # groups examined between two steps


@dataclass(frozen=True, slots=True)
class OnlineGroup:
    """A group with consumers."""

    topics: tuple[str, ...]  # subscribed
    is_broadcast: bool  # the consumers keep the offsets
    consumers: int


def online_groups(clients: Clients) -> Generator[None, None, dict[str, OnlineGroup]]:
    """Return the groups with consumers, by name, with a step after every few groups."""
    found = {}
    for number, (name, group) in enumerate(list(clients.groups.items())):
        members = len(group.members)
        if members:
            found[name] = OnlineGroup(tuple(group.subscriptions), group.is_broadcast, members)
        if number % _STEP == _STEP - 1:
            yield
    return found


def counted_offsets(store: MessageStore, online: Mapping[str, OnlineGroup], most: int) -> Offsets:
    """Return each group's offsets by queue, in its topics; called in any thread.

    Its topics have offsets or are subscribed; only the latter if it has consumers. A queue with
    messages but no offset counts as 0, except for broadcast groups; ``most`` limits such queues.
    """
    found: Offsets = {}
    for (topic, name), committed in store.offsets.items():
        group = online.get(name)
        if group is None or not group.topics or topic in group.topics:
            found[topic, name] = {queue: max(0, offset) for queue, offset in committed.items()}
    queues = store.queue_ids()
    for name, one in online.items():
        if not one.is_broadcast:
            for topic in one.topics:
                is_there = topic in queues or store.registry.get(topic) is not None
                if is_there and not is_idle_retry(topic, name, queues):
                    found.setdefault((topic, name), {})
    of_broadcast = {
        names: offsets
        for names, offsets in found.items()
        if names[1] in online and online[names[1]].is_broadcast
    }
    return with_uncommitted(found, queues, store.registry, most) | of_broadcast


def is_idle_retry(topic: str, group: str, queues: Mapping[str, object]) -> bool:
    """Whether a topic is a group's empty retry topic, to which every consumer subscribes."""
    return topic == _RETRY + group and not queues.get(topic)
