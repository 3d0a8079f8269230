"""Argument checks and their error texts, for the core and for Python."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "buffer_of",
    "did_you_mean",
    "integer_within",
    "named_delay",
    "one_of",
    "shown",
    "wrong_type",
    "wrong_value",
]

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 160


def shown(value: object) -> str:
    """Return a value's text for an error, a long one cut in the middle."""
    return _short.repr(value)


def wrong_type(argument: str, allowed: str, value: object) -> TypeError:
    """Return the error for a wrong type: ``topic must be str, not int (7)``."""
    return TypeError(f"{argument} must be {allowed}, not {type(value).__name__} ({shown(value)})")


def wrong_value(argument: str, allowed: str, value: object) -> ValueError:
    """Return the error for a value out of range: ``perm must be 0 to 15, got 16``."""
    return ValueError(f"{argument} must be {allowed}, got {shown(value)}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question naming the nearest of ``names``, empty if none is near."""
    import difflib  # a tenth of what importing this package takes

    folded = {one.casefold(): one for one in sorted(names)}
    near = difflib.get_close_matches(name.casefold(), folded, n=3)
    return f"did you mean {' or '.join(repr(folded[one]) for one in near)}?" if near else ""


def one_of(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return the value if allowed, else raise ``ValueError``."""
    if value not in allowed:
        raise wrong_value(argument, f"one of {', '.join(map(repr, allowed))}", value)
    return value


def named_delay(delay: str, levels: str) -> int:
    """Return the number of the delay level with a delay such as ``"10s"``."""
    known = levels.split()
    if delay in known:
        return known.index(delay) + 1
    if not delay[:-1].isdecimal() or delay[-1] not in "smhd":
        raise wrong_type("delay_level", "int, or a delay such as '10s'", delay)
    raise wrong_value("delay_level", f"a delay of message_delay_level, {levels!r}", delay)


def integer_within(argument: str, value: SupportsIndex, low: int, high: int) -> int:
    """Return an integer within its bounds, else raise ``TypeError`` or ``ValueError``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong_type(argument, f"int from {low} to {high}", value)
    number = operator.index(value)
    if not low <= number <= high:
        raise wrong_value(argument, f"{low} to {high}", number)
    return number


def buffer_of(argument: str, value: Buffer) -> bytes | memoryview:
    """Return the bytes of one of many records, without a copy; ``TypeError`` if not a buffer."""
    if isinstance(value, bytes):
        return value
    try:
        return memoryview(value)
    except TypeError:
        raise wrong_type(argument, "an iterable of bytes-like records", value) from None
