"""What a filter says of the messages that can pass it, so that a scan reads no others.

The filter itself is Arrow's to apply; here it is only read, and what is not understood allows
every message. An expression is read from the bytes that pickling makes of it: an Arrow file with
the calls and the names of fields as metadata and the literals as columns.

Source: Apache Arrow, ``cpp/src/arrow/compute/expression.cc`` Serialize; ours.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqstore.times import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from rmqstore.scan import Scan

__all__ = [
    "Bounds",
    "bounds_of",
    "checked",
    "fields_of",
    "is_never",
    "narrowed",
    "range_of",
    "texts_of",
]

Texts = frozenset[str]
Range = tuple[int, int]  # both inclusive
Bounds = Mapping[str, Texts | Range]  # by column: what a message that passes must have

_NEVER: Bounds = {"topic": frozenset()}
_TEXTS = ("topic", "tags", "uniq_key")
_NUMBERS = ("queue_id", "queue_offset", "physical_offset", "store_timestamp")
_PLACES = {"topic", "queue_id", "queue_offset", "physical_offset", "uniq_key"}
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

_LOOKUPS = 4096  # of keys by the index, at most
_TAGS = 64  # that the core takes
_QUEUE_ID_MOST = 0x7FFFFFFF


@dataclass
class _Call:
    name: str
    arguments: list[_Node] = field(default_factory=list)
    options: Any = None


@dataclass(frozen=True)
class _Field:
    name: str
    nested: bool = False


@dataclass(frozen=True)
class _Literal:
    scalar: Any


_Node = _Call | _Field | _Literal


# ---- reading an expression


class _SchemaHead(ctypes.Structure):
    """The beginning of ``ArrowSchema``; a schema's own mapping keeps one value a key."""

    _fields_ = (
        ("format", ctypes.c_void_p),
        ("name", ctypes.c_void_p),
        ("metadata", ctypes.c_void_p),
    )


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the metadata in order, by the Arrow C data interface."""
    capsule = schema.__arrow_c_schema__()
    at = _SchemaHead.from_address(_capsule_pointer(capsule, b"arrow_schema")).metadata
    if not at:
        return []

    def number() -> int:
        nonlocal at
        (found,) = struct.unpack("=i", ctypes.string_at(at, 4))
        at += 4
        return int(found)

    def text() -> str:
        nonlocal at
        length = number()
        found = ctypes.string_at(at, length)
        at += length
        return found.decode()

    return [(text(), text()) for _ in range(number())]


def _steps(expression: Any) -> tuple[list[tuple[str, str]], pa.RecordBatch] | None:
    """Return the calls and names in order, and the literals; None where it is not to be read."""
    try:
        _, (buffer,) = expression.__reduce__()
        with pa.ipc.open_file(buffer) as reader:
            return _metadata(reader.schema), reader.get_batch(0)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def fields_of(expression: Any) -> frozenset[str] | None:
    """Return the names of the columns that an expression refers to.

    Parameters
    ----------
    expression : pyarrow.compute.Expression

    Returns
    -------
    frozenset of str, or None
        None where they cannot be told.
    """
    steps = _steps(expression)
    if steps is None:
        return None
    return frozenset(value for step, value in steps[0] if step == "field_ref")


def _read(expression: Any) -> _Node | None:
    """Return the expression as a tree; None where it is not to be read."""
    steps = _steps(expression)
    if steps is None:
        return None
    pairs, literals = steps
    root = _Call("")
    open_calls = [root]
    within = 0  # names of a nested field that are still to come
    for step, value in pairs:
        arguments = open_calls[-1].arguments
        if step == "call":
            open_calls.append(_Call(value))
            arguments.append(open_calls[-1])
        elif step == "end":
            open_calls.pop()
        elif step == "options":
            open_calls[-1].options = literals.column(int(value))[0]
        elif step == "literal":
            arguments.append(_Literal(literals.column(int(value))[0]))
        elif step == "nested_field_ref":
            within = int(value)
            arguments.append(_Field("", nested=True))
        elif step == "field_ref" and within:
            within -= 1
        elif step == "field_ref":
            arguments.append(_Field(value))
        else:
            return None
    return root.arguments[0] if len(root.arguments) == 1 and open_calls == [root] else None


# ---- what must hold where it is true


def bounds_of(expression: Any) -> Bounds:
    """Return what each message that passes a filter must have.

    Parameters
    ----------
    expression : pyarrow.compute.Expression

    Returns
    -------
    mapping of str to frozenset of str, or to (int, int)
        By column the texts it may have, or the least and the greatest number; times are in ms. A
        column that is not named may have anything. An empty set or range: no message passes.
    """
    try:
        node = _read(expression)
        return {} if node is None else _bounds(node, True)
    except RecursionError:
        return {}


def _bounds(node: _Node, wanted: bool) -> Bounds:
    """Return what must hold for ``node`` to be ``wanted``; null is neither."""
    found: Bounds = {}
    if isinstance(node, _Literal):
        kind = node.scalar.type
        known = pa.types.is_boolean(kind) or pa.types.is_null(kind)
        return _NEVER if known and node.scalar.as_py() is not wanted else found
    if isinstance(node, _Field):
        return found
    match node.name, node.arguments:
        case "invert", [inner]:
            found = _bounds(inner, not wanted)
        case "and" | "and_kleene" | "or" | "or_kleene", [left, right]:
            join = _both if wanted is node.name.startswith("and") else _either
            found = join(_bounds(left, wanted), _bounds(right, wanted))
        case name, [_Field() as column, _Literal() as literal] if name in _NOT:
            found = _compared(name if wanted else _NOT[name], column, literal.scalar)
        case name, [_Literal() as literal, _Field() as column] if name in _NOT:
            name = _MIRRORED[name]
            found = _compared(name if wanted else _NOT[name], column, literal.scalar)
        case "is_in", [_Field() as column] if wanted:
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
    """Whether nothing can have all of it."""
    return any(
        not bound if isinstance(bound, frozenset) else bound[0] > bound[1]
        for bound in bounds.values()
    )


def _compared(name: str, column: _Field, scalar: Any) -> Bounds:
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


def _is_in(column: _Field, options: Any) -> Bounds:
    """Return nothing where a null is among the values: it may match a null."""
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
    """Return a text that is stored just so, if it is one.

    U+FFFD may stand for bytes that are not UTF-8, and nothing is looked for by no text.
    """
    if not scalar.is_valid:
        return None
    text = scalar.as_py()
    return text if isinstance(text, str) and text and "\ufffd" not in text else None


def _number(scalar: Any, *, is_time: bool) -> Range | None:
    """Return the greatest integer at or below and the least at or above, in ms if it is a time."""
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


# ---- what of the store is read


def narrowed(scan: Scan, bounds: Bounds) -> tuple[Scan, ...]:
    """Return scans that together give each message of ``scan`` within the bounds, once.

    Parameters
    ----------
    scan : Scan
    bounds : mapping
        As :func:`bounds_of` returns them.

    Returns
    -------
    tuple of Scan
        In log order one after the other; they may give others as well.
    """
    topics = _wanted_topics(scan, bounds)
    low, high = range_of(bounds, "queue_id")
    elsewhere = scan._queue_id >= 0 and not low <= scan._queue_id <= high
    if scan._nothing or is_never(bounds) or topics == () or elsewhere:
        return ()
    scan = checked(scan, bounds)
    if len(scan._topics) == 1 and scan._queue_id >= 0:
        return (_queue_range(scan, scan._topics[0], scan._queue_id, bounds),)
    if not bounds.keys() & _PLACES:
        return (scan,)
    extent = scan._pass(()).extent()
    if topics is not None and extent[1] == extent[2]:
        there = scan._engine._queue_files()
        topics = tuple(topic for topic in topics if topic in there)
    if topics == ():
        return ()
    return _by_keys(scan, topics, bounds, extent) or (_by_place(scan, topics, bounds, extent),)


def _by_place(
    scan: Scan, topics: tuple[str, ...] | None, bounds: Bounds, extent: tuple[int, int, int]
) -> Scan:
    """Along one queue if no record is outside of the queues, else along the log, or queues."""
    low, high = range_of(bounds, "queue_id")
    changes: dict[str, Any] = {}
    if low == high and 0 <= low <= _QUEUE_ID_MOST:
        changes["queue_id"] = low
    if topics is not None and len(topics) == 1 and changes:
        whole = scan._start < 0 and scan._stop < 0 and not scan._keys
        by_offset = "queue_offset" in bounds or "physical_offset" not in bounds
        if whole and by_offset and scan._queue_id < 0 and extent[1] == extent[2]:
            scan = scan.replace(topic=topics, queue_id=low)
            return _queue_range(scan, topics[0], low, bounds)
    # A single topic with a queue would make queue offsets of start and stop.
    if topics is not None and (len(topics) > 1 or scan._queue_id < 0):
        changes["topic"] = topics
        if len(topics) == 1:
            changes.pop("queue_id", None)
    return _log_range(scan.replace(**changes), bounds, extent[0])


def range_of(bounds: Bounds, name: str) -> Range:
    """Return the least and the greatest number that a column may have; all where none is told."""
    bound = bounds.get(name)
    return bound if isinstance(bound, tuple) else (INT64_MIN, INT64_MAX)


def texts_of(bounds: Bounds, name: str) -> Texts | None:
    """Return the texts that a column may have; None where it may have any."""
    bound = bounds.get(name)
    return bound if isinstance(bound, frozenset) else None


def _wanted_topics(scan: Scan, bounds: Bounds) -> tuple[str, ...] | None:
    topics = texts_of(bounds, "topic")
    if topics is None:
        return scan._topics or None
    return tuple(sorted(topics.intersection(scan._topics) if scan._topics else topics))


def checked(scan: Scan, bounds: Bounds) -> Scan:
    """Return a scan with the tags and store times that a message must have.

    Parameters
    ----------
    scan : Scan
    bounds : mapping
        As :func:`bounds_of` returns them.

    Returns
    -------
    Scan
        The same where nothing is told of them.
    """
    changes: dict[str, Any] = {}
    low, high = range_of(bounds, "store_timestamp")
    if low > scan._since:
        changes["since"] = low
    if high < scan._until - 1:
        changes["until"] = high + 1
    tags = texts_of(bounds, "tags")
    if scan._tags is None and tags is not None and 0 < len(tags) <= _TAGS:
        plain = all("|" not in tag and tag == tag.strip() and tag != "*" for tag in tags)
        if plain:
            changes["tags"] = " || ".join(sorted(tags))
    return scan.replace(**changes) if changes else scan


def _between(scan: Scan, low: int, high: int, first: int) -> Scan:
    """With ``start`` and ``stop``; what is not asked for before the first is not missed."""
    changes: dict[str, Any] = {}
    if low > max(scan._start, first):
        changes["start"] = low
    if high < INT64_MAX and (scan._stop < 0 or high + 1 < scan._stop):
        changes["stop"] = max(high + 1, 0)
    return scan.replace(**changes) if changes else scan


def _log_range(scan: Scan, bounds: Bounds, first: int) -> Scan:
    return _between(scan, *range_of(bounds, "physical_offset"), first)


def _queue_range(scan: Scan, topic: str, queue_id: int, bounds: Bounds) -> Scan:
    known = scan._engine._bounds(topic, queue_id)
    return _between(scan, *range_of(bounds, "queue_offset"), known[0] if known else 0)


def _by_keys(
    scan: Scan, topics: Iterable[str] | None, bounds: Bounds, extent: tuple[int, int, int]
) -> tuple[Scan, ...]:
    """By the index as far as the log is in queues: what was rolled back is in neither."""
    keys = texts_of(bounds, "uniq_key")
    first, queued, end = extent
    if keys is None or scan._keys or scan._queue_id >= 0 or queued <= first:
        return ()
    engine = scan._engine
    among = tuple(topics) if topics is not None else tuple(engine._queue_files())
    if not among or any("\ufffd" in topic for topic in among):
        return ()
    lookups = len(keys) * len(among)
    uncovered = (end - first) - sum(
        max(0, min(stop, end) - max(start, first)) for start, stop in engine.index_coverage()
    )
    if lookups > _LOOKUPS or lookups * uncovered >= end - first:
        return ()
    found = _log_range(scan, bounds, first)
    stop = queued if found._stop < 0 else min(found._stop, queued)
    parts = [found.replace(topic=among, keys=sorted(keys), stop=stop)]
    if queued < end and (found._stop < 0 or found._stop > queued):
        changes: dict[str, Any] = {} if topics is None else {"topic": topics}
        parts.append(found.replace(start=max(found._start, queued), **changes))
    return tuple(parts)
