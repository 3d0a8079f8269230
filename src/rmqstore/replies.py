"""Request-reply properties, which clients write beside a message's body.

A request is a message of any topic; its reply goes to ``<cluster>_REPLY_TOPIC``, from where the
broker pushes it to the client that asked.

Source: ``client/utils/MessageUtil.java``,
``client/impl/producer/DefaultMQProducerImpl.java prepareSendRequest``,
``broker/processor/ReplyMessageProcessor.java``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = ["Exchange", "exchange_of", "is_reply_topic"]

_REPLY_TOPIC = "_REPLY_TOPIC"
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message's part in a request and its reply.

    Attributes
    ----------
    kind : {"request", "reply"}
    correlation_id : str
        The same in a request and in its reply.
    client : str or None
        Id of the client that waits for the reply.
    ttl : int or None
        Milliseconds that the client waits.
    arrived : int or None
        Arrival at the client, in milliseconds since the epoch; only the client adds it.
    pushed : int or None
        Push by the broker to the client, likewise.
    cluster : str or None
        Cluster of the request, which names the reply's topic.
    """

    kind: Literal["request", "reply"]
    correlation_id: str
    client: str | None
    ttl: int | None
    arrived: int | None
    pushed: int | None
    cluster: str | None


def is_reply_topic(topic: str) -> bool:
    """Whether replies go to a topic."""
    return topic.endswith(_REPLY_TOPIC) and topic != _REPLY_TOPIC


def exchange_of(message: Message) -> Exchange | None:
    """Return a message's part in a request and its reply.

    Parameters
    ----------
    message : Message

    Returns
    -------
    Exchange or None
        None if it has no ``CORRELATION_ID``. An invalid number is None.

    Raises
    ------
    StoreError
        The record's bytes are gone.
    """
    properties = message.properties
    correlation_id = properties.get("CORRELATION_ID")
    if correlation_id is None:
        return None
    return Exchange(
        kind="reply" if properties.get("MSG_TYPE") == "reply" else "request",
        correlation_id=correlation_id,
        client=properties.get("REPLY_TO_CLIENT"),
        ttl=_number(properties.get("TTL")),
        arrived=_number(properties.get("ARRIVE_TIME")),
        pushed=_number(properties.get("PUSH_REPLY_TIME")),
        cluster=properties.get("CLUSTER"),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) is not None else None
