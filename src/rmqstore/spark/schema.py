"""The columns of a store as Spark has them, and batches in exactly those types.

Spark takes a batch only if order, names, types and nullability are those of the schema that it
planned with.

Source: pyspark, ``sql/pandas/types.py`` to_arrow_schema; the columns are those of
:class:`rmqstore.scan.Scan`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqstore.scan import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SchemaError", "arrow_schema", "as_planned", "columns_of", "spark_schema"]

_TEXT, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()

_TYPES: dict[str, DataType] = {
    "topic": _TEXT,
    "queue_id": _INT,
    "queue_offset": _LONG,
    "physical_offset": _LONG,
    "store_size": _INT,
    "msg_id": _TEXT,
    "uniq_key": _TEXT,
    "tags": _TEXT,
    "keys": ArrayType(_TEXT),
    "properties": MapType(_TEXT, _TEXT),
    "body": BinaryType(),
    "flag": _INT,
    "sys_flag": _INT,
    "born_timestamp": _TIME,
    "store_timestamp": _TIME,
    "born_host": _TEXT,
    "store_host": _TEXT,
    "reconsume_times": _INT,
    "prepared_transaction_offset": _LONG,
    "body_crc": _LONG,
    "raw_body": BinaryType(),
}


class SchemaError(ValueError):
    """A schema has a column that is not ours, or of another type; the message names it."""


def spark_schema(columns: Iterable[str] = COLUMNS) -> StructType:
    """Return the Spark type of rows with these columns.

    Parameters
    ----------
    columns : iterable of str
        Names as in :meth:`MessageStore.scan`; ``raw_body`` too.

    Returns
    -------
    StructType
        All of them nullable.

    Raises
    ------
    SchemaError
        A name is none of ours, or there twice.

    Notes
    -----
    Source: none.
    """
    fields: list[StructField] = []
    for name in columns:
        if name not in _TYPES:
            near = difflib.get_close_matches(name, _TYPES, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise SchemaError(f"{name!r} is no column of a store{hint}")
        if any(field.name == name for field in fields):
            raise SchemaError(f"column {name!r} is there twice")
        fields.append(StructField(name, _TYPES[name]))
    return StructType(fields)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a schema asks for, in its order.

    Parameters
    ----------
    schema : StructType
        What ``spark.read.schema(...)`` was given, or ours.

    Returns
    -------
    tuple of str

    Raises
    ------
    SchemaError
        A column is not ours, there twice, of another type, or said to be never null.

    Notes
    -----
    Source: none.
    """
    ours = spark_schema(field.name for field in schema.fields)
    for asked, known in zip(schema.fields, ours.fields, strict=True):
        if asked.dataType != known.dataType:
            raise SchemaError(
                f"column {asked.name!r} is {asked.dataType.simpleString()} in the schema; "
                f"it is {known.dataType.simpleString()}"
            )
        if not asked.nullable:
            raise SchemaError(f"column {asked.name!r} is NOT NULL in the schema; it may be null")
    return tuple(ours.names)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types that Spark expects of a source's batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def as_planned(batch: pa.RecordBatch, planned: pa.Schema) -> pa.RecordBatch:
    """Return a scan's batch in exactly the types that Spark planned with.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        With the planned columns, in any order, and others.
    planned : pyarrow.Schema
        From :func:`arrow_schema`.

    Returns
    -------
    pyarrow.RecordBatch
        Times, which the store has in ms, are in us; nothing else is copied.

    Raises
    ------
    pyarrow.ArrowInvalid
        A time is beyond the 292,000 years of 64 bits of us.

    Notes
    -----
    Source: none.
    """
    import pyarrow as pa

    columns: list[Any] = []
    for field in planned:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=planned)
