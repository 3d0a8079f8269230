"""Connected clients, in the form of admin answers.

Source: ``broker/client/ConsumerManager.java``, ``broker/client/ProducerManager.java``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore.serve.wire.objecttext import Entries

if TYPE_CHECKING:
    from rmqstore.serve.consuming.clients import Client
    from rmqstore.serve.gateway import Gateway
    from rmqstore.serve.network.connection import Connection

__all__ = ["GroupMember", "consumer_group", "groups_of", "knows_no_topic", "member", "members",
           "producers", "subscription"]  # fmt: skip


class GroupMember(NamedTuple):
    """A client of a group."""

    client_id: str
    connection: Connection
    language: str
    version: int

    def to_json(self) -> dict[str, Any]:
        """Return its entry in a list of connections."""
        return {
            "clientAddr": self.connection.peer,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }


def _member(client: Client) -> GroupMember:
    return GroupMember(client.client_id, client.connection, client.language, client.version)


def members(gateway: Gateway, group: str) -> list[GroupMember]:
    """Return the consumers of a group."""
    found = gateway.clients.group(group)
    return [] if found is None else [_member(one) for one in found.members]


def member(gateway: Gateway, group: str, client_id: str) -> GroupMember | None:
    """Return a consumer of a group."""
    found = gateway.clients.consumer(group, client_id)
    return None if found is None else _member(found)


def producers(gateway: Gateway, group: str) -> list[GroupMember]:
    """Return the producers of a group."""
    return [_member(one) for one in gateway.clients.producers(group)]


def consumer_group(gateway: Gateway, group: str) -> dict[str, object] | None:
    """Return how a group consumes, and what; ``None`` if no consumer of it is there.

    It is written in steps: the table is made meanwhile.
    """
    found = gateway.clients.group(group)
    if found is None:
        return None
    wanted = found.subscriptions
    return {
        "consumeFromWhere": found.consume_from_where,
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "subscriptionTable": Entries((topic, one.to_json()) for topic, one in wanted.items()),
    }


def subscription(gateway: Gateway, group: str, topic: str) -> dict[str, Any] | None:
    """Return the group's subscription to a topic."""
    found = gateway.clients.group(group)
    one = found.subscriptions.get(topic) if found is not None else None
    return None if one is None else one.to_json()


def groups_of(gateway: Gateway, topic: str) -> Generator[None, None, list[str]]:
    """Return the groups that have consumers of a topic."""
    return gateway.clients.groups_of(topic)


def knows_no_topic(gateway: Gateway, group: str, topic: str) -> bool:
    """Whether a group has consumers, none of them subscribed to the topic."""
    found = gateway.clients.group(group)
    return found is not None and bool(found.subscriptions) and topic not in found.subscriptions
