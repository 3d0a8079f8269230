"""Heartbeats, in the dialects of all clients: enums by name or ordinal, numbers as text.

Source: ``common/protocol/heartbeat/HeartbeatData.java``, ``ConsumerData.java``,
``ProducerData.java``, ``common/protocol/body/CheckClientRequestBody.java``.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rmqstore.base.layout import INT64_MAX
from rmqstore.serve.consuming.subscriptions import ALL, TAG, Subscription, size_of
from rmqstore.serve.network.turns import ended
from rmqstore.serve.wire.fields import json_body, json_body_in_steps, refused
from rmqstore.serve.wire.frames import Request
from rmqstore.serve.wire.names import checked_group, checked_topic

__all__ = ["MOST_GROUPS", "ConsumerData", "Heartbeat", "checked_subscription", "heartbeat_of"]

_MAX_NAME = 255
_MAX_EXPRESSION = 64 << 10
MOST_GROUPS = 1000  # of a client, of consumers and of producers each
_KEPT = 2048  # parsed heartbeats: a client sends the same one again and again
_KEPT_BODY = 2048  # bytes of a kept one, at most

_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
_MODELS = ("BROADCASTING", "CLUSTERING")


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """Consumer group of a client."""

    group: str
    consume_type: str  # RocketMQ's name, as the next two
    message_model: str
    consume_from_where: str
    subscriptions: tuple[Subscription, ...]
    unit_mode: bool
    size: int  # charge of the subscriptions


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat: the client, its consumer groups, and the names of its producer groups."""

    client_id: str
    consumers: tuple[ConsumerData, ...]
    producers: tuple[str, ...]


def heartbeat_of(request: Request, most: int) -> Generator[None, None, Heartbeat]:
    """Parse a heartbeat, one consumer group a step.

    ``most`` limits the topics of all its groups; ``Refusal`` if the body is not a heartbeat,
    exceeds a limit, or has an invalid name.
    """
    if len(request.body) <= _KEPT_BODY:
        return _kept_heartbeat(bytes(request.body), most)
    return (yield from _read_heartbeat(request, most))


def _read_heartbeat(request: Request, most: int) -> Generator[None, None, Heartbeat]:
    data = _object((yield from json_body_in_steps(request)), "the body")
    consumers = []
    topics = 0
    for one in _list(data, "consumerDataSet"):
        consumers.append(_consumer(one))
        topics += len(consumers[-1].subscriptions)
        if topics > most:
            raise refused(f"a heartbeat may have {most} subscriptions", topics)
        yield
    producers = tuple(
        _group(_object(one, "a producer").get("groupName"))
        for one in _list(data, "producerDataSet")
    )
    return Heartbeat(_client_id(data.get("clientID")), tuple(consumers), producers)


@lru_cache(_KEPT)
def _kept_heartbeat(body: bytes, most: int) -> Heartbeat:
    return ended(_read_heartbeat(Request(0, body=body), most))


def checked_subscription(request: Request) -> Subscription | None:
    """Return the subscription to check, ``None`` if the request has none."""
    if not request.body:
        return None
    data = _object(json_body(request), "the body").get("subscriptionData")
    return None if data is None else _subscription(data)


def _consumer(value: Any) -> ConsumerData:
    data = _object(value, "a consumer")
    subscriptions = tuple(_subscription(one) for one in _list(data, "subscriptionDataSet"))
    return ConsumerData(
        _group(data.get("groupName")),
        _enum(data.get("consumeType"), "consumeType", _TYPES, _TYPES[1]),
        _enum(data.get("messageModel"), "messageModel", _MODELS, _MODELS[1]),
        _enum(data.get("consumeFromWhere"), "consumeFromWhere", _FROM_WHERE, _FROM_WHERE[0]),
        subscriptions,
        data.get("unitMode") in (True, "true", 1, "1"),
        size_of(subscriptions),
    )


def _subscription(value: Any) -> Subscription:
    data = _object(value, "a subscription")
    topic = data.get("topic")
    if not isinstance(topic, str):
        raise refused("topic must be a text", topic)
    return Subscription(
        checked_topic(topic),
        _text(data, "subString", _MAX_EXPRESSION) or ALL,
        _text(data, "expressionType", _MAX_NAME) or TAG,
        _whole(data.get("subVersion")),
        data.get("classFilterMode") in (True, "true", 1, "1"),
    )


def _group(name: Any) -> str:
    if not isinstance(name, str):
        raise refused("groupName must be a text", name)
    return checked_group(name)


def _client_id(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_NAME:
        raise refused(f"clientID must be 1 to {_MAX_NAME} characters", value)
    return value


def _text(data: dict[str, Any], name: str, most: int) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > most:
        raise refused(f"{name} must be a text of at most {most} characters", value)
    return value


def _enum(value: Any, name: str, names: tuple[str, ...], default: str) -> str:
    if value is None:
        return default
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 1:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, str) and value.upper() in names:
        return value.upper()
    raise refused(f"{name} must be one of {', '.join(names)}", value)


def _whole(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not -INT64_MAX <= value <= INT64_MAX
    ):
        raise refused("subVersion must be a whole number", value)
    return value


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refused(f"{what} must be an object", value)
    return value


def _list(data: dict[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_GROUPS:
        raise refused(f"{name} must be a list of at most {MOST_GROUPS}", value)
    return value
