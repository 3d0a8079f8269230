"""Columns of a store in Spark, and batches in exactly those types.

Spark accepts a batch only with the order, names, types and nullability of the planned schema.

Source: pyspark, ``sql/pandas/types.py`` to_arrow_schema; the columns are those of
:class:`rmqstore.columns.scan.Scan`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from rmqstore.columns import scan
from rmqstore.spark.common.columns import COLUMNS, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_schema", "as_planned", "columns_of", "spark_schema"]


def spark_schema(columns: Iterable[str] = scan.COLUMNS) -> StructType:
    """Return the Spark type of rows with these columns, including ``raw_body``; all nullable.

    Raises ``SchemaError`` if a name is unknown, or repeated.
    """
    fields: list[StructField] = []
    for name in columns:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise SchemaError(f"a store has no column {name!r}{hint}")
        if any(field.name == name for field in fields):
            raise SchemaError(f"column {name!r} appears twice")
        fields.append(StructField(name, COLUMNS[name].read_as))
    return StructType(fields)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a schema, in order.

    Raises ``SchemaError`` if one is unknown, repeated, of another type, or not nullable.
    """
    ours = spark_schema(field.name for field in schema.fields)
    for asked, known in zip(schema.fields, ours.fields, strict=True):
        if asked.dataType != known.dataType:
            raise SchemaError(
                f"column {asked.name!r} of the schema must be {known.dataType.simpleString()}, "
                f"not {asked.dataType.simpleString()}"
            )
        if not asked.nullable:
            raise SchemaError(f"column {asked.name!r} of the schema must be nullable, not NOT NULL")
    return tuple(ours.names)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types that Spark expects of a source's batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def as_planned(batch: pa.RecordBatch, planned: pa.Schema) -> pa.RecordBatch:
    """Return a scan's batch in exactly the types and order that Spark planned with.

    Times are converted from ms to us; nothing else is copied. Raises ``pyarrow.ArrowInvalid`` if a
    time exceeds the 292,000 years of 64 bits of us.
    """
    import pyarrow as pa

    columns: list[Any] = []
    for field in planned:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=planned)
