"""The parts on their own: their arguments, and the errors that name them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import rmqstore

BIG = 1 << 63


def test_an_index_file_takes_points_in_time(tmp_path: Path) -> None:
    options: dict[str, Any] = {"hash_slot_num": 10, "index_num": 40, "mode": "a"}
    when = datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)
    with rmqstore.IndexFile(tmp_path / "20260131080000000", **options) as index:
        assert index.put_key("T#k", 1, when)
        assert index.put_key("T#k", 2, "2026-01-31T08:00:05Z")
        assert index.put_key("T#k", 3, int(when.timestamp() * 1000) + 9000)
        assert index.begin_timestamp == when.timestamp() * 1000
        assert index.select_phy_offset("T#k") == [3, 2, 1]
        assert index.select_phy_offset("T#k", begin="2026-01-31T08:00:05Z") == [3, 2]
        assert index.select_phy_offset("T#k", end=when) == [1]
        with pytest.raises(ValueError, match="begin must be a time with its zone"):
            index.select_phy_offset("T#k", begin=datetime.datetime(2026, 1, 31))


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((b"k", 0, 0), TypeError, "key"),
        (("k", "0", 0), TypeError, "physical_offset"),
        (("k", BIG, 0), ValueError, "physical_offset"),
        (("k", 0, None), TypeError, "store_timestamp"),
        (("k", 0, BIG), ValueError, "store_timestamp"),
    ],
)
def test_put_key_names_what_is_wrong(
    tmp_path: Path, arguments: Any, error: Any, named: str
) -> None:
    path = tmp_path / "20260131080000000"
    with rmqstore.IndexFile(path, hash_slot_num=10, index_num=40, mode="a") as index:
        with pytest.raises(error, match=f"^{named} must be"):
            index.put_key(*arguments)
        assert index.index_count == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((["k"], None, 0), "physical_offsets"), (("k", 0, None), "store_timestamps")],
)
def test_put_keys_without_numbers(tmp_path: Path, arguments: Any, named: str) -> None:
    path = tmp_path / "20260131080000000"
    with rmqstore.IndexFile(path, hash_slot_num=10, index_num=40, mode="a") as index:
        with pytest.raises(TypeError, match=f"^{named} must be an int"):
            index.put_keys(*arguments)
        assert index.index_count == 1


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((None, 1, 0, 0), TypeError, "physical_offset"),
        ((0, 1.0, 0, 0), TypeError, "size"),
        ((0, BIG, 0, 0), ValueError, "size"),
        ((0, 1, BIG, 0), ValueError, "tags_code"),
        ((0, 1, 0, -BIG - 1), ValueError, "queue_offset"),
        ((0, 1, 0, True), TypeError, "queue_offset"),
    ],
)
def test_put_unit_names_what_is_wrong(
    tmp_path: Path, arguments: Any, error: Any, named: str
) -> None:
    with rmqstore.ConsumeQueue(tmp_path / "0", file_size=200, mode="a") as queue:
        with pytest.raises(error, match=f"^{named} must be"):
            queue.put_unit(*arguments)
        assert queue.max_offset == 0


def test_append_takes_bytes_like_records_alone(tmp_path: Path) -> None:
    record = rmqstore.encode_record("T", b"x")
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=4096, mode="a") as log:
        for wrong in ("x", 10**12, None):  # bytes(10**12) would be a terabyte
            with pytest.raises(TypeError, match=r"^records must be an iterable of"):
                log.append([wrong])  # type: ignore[list-item]
        assert log.append([record, bytearray(record), memoryview(record)]) == [0, 93, 186]
