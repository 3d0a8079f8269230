"""Spark's filters that Arrow evaluates exactly as Spark does.

SQL's logic has three values: a row passes if the filter is true, and a negated one passes if it is
false; null is neither. Each filter therefore has two forms, one for either case.

Source: pyspark, ``sql/datasource.py`` Filter and its subclasses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, TimestampType

from rmqstore.base.layout import INT32_MAX, INT64_MAX
from rmqstore.spark.common.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NO_FILTERS", "Condition", "Filters", "condition_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)

_OPERATORS: dict[type[Filter], str] = {
    EqualNullSafe: "same",
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    In: "is_in",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
    StringContains: "match_substring",
    StringEndsWith: "ends_with",
    StringStartsWith: "starts_with",
}
_OF_TEXT = ("starts_with", "ends_with", "match_substring")
_FALSE = {
    "equal": "not_equal",
    "greater": "less_equal",
    "greater_equal": "less",
    "less": "greater_equal",
    "less_equal": "greater",
}
_INTEGERS: dict[type[DataType], int] = {IntegerType: INT32_MAX, LongType: INT64_MAX}

Value = int | str | bytes | None


@dataclass(frozen=True)
class Condition:
    """Filter as plain data."""

    operator: str  # ``equal``, ``same`` (null equals null), ``is_in`` and so on
    column: str
    values: tuple[Value, ...] = ()  # of the column's type; times are in us since the epoch
    wanted: bool = True  # whether rows pass if it is true, or if it is false


@dataclass(frozen=True)
class Filters:
    """Conjunction of conditions."""

    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the conditions."""
        return tuple(dict.fromkeys(condition.column for condition in self.conditions))

    def expression(self) -> Any:
        """Return a ``pyarrow.compute.Expression``; None if there are no conditions."""
        import pyarrow.compute as pc

        found = None
        for condition in self.conditions:
            one = _predicate(condition, pc.field(condition.column))
            found = one if found is None else found & one
        return found

    def passing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the passing rows of a batch, typed as ``arrow_schema``; the batch if all pass."""
        if not self.conditions:
            return batch
        import pyarrow.compute as pc

        mask: Any = None
        for condition in self.conditions:
            one = _predicate(condition, batch.column(condition.column))
            mask = one if mask is None else pc.and_kleene(mask, one)
        count = mask.true_count
        if count == batch.num_rows:
            return batch
        return batch.filter(mask) if count else batch.slice(0, 0)


NO_FILTERS = Filters()
"""No filters: every row passes."""


def condition_of(asked: Filter, columns: Iterable[str]) -> Condition | None:
    """Return a filter of Spark as a condition on ``columns``; None if Spark has to evaluate it."""
    wanted = True
    while isinstance(asked, Not):
        asked, wanted = asked.child, not wanted
    attribute: tuple[str, ...] = getattr(asked, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in set(columns):
        return None
    name = attribute[0]
    if isinstance(asked, (IsNull, IsNotNull)):
        return Condition("is_null", name, (), wanted is isinstance(asked, IsNull))
    kind = spark_schema([name]).fields[0].dataType
    value: Any = getattr(asked, "value", None)
    try:
        plain = tuple(_plain(one, kind) for one in (value if isinstance(asked, In) else (value,)))
    except (TypeError, OverflowError):
        return None
    operator = _OPERATORS.get(type(asked))
    if operator is None or not plain:
        return None
    if operator in _OF_TEXT and (plain[0] is None or not isinstance(kind, StringType)):
        return None
    return Condition(operator, name, plain, wanted)


def _plain(value: Any, kind: DataType) -> Value:
    """Return a literal of the column's type; ``TypeError`` or ``OverflowError`` if impossible."""
    if value is None:
        return None
    if isinstance(kind, StringType) and isinstance(value, str):
        return value
    if isinstance(kind, BinaryType) and isinstance(value, (bytes, bytearray)):
        return bytes(value)
    most = _INTEGERS.get(type(kind))
    if most is not None and type(value) is int:
        if not -most - 1 <= value <= most:
            raise OverflowError(value)
        return value
    if isinstance(kind, TimestampType) and isinstance(value, datetime) and value.tzinfo:
        return (value - _EPOCH) // _MICRO
    raise TypeError(value)


def _predicate(condition: Condition, column: Any) -> Any:
    """Return a mask of an array, or an expression of a field; null does not pass."""
    values = [value for value in condition.values if value is not None]
    has_null = len(values) < len(condition.values)
    say = _where_true if condition.wanted else _where_false
    return say(condition, column, values, has_null)


def _where_true(condition: Condition, column: Any, values: list[Any], has_null: bool) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    name = condition.operator
    if name == "is_null" or (name == "same" and has_null):
        return pc.is_null(column)
    if name == "is_in":
        return pc.is_in(column, value_set=pa.array(values, _arrow_type(condition.column)))
    if has_null:
        return _never(column)
    if name in _OF_TEXT:
        return getattr(pc, name)(column, values[0])
    compare = getattr(pc, "equal" if name == "same" else name)
    return compare(column, pa.scalar(values[0], _arrow_type(condition.column)))


def _where_false(condition: Condition, column: Any, values: list[Any], has_null: bool) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    name = condition.operator
    if name == "is_null" or (name == "same" and has_null):
        return pc.is_valid(column)
    if has_null:
        return _never(column)
    if name == "is_in" or name in _OF_TEXT:
        found = pc.invert(_where_true(condition, column, values, has_null))
        return pc.and_kleene(found, pc.is_valid(column))
    value = pa.scalar(values[0], _arrow_type(condition.column))
    if name == "same":
        return pc.or_kleene(pc.not_equal(column, value), pc.is_null(column))
    return getattr(pc, _FALSE[name])(column, value)


def _never(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.is_null(pc.is_null(column))


def _arrow_type(name: str) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(spark_schema([name]).fields[0].dataType, timezone="UTC")
