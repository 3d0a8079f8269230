"""Lists of str that another thread changes during a call: all old texts or all new ones."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore

pytestmark = pytest.mark.threads

COUNT = 20_000
ROUNDS = 10
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=32 << 20, max_hash_slot_num=50_000, max_index_num=200_000
)


def texts(word: str) -> list[str]:
    """Texts of which the list alone has references."""
    return [f"{word}{number:07d}" for number in range(COUNT)]


@pytest.fixture
def changing() -> Iterator[list[str]]:
    """A list of all present keys, or of as many missing ones, by turns."""
    rows = texts("present")
    ended = threading.Event()

    def change() -> None:
        for word in itertools.cycle(["missing", "present"]):
            rows[:] = texts(word)
            if ended.is_set():
                return

    thread = threading.Thread(target=change)
    thread.start()
    yield rows
    ended.set()
    thread.join()


def test_keys_of_an_index_file(tmp_path: Path, changing: list[str]) -> None:
    path = tmp_path / "20260131080000000"
    with rmqstore.IndexFile(path, hash_slot_num=50_000, index_num=200_000, mode="a") as index:
        index.put_keys(texts("present"), 5, 0)
        for _ in range(ROUNDS):
            found, starts = index.select_many(changing)
            assert len(starts) == COUNT + 1
            assert len(found) in (0, COUNT)


def test_keys_entered_in_an_index_file(tmp_path: Path, changing: list[str]) -> None:
    options: dict[str, Any] = {"hash_slot_num": 50_000, "index_num": 200_000, "mode": "a"}
    for number in range(ROUNDS):
        with rmqstore.IndexFile(tmp_path / f"{number:017d}", **options) as index:
            assert index.put_keys(changing, 5, 0) == COUNT
            found = [len(index.select_many(texts(word))[0]) for word in ("present", "missing")]
            assert sorted(found) == [0, COUNT]


def test_keys_of_a_store(tmp_path: Path, changing: list[str]) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put_many("t", [b"x"] * COUNT, keys=texts("present"), uniq_key=False)
        for _ in range(ROUNDS):
            offsets, starts = store.locate_many("t", changing)
            assert len(starts) == COUNT + 1
            assert len(offsets) in (0, COUNT)
            assert {len(found) for found in store.query_many("t", changing)} in ({0}, {1})


def test_keys_of_messages(tmp_path: Path, changing: list[str]) -> None:
    bodies = [b"x"] * COUNT
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(ROUNDS):
            store.put_many("t", bodies, queue_id=0, keys=changing, uniq_key=False)
            found = store.get("t", 0, number * COUNT, COUNT).messages
            keys = [message.keys[0] for message in found]
            assert keys in (texts("present"), texts("missing"))
