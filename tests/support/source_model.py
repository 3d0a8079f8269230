"""A slow model of a batch source: filters row by row, and readers without Spark."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rmqstore.columns.scan import COLUMNS
from rmqstore.spark.common.schema import spark_schema
from rmqstore.spark.read.batch import BatchReader
from rmqstore.spark.read.partitions import StorePartition

Row = dict[str, Any]
TEXTS = ("topic", "tags", "uniq_key", "msg_id", "born_host")
NUMBERS = ("queue_id", "queue_offset", "physical_offset", "flag", "reconsume_times", "body_crc")
TIMES = ("store_timestamp", "born_timestamp")
SIMPLE = (*TEXTS, *NUMBERS, *TIMES, "body")


def read_back(
    options: Mapping[str, object],
    filters: Sequence[Filter] = (),
    columns: Sequence[str] = COLUMNS,
) -> list[Row]:
    """Rows as Spark would have them: through pickles, and what is left of filters applied."""
    reader = BatchReader(
        {name: str(value) for name, value in options.items()}, spark_schema(columns)
    )
    left = list(reader.pushFilters(list(filters)))
    partitions: list[Any] = list(reader.partitions()) or [InputPartition(None)]
    reader = pickle.loads(pickle.dumps(reader))
    rows: list[Row] = []
    for partition in partitions:
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            assert 0 < batch.num_rows <= 16384
            assert batch.schema.names == list(columns)
            rows += batch.to_pylist()
    return [row for row in rows if all(evaluate(each, row) for each in left)]


def partitions_of(options: Mapping[str, object], filters: Sequence[Filter] = ()) -> list[Any]:
    """The plan."""
    reader = BatchReader({name: str(value) for name, value in options.items()}, spark_schema())
    list(reader.pushFilters(list(filters)))
    found = reader.partitions()
    assert all(isinstance(each, StorePartition) for each in found)
    return list(found)


def same_rows(found: Iterable[Row], wanted: Iterable[Row]) -> None:
    """Compare as bags."""
    left, right = (Counter(map(_frozen, rows)) for rows in (found, wanted))
    missing, others = right - left, left - right
    assert not missing, f"{missing.total()} missing, such as {next(iter(missing))}"
    assert not others, f"{others.total()} too many, such as {next(iter(others))}"


def _frozen(row: Row) -> str:
    return repr(sorted((name, _plain(value)) for name, value in row.items()))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(value)
    return bytes(value) if isinstance(value, bytearray) else value


def _ordered(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    StringStartsWith: lambda a, b: a.startswith(b),
    StringEndsWith: lambda a, b: a.endswith(b),
    StringContains: lambda a, b: b in a,
}


def evaluate(asked: Any, row: Row) -> bool | None:
    """A filter of a row in SQL's three values."""
    if isinstance(asked, Not):
        inner = evaluate(asked.child, row)
        return None if inner is None else not inner
    [name] = asked.attribute
    value = row[name]
    if isinstance(asked, IsNull):
        return value is None
    if isinstance(asked, IsNotNull):
        return value is not None
    if isinstance(asked, EqualNullSafe):
        return bool(value == asked.value)
    if value is None:
        return None
    if isinstance(asked, In):
        if value in [one for one in asked.value if one is not None]:
            return True
        return None if None in asked.value else False
    if asked.value is None:
        return None
    return _COMPARE[type(asked)](_ordered(value), _ordered(asked.value))


def random_filter(rng: random.Random, rows: Sequence[Row], columns: Sequence[str]) -> Filter:
    """A filter over one of the columns, with a literal that is at or beside a row's."""
    found = _random_plain(rng, rows, columns)
    return Not(found) if rng.random() < 0.25 else found


def _random_plain(rng: random.Random, rows: Sequence[Row], columns: Sequence[str]) -> Filter:
    name = rng.choice([name for name in columns if name in SIMPLE])
    if rng.random() < 0.1:
        return rng.choice([IsNull, IsNotNull])((rng.choice(list(columns)),))
    values = [_beside(rng, rng.choice(rows)[name]) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.25:
        if rng.random() < 0.2:
            values.append(None)
        return In((name,), values)  # type: ignore[arg-type]
    value = values[0]
    if rng.random() < 0.15:
        return EqualNullSafe((name,), value)
    if value is None:
        return IsNull((name,))
    if isinstance(value, str) and rng.random() < 0.3:
        part = value[rng.randint(0, len(value)) :][: rng.randint(0, 3)]
        return rng.choice([StringStartsWith, StringEndsWith, StringContains])((name,), part)
    kinds = [EqualTo, EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    return rng.choice(kinds)((name,), value)


def _beside(rng: random.Random, value: Any) -> Any:
    if isinstance(value, (int, str, bytes)) or value is None:
        step = rng.choice([0, 0, 0, 1, -1, 7])
        if isinstance(value, int):
            return value + step
        return value
    return value + timedelta(microseconds=rng.choice([0, 0, 1, -1, 1000, 5_000_000, -5_000_000]))
