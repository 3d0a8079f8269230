"""Bounds that a filter expression sets for the columns of a message.

Arrow applies the filter itself; a part not understood here excludes no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.columns.expressions import Field, Literal, Node, tree_of

__all__ = ["Bounds", "Range", "Texts", "bounds_of", "is_never", "range_of", "texts_of"]

Texts = frozenset[str]
Range = tuple[int, int]  # both inclusive
Bounds = Mapping[str, Texts | Range]  # by column, of a message that passes

_NEVER: Bounds = {"topic": frozenset()}
_TEXTS = ("topic", "tags", "uniq_key")
_NUMBERS = ("queue_id", "queue_offset", "physical_offset", "store_timestamp")
_NOT = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
}
_MIRRORED = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
_PER_MS = {"us": 1_000, "ns": 1_000_000}


def bounds_of(expression: Any) -> Bounds:
    """Return bounds that hold for every message that passes a filter.

    By column the possible texts, or the least and the greatest number; times are in ms. A column
    left out is unbounded. An empty set or range: no message passes.
    """
    try:
        node = tree_of(expression)
        return {} if node is None else _bounds(node, True)
    except RecursionError:
        return {}


def _bounds(node: Node, wanted: bool) -> Bounds:
    """Return the bounds that hold if ``node`` is ``wanted``; null is neither."""
    found: Bounds = {}
    if isinstance(node, Literal):
        kind = node.scalar.type
        known = pa.types.is_boolean(kind) or pa.types.is_null(kind)
        return _NEVER if known and node.scalar.as_py() is not wanted else found
    if isinstance(node, Field):
        return found
    match node.name, node.arguments:
        case "invert", [inner]:
            found = _bounds(inner, not wanted)
        case "and" | "and_kleene" | "or" | "or_kleene", [left, right]:
            join = _both if wanted is node.name.startswith("and") else _either
            found = join(_bounds(left, wanted), _bounds(right, wanted))
        case name, [Field() as column, Literal() as literal] if name in _NOT:
            found = _compared(name if wanted else _NOT[name], column, literal.scalar)
        case name, [Literal() as literal, Field() as column] if name in _NOT:
            name = _MIRRORED[name]
            found = _compared(name if wanted else _NOT[name], column, literal.scalar)
        case "is_in", [Field() as column] if wanted:
            found = _is_in(column, node.options)
    return found


def _both(left: Bounds, right: Bounds) -> Bounds:
    found = dict(left)
    for name, bound in right.items():
        known = found.get(name)
        if known is None:
            found[name] = bound
        elif isinstance(known, frozenset) and isinstance(bound, frozenset):
            found[name] = known & bound
        elif isinstance(known, tuple) and isinstance(bound, tuple):
            found[name] = (max(known[0], bound[0]), min(known[1], bound[1]))
    return _NEVER if is_never(found) else found


def _either(left: Bounds, right: Bounds) -> Bounds:
    if is_never(left) or is_never(right):
        return right if is_never(left) else left
    found: dict[str, Texts | Range] = {}
    for name in left.keys() & right.keys():
        one, other = left[name], right[name]
        if isinstance(one, frozenset) and isinstance(other, frozenset):
            found[name] = one | other
        elif isinstance(one, tuple) and isinstance(other, tuple):
            found[name] = (min(one[0], other[0]), max(one[1], other[1]))
    return found


def is_never(bounds: Bounds) -> bool:
    """Whether no message is within the bounds."""
    return any(
        not bound if isinstance(bound, frozenset) else bound[0] > bound[1]
        for bound in bounds.values()
    )


def _compared(name: str, column: Field, scalar: Any) -> Bounds:
    if not scalar.is_valid:
        return _NEVER
    if column.name in _TEXTS and not column.nested:
        text = _text(scalar)
        return {} if text is None or name != "equal" else {column.name: frozenset((text,))}
    if column.name not in _NUMBERS or column.nested:
        return {}
    number = _number(scalar, is_time=column.name == "store_timestamp")
    if number is None:
        return {}
    floor, ceiling = number
    match name:
        case "equal":
            bound = (ceiling, floor)
        case "less":
            bound = (INT64_MIN, ceiling - 1)
        case "less_equal":
            bound = (INT64_MIN, floor)
        case "greater":
            bound = (floor + 1, INT64_MAX)
        case "greater_equal":
            bound = (ceiling, INT64_MAX)
        case _:
            return {}
    return {column.name: bound}


def _is_in(column: Field, options: Any) -> Bounds:
    """Return no bounds if a null is among the values: it may match a null."""
    if column.nested or options is None or "value_set" not in options:
        return {}
    values = options["value_set"].values
    if column.name in _TEXTS:
        texts = [_text(value) for value in values]
        known = [text for text in texts if text is not None]
        return {column.name: frozenset(known)} if len(known) == len(texts) else {}
    if column.name not in _NUMBERS:
        return {}
    numbers = [_number(value, is_time=column.name == "store_timestamp") for value in values]
    ranges = [number for number in numbers if number is not None]
    if len(ranges) < len(numbers):
        return {}
    if not ranges:
        return _NEVER
    return {column.name: (min(low for low, _ in ranges), max(high for _, high in ranges))}


def _text(scalar: Any) -> str | None:
    """Return a scalar's text if it is stored in only one way, else None; None for an empty one.

    U+FFFD may stand for bytes that are not UTF-8.
    """
    if not scalar.is_valid:
        return None
    text = scalar.as_py()
    return text if isinstance(text, str) and text and "\ufffd" not in text else None


def _number(scalar: Any, *, is_time: bool) -> Range | None:
    """Return the nearest integers at or below and at or above, ms for a time; None if unknown."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if not is_time:
        value = scalar.as_py() if pa.types.is_integer(kind) else None
        return (value, value) if value is not None and abs(value) < INT64_MAX else None
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return None
    value = scalar.value * (1_000 if kind.unit == "s" else 1)
    if abs(value) >= INT64_MAX:
        return None
    floor, rest = divmod(value, _PER_MS.get(kind.unit, 1))
    return floor, floor + (rest > 0)


def range_of(bounds: Bounds, name: str) -> Range:
    """Return a column's least and greatest number; int64's if unbounded."""
    bound = bounds.get(name)
    return bound if isinstance(bound, tuple) else (INT64_MIN, INT64_MAX)


def texts_of(bounds: Bounds, name: str) -> Texts | None:
    """Return a column's possible texts; None if unbounded."""
    bound = bounds.get(name)
    return bound if isinstance(bound, frozenset) else None
