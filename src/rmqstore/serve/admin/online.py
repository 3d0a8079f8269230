"""Connected clients, in the form of admin answers.

Source: ``broker/client/ConsumerManager.java``, ``broker/client/ProducerManager.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqstore.serve.wire.objecttext import Entries

if TYPE_CHECKING:
    from rmqstore.serve.consuming.clients import Client, Clients

__all__ = ["consumer_group", "knows_no_topic", "members", "subscription"]


def members(clients: Clients, group: str) -> list[Client]:
    """Return the consumers of a group."""
    found = clients.group(group)
    return [] if found is None else list(found.members)


def consumer_group(clients: Clients, group: str) -> dict[str, object] | None:
    """Return a group's settings and lazy subscriptions; ``None`` if it has no consumers."""
    found = clients.group(group)
    if found is None:
        return None
    wanted = found.subscriptions
    return {
        "consumeFromWhere": found.consume_from_where,
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "subscriptionTable": Entries((topic, one.to_json()) for topic, one in wanted.items()),
    }


def subscription(clients: Clients, group: str, topic: str) -> dict[str, Any] | None:
    """Return a group's subscription to a topic, ``None`` if there is none."""
    found = clients.group(group)
    one = found.subscriptions.get(topic) if found is not None else None
    return None if one is None else one.to_json()


def knows_no_topic(clients: Clients, group: str, topic: str) -> bool:
    """Whether a group has consumers, none of them subscribed to the topic."""
    found = clients.group(group)
    return found is not None and bool(found.subscriptions) and topic not in found.subscriptions
