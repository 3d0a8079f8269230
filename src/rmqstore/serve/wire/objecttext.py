"""fastjson's JSON with objects as keys: ``{{"brokerName":...}:{...}}``.

Java clients read maps by queue only in this form.

Source: fastjson's ``MapSerializer`` and ``DefaultJSONParser``, as ``remoting/protocol/
RemotingSerializable.java`` calls them.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from rmqstore.brokerfiles import fastjson
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import MAX_FRAME, Refusal

__all__ = ["PAUSE", "Entries", "MessageQueue", "dumps", "dumps_in_steps", "loads",
           "loads_in_steps"]  # fmt: skip

PAUSE: Any = object()  # yielded by a lazy list or object without a part yet
_STEP = 16  # entries, or list items, written between two steps
_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_NAME = 127  # characters of a topic
_SCALARS = (str, int, float, bool, type(None))


class MessageQueue(NamedTuple):
    """A queue in JSON, with fields in fastjson's order."""

    broker: str
    queue_id: int
    topic: str


class Entries:
    """Lazy object for ``dumps_in_steps``: each of its pairs is made when written."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[tuple[object, object]]) -> None:
        self.pairs = pairs


def dumps(value: object) -> bytes:
    """Return a value's text on one line, as ``json.dumps``; keys may be queues or bare integers."""
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode("utf-8", "replace")


def dumps_in_steps(value: object) -> Generator[None, None, bytes]:
    """Return a text as ``dumps``, in steps by length; ``Refusal`` if it is longer than a frame.

    ``Entries`` may replace an object, and an iterator a list, at any depth. Their items are not
    kept; without one for long, they yield ``PAUSE``.
    """
    text = bytearray()
    out: list[str] = []
    for written, _ in enumerate(_write_some(value, out)):
        if written % _STEP == _STEP - 1:
            text += "".join(out).encode("utf-8", "replace")
            out.clear()
            if len(text) > MAX_FRAME:
                break
            yield
    text += "".join(out).encode("utf-8", "replace")
    if len(text) > MAX_FRAME:  # the rest was not written
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"the answer would have more than {MAX_FRAME} bytes"
        )
    return bytes(text)


def _write_some(value: object, out: list[str]) -> Iterator[None]:
    """Write a value, and yield after each part of a long one, such as an object with a list."""
    if isinstance(value, dict) and any(isinstance(one, list) for one in value.values()):
        value = Entries(value.items())
    elif isinstance(value, list):
        value = iter(value)
    if isinstance(value, Entries):
        mark = "{"
        for pair in value.pairs:
            if pair is PAUSE:
                yield
                continue
            key, inner = pair
            out.append(mark)
            out.append(_key(key))
            yield from _write_some(inner, out)
            mark = ","
        out.append("}" if mark == "," else "{}")
    elif isinstance(value, Iterator):
        mark = "["
        for inner in value:
            if inner is PAUSE:
                yield
                continue
            out.append(mark)
            yield from _write_some(inner, out)
            mark = ","
        out.append("]" if mark == "," else "[]")
    else:
        _write(value, out)
    yield


def _write(value: object, out: list[str]) -> None:
    if isinstance(value, MessageQueue):
        out.append(_queue(value))
    elif isinstance(value, dict) and _is_plain(value):
        out.append(_PLAIN(value))
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
        return _queue(key) + ":"
    return f"{key}:" if isinstance(key, int) else _PLAIN(key) + ":"


def _queue(queue: MessageQueue) -> str:
    broker, topic = _text(queue.broker), _text(queue.topic)
    return f'{{"brokerName":{broker},"queueId":{queue.queue_id},"topic":{topic}}}'


def _text(name: str) -> str:
    return _kept_text(name) if len(name) <= _NAME else _PLAIN(name)  # names may be from clients


_kept_text = lru_cache(256)(_PLAIN)


def _is_plain(table: dict[Any, Any]) -> bool:
    """Whether ``json`` writes an object correctly: no queue or number as a key, scalar values."""
    return all(type(key) is str and type(one) in _SCALARS for key, one in table.items())


def loads(text: bytes) -> Any:
    """Parse a text; a key that is a queue's object becomes a queue. ``ValueError`` if invalid."""
    return _ObjectKeyParser(text.decode(), fastjson.MAX_DEPTH).parse()


def loads_in_steps(text: bytes) -> Generator[None, None, Any]:
    """Parse a text as ``loads``, in steps by its length."""
    return (yield from _ObjectKeyParser(text.decode(), fastjson.MAX_DEPTH).parse_in_steps())


class _ObjectKeyParser(fastjson.Parser):
    """fastjson's parser, with objects as keys."""

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
