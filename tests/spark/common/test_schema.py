"""Our columns as Spark types, and batches in those types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import rmqstore
from rmqstore.columns.scan import COLUMNS
from rmqstore.spark.common.columns import SchemaError
from rmqstore.spark.common.schema import (
    arrow_schema,
    as_planned,
    columns_of,
    spark_schema,
)

pytestmark = pytest.mark.spark


def test_all_columns_of_a_scan_have_a_spark_type() -> None:
    assert tuple(spark_schema().names) == COLUMNS
    assert columns_of(spark_schema([*COLUMNS, "raw_body"])) == (*COLUMNS, "raw_body")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([StructField("topics", StringType())], "a store has no column 'topics'; nearest is 'to"),
        ([StructField("queue_id", LongType())], "'queue_id' of the schema must be int, not bigint"),
        ([StructField("topic", StringType(), False)], "'topic' of the schema must be nullable"),
        ([StructField("topic", StringType())] * 2, "'topic' appears twice"),
    ],
)
def test_a_schema_that_is_not_ours(fields: list[StructField], text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        columns_of(StructType(fields))


def test_batches_have_the_planned_types(store: rmqstore.MessageStore) -> None:
    store.put("orders", b"body", tags="paid", keys=["a", "b"], properties={"p": "q"})
    store.put("orders", b"")
    planned = arrow_schema(spark_schema([*COLUMNS, "raw_body"]))
    for chosen in (planned, pa.schema(list(planned)[::-3])):
        [batch] = store.scan(columns=[*COLUMNS, "raw_body"]).to_batches()
        cast = as_planned(batch, chosen)
        assert cast.schema.equals(chosen)
        assert cast.to_pylist() == batch.select(chosen.names).to_pylist()
    [batch] = store.scan(columns=["topic"]).to_batches()
    assert as_planned(batch, pa.schema([])).num_rows == 2
