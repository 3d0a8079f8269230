"""Scans of the stores that a real broker left: every column as the message itself has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rmqstore

pa = pytest.importorskip("pyarrow")

STORES = ["quickstart", "broker-clean", "broker-killed"]


def as_row(message: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    """A message as a scan has it."""
    row = {name: getattr(message, name) for name in columns}
    row["keys"] = list(row["keys"])
    row["properties"] = list(row["properties"].items())
    return row


@pytest.mark.parametrize("name", STORES)
def test_every_column_of_a_brokers_store(name: str, broker_store: Callable) -> None:
    with rmqstore.open(broker_store(name).root) as store:
        scan = store.scan()
        table = scan.to_table()
        table.validate(full=True)
        assert table.schema == scan.schema
        for column in ("born_timestamp", "store_timestamp"):
            at = table.schema.get_field_index(column)
            table = table.set_column(at, column, table[column].cast(pa.int64()))
        rows = table.to_pylist()
        messages = list(scan)
        assert rows == [as_row(message, scan.columns) for message in messages]
        places = {(m.topic, m.queue_id, m.queue_offset) for m in messages}
        assert {(row.topic, row.queue_id, row.queue_offset) for row in broker_store(name).dump} <= (
            places
        )
        assert scan.count() == len(rows) == pa.table(scan).num_rows
        for topic in store:
            assert list(store.scan(topic)) == list(store[topic].messages())


STORED_ANEW = ("queue_offset", "physical_offset", "store_size", "msg_id", "store_timestamp")


@pytest.mark.parametrize("more", [(), ("raw_body",)], ids=["inflated", "as-stored"])
def test_a_scan_is_put_into_another_store(
    more: tuple[str, ...], broker_store: Callable, tmp_path: Any
) -> None:
    with (
        rmqstore.open(broker_store("broker-clean").root) as source,
        rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as target,
    ):
        columns = (*source.scan().columns, *more)
        scan = source.scan(columns=columns)
        assert target.put_table(scan).count == scan.count()
        same = [name for name in columns if name not in (*STORED_ANEW, "store_host")]
        if not more:  # an inflated body is stored as it is
            same = [name for name in same if name not in ("sys_flag", "body_crc")]
        assert target.scan(columns=same).to_table() == source.scan(columns=same).to_table()
