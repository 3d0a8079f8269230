"""``verify="full"`` where a store is only read: everything is checked, and told in notes."""

from __future__ import annotations

import logging

import pytest

import rmqstore
from support import damaged_store
from support.damaged_store import COUNT, flip, killed, make, records


def opened(root, caplog, config=None):
    """Open to read, check everything, leave all as it is: the notes, which were warned of too."""
    before = damaged_store.state(root)
    with (
        caplog.at_level(logging.WARNING, "rmqstore"),
        rmqstore.open(root, verify="full", config=config) as store,
    ):
        notes = [note for note in store.recovery.notes if "completed" not in note]
    assert damaged_store.state(root) == before
    assert [note for note in notes if "checked" not in note] == [
        record.getMessage().split(": ", 1)[1] for record in caplog.records
    ]
    return notes


@pytest.mark.parametrize("config", [None, damaged_store.CONFIG])
@pytest.mark.parametrize("state", ["closed", "killed"])
def test_nothing_to_be_found(tmp_path, state, config, caplog):
    root = make(tmp_path / "store")
    if state == "killed":
        killed(root)
    notes = opened(root, caplog, config)
    assert notes == [f"{COUNT} records and {COUNT} units were checked: nothing was found"]


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("number", [3, COUNT // 2, COUNT - 4])
def test_a_flipped_bit_of_a_body(tmp_path, state, number, caplog):
    root = make(tmp_path / "store")
    record = records(root)[number]
    flip(root, record.physical_offset + 120)
    if state == "killed":
        killed(root)
    notes = opened(root, caplog)
    stop = record.physical_offset + record.store_size
    assert notes[0] == f"bytes {record.physical_offset} to {stop} of the log are no good record"
    queue_id, queue_offset = number % 2, number // 2
    assert notes[1] == (
        f"1 units of consumequeue/Topic1/{queue_id} contradict the log, "
        f"at queue offsets {queue_offset}"
    )
    assert notes[2:] == [f"{COUNT - 1} records and {COUNT} units were checked"]


@pytest.mark.parametrize("place", [3, 11, 19])
def test_a_flipped_bit_of_a_unit_that_an_owner_has_open(tmp_path, place, caplog):
    """Of its offset, its size, or its tags code; with an owner there, nothing is told anew."""
    root = make(tmp_path / "store")
    with rmqstore.open(root, "r+", config=damaged_store.CONFIG):
        path = sorted((root / "consumequeue/Topic1/1").iterdir())[0]
        units = bytearray(path.read_bytes())
        units[4 * 20 + place] ^= 1
        path.write_bytes(units)
        notes = opened(root, caplog)
    assert notes == [
        "1 units of consumequeue/Topic1/1 contradict the log, at queue offsets 4",
        f"{COUNT} records and {COUNT} units were checked",
    ]
