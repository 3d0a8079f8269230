"""What a record may take is taken to the byte, whatever the store adds to its properties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import MessageIllegalError

PROPERTIES_MOST = 32767

PUTS = [
    {},
    {"uniq_key": False},
    {"tags": "T", "keys": ["a", "b"]},
    {"delay_level": 1, "uniq_key": False},
    {"delay_level": 18, "queue_id": 123456, "tags": "TagA"},
    {"delay_level": 3, "keys": "k", "uniq_key": "given"},
]


def stored_length(store: rmqstore.MessageStore, physical_offset: int) -> int:
    """Bytes of the properties string, from the record itself, which lies in the first file."""
    with Path(store.path, "commitlog", "0" * 20).open("rb") as file:
        file.seek(physical_offset)
        record = file.read(int.from_bytes(file.read(4), "big") - 4)
    at = 80  # behind TOTALSIZE, with hosts of IPv4
    at += 4 + int.from_bytes(record[at : at + 4], "big")
    at += 1 + record[at]
    length = int.from_bytes(record[at : at + 2], "big", signed=True)
    assert length == len(record) - at - 2
    return length


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("put", PUTS, ids=str)
def test_properties(tmp_path: Path, put: dict[str, Any], checksum: bool) -> None:
    config = rmqstore.StoreConfig.small(
        mapped_file_size_commit_log=1 << 20, record_checksum=checksum
    )
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        one = store.put("orders", b"b", properties={"p": "x"}, **put)
        room = PROPERTIES_MOST - stored_length(store, one.physical_offset)
        most = store.put("orders", b"b", properties={"p": "x" * (1 + room)}, **put)
        assert stored_length(store, most.physical_offset) == PROPERTIES_MOST
        with pytest.raises(MessageIllegalError, match=f"properties take {PROPERTIES_MOST + 1} "):
            store.put("orders", b"b", properties={"p": "x" * (2 + room)}, **put)
        store.flush()
        assert store.stats()["dispatch_behind_bytes"] == 0
    with rmqstore.open(tmp_path / "store", verify="full") as store:
        assert store.scan().count() == 2
        assert store.recovery.notes[-1].endswith("nothing was found")


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("put", PUTS, ids=str)
def test_the_whole_record(tmp_path: Path, put: dict[str, Any], checksum: bool) -> None:
    limit = 5000
    config = rmqstore.StoreConfig.small(max_message_size=limit, record_checksum=checksum)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        empty = store.at(store.put("orders", b"", **put).physical_offset).store_size
        most = store.put("orders", bytes(limit - empty), **put)
        assert store.at(most.physical_offset).store_size == limit
        with pytest.raises(MessageIllegalError, match=f"takes {limit + 1} bytes"):
            store.put("orders", bytes(limit - empty + 1), **put)


def test_a_batch_that_is_too_large_leaves_no_topic(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small(max_message_size=5000)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        sizes = [
            store.at(store.put("orders", bytes(1000), uniq_key=unique).physical_offset).store_size
            for unique in (True, False)
        ]
        for unique, size in zip((True, False), sizes, strict=True):
            with pytest.raises(MessageIllegalError, match=f"batch takes {5 * size} bytes"):
                store.put_batch("newone", [bytes(1000)] * 5, uniq_key=unique)
            assert list(store) == ["orders"]
            fits = [bytes(1000)] * 4
            last = 5000 - 4 * size - (size - 1000)
            assert store.put_batch("orders", [*fits, bytes(last)], uniq_key=unique).count == 5
            with pytest.raises(MessageIllegalError, match="batch takes 5001 bytes"):
                store.put_batch("newone", [*fits, bytes(last + 1)], uniq_key=unique)
