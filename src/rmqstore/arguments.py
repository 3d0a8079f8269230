"""How errors name a wrong argument, for the core and for Python alike."""

from __future__ import annotations

import reprlib

__all__ = ["one_of", "shown", "wrong_type", "wrong_value"]

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 160


def shown(value: object) -> str:
    """Return the text of a value for an error; a long one is cut in the middle."""
    return _short.repr(value)


def wrong_type(argument: str, allowed: str, value: object) -> TypeError:
    """Return the error for a wrong type: ``topic must be str, not int (7)``."""
    return TypeError(f"{argument} must be {allowed}, not {type(value).__name__} ({shown(value)})")


def wrong_value(argument: str, allowed: str, value: object) -> ValueError:
    """Return the error for a value out of range: ``perm must be 0 to 15, got 16``."""
    return ValueError(f"{argument} must be {allowed}, got {shown(value)}")


def one_of(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return the value if it is one of those allowed.

    Raises
    ------
    ValueError
        It is none of them.
    """
    if value not in allowed:
        raise wrong_value(argument, f"one of {', '.join(map(repr, allowed))}", value)
    return value
