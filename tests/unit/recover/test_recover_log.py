"""Damage in the log as opening for writing meets it: refused, filled, or cut at the very end.

A valid record is never cut away, a refusal changes nothing, and a second opening finds nothing
more to do. Stores of ours and a broker's: closed, killed, and as a power cut leaves them.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

import rmqstore
from faults.tiny import killed_while_open
from rmqstore import StoreCorruptError
from rmqstore.files import paths
from support import oracle_store
from support.damaged_store import (
    BROKER_LOG,
    CONFIG,
    COUNT,
    LOG_SIZE,
    bodies,
    flip,
    killed,
    make,
    poke,
    read,
    records,
    state,
)

SECTOR = 512


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def root(made, tmp_path):
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def assert_second_is_a_no_op(root: Path, config=CONFIG) -> None:
    """Two more openings: the first may sync what is mended, the second changes no byte."""
    with rmqstore.open(root, "r+", config=config) as store:
        assert store.recovery.ranges == ()
    before = state(root)
    with rmqstore.open(root, "r+", config=config) as store:
        assert store.recovery.ranges == ()
    after = state(root)
    assert after == before


def assert_refused(root: Path, config=CONFIG, **options) -> StoreCorruptError:
    before = state(root)
    with pytest.raises(StoreCorruptError) as refused:
        rmqstore.open(root, "r+", config=config, **options)
    assert state(root) == before
    return refused.value


# One flipped bit


@pytest.mark.parametrize("was_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(
    "where", ["size", "magic", "crc", "place", "sys flag", "body length", "body", "topic length"]
)
def test_one_flipped_bit_loses_one_record(root, was_closed, where):
    every = records(root)
    record = every[COUNT // 3]
    at = {
        "size": 2, "magic": 5, "crc": 9, "place": 33, "sys flag": 39, "body length": 86,
        "body": 100, "topic length": 88 + len(record.body),
    }[where]  # fmt: skip
    whole = read(root)
    flip(root, record.physical_offset + at, bit=16)
    if not was_closed:
        killed(root)
    lost = {("Topic1", record.queue_id, record.queue_offset)}
    verify = "full" if was_closed else "tail"
    error = assert_refused(root, verify=verify)
    assert error.offset == record.physical_offset
    start = record.physical_offset - record.physical_offset % LOG_SIZE
    assert Path(error.path).name == f"{start:020d}"
    assert f"{record.store_size} bytes" in error.reason
    assert f"{COUNT - COUNT // 3 - 1} good records" in error.reason
    assert "on_corruption='fill'" in error.reason
    assert "mode 'r'" in error.reason
    assert read(root).keys() == whole.keys() - lost

    with rmqstore.open(root, "r+", config=CONFIG, on_corruption="fill", verify=verify) as store:
        assert bodies(store) == {place: whole[place] for place in whole.keys() - lost}
        [mended] = store.recovery.ranges
        assert (mended.kind, mended.start) == ("filled", record.physical_offset)
        assert mended.stop == record.physical_offset + record.store_size
        assert mended.records == 1
        assert store.recovery.saved_to == (mended.saved_to,)
        saved = Path(mended.saved_to).read_bytes()
        assert len(saved) == record.store_size
        assert saved.count(record.body) == (where != "body")
        for number in (COUNT // 3 - 1, COUNT // 3 + 1, COUNT - 1):
            assert len(store.query("Topic1", f"k{number}")) == 1
    assert_second_is_a_no_op(root)


@pytest.mark.usefixtures("undelivered")
@pytest.mark.parametrize("given", [True, False], ids=["config", "told"])
def test_one_flipped_bit_in_a_killed_brokers_log(broker_copy, tmp_path, given):
    """The store that lost nearly all of its messages to it."""
    root = broker_copy("broker-killed", tmp_path).root
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=BROKER_LOG,
        mapped_file_size_consume_queue=6000,
        max_hash_slot_num=1000,
        max_index_num=4000,
    ) if given else None  # fmt: skip
    every = records(root)
    record = next(record for record in every[200:] if len(record.body) > 5)
    whole = read(root)
    flip(root, record.physical_offset + 88 + 2, BROKER_LOG)
    error = assert_refused(root, config)
    assert error.offset == record.physical_offset
    with rmqstore.open(root, "r+", config=config, on_corruption="fill") as store:
        found = bodies(store)
        assert len(store.recovery.ranges) == 1
        assert store.recovery.bytes_cut == 0
    lost = whole.keys() - found.keys()
    assert {(record.topic, record.queue_id, record.queue_offset)} == lost
    assert {place: whole[place] for place in found} == found
    left = {record.physical_offset for record in records(root)}
    assert left == {record.physical_offset for record in every}  # one of them the filler


def test_damage_in_several_places(root):
    """A filler's 8 bytes, a record before one, records apart and side by side, a whole file."""
    killed(root)
    entries = list(oracle_store.walk_entries(root / "commitlog"))
    fillers = [entry for entry in entries if isinstance(entry, oracle_store.Filler)]
    every = records(root)
    whole = read(root)
    before_filler = entries[entries.index(fillers[1]) - 1]
    hit = [every[3], every[20], every[21], before_filler]
    middle = [record for record in every if record.physical_offset // LOG_SIZE == 2]
    for record in hit:
        flip(root, record.physical_offset + 120)
    poke(root, fillers[0].physical_offset, b"\xff" * 8)
    poke(root, 2 * LOG_SIZE, bytes(LOG_SIZE))
    lost = {("Topic1", r.queue_id, r.queue_offset) for r in hit + middle}
    assert_refused(root)
    with rmqstore.open(root, "r+", config=CONFIG, on_corruption="fill") as store:
        assert bodies(store) == {place: whole[place] for place in whole.keys() - lost}
        starts = [mended.start for mended in store.recovery.ranges]
        assert starts == sorted(starts)
        assert every[20].physical_offset in starts
        assert every[21].physical_offset not in starts  # one range with the one before
        assert fillers[0].physical_offset in starts
        assert 2 * LOG_SIZE in starts
    assert_second_is_a_no_op(root)
    oracle_store.log_files(root / "commitlog")


def test_damage_across_the_end_of_a_file(root):
    """The last record of a file, its filler, and the first of the next one."""
    killed(root)
    whole = read(root)
    every = records(root)
    first = next(record for record in every if record.physical_offset == LOG_SIZE)
    last = every[every.index(first) - 1]
    stop = first.physical_offset + first.store_size
    data = b"\x5a" * (LOG_SIZE - last.physical_offset)
    poke(root, last.physical_offset, data)
    poke(root, LOG_SIZE, b"\x5a" * first.store_size)
    assert_refused(root)
    with rmqstore.open(root, "r+", config=CONFIG, on_corruption="fill") as store:
        assert [(m.start, m.stop) for m in store.recovery.ranges] == [
            (last.physical_offset, LOG_SIZE),
            (LOG_SIZE, stop),
        ]
        lost = {("Topic1", r.queue_id, r.queue_offset) for r in (first, last)}
        assert bodies(store) == {place: whole[place] for place in whole.keys() - lost}
        for mended in store.recovery.ranges:
            assert set(Path(mended.saved_to).read_bytes()) == {0x5A}
    assert_second_is_a_no_op(root)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_file_begins_with_records_that_a_power_cut_took(tmp_path, lost, mode):
    """Their heads and units are there: who only reads passes over them as a recovery does."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(60):
            store.put("Topic1", b"%02d" % number * 900, queue_id=0)
    killed(root)
    every = records(root)
    first = next(n for n, record in enumerate(every) if record.physical_offset == LOG_SIZE)
    for record in every[first : first + lost]:
        poke(root, (record.physical_offset // SECTOR + 1) * SECTOR, bytes(SECTOR))
    with rmqstore.open(root, mode, config=CONFIG) as store:
        seen = [m.queue_offset for m in store.get("Topic1", 0, 0, 100).messages]
    assert seen == [n for n in range(60) if not first <= n < first + lost]


@pytest.mark.parametrize("what", ["queue", "queues and config"])
def test_damage_that_is_met_because_queues_are_missing(root, what):
    """A closed store, whose log is checked from its end on only, until the queues need all."""
    record = records(root)[40]
    flip(root, record.physical_offset + 5)
    whole = read(root).keys() - {("Topic1", record.queue_id, record.queue_offset)}
    shutil.rmtree(root / "consumequeue" / "Topic1" / ("1" if what == "queue" else "."))
    with pytest.raises(StoreCorruptError, match="good records lie behind"):
        rmqstore.open(root, "r+", config=CONFIG)
    assert not (root / "abort").exists()
    with rmqstore.open(root, "r+", config=CONFIG, on_corruption="fill") as store:
        assert bodies(store).keys() == whole
        assert [m.start for m in store.recovery.ranges] == [record.physical_offset]


def test_a_refusal_because_queues_lost_units_changes_no_index_file(root):
    """The watermark of an unclean exit is good, but the digest of the queues is another."""
    record = records(root)[40]
    flip(root, record.physical_offset + 5)
    (root / "abort").touch()
    queue = root / "consumequeue" / "Topic1" / "1"
    for path in sorted(queue.iterdir())[-1:]:
        path.write_bytes(bytes(path.stat().st_size))
    for path in (root / "index").iterdir():
        with path.open("r+b") as file:
            file.seek(28)
            file.write(bytes(12))  # slots and entries that are used
    assert_refused(root)


def test_a_refusal_because_of_what_lies_behind_a_hole_changes_nothing(tmp_path):
    """A hole of a power cut may be filled, but what lies behind it asks for the whole log."""
    root = tmp_path / "store"
    never = 600_000
    config = CONFIG.replace(
        flush_interval_commit_log=never,
        flush_interval_consume_queue=never,
        flush_commit_log_thorough_interval=never,
        flush_consume_queue_thorough_interval=never,
    )

    def work(store):
        for number in range(COUNT):
            store.put("Topic1", b"%03d" % number * 400, queue_id=number % 2, keys=f"k{number}")
            if number == COUNT // 2:
                store.flush()
        assert len(store.get("Topic1", 1, 0, COUNT).messages) == COUNT // 2

    killed_while_open(root, config, work)
    every = records(root)
    whole = read(root)
    lost = every[COUNT // 2 + 20]
    poke(root, (lost.physical_offset // SECTOR + 1) * SECTOR, bytes(SECTOR))
    with rmqstore.open(shutil.copytree(root, tmp_path / "copy"), "r+") as store:
        assert [m.start for m in store.recovery.ranges] == [lost.physical_offset]
        assert bodies(store).keys() == whole.keys() - {("Topic1", lost.queue_id, lost.queue_offset)}
    flip(root, every[3].physical_offset + 5)
    assert assert_refused(root).offset == every[3].physical_offset


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
@pytest.mark.parametrize("was_closed", [True, False], ids=["closed", "killed"])
def test_damage_that_is_met_because_the_index_is_missing(root, was_closed, config):
    """Below the watermark the queues lack nothing: a lost index is no reason to refuse."""
    if not was_closed:
        killed_while_open(root, CONFIG, lambda store: store.flush())
    every = records(root)
    whole = read(root)
    for number in (40, 41, 90):
        flip(root, every[number].physical_offset + 5)
    shutil.rmtree(root / "index")
    hit = {("Topic1", every[n].queue_id, every[n].queue_offset) for n in (40, 41, 90)}
    with rmqstore.open(root, "r+", config=config) as store:
        assert [(one.kind, one.start, one.stop) for one in store.recovery.ranges] == [
            ("damaged", every[40].physical_offset, every[42].physical_offset),
            ("damaged", every[90].physical_offset, every[91].physical_offset),
        ]  # the new index lacks their keys
        assert bodies(store).keys() == whole.keys() - hit
        for number, record in enumerate(every):
            if number not in (40, 41, 90):
                assert [hit.physical_offset for hit in store.query("Topic1", f"k{number}")] == [
                    record.physical_offset
                ]
    assert_second_is_a_no_op(root, config)


# The end of the log


def test_a_tail_is_cut_only_where_it_may_not_have_been_synced(root, tmp_path):
    """The same flipped bit in the last record: of a closed store an error, else torn."""
    record = records(root)[-1]
    flip(root, record.physical_offset + 100)
    for name in ("watermark", "broker"):
        copy = tmp_path / name
        shutil.copytree(root, copy)
        if name == "broker":
            page = (copy / "checkpoint").read_bytes()
            (copy / "checkpoint").write_bytes(page[:2048] + bytes(2048))
        error = assert_refused(copy, verify="full")
        assert error.offset == record.physical_offset
    killed(root)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        [mended] = store.recovery.ranges
        assert (mended.kind, mended.start) == ("cut", record.physical_offset)
        assert store.recovery.bytes_cut == mended.stop - mended.start
        assert len(bodies(store)) == COUNT - 1
    assert_second_is_a_no_op(root)


def test_what_a_recovery_did_is_told(root, caplog):
    record = records(root)[-1]
    flip(root, record.physical_offset + 100)
    with (
        caplog.at_level(logging.WARNING, "rmqstore"),
        rmqstore.open(killed(root), "r+", config=CONFIG) as store,
    ):
        [mended] = store.recovery.ranges
    [line] = [entry.getMessage() for entry in caplog.records if entry.name == "rmqstore"]
    for text in (str(root), "cut", str(mended.start), str(mended.stop), mended.saved_to):
        assert text in line
    assert Path(mended.saved_to).parent == root / paths.QUARANTINE
    assert Path(mended.saved_to).name.startswith(f"{mended.start:020d}-")


# What a power cut leaves: sectors of zeros


def lose_sectors(root: Path, start: int, stop: int) -> None:
    """Zero the sectors that begin in [start, stop)."""
    at = -(-start // SECTOR) * SECTOR
    while at < stop:
        poke(root, at, bytes(SECTOR))
        at += SECTOR


@pytest.mark.parametrize("count", [1, 2, 5, 20])
@pytest.mark.parametrize("number", [10, 33, 51, 77])
def test_a_hole_of_lost_sectors_is_filled(root, number, count):
    """Without being asked, with a warning; what lies behind the hole stays."""
    every = records(root)
    whole = read(root)
    start = every[number].physical_offset
    lose_sectors(root, start, start + count * SECTOR)
    killed(root)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        found = bodies(store)
        assert store.recovery.ranges
        assert {mended.kind for mended in store.recovery.ranges} == {"filled"}
    assert found.items() <= whole.items()
    at = -(-start // SECTOR) * SECTOR
    touched = {
        ("Topic1", r.queue_id, r.queue_offset)
        for r in every
        if r.physical_offset < at + count * SECTOR and r.physical_offset + r.store_size > at
    }
    assert whole.keys() - found.keys() == touched
    assert_second_is_a_no_op(root)


def test_the_same_hole_in_a_closed_store_is_damage(root):
    every = records(root)
    start = every[33].physical_offset
    lose_sectors(root, start, start + 2 * SECTOR)
    assert_refused(root, verify="full")


def test_a_sector_as_it_was_before_its_last_record_came(root):
    """The front of the record is missing in a sector whose other bytes are there."""
    every = records(root)
    record = next(
        r for r in every[30:]
        if r.physical_offset % SECTOR > 100 and r.store_size > SECTOR
    )  # fmt: skip
    whole = read(root)
    end = record.physical_offset // SECTOR * SECTOR + SECTOR
    poke(root, record.physical_offset, bytes(end - record.physical_offset))
    killed(root)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert whole.keys() - bodies(store).keys() == {
            ("Topic1", record.queue_id, record.queue_offset)
        }
        assert [m.start for m in store.recovery.ranges] == [record.physical_offset]


@pytest.mark.parametrize("length", [1, 2, 7, 20, 63, 64, 100, 511, 700])
@pytest.mark.parametrize("place", ["middle", "end"])
def test_a_lost_sector_of_the_properties_is_a_torn_record(tmp_path, length, place):
    """However few of its bytes are the record's, and with records behind it or without."""
    root = tmp_path / "store"
    value = "v" * 1000
    with rmqstore.open(root, "a", config=CONFIG) as store:
        # The properties' last ``length`` bytes begin a sector.
        for _ in range(2):
            probe = store.put("Topic1", b"", queue_id=0, properties={"p": value}, uniq_key=False)
            size = store.at(probe.physical_offset).store_size
        end = probe.physical_offset + size
        stop = -(-(end + size - length) // SECTOR) * SECTOR + length
        put = store.put(
            "Topic1", b"b" * (stop - end - size), queue_id=0, properties={"p": value},
            uniq_key=False,
        )  # fmt: skip
        stop = put.physical_offset + store.at(put.physical_offset).store_size
        assert stop % SECTOR == length % SECTOR
        behind = 4 if place == "middle" else 0
        for _ in range(behind):
            store.put("Topic1", b"c" * 300, queue_id=0, properties={"p": "v"})
    every = records(root)
    lost = stop - length, stop - length + max(SECTOR, length // SECTOR * SECTOR)
    log = (root / "commitlog" / f"{0:020d}").read_bytes()
    hit = [r for r in every[2:] if any(log[max(r.physical_offset, lost[0]) : lost[1]])]
    poke(root, lost[0], bytes(lost[1] - lost[0]))
    killed(root)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.ranges[0].start == put.physical_offset
        assert store.recovery.ranges[0].kind == ("filled" if behind else "cut")
        assert len(bodies(store)) == len(every) - len(hit)
    assert_second_is_a_no_op(root)


def test_texts_with_nuls_are_kept(tmp_path):
    """Only so many in a row are refused: a recovery could not tell them from lost sectors."""
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for value in ("\0v", "v\0", "v" + "\0" * 63):
            store.put("Topic1", b"x", properties={"p": value}, tags=value, queue_id=0)
            assert store["Topic1"][0][-1].properties["p"] == value
        for options in (
            {"tags": "\0" * 64},
            {"keys": ["\0" * 64]},
            {"properties": {"p": "\0" * 64}},
        ):
            with pytest.raises(rmqstore.MessageIllegalError, match="x00"):
                store.put("Topic1", b"x", **options)
            with pytest.raises(rmqstore.MessageIllegalError, match="x00"):
                store.put_many("Topic1", [b"x"], **options)
    killed(tmp_path / "store")
    with rmqstore.open(tmp_path / "store", "r+", config=CONFIG) as store:
        assert len(store["Topic1"][0]) == 3


# Forced before it is served


def test_what_was_found_is_forced_before_it_is_served(root):
    """Also by the first read after opening: nothing waits for a background flush."""
    config = CONFIG.replace(flush_disk_type="SYNC_FLUSH")
    with rmqstore.open(killed(root), "r+", config=config) as store:
        stats = store.stats()
        assert stats["flushed_position"] == stats["wrote_position"]
        assert stats["commit_log_syncs"] == 0


# Pages that count as clean


def written() -> tuple[int, int]:
    """Return the bytes that this process has written through descriptors, and its calls."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["wchar"]), int(lines["syscw"])


def test_all_of_a_killed_log_is_written_again_in_long_runs(tmp_path):
    """Its pages may count as clean after a failed sync; the files end within a run."""
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=5 << 19)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        for number in range(70):
            store.put("orders", bytes([number]) * 100_000, queue_id=0)
    log = sum(record.store_size for record in records(killed(tmp_path)))
    size, calls = written()
    with rmqstore.open(tmp_path, "r+") as store:
        more, more_calls = written()
        assert [m.body[0] for m in store["orders"][0]] == list(range(70))
    assert more - size > log
    assert more_calls - calls < 40  # of at most 1 MiB; the log has 1,700 pages


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_an_opening_reads_no_reserved_blocks(tmp_path: Path, mode: str) -> None:
    """Read-ahead of the search for the log's last byte must not feed the search."""
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=1 << 28)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        store.put("t", b"x", queue_id=0)
    with (tmp_path / "commitlog" / f"{0:020}").open("rb") as log:
        os.fsync(log)
        os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with rmqstore.open(tmp_path, mode):
            pass
        hole = os.lseek(log.fileno(), 0, os.SEEK_HOLE)
        assert hole < os.fstat(log.fileno()).st_blocks * 512 // 2
