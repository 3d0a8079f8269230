"""Zeros written ahead of the writer never reach what was written before."""

import numpy as np
import pytest

import rmqstore

UNIT = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
QUEUE = "consumequeue/t/0"


def units(folder):
    """Return the units of all files of the queue."""
    files = sorted(folder.joinpath(QUEUE).iterdir())
    return np.concatenate([np.fromfile(file, UNIT) for file in files])


@pytest.mark.parametrize("file_size", [6_000_000, 299_980, 4_100])
@pytest.mark.parametrize("parts", [(30_000,), (1, 203, 1, 204, 205, 7_000, 13_000)])
def test_every_unit_stays(tmp_path, file_size, parts):
    config = rmqstore.StoreConfig(mapped_file_size_consume_queue=file_size)
    offsets = []
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.create_topic("t", 1)
        for count in parts:
            done = store.put_many("t", [b"body"] * count, tags="TagA", uniq_key=False)
            offsets.extend(done.physical_offset.tolist())
            store.flush()
    found = units(tmp_path)
    used = len(offsets)
    assert found["physical_offset"][:used].tolist() == offsets
    assert set(found["size"][:used].tolist()) == {int(np.diff(offsets)[0])}
    assert len(set(found["code"][:used].tolist())) == 1
    assert not found[used:].view("u1").any()


def test_queues_made_again(tmp_path):
    config = rmqstore.StoreConfig(mapped_file_size_consume_queue=299_980)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.create_topic("t", 1)
        store.put_many("t", [b"body"] * 40_000)
        store.flush()
    written = units(tmp_path)
    for file in tmp_path.joinpath(QUEUE).iterdir():
        file.unlink()
    with rmqstore.open(tmp_path, "r+", config=config) as store:
        assert store["t"][0].max_offset == 40_000
    assert (units(tmp_path) == written).all()


@pytest.mark.parametrize("slots", [50, 9_000, 100_000])
def test_index_is_as_without(tmp_path, slots):
    """The same bytes as from a handle that did not make the file, which writes no zeros."""
    entries = 4 * slots
    keys = [f"t#key-{number % 90_000}" for number in range(min(entries - 1, 120_000))]
    offsets = list(range(0, 300 * len(keys), 300))
    stamps = [1_700_000_000_000 + number for number in range(len(keys))]
    paths = [tmp_path / f"{number:017}" for number in range(2)]
    for path in paths:
        index = rmqstore.IndexFile(path, hash_slot_num=slots, index_num=entries, mode="a")
        if path == paths[1]:
            index.close()
            index = rmqstore.IndexFile(path, hash_slot_num=slots, index_num=entries, mode="r+")
        for start in range(0, len(keys), 50_001):
            stop = start + 50_001
            index.put_keys(keys[start:stop], offsets[start:stop], stamps[start:stop])
        index.close()
    assert paths[0].read_bytes() == paths[1].read_bytes()
