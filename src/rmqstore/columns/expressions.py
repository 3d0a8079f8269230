"""Syntax tree of a pyarrow filter expression.

pyarrow has no interface for it.  Substrait will not do: each level of ``and`` and ``or`` doubles
its size (10 comparisons in a row are 193 KB, 25 would be GBs), and it refuses implicit casts, as in
a comparison with a number of another width or a time of another unit.  So an expression is pickled,
which is public and which Arrow keeps readable: the pickle has an Arrow file with the calls and
field names as metadata, in order, and the literals as columns.  Anything unexpected there gives
None, which excludes no message.

Source: Apache Arrow, ``cpp/src/arrow/compute/expression.cc`` Serialize.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rmqstore import _core

__all__ = ["Call", "Field", "Literal", "Node", "fields_of", "tree_of"]


@dataclass
class Call:
    """A function call: name and arguments."""

    name: str
    arguments: list[Node] = field(default_factory=list)
    options: Any = None


@dataclass(frozen=True)
class Field:
    """A column, or a field within one."""

    name: str
    nested: bool = False


@dataclass(frozen=True)
class Literal:
    """A value, as a ``pyarrow.Scalar``."""

    scalar: Any


Node = Call | Field | Literal


def _steps(expression: Any) -> tuple[list[tuple[str, str]], pa.RecordBatch] | None:
    """Return calls and names in order, and the literals; None if unreadable."""
    try:
        _, (buffer,) = expression.__reduce__()
        with pa.ipc.open_file(buffer) as reader:
            pairs = _core.schema_metadata(reader.schema)
            return [(key.decode(), value.decode()) for key, value in pairs], reader.get_batch(0)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def fields_of(expression: Any) -> frozenset[str] | None:
    """Return the names of an expression's columns; None if unreadable."""
    steps = _steps(expression)
    if steps is None:
        return None
    return frozenset(value for step, value in steps[0] if step == "field_ref")


def tree_of(expression: Any) -> Node | None:
    """Return an expression as a tree; None if unreadable."""
    steps = _steps(expression)
    try:
        return None if steps is None else _tree(*steps)
    except (IndexError, ValueError):  # no such literal, or more ends than calls
        return None


def _tree(pairs: list[tuple[str, str]], literals: pa.RecordBatch) -> Node | None:
    root = Call("")
    open_calls = [root]
    within = 0  # remaining names of a nested field
    for step, value in pairs:
        arguments = open_calls[-1].arguments
        if step == "call":
            open_calls.append(Call(value))
            arguments.append(open_calls[-1])
        elif step == "end":
            open_calls.pop()
        elif step == "options":
            open_calls[-1].options = literals.column(int(value))[0]
        elif step == "literal":
            arguments.append(Literal(literals.column(int(value))[0]))
        elif step == "nested_field_ref":
            within = int(value)
            arguments.append(Field("", nested=True))
        elif step == "field_ref" and within:
            within -= 1
        elif step == "field_ref":
            arguments.append(Field(value))
        else:
            return None
    return root.arguments[0] if len(root.arguments) == 1 and open_calls == [root] else None
