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


def test_times_spare_reading(tmp_path: Any) -> None:
    """Files and units that are hours away are not looked at; what is asked for is all there."""
    hour, first = 3_600_000, 1_700_000_000_000
    end = 0
    log = rmqstore.CommitLog(tmp_path / "commitlog", file_size=1 << 16, mode="a")
    times = [first + n // 100 * hour for n in range(10_000)]  # 100 an hour
    for n, time in enumerate(times):
        record = rmqstore.encode_record(
            "t", b"x" * 100, queue_offset=n, store_timestamp=time, properties={"n": str(n)}
        )
        (end,) = log.append([record])
    log.close()
    config = rmqstore.StoreConfig.small().replace(mapped_file_size_commit_log=1 << 16)
    with rmqstore.open(tmp_path, "r+", config=config) as store:
        assert store.scan().count() == 10_000
        for asked in ({}, {"topic": "t"}, {"topic": "t", "queue_id": 0}):
            for since, until in [(0, 5), (50, 52), (97, 200), (0, 100), (30, None), (None, 1)]:
                before = store.stats()["scanned_records"]
                scan = store.scan(
                    **asked,
                    since=None if since is None else first + since * hour,
                    until=None if until is None else first + until * hour,
                )
                low = 0 if since is None else since * hour
                high = 1 << 60 if until is None else until * hour
                wanted = [n for n, time in enumerate(times) if low <= time - first < high]
                assert [int(message.properties["n"]) for message in scan] == wanted
                looked_at = store.stats()["scanned_records"] - before
                assert looked_at <= len(wanted) + 2000, (asked, since, until)
        assert store.at(end).queue_offset == 9_999


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
