"""Empty values whose exporter has no memory for them: no address is read, copied or kept."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import _core
from support.arrow_structs import POINTER, Producer

ROWS = [0, 1, 2, 513]
NULL = pa.foreign_buffer(0, 0)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as opened:
        opened.create_topic("t", 1)
        yield opened


def empty(code: bytes, rows: int) -> Producer:
    """An array of empty values without a buffer of data: PyArrow refuses to make one."""
    made = Producer(code)
    made.array.length = rows
    made.data = ctypes.create_string_buffer(16 * (rows + 1))
    places = ctypes.addressof(made.data) if rows and code[:1] != b"w" else None
    made.buffers = (POINTER * 3)(None, places, None)
    made.array.buffers = ctypes.addressof(made.buffers)
    return made


def bodies(store: Any) -> list[bytes]:
    return [message.body for message in store.scan("t")]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("code", [b"z", b"Z", b"u", b"U", b"vz", b"w:0"])
def test_bodies_without_data(store: Any, code: bytes, rows: int) -> None:
    assert store.put_many("t", empty(code, rows)).count == rows
    if rows:
        assert store.put_batch("t", empty(code, rows), uniq_key=False).queue_offset == rows
    assert bodies(store) == [b""] * rows * 2


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("column", ["tags", "keys", "uniq_key", "queue_key"])
def test_texts_without_data(store: Any, column: str, rows: int) -> None:
    assert store.put_many("t", [b""] * rows, **{column: empty(b"u", rows)}).count == rows
    found = list(store.scan("t"))
    assert len(found) == rows
    assert column == "queue_key" or not any(getattr(message, column) for message in found)


def test_buffers_at_no_address(store: Any) -> None:
    assert store.put("t", NULL).queue_offset == 0
    assert store.put_many("t", [NULL, b"", NULL]).count == 3
    assert store.put_batch("t", [NULL, NULL], uniq_key=False).queue_offset == 4
    assert bodies(store) == [b""] * 6
    assert rmqstore.encode_record("t", NULL) == rmqstore.encode_record("t", b"")
    assert rmqstore.crc32(NULL) == 0


@pytest.mark.needs_debug_build
def test_no_accepted_row_is_at_no_address() -> None:
    assert _core._fuzz("arrow", [b"abc", b"x" * 40], 3, 0, 100_000) > 0
