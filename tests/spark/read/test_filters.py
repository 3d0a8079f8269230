"""Filters as Arrow evaluates them, against SQL's three values said in plain Python."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    Not,
    StringContains,
    StringStartsWith,
)

from rmqstore.columns.pushdown import bounds_of
from rmqstore.columns.scan import COLUMNS
from rmqstore.spark.common.schema import arrow_schema, spark_schema
from rmqstore.spark.read.filters import Condition, Filters, condition_of
from support.source_model import SIMPLE, Row, evaluate, random_filter

pytestmark = pytest.mark.spark

TIME = datetime(2026, 3, 29, 0, 59, 59, 999000, UTC)


def _rows(rng: random.Random) -> list[Row]:
    texts = ["", "a", "ab", "Z", "\u00e9", "\U0001d11e", "\uffee", None]
    rows = []
    for _ in range(60):
        row: Row = dict.fromkeys(COLUMNS)
        for name in SIMPLE:
            kind = spark_schema([name]).fields[0].dataType.simpleString()
            row[name] = {
                "string": lambda: rng.choice(texts),
                "int": lambda: rng.choice([None, -(2**31), -1, 0, 1, 2**31 - 1]),
                "bigint": lambda: rng.choice([None, -(2**63), -1, 0, 1, 2**63 - 1]),
                "timestamp": lambda: rng.choice([None, TIME, TIME + timedelta(milliseconds=1)]),
                "binary": lambda: rng.choice([None, b"", b"\x00", b"\x7f", b"\xff", b"\xff\x00"]),
            }[kind]()
        row["keys"] = rng.choice([None, [], ["a"]])
        rows.append(row)
    return rows


def _batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(spark_schema()))


@pytest.mark.parametrize("seed", range(10))
def test_rows_pass_as_in_sql(seed: int) -> None:
    rng = random.Random(seed)
    rows = _rows(rng)
    batch = _batch(rows)
    claimed = 0
    for _ in range(200):
        asked = [random_filter(rng, rows, COLUMNS) for _ in range(rng.choice([1, 1, 2]))]
        conditions = [condition_of(each, COLUMNS) for each in asked]
        if any(condition is None for condition in conditions):
            continue
        claimed += 1
        filters = pickle.loads(pickle.dumps(Filters(tuple(conditions))))  # type: ignore[arg-type]
        wanted = [row for row in rows if all(evaluate(each, row) for each in asked)]
        assert filters.passing(batch).to_pylist() == _batch(wanted).to_pylist(), asked
        by_expression = pa.Table.from_batches([batch]).filter(filters.expression())
        assert by_expression.to_pylist() == _batch(wanted).to_pylist(), asked
        for row in wanted:
            for name, bound in bounds_of(filters.expression()).items():
                value = row[name]
                if name == "store_timestamp":
                    value = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
                if isinstance(bound, tuple):
                    assert bound[0] <= value <= bound[1], asked
                else:
                    assert value in bound, asked
    assert claimed > 150


@pytest.mark.parametrize(
    ("asked", "passing"),
    [
        (Not(In(("tags",), ["a", None])), []),  # type: ignore[arg-type]
        (Not(In(("tags",), ["a"])), ["b"]),  # type: ignore[arg-type]
        (In(("tags",), ["a", None]), ["a"]),  # type: ignore[arg-type]
        (In(("tags",), [None]), []),  # type: ignore[arg-type]
        (Not(Not(EqualTo(("tags",), "a"))), ["a"]),
        (Not(EqualTo(("tags",), "a")), ["b"]),
        (Not(EqualNullSafe(("tags",), "a")), ["b", None]),
        (EqualNullSafe(("tags",), None), [None]),
        (Not(EqualNullSafe(("tags",), None)), ["a", "b"]),
        (EqualTo(("tags",), None), []),
        (Not(GreaterThan(("tags",), "a")), ["a"]),
        (Not(StringContains(("tags",), "a")), ["b"]),
        (StringStartsWith(("tags",), ""), ["a", "b"]),
        (IsNull(("tags",)), [None]),
        (Not(IsNull(("tags",))), ["a", "b"]),
        (Not(IsNotNull(("tags",))), [None]),
    ],
)
def test_null_is_neither_true_nor_false(asked: Any, passing: list[str | None]) -> None:
    batch = _batch([{"tags": tag} for tag in ("a", "b", None)])
    condition = condition_of(asked, COLUMNS)
    assert condition is not None
    assert Filters((condition,)).passing(batch).column("tags").to_pylist() == passing


@pytest.mark.parametrize(
    "asked",
    [
        EqualTo(("properties", "a"), "x"),
        EqualTo(("keys",), ["a"]),
        EqualTo(("other",), 1),
        EqualTo(("queue_id",), True),
        EqualTo(("queue_id",), 2**31),
        EqualTo(("queue_id",), 1.0),
        EqualTo(("topic",), 1),
        EqualTo(("store_timestamp",), TIME.replace(tzinfo=None)),
        In(("tags",), []),  # type: ignore[arg-type]
        StringStartsWith(("body",), "x"),
    ],
)
def test_what_arrow_does_not_say_exactly_is_left_to_spark(asked: Any) -> None:
    assert condition_of(asked, COLUMNS) is None


def test_times_are_points_in_time_whatever_the_zone() -> None:
    for zone in ("Europe/Berlin", "UTC", "America/Lima"):
        asked = LessThan(("store_timestamp",), TIME.astimezone(ZoneInfo(zone)))
        micros = int((TIME - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
        assert condition_of(asked, COLUMNS) == Condition("less", "store_timestamp", (micros,))
    twice = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    [value] = condition_of(EqualTo(("born_timestamp",), twice), COLUMNS).values  # type: ignore[union-attr]
    assert value == datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp() * 1e6
