"""The columns of a DataFrame that becomes messages, checked before any task starts.

Source: none; the columns are those of :meth:`MessageStore.put_table`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pyspark.sql import functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from rmqstore.spark.schema import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["store_columns"]

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_BYTES = (BinaryType, StringType)
_TAKEN: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "queue_id": _INTEGERS,
    "uniq_key": (StringType,),
    "tags": (StringType,),
    "keys": (ArrayType, StringType),
    "properties": (MapType,),
    "body": _BYTES,
    "raw_body": (BinaryType,),
    "flag": _INTEGERS,
    "sys_flag": _INTEGERS,
    "born_timestamp": (TimestampType, TimestampNTZType, LongType),
    "born_host": (StringType,),
    "reconsume_times": _INTEGERS,
    "prepared_transaction_offset": _INTEGERS,
}
_DECIDED = (
    "queue_offset",
    "physical_offset",
    "store_size",
    "msg_id",
    "store_timestamp",
    "store_host",
    "body_crc",
)


def store_columns(df: DataFrame, topic: str | None) -> DataFrame:
    """Return the DataFrame with the columns that a message takes, and no other one.

    Parameters
    ----------
    df : DataFrame
    topic : str, optional
        Topic of all rows, in place of the column.

    Returns
    -------
    DataFrame

    Raises
    ------
    SchemaError
        A column is not a message's, there twice, of another type, or missing.
    MessageIllegalError, TypeError
        ``topic`` is no name of a topic.

    Notes
    -----
    Source: none.
    """
    if topic is not None:
        _check_topic(topic)
    chosen = []
    names = [field.name for field in df.schema.fields]
    for field in df.schema.fields:
        name = field.name
        if names.count(name) > 1:
            raise SchemaError(f"column {name!r} is there twice")
        if name in _DECIDED:
            continue
        if name not in _TAKEN:
            near = difflib.get_close_matches(name, _TAKEN, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise SchemaError(f"column {name!r} is none of a message{hint}")
        if not _is_taken(field.dataType, _TAKEN[name]):
            allowed = " or ".join(kind.typeName() for kind in _TAKEN[name])
            raise SchemaError(
                f"column {name!r} is {field.dataType.simpleString()}; it may be {allowed}"
            )
        column = functions.col(f"`{name}`")
        if name == "body":
            column = column.cast("binary")
        if name == "topic" and topic is not None:
            column = functions.lit(topic)
        chosen.append(column.alias(name))
    if "body" not in names and "raw_body" not in names:
        raise SchemaError("column 'body' is missing")
    if "topic" not in names:
        if topic is None:
            raise SchemaError("column 'topic' is missing, and no topic is given for all rows")
        chosen.append(functions.lit(topic).alias("topic"))
    return df.select(*chosen)


def _is_taken(found: DataType, allowed: tuple[type[DataType], ...]) -> bool:
    if isinstance(found, ArrayType):
        return ArrayType in allowed and isinstance(found.elementType, StringType)
    if isinstance(found, MapType):
        texts = isinstance(found.keyType, StringType) and isinstance(found.valueType, StringType)
        return MapType in allowed and texts
    return isinstance(found, allowed)


def _check_topic(topic: str) -> None:
    from rmqstore import paths
    from rmqstore.errors import MessageIllegalError
    from rmqstore.types import PutStatus

    if not isinstance(topic, str):
        raise TypeError(f"argument 'topic' is {topic!r}; it may be a str")
    if not paths.is_topic_name(topic):
        raise MessageIllegalError(
            f"argument 'topic' is {topic!r}; it may be 1 to 127 of [%|a-zA-Z0-9_-]",
            status=PutStatus.MESSAGE_ILLEGAL,
        )
