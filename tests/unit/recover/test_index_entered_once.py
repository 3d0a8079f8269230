"""Openings enter no key again that an index file has."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import rmqstore
from support.damaged_store import state

SLOTS, ENTRIES = 50, 200
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=SLOTS,
    max_index_num=ENTRIES,
)
ENTRIES_AT = 40 + 4 * SLOTS


def entries(root: Path) -> list[bytes]:
    """The entries of all files, oldest first."""
    found = []
    for path in sorted(path for path in (root / "index").iterdir() if path.name.isdigit()):
        data = path.read_bytes()
        (count,) = struct.unpack_from(">i", data, 36)
        found += [data[at : at + 20] for at in range(ENTRIES_AT + 20, ENTRIES_AT + 20 * count, 20)]
    return found


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_file_is_full_and_the_next_one_empty(tmp_path, killed, config):
    """A record without keys begins the next file; the last one with keys is not entered again."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(ENTRIES - 1):
            store.put("Topic1", b"x", queue_id=0, uniq_key=False, keys=f"k{number}")
        store.put("Topic1", b"no key", queue_id=0, uniq_key=False)
    _, newest = sorted((root / "index").iterdir())
    assert not any(newest.read_bytes()[40:])
    assert len(entries(root)) == ENTRIES - 1
    before = state(root)
    if killed:
        (root / "abort").touch()
    for _ in range(2):
        with rmqstore.open(root, "r+", config=config) as store:
            for number in (0, ENTRIES - 2):
                (hit,) = store.query("Topic1", f"k{number}")
                assert hit.queue_offset == number
    after = state(root)
    if killed:  # its pages are written again, and so is the checkpoint
        del before["checkpoint"], after["checkpoint"]
    assert after == before


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
def test_a_walk_that_begins_anew_enters_the_last_keys_once(tmp_path, config):
    """A record that seems to leave out others of its queue has the whole log walked."""
    root = tmp_path / "left"
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put("Topic1", b"x", queue_id=0, keys="k0")
        store.flush()
        store.put("Topic1", b"x", queue_id=0, keys="k1 k2")
        store.put("Topic1", bytes(3900), queue_id=0, uniq_key=False)
        assert len(store.query("Topic1", "k2")) == 1  # its keys are entered
        shutil.copytree(store.path, root)
    before = entries(root)
    assert len(before) == 5
    with (root / "commitlog" / f"{4096:020d}").open("r+b") as file:
        file.seek(20)
        file.write(struct.pack(">q", 4))
    for _ in range(2):
        with rmqstore.open(root, "r+", config=config) as store:
            for queue_offset, key in enumerate(["k0", "k1"]):
                (hit,) = store.query("Topic1", key)
                assert hit.queue_offset == queue_offset
    after = entries(root)
    assert after[:5] == before
    assert len(after) == 8  # nothing showed that the last record had all of its three: once more
