"""Rows through functions on the executors, where pandas is installed and where it is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rmqstore.spark.jobs import arrow_map

pytestmark = pytest.mark.spark

SCHEMA = "number long, text string"


def made(number: int, count: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, count, 10):
        numbers = range(at, min(at + 10, count))
        rows = [{"number": number, "text": str(one)} for one in numbers]
        yield pa.RecordBatch.from_pylist(rows, arrow_map.arrow_schema(SCHEMA))


@pytest.mark.parametrize("has_pandas", [True, False])
def test_rows_for_numbers(spark: Any, monkeypatch: pytest.MonkeyPatch, has_pandas: bool) -> None:
    monkeypatch.setattr(arrow_map, "_has_pandas", lambda: has_pandas)
    counts = [0, 1, 25, 300, 0, 6000]
    frame = arrow_map.numbered(spark, len(counts), lambda n: made(n, counts[n]), SCHEMA, 3)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert ("MapInArrow" in plan) == has_pandas
    found = [(row.number, row.text) for row in frame.collect()]
    assert found == [(n, str(one)) for n, count in enumerate(counts) for one in range(count)]


@pytest.mark.parametrize("has_pandas", [True, False])
def test_rows_of_partitions(spark: Any, monkeypatch: pytest.MonkeyPatch, has_pandas: bool) -> None:
    """A partition gives its sum; one without rows gives nothing."""
    monkeypatch.setattr(arrow_map, "_has_pandas", lambda: has_pandas)

    def summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        total = rows = 0
        for batch in batches:
            total += sum(batch.column("n").to_pylist())
            rows += batch.num_rows
            yield None
        if rows:
            row = {"number": total, "text": str(rows)}
            yield pa.RecordBatch.from_pylist([row], arrow_map.arrow_schema(SCHEMA))

    frame = spark.range(0, 25_000, 1, 3).selectExpr("id AS n", "'x' AS `a b`").where("n < 20000")
    found = [(row.number, row.text) for row in arrow_map.mapped(frame, summed, SCHEMA).collect()]
    bounds = [0, 8333, 16666, 20_000]
    expected = [range(*pair) for pair in itertools.pairwise(bounds)]
    assert found == [(sum(part), str(len(part))) for part in expected]


def test_what_is_done_with_is_let_go() -> None:
    """Nulls are given for the rows of a batch before the next one is asked for."""
    asked: list[int] = []

    def columns() -> Iterator[tuple[pa.Array, ...]]:
        for number in range(4):
            asked.append(number)
            yield (pa.array([number] * 5),)

    def last(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        for _ in batches:
            yield None
        yield from made(7, 25)

    given = 0
    lists = arrow_map._lists(last, columns(), ["n"], SCHEMA)
    for some in lists:
        given += len(some)
        if asked[-1] < 3:
            assert given == len(asked) * 5 - 1
    assert given == 20
    assert len(some[-1].as_py()) == 25


def test_lists_flow_out_where_there_are_rows_for_them() -> None:
    def two_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number % 3 == 0:
                    yield from made(number, 20)

    columns = iter([(pa.array(range(6)),), (pa.array(range(6, 12)),)])
    found = list(arrow_map._lists(two_each, columns, ["n"], SCHEMA))
    assert sum(len(some) for some in found) == 12
    sizes = [len(one) for some in found for one in some.to_pylist() if one is not None]
    assert [size for size in sizes if size] == [10] * 8
