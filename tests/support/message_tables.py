"""The table of messages with the columns of API.md, section 6, made row by row.

Slow and plain: the oracle of ``scan``, and what ``put_table`` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("ms", tz="UTC")

# Name, type, and the value of a message; columns of every message are not nullable.
_COLUMNS: dict[str, tuple[Any, bool, Callable[[Any], object]]] = {
    "topic": (pa.string(), False, lambda message: message.topic),
    "queue_id": (pa.int32(), False, lambda message: message.queue_id),
    "queue_offset": (pa.int64(), False, lambda message: message.queue_offset),
    "physical_offset": (pa.int64(), False, lambda message: message.physical_offset),
    "store_size": (pa.int32(), False, lambda message: message.store_size),
    "msg_id": (pa.string(), False, lambda message: message.msg_id),
    "uniq_key": (pa.string(), True, lambda message: message.uniq_key),
    "tags": (pa.string(), True, lambda message: message.tags),
    "keys": (pa.list_(pa.string()), False, lambda message: list(message.keys)),
    "properties": (
        pa.map_(pa.string(), pa.string()),
        False,
        lambda message: list(message.properties.items()),
    ),
    "body": (pa.binary(), False, lambda message: message.body),
    "flag": (pa.int32(), False, lambda message: message.flag),
    "sys_flag": (pa.int32(), False, lambda message: message.sys_flag),
    "born_timestamp": (TIMESTAMP, False, lambda message: message.born_timestamp),
    "store_timestamp": (TIMESTAMP, False, lambda message: message.store_timestamp),
    "born_host": (pa.string(), False, lambda message: message.born_host),
    "store_host": (pa.string(), False, lambda message: message.store_host),
    "reconsume_times": (pa.int32(), False, lambda message: message.reconsume_times),
    "prepared_transaction_offset": (
        pa.int64(),
        False,
        lambda message: message.prepared_transaction_offset,
    ),
    "body_crc": (pa.int64(), False, lambda message: message.body_crc),
    "raw_body": (pa.binary(), False, lambda message: bytes(message.raw_body)),
}

ON_DEMAND = ("raw_body",)
COLUMNS = tuple(name for name in _COLUMNS if name not in ON_DEMAND)


def schema_of(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Schema of ``table_of``; ``nullable`` selects columns that may have nulls."""
    return pa.schema(
        [pa.field(name, _COLUMNS[name][0], nullable=_COLUMNS[name][1]) for name in columns]
    )


def table_of(messages: Iterable[Any], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """One row a message, in their order; ``raw_body`` only where it is named."""
    rows = list(messages)
    schema = schema_of(columns)
    arrays = [pa.array(list(map(_COLUMNS[field.name][2], rows)), field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
