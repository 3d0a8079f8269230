"""The end of a queue in a reader that knew another: it moves in the last file, and out of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,  # 10 units
    max_hash_slot_num=50,
    max_index_num=200,
)
LISTED = 0.12  # seconds after which a reader looks at files again


def append(root: Path, count: int) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for _ in range(count):
            store.put("orders", b"x" * 60, queue_id=0)


def file_of(root: Path, number: int) -> Path:
    return root / f"consumequeue/orders/0/{number * 200:020d}"


def take_back(root: Path) -> None:
    file_of(root, 2).write_bytes(file_of(root, 2).read_bytes()[:20] + bytes(180))


def take_back_all_of_the_last_file(root: Path) -> None:
    file_of(root, 2).write_bytes(bytes(200))


def take_back_into_the_file_before(root: Path) -> None:
    take_back_all_of_the_last_file(root)
    file_of(root, 1).write_bytes(file_of(root, 1).read_bytes()[:60] + bytes(140))


def remove_the_last_file(root: Path) -> None:
    file_of(root, 2).unlink()


def cut(root: Path) -> None:
    os.truncate(file_of(root, 2), 40)


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (lambda root: append(root, 1), 26),
        (lambda root: append(root, 5), 30),
        (lambda root: append(root, 6), 31),
        (lambda root: append(root, 25), 50),
        (take_back, 21),
        (take_back_all_of_the_last_file, 20),
        (take_back_into_the_file_before, 13),
        (remove_the_last_file, 20),
        (cut, 22),
    ],
)
def test_the_end_moves(tmp_path: Path, change: Callable[[Path], None], end: int) -> None:
    root = tmp_path / "store"
    append(root, 25)
    with rmqstore.open(root) as reader:
        assert reader.queue_bounds("orders", 0) == (0, 25)
        assert reader.get("orders", 0, 25).max_offset == 25
        change(root)
        time.sleep(LISTED)
        assert reader.queue_bounds("orders", 0) == (0, end)
        assert reader.get("orders", 0, end).max_offset == end
        assert len(reader.get("orders", 0, end - 1).messages) == 1


@pytest.mark.parametrize("made_before", [False, True])
@pytest.mark.parametrize("count", [1, 7, 10, 11])
def test_the_end_moves_into_the_next_file(tmp_path: Path, count: int, made_before: bool) -> None:
    """From the very end of a file, where the next one is new or has been there, of zeros."""
    root = tmp_path / "store"
    append(root, 30)
    if made_before:
        file_of(root, 3).write_bytes(bytes(200))
    with rmqstore.open(root) as reader:
        assert reader.queue_bounds("orders", 0) == (0, 30)
        append(root, count)
        time.sleep(LISTED)
        assert reader.queue_bounds("orders", 0) == (0, 30 + count)


@pytest.mark.parametrize("count", [1, 10, 11])
def test_the_end_of_a_queue_that_was_empty(tmp_path: Path, count: int) -> None:
    """The first unit is like the last one that is known."""
    root = tmp_path / "store"
    append(root, 1)
    first = file_of(root, 0)
    whole = first.read_bytes()
    with rmqstore.open(root) as reader:
        first.write_bytes(bytes(200))
        time.sleep(LISTED)
        assert reader.queue_bounds("orders", 0) == (0, 0)
        first.write_bytes(whole)
        append(root, count - 1)
        time.sleep(LISTED)
        assert reader.queue_bounds("orders", 0) == (0, count)
