"""Expressions of pyarrow read as trees, and what is not to be read."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rmqstore import _core
from rmqstore.columns.expressions import Call, Field, Literal, fields_of, tree_of

f = pc.field


def shown(node: Any) -> Any:
    """A tree in tuples."""
    match node:
        case Call(name, arguments):
            return (name, *map(shown, arguments))
        case Field(name, nested):
            return f"{name}..." if nested else name
        case Literal(scalar):
            return [scalar.as_py()]
    return node


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        (f("topic") == "a", ("equal", "topic", ["a"])),
        (
            ~((f("queue_id") < 3) | (pc.scalar(True) & f("b"))),
            ("invert", ("or_kleene", ("less", "queue_id", [3]), ("and_kleene", [True], "b"))),
        ),
        (f("t") >= dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
         ("greater_equal", "t", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)])),
        (pc.field("a", "b") == 1, ("equal", "...", [1])),
        (f("x").cast(pa.int8()), ("cast", "x")),
        (f("x").isin([1, None]), ("is_in", "x")),
        (f("topic"), "topic"),
        (pc.scalar(None), [None]),
    ],
    ids=str,
)  # fmt: skip
def test_the_tree_of_an_expression(expression: Any, tree: Any) -> None:
    assert shown(tree_of(expression)) == tree


def test_options_are_kept() -> None:
    node = tree_of(f("x").isin(pa.array([3, 4])))
    assert isinstance(node, Call)
    assert node.options["value_set"].values.to_pylist() == [3, 4]


def test_names_as_they_are() -> None:
    odd = "d\"'\n\u00e9 call: 'x'"
    assert shown(tree_of(f(odd) == f("end"))) == ("equal", odd, "end")
    assert fields_of(f(odd) == f("end")) == {odd, "end"}


class Pickled:
    """Pickles as it is told."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def __reduce__(self) -> Any:
        return bytes, (self._buffer,)


def file_of(metadata: Any, rows: int = 1) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    schema = pa.schema([("0", pa.int64())], metadata=metadata)
    with pa.ipc.new_file(sink, schema) as writer:
        for _ in range(rows):
            writer.write_batch(pa.record_batch([pa.array([1])], schema=schema))
    return sink.getvalue()


@pytest.mark.parametrize(
    "given",
    [
        pc.field(0) == 1,
        Pickled(b""),
        Pickled(b"no Arrow file at all, but longer than the magic"),
        Pickled(file_of({"literal": "7"})),
        Pickled(file_of({"literal": "x"})),
        Pickled(file_of({"end": "equal", "field_ref": "a"})),
        Pickled(file_of({"field_ref": "a"}, rows=0)),
        Pickled(file_of({"unheard": "of"})),
        Pickled(file_of({"call": "equal"})),
        Pickled(file_of(None)),
        Pickled(file_of({"field_ref": b"\xff"})),
        object(),
    ],
    ids=itertools.count(),
)
def test_what_is_not_to_be_read(given: Any) -> None:
    assert tree_of(given) is None


def test_metadata_in_order() -> None:
    assert _core.schema_metadata(pa.schema([])) == []
    assert _core.schema_metadata(pa.schema([], {"a": "", "b": b"\xff\0"})) == [
        (b"a", b""),
        (b"b", b"\xff\0"),
    ]
    with pytest.raises(AttributeError):
        _core.schema_metadata(object())
