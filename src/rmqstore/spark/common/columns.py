"""Message columns in Spark: their types, and the types accepted for them in a DataFrame.

Reading returns all of them.  Writing takes the columns of :meth:`MessageStore.put_table`; the store
sets the others, such as offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

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

__all__ = ["COLUMNS", "SINK_COLUMNS", "MessageColumn", "SchemaError"]

_TEXT, _INT, _LONG, _TIME, _BYTES = (
    StringType(),
    IntegerType(),
    LongType(),
    TimestampType(),
    BinaryType(),
)
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


class SchemaError(ValueError):
    """A column is unknown, or has a wrong type; the message names it."""


@dataclass(frozen=True)
class MessageColumn:
    """Column of a message."""

    read_as: DataType
    # types that may be written; empty if the store sets the value
    writable: tuple[type[DataType], ...] = ()
    writable_text: str = ""  # the same, for an error

    def is_writable_as(self, found: DataType) -> bool:
        """Whether a column of a DataFrame may have this type."""
        if not isinstance(found, self.writable):
            return False
        if isinstance(found, ArrayType):
            return isinstance(found.elementType, StringType)
        if isinstance(found, MapType):
            return isinstance(found.keyType, StringType) and isinstance(found.valueType, StringType)
        return True


def _text() -> MessageColumn:
    return MessageColumn(_TEXT, (StringType,), "string")


def _integer(kind: DataType = _INT) -> MessageColumn:
    return MessageColumn(kind, _INTEGERS, kind.simpleString())


COLUMNS: dict[str, MessageColumn] = {
    "topic": _text(),
    "queue_id": _integer(),
    "queue_offset": MessageColumn(_LONG),
    "physical_offset": MessageColumn(_LONG),
    "store_size": MessageColumn(_INT),
    "msg_id": MessageColumn(_TEXT),
    "uniq_key": _text(),
    "tags": _text(),
    "keys": MessageColumn(
        ArrayType(_TEXT),
        (ArrayType, StringType),
        "array<string>, or string with spaces between the keys",
    ),
    "properties": MessageColumn(MapType(_TEXT, _TEXT), (MapType,), "map<string,string>"),
    "body": MessageColumn(_BYTES, (BinaryType, StringType), "binary or string"),
    "flag": _integer(),
    "sys_flag": _integer(),
    "born_timestamp": MessageColumn(
        _TIME,
        (TimestampType, TimestampNTZType, LongType),
        "timestamp, or bigint of milliseconds",
    ),
    "store_timestamp": MessageColumn(_TIME),
    "born_host": _text(),
    "store_host": MessageColumn(_TEXT),
    "reconsume_times": _integer(),
    "prepared_transaction_offset": _integer(_LONG),
    "body_crc": MessageColumn(_LONG),
    "raw_body": MessageColumn(_BYTES, (BinaryType,), "binary"),
}
"""By name; ``raw_body``, the body as stored, is read only if requested."""

SINK_COLUMNS = (
    "topic",
    "body",
    "tags",
    "keys",
    "queue_id",
    "properties",
    "flag",
    "born_timestamp",
)
"""Columns of ``df.write``, in the order in which they are staged."""
