"""Chains of an index file that were damaged after it was found good: every key is found the same.

``locate_many`` and ``query_many`` walk the chains of many keys side by side, and leave a chain
that is not good to the query of each key, which searches the log instead.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import pytest

import rmqstore

SLOTS, ENTRIES, COUNT = 7, 1000, 400
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 20, max_hash_slot_num=SLOTS, max_index_num=ENTRIES
)
HEADER, SLOT, ENTRY = 40, 4, 20
HASH, OFFSET, PREVIOUS = (0, ">i"), (4, ">q"), (16, ">i")
BAD = 150  # the entry that is damaged: some of each chain are before it, some after

Change = Callable[[int, int], tuple[tuple[int, str], int]]
DAMAGES: dict[str, Change] = {
    "a loop of one": lambda number, _: (PREVIOUS, number),
    "a loop of many": lambda number, _: (PREVIOUS, number + 3 * SLOTS),
    "forward": lambda _, last: (PREVIOUS, last),
    "beyond the count": lambda _, last: (PREVIOUS, last + 1),
    "beyond the file": lambda _, __: (PREVIOUS, ENTRIES + 5),
    "greatest": lambda _, __: (PREVIOUS, 0x7FFFFFFF),
    "negative": lambda _, __: (PREVIOUS, -5),
    "of another slot": lambda _, __: (HASH, 1),
    "negative hash": lambda _, __: (HASH, -1),
    "negative offset": lambda _, __: (OFFSET, -1),
    "offset of later": lambda _, __: (OFFSET, 1 << 40),
}


def body_of(number: int) -> bytes:
    return b"%d" % number * 20


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        keys = [f"k{number}" for number in range(COUNT)]
        bodies = [body_of(number) for number in range(COUNT)]
        put = store.put_many("t", bodies, queue_id=0, keys=keys)
    return path, put.physical_offset.tolist()


def check(store, places):
    """All keys at once, in any chunks, and those that are not there."""
    order = [number * 37 % COUNT for number in range(COUNT)]
    keys = [f"k{number}" for number in order] + ["none", "nothing"]
    offsets, starts = store.locate_many("t", keys)
    assert starts.tolist() == [*range(COUNT + 1), COUNT, COUNT]
    assert offsets.tolist() == [places[number] for number in order]
    many = store.query_many("t", keys)
    wanted = [[body_of(number)] for number in order] + [[], []]
    assert [[message.body for message in found] for found in many] == wanted


@pytest.fixture
def damaged(closed):
    """A function that changes a number of the index file; it is as it was afterwards."""
    [file] = (closed[0] / "index").iterdir()
    kept = file.read_bytes()

    def change(at: int, form: str, value: int) -> None:
        with file.open("r+b") as opened:
            os.pwrite(opened.fileno(), struct.pack(form, value), at)

    yield change
    with file.open("r+b") as opened:
        opened.write(kept)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_entry(closed, damaged, mode, name):
    path, places = closed
    with rmqstore.open(path, mode) as store:
        check(store, places)
        (at, form), value = DAMAGES[name](BAD, COUNT * 2)
        damaged(HEADER + SLOTS * SLOT + BAD * ENTRY + at, form, value)
        check(store, places)
        damaged(HEADER + SLOTS * SLOT + (BAD - 11) * ENTRY + at, form, value)
        check(store, places)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("number", [-1, -(1 << 31), ENTRIES, 0x7FFFFFFF])
def test_a_damaged_slot(closed, damaged, mode, number):
    path, places = closed
    with rmqstore.open(path, mode) as store:
        check(store, places)
        damaged(HEADER + 3 * SLOT, ">i", number)
        check(store, places)
