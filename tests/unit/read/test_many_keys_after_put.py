"""``locate_many`` right after ``put``: the last key of a record whose keys are being entered."""

from __future__ import annotations

from pathlib import Path

import rmqstore

PUTS = 15_000
KEYS = 60  # of each message: its entries come one after the other


def test_what_was_put_before_the_call_is_found(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig(max_hash_slot_num=1_000_000, max_index_num=2_000_000)
    missed = []
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        for number in range(PUTS):
            keys = [f"{number}-{key}" for key in range(KEYS)]
            put = store.put("topic", b"", queue_id=0, keys=keys)
            offsets, _starts = store.locate_many("topic", [keys[-1]])
            if list(offsets) != [put.physical_offset]:
                missed.append(number)
    assert missed == []
