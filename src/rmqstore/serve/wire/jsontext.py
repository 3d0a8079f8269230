"""JSON of clients: read with bounds, written as RocketMQ's clients read it.

orjson does the work if installed; the standard library does the rest, such as numbers beyond
64 bits, or everything.

Source: ``remoting/protocol/RemotingSerializable.java``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Never

__all__ = ["dumps", "loads", "most_values"]

_MAX_DEPTH = 200  # of nested objects and arrays; RocketMQ's own bodies have 6
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # one level in, one out
_NO_MARKS = bytes(set(range(256)) - set(b'[{]}"'))
_PASSES = 4
_MAX_DIGITS = 400  # of a number: int() takes quadratic time

_read: Callable[[bytes | str], Any] | None = None
_write: Callable[[object], bytes] | None = None
try:
    import orjson
except ImportError:
    pass
else:
    _read, _write = orjson.loads, orjson.dumps


def loads(text: bytes | str) -> Any:
    """Parse a JSON text.

    ``ValueError`` if it is no JSON or not UTF-8, is nested deeper than 200, or has a number not
    in JSON, as ``NaN``, or of more than 400 digits.
    """
    _check_depth(text)
    if _read is not None:
        return _read(text)
    try:
        if not isinstance(text, str):
            text = bytes(text).decode()
        return json.loads(text, parse_constant=_refuse, parse_int=_whole, parse_float=_float)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def dumps(value: object) -> bytes:
    """Return the JSON text of a value, without blanks; numbers not in JSON become null."""
    if _write is not None:
        try:
            return _write(value)
        except TypeError:  # numbers beyond 64 bits, non-string keys, lone surrogates
            pass
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="replace")


def most_values(text: bytes) -> int:
    """Return an upper bound of a text's values, which determine a parser's time and memory."""
    return text.count(b",") + text.count(b"[") + text.count(b"{") + 1


def _check_depth(text: bytes | str) -> None:
    """Refuse too deep nesting, before the real parser."""
    data = text.encode(errors="replace") if isinstance(text, str) else bytes(text)
    if data.count(b"[") + data.count(b"{") <= _MAX_DEPTH:
        return
    # Brackets in strings do not count.
    marks = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    bare = b"".join(marks.replace(b'""', b"").split(b'"')[::2])
    left = bare
    for _ in range(_PASSES):
        left = left.replace(b"{}", b"").replace(b"[]", b"")
    if len(left) + 2 * _PASSES <= _MAX_DEPTH:  # each pass takes at most two levels
        return
    steps = memoryview(bare.translate(_STEPS)).cast("b")
    if max(accumulate(steps), default=0) > _MAX_DEPTH:
        raise ValueError(f"JSON is nested deeper than {_MAX_DEPTH}")


def _refuse(name: str) -> Never:
    raise ValueError(f"JSON has no {name}")


def _whole(digits: str) -> int | float:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    found = int(digits)
    # As orjson: beyond 64 bits it is a float.
    return found if -(1 << 63) <= found < 1 << 64 else _float(digits)


def _float(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"a number of {len(text)} digits is too large")
    return found


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
