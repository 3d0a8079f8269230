"""Columns of a DataFrame that becomes messages, checked before any task starts.

They are the columns of :meth:`MessageStore.put_table`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pyspark.sql import functions
from pyspark.sql.types import TimestampNTZType

from rmqstore.spark.common.columns import COLUMNS, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["store_columns"]

_WRITABLE = [name for name, column in COLUMNS.items() if column.writable]


def store_columns(df: DataFrame, topic: str | None) -> DataFrame:
    """Return the DataFrame with only a message's columns; ``topic``, if given, is for all rows.

    Raises ``SchemaError`` if a column is unknown, repeated, of another type, or missing,
    ``MessageIllegalError`` or ``TypeError`` for an invalid ``topic``.
    """
    if topic is not None:
        _check_topic(topic)
    chosen = []
    names = [field.name for field in df.schema.fields]
    for field in df.schema.fields:
        name = field.name
        if names.count(name) > 1:
            raise SchemaError(f"column {name!r} appears twice")
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, _WRITABLE, 1)
            hint = f"; nearest is {near[0]!r}" if near else ""
            raise SchemaError(f"a message has no column {name!r}{hint}")
        known = COLUMNS[name]
        if not known.writable:
            continue
        if not known.is_writable_as(field.dataType):
            raise SchemaError(
                f"column {name!r} must be {known.writable_text}, "
                f"not {field.dataType.simpleString()}"
            )
        column = functions.col(f"`{name}`")
        if name == "body":
            column = column.cast("binary")
        if isinstance(field.dataType, TimestampNTZType):
            column = column.cast("timestamp")  # by the session's zone
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


def _check_topic(topic: str) -> None:
    from rmqstore.base.arguments import shown, wrong_type
    from rmqstore.errors import MessageIllegalError
    from rmqstore.files import paths
    from rmqstore.types import PutStatus

    if not isinstance(topic, str):
        raise wrong_type("topic", "str", topic)
    if not paths.is_topic_name(topic):
        raise MessageIllegalError(
            f"topic must be 1 to 127 of [%|a-zA-Z0-9_-], got {shown(topic)}",
            status=PutStatus.MESSAGE_ILLEGAL,
        )
