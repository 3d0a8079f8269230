"""Batches of rows through a function on the executors that returns any number of rows.

``DataFrame.mapInArrow`` does that, but pyspark requires pandas for it. Without pandas an Arrow UDF
does: it must return a value for each row, so its results are lists that are taken apart, and Spark
keeps the input rows until then. With large rows that costs a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchFunction", "arrow_schema", "batched", "mapped", "numbered"]

_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 4096
_LISTS = 512  # per number; the last one has the rest of its results

BatchFunction = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch | None"]]


def mapped(frame: DataFrame, work: BatchFunction, schema: str) -> DataFrame:
    """Apply ``work`` to each non-empty partition's batches; return its rows of ``schema``.

    ``frame`` has one column or more. Spark keeps a batch's rows until ``work`` yields, None if
    there are no results for long.
    """
    if _has_pandas():

        def every(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return (found for found in work(batches) if found is not None)

        return frame.mapInArrow(every, schema)
    return _by_lists(frame, work, schema)


def _by_lists(frame: DataFrame, work: BatchFunction, schema: str) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stub is behind

    names = frame.columns

    def each(columns):  # type: ignore[no-untyped-def]  # Spark wants types that are there
        return _lists(work, columns, names, schema)

    each.__annotations__ = {
        "columns": Iterator[tuple[pa.Array, ...]],
        "return": Iterator[pa.Array],
    }
    found = arrow_udf(each, f"array<struct<{_fields(schema)}>>")
    columns = (F.col(f"`{name}`") for name in names)
    return frame.select(found.asNondeterministic()(*columns).alias("found")).select(
        F.inline("found")
    )


def numbered(
    spark: SparkSession,
    count: int,
    work: Callable[[int], Iterator[pa.RecordBatch]],
    schema: str,
    tasks: int | None = None,
) -> DataFrame:
    """Return the rows that a function yields for each number below ``count``.

    ``tasks`` Spark tasks share the numbers; by default as many as run at a time.
    """
    rows = 1 if _has_pandas() else _LISTS

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                if row % rows == 0:
                    yield from work(row // rows)

    return mapped(spark.range(0, count * rows, 1, tasks), each, schema)


def _has_pandas() -> bool:
    return find_spec("pandas") is not None


def batched(rows: Iterable[tuple[Any, ...]], schema: str) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches: of some thousands, or fewer with some MiB of binary."""
    import pyarrow as pa

    known = arrow_schema(schema)
    some: list[tuple[Any, ...]] = []
    size = 0

    def batch() -> pa.RecordBatch:
        columns = zip(zip(*some, strict=True), known.types, strict=True)
        return pa.RecordBatch.from_arrays([pa.array(*one) for one in columns], schema=known)

    for row in rows:
        some.append(row)
        size += sum(len(value) for value in row if isinstance(value, (bytes, memoryview)))
        if size >= _BATCH_BYTES or len(some) >= _BATCH_ROWS:
            yield batch()
            some, size = [], 0
    if some:
        yield batch()


def arrow_schema(schema: str) -> pa.Schema:
    """Return the Arrow schema of names and types in Spark's notation."""
    import pyarrow as pa

    types = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    columns = (column.split() for column in schema.split(","))
    return pa.schema([(name, types[kind]) for name, kind in columns])


def _fields(schema: str) -> str:
    return ", ".join(": ".join(column.split()) for column in schema.split(","))


def _lists(
    work: BatchFunction, columns: Iterable[Any], names: list[str], schema: str
) -> Iterator[pa.Array]:
    """Yield a list for each input row: results of ``work``, and None for the other rows."""
    import pyarrow as pa

    kind = pa.list_(pa.struct(list(arrow_schema(schema))))
    owed = 0  # input rows without their lists yet

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal owed
        for arrays in columns:
            some = arrays if isinstance(arrays, tuple) else (arrays,)
            owed += len(some[0])
            yield pa.RecordBatch.from_arrays(list(some), names)

    def one_list(found: list[pa.RecordBatch]) -> pa.Array:
        rows = pa.Table.from_batches(found, arrow_schema(schema)).to_struct_array()
        values = pa.concat_arrays(rows.chunks) if rows.num_chunks else pa.array([], kind.value_type)
        return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=kind)

    rest: list[pa.RecordBatch] = []
    incoming = batches()
    for found in work(incoming):
        # One row is kept back for results at the end.
        if found is None and owed > 1:
            yield pa.nulls(owed - 1, kind)
            owed = 1
        elif found is not None and owed > 1:
            yield one_list([found])
            owed -= 1
        elif found is not None:
            rest.append(found)
    for _ in incoming:
        pass
    if owed:
        yield pa.nulls(owed - 1, kind)
        yield one_list(rest)
