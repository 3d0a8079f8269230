"""Appending to the log: where a record comes to lie, and what ends a file."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from support.oracle import Record, encode_record
from support.oracle_store import Filler, walk_entries

FILE_SIZE = 2048
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
)
BLANK = 8  # bytes that a record leaves behind itself, for the blank
EMPTY = len(encode_record("t", b""))  # bytes of a record without body


def entries(root: Path) -> list[Record | Filler]:
    return list(walk_entries(root / "commitlog"))


def put(store: rmqstore.MessageStore, size: int) -> int:
    """Put a record of so many bytes; return where it begins."""
    return store.put("t", bytes(size - EMPTY), queue_id=0, uniq_key=False).physical_offset


@pytest.mark.parametrize("short", range(-2, 3))
def test_the_last_record_of_a_file_leaves_room_for_the_blank(tmp_path: Path, short: int) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        assert put(store, 500) == 0
        last = put(store, FILE_SIZE - 500 - BLANK - short)
        assert last == (500 if short >= 0 else FILE_SIZE)
        assert put(store, 200) == FILE_SIZE + (0 if short >= 0 else FILE_SIZE - 500 - BLANK - short)
    blanks = [entry for entry in entries(root) if isinstance(entry, Filler)]
    stop = FILE_SIZE - BLANK - short if short >= 0 else 500
    assert [(one.physical_offset, one.store_size) for one in blanks] == [(stop, FILE_SIZE - stop)]


def test_what_no_file_could_hold_is_refused_and_takes_no_room(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        assert put(store, 300) == 0
        with pytest.raises(rmqstore.PutError):
            put(store, FILE_SIZE - BLANK + 1)
        assert put(store, 300) == 300
        assert put(store, FILE_SIZE - BLANK) == FILE_SIZE


def test_an_opening_goes_on_behind_the_last_record(tmp_path: Path) -> None:
    root = tmp_path / "store"
    offsets = []
    for number in range(6):
        with rmqstore.open(root, "a" if number == 0 else "r+", config=CONFIG) as store:
            offsets += [put(store, 700) for _ in range(2)]
            assert store.stats()["wrote_position"] == offsets[-1] + 700
    records = [entry for entry in entries(root) if isinstance(entry, Record)]
    assert [record.physical_offset for record in records] == offsets
    assert [record.queue_offset for record in records] == list(range(12))
    assert offsets == [n // 2 * FILE_SIZE + n % 2 * 700 for n in range(12)]


def test_many_rows_are_laid_out_as_one_by_one(tmp_path: Path) -> None:
    bodies = [bytes(size * 37 % 900) for size in range(60)]
    laid_out = []
    for name in ("one by one", "many"):
        root = tmp_path / name
        with rmqstore.open(root, "a", config=CONFIG) as store:
            if name == "many":
                store.put_many("t", bodies, queue_id=0, uniq_key=False)
            else:
                for body in bodies:
                    store.put("t", body, queue_id=0, uniq_key=False)
        laid_out.append([(one.physical_offset, one.store_size) for one in entries(root)])
    assert laid_out[0] == laid_out[1]
