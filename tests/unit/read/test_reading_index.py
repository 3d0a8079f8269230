"""What a reader finds by key while an owner goes on with log and index under it."""

from __future__ import annotations

import shutil
import struct
import time

import numpy as np
import pytest

import rmqstore
from faults import tiny
from faults.damage import Damage
from support import oracle_store
from support.damaged_store import killed, poke

LISTED = 0.12  # seconds; directories are listed ten times a second
LOG_SIZE = 1 << 20
SLOTS, ENTRIES = 50, 40
ENTRIES_AT = 40 + 4 * SLOTS
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=SLOTS,
    max_index_num=ENTRIES,
)
MANY = [f"m{number}" for number in range(2 * ENTRIES)]


def put(store, keys, body=b"x" * 100):
    """One message for each key, with no other."""
    for key in keys:
        store.put("t", body, queue_id=0, keys=key, uniq_key=False)
    store.flush()


def missing(store, keys, **how):
    return [key for key in keys if len(store.query("t", key, **how)) != 1]


def index_files(path):
    return sorted((path / "index").iterdir())


def flip_hash(path, number):
    """Flip a bit in the key hash of an entry; twice is as it was."""
    at = ENTRIES_AT + 20 * number + 3
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("owned", [True, False])
def test_index_of_a_log_file_that_is_not_listed_yet(tmp_path, owned):
    """Log and index are listed at different times: the index may be the newer one."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, ["first"])
        put(owner, MANY[: ENTRIES // 2])
        put(owner, ["large"], bytes(LOG_SIZE - 16_000))
    # Unowned, the newest index file is compared with the log as well.
    early = None if owned else rmqstore.open(killed(path))
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        reader = early or rmqstore.open(path)
        with reader:
            assert missing(reader, ["first"]) == []  # lists both
            time.sleep(LISTED)
            reader.get("t", 0, 0)  # lists the log
            for key in MANY[ENTRIES // 2 :]:
                owner.put("t", bytes(1000), queue_id=0, keys=key, uniq_key=False)
            assert len(oracle_store.log_files(path / "commitlog")) == 2
            missing(reader, MANY)  # lists the index
            owner.flush()
            for _ in range(2):
                time.sleep(LISTED)
                assert missing(reader, ["first", "large", *MANY]) == []
            assert missing(reader, ["first", "large", *MANY], index_only=True) == []


def test_record_whose_keys_are_still_to_be_written(tmp_path):
    """Properties come last: without them a record has no keys, for a moment."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG.replace(message_index_enable=False)) as owner:
        owner.put("t", b"no keys", queue_id=0, uniq_key=False)
        put(owner, ["a"])
        *_, last = oracle_store.walk_log(path / "commitlog")
        at = last.physical_offset + last.store_size - len(b"KEYS\x01a")
        with rmqstore.open(path) as reader:
            poke(path, at, bytes(len(b"KEYS\x01a")), LOG_SIZE)
            assert missing(reader, ["a"]) == ["a"]
            poke(path, at, b"KEYS\x01a", LOG_SIZE)
            assert missing(reader, ["a"]) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [2, ENTRIES - 1])
def test_record_with_more_keys_than_an_index_file_has_entries(tmp_path, number):
    """A file that is found broken while it is read may have keys of one record alone."""
    path = tmp_path / "store"
    keys = [[f"k{n}-{i}" for i in range(3 * ENTRIES)] for n in range(6)]
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        for some in keys:  # more than what is compared at each opening
            owner.put("t", bytes(LOG_SIZE - 10_000), keys=some, uniq_key=False)
    for victim in (1, 2):
        shutil.copytree(path, tmp_path / "copy")
        flip_hash(index_files(tmp_path / "copy")[victim], number)
        with rmqstore.open(tmp_path / "copy") as store:
            for _ in range(2):
                for some in keys[:2]:
                    assert missing(store, some) == []
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize("newest", [True, False])
def test_file_that_did_not_hold_is_looked_at_again(tmp_path, newest):
    """Once its owner has gone on with it or made it good."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, MANY[:10])
        with rmqstore.open(path) as reader:
            assert missing(reader, MANY[:10], index_only=True) == []
            flip_hash(index_files(path)[0], 5)
            assert missing(reader, MANY[:10]) == []
            assert missing(reader, MANY[:10], index_only=True) == MANY[:10]
            flip_hash(index_files(path)[0], 5)
            put(owner, MANY[10:20] if newest else MANY[10:])
            time.sleep(LISTED)
            there = MANY[:20] if newest else MANY
            assert missing(reader, there) == []
            assert missing(reader, there, index_only=True) == []


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("behind", [False, True])
def test_record_that_recovery_takes_away_is_no_hit(tmp_path, mode, behind):
    """A sector of its properties never reached the disk: BODYCRC says nothing about them."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, MANY)
        properties = {"long": "x" * 2000}
        torn = owner.put("t", b"torn", queue_id=0, keys="torn", properties=properties)
        put(owner, ["behind"] if behind else [])
    killed(path)
    start = torn.physical_offset + 300
    poke(path, start - start % 512 + 512, bytes(512), LOG_SIZE)
    with rmqstore.open(path, mode) as store:
        assert store.query("t", "torn") == []
        assert missing(store, [*MANY, *(["behind"] if behind else [])]) == []
        assert bool(store.recovery.bytes_cut) == (mode == "r+" and not behind)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_record_of_which_a_lost_index_file_had_a_key(tmp_path, mode):
    """A power cut took a broker's index file in the middle, and damage all records before it."""
    image = tiny.brokers(tmp_path, "cut", seed="zd")
    damaged = Damage("sector", "commitlog/00000000000000001024", 307).apply(image.files)
    tiny.write_files(tmp_path / "store", damaged, image.directories)
    with rmqstore.open(tmp_path / "store", mode) as store:
        for _ in range(2):  # nothing is noted that hides it
            assert [hit.physical_offset for hit in store.query("T", "k15")] == [1904]


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "no config"])
@pytest.mark.parametrize("room", [True, False], ids=["room", "no room"])
@pytest.mark.parametrize("entered", [1, 20, ENTRIES - 3])
def test_the_end_of_an_older_index_file_that_the_disk_never_got(tmp_path, entered, room, config):
    """A newer file may be on the disk whole when of the older one only a part is.

    Without ``room`` no name lies between theirs, under which a recovery could enter the rest.
    """
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, MANY[:entered])
        before = index_files(path)[0].read_bytes()
        for number in range(30):  # three keys each: one message has some in both files
            words = [f"a{number}", f"b{number}"]
            owner.put("t", b"y", queue_id=0, keys=words, uniq_key=f"u{number}")
        owner.flush()
        crashed = shutil.copytree(path, tmp_path / "crashed")
    older = index_files(crashed)[0]
    older.write_bytes(before)
    first_name = int(older.name) + (1000 if room else 1)
    for number, file in enumerate(index_files(crashed)[1:]):
        file.rename(crashed / str(number))
    for number in range(len(index_files(path)) - 1):
        (crashed / str(number)).rename(older.with_name(str(first_name + number)))
    newer = older.with_name(str(first_name))
    keys = [*MANY[:entered], *(f"{name}{number}" for name in "abu" for number in range(30))]
    with rmqstore.open(crashed, config=config) as store:
        assert missing(store, keys) == []
        assert np.diff(store.locate_many("t", keys)[1]).tolist() == [1] * len(keys)
        first = struct.unpack_from(">q", newer.read_bytes(), 16)[0]
        # Who searches what the index does not cover finds the newer file's first message there.
        assert not any(start <= first < stop for start, stop in store.index_coverage())
    with rmqstore.open(crashed, "r+", config=config) as store:
        assert missing(store, keys) == []
