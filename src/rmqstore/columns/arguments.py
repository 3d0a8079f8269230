"""Arguments of a scan, checked."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from rmqstore import _core
from rmqstore.base.arguments import wrong_type, wrong_value

__all__ = ["bounded", "known_columns", "texts"]


def known_columns(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of columns, checked."""
    for name in chosen:
        if name not in _core.COLUMN_NAMES:
            import difflib

            near = difflib.get_close_matches(name, _core.COLUMN_NAMES, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise ValueError(f"columns must name columns of a scan, got {name!r}{hint}")
    if len(set(chosen)) != len(chosen):
        twice = next(name for name in chosen if chosen.count(name) > 1)
        raise ValueError(f"columns must not name {twice!r} twice")
    return chosen


def texts(argument: str, values: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return texts as a tuple without duplicates; a str of keys is split at spaces."""
    if values is None:
        return None
    if isinstance(values, str):
        values = values.split(" ") if argument == "keys" else (values,)
    try:
        found = tuple(values)
    except TypeError:
        raise wrong_type(argument, "str or an iterable of str", values) from None
    for text in found:
        if not isinstance(text, str):
            raise wrong_type(argument, "str or an iterable of str", text)
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise wrong_value(argument, "text that UTF-8 can write", text)
    return found if argument == "columns" else tuple(dict.fromkeys(filter(None, found)))


def bounded(argument: str, value: object, low: int, high: int, absent: int | None = None) -> int:
    """Return an int within its bounds; ``absent`` for None, if allowed."""
    if value is None and absent is not None:
        return absent
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong_type(argument, "int", value)
    number = operator.index(value)
    if not low <= number <= high:
        raise wrong_value(argument, f"{low} to {high}", number)
    return number
