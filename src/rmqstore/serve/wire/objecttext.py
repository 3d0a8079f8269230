"""JSON as fastjson has it where keys are objects: ``{{"brokerName":...}:{...}}``.

Java clients read maps by queue in no other form.

Source: fastjson's ``MapSerializer`` and ``DefaultJSONParser``, as ``remoting/protocol/
RemotingSerializable.java`` calls them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqstore.brokerfiles import fastjson

__all__ = ["MessageQueue", "dumps", "loads"]

_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class MessageQueue(NamedTuple):
    """A queue as clients name it; its fields are in the order of fastjson."""

    broker: str
    queue_id: int
    topic: str

    def to_json(self) -> dict[str, Any]:
        """Return the object that is its text."""
        return {"brokerName": self.broker, "queueId": self.queue_id, "topic": self.topic}


def dumps(value: object) -> bytes:
    """Return the text of a value, on one line.

    Parameters
    ----------
    value : object
        As ``json.dumps`` takes it; keys may be integers, which are written bare, or queues.
    """
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode("utf-8", "replace")


def _write(value: object, out: list[str]) -> None:
    if isinstance(value, MessageQueue):
        out.append(_PLAIN(value.to_json()))
    elif isinstance(value, Mapping):
        mark = "{"
        for key, inner in value.items():
            out.append(mark)
            out.append(_key(key))
            _write(inner, out)
            mark = ","
        out.append("}" if mark == "," else "{}")
    elif isinstance(value, list | tuple):
        mark = "["
        for inner in value:
            out.append(mark)
            _write(inner, out)
            mark = ","
        out.append("]" if mark == "," else "[]")
    else:
        out.append(_PLAIN(value))


def _key(key: object) -> str:
    if isinstance(key, MessageQueue):
        return _PLAIN(key.to_json()) + ":"
    return f"{key}:" if isinstance(key, int) else _PLAIN(key) + ":"


def loads(text: bytes) -> Any:
    """Return the value of a text; a key that is an object of a queue's fields is one.

    Raises
    ------
    ValueError
        It is no such JSON, or too deep.
    """
    return _ObjectKeyParser(text.decode(), fastjson.MAX_DEPTH).parse()


class _ObjectKeyParser(fastjson._Parser):
    """As its base, with objects as keys."""

    def key(self) -> Any:
        """Take a key and its colon."""
        if not self.peek_is("{"):
            return super().key()
        start = self.at
        fields: dict[Any, Any] = {}
        while True:
            name = super().key()
            fields[name] = self.scalar_value()
            if self.mark(",}") == "}":
                break
        self.mark(":")
        queue_id = fields.get("queueId")
        broker, topic = fields.get("brokerName"), fields.get("topic")
        if type(queue_id) is int and isinstance(broker, str) and isinstance(topic, str):
            return MessageQueue(broker, queue_id, topic)
        raise self.fail("a key that is no queue", start)

    def scalar_value(self) -> Any:
        """Take a text, a number or a word."""
        match = self.token("a value")
        if match["mark"] is not None:
            raise self.fail(f"found {match['mark']!r}, expected a text or a number")
        return self.scalar(match)
