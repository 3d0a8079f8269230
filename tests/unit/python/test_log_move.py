"""Records copied from one log into another one, against the slow codec."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

import rmqstore
from rmqstore import _core
from support import oracle, oracle_store, scan_model


def make_log(rng: random.Random, root: Path, count: int = 300) -> int:
    """A log of random records; the size of its files."""
    file_size = rng.choice([20_000, 65_536, 262_144])
    records = scan_model.random_records(rng, count, file_size)
    with rmqstore.CommitLog(root / "commitlog", file_size=file_size, mode="a") as log:
        log.append(records)
    return file_size


def bytes_of(root: Path, record: oracle.Record, file_size: int) -> bytes:
    start = record.physical_offset - record.physical_offset % file_size
    data = (root / "commitlog" / f"{start:020d}").read_bytes()
    return data[record.physical_offset - start :][: record.store_size]


def store_time_at(record: oracle.Record) -> int:
    return 68 if record.sys_flag & oracle.FLAG_BORN_V6 else 56


@pytest.mark.parametrize("seed", range(6))
def test_measured_ranges(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    file_size = make_log(rng, tmp_path)
    entries = list(oracle_store.walk_entries(tmp_path / "commitlog"))
    records = [entry for entry in entries if isinstance(entry, oracle.Record)]
    end_of_log = entries[-1].physical_offset + entries[-1].store_size
    topics = rng.sample(sorted({record.topic for record in records}), 2)
    deleted = {topics[0]: rng.choice(records).physical_offset}
    log = _core.LogMove(tmp_path / "commitlog", file_size)
    chooses = rng.random() < 0.7
    if chooses:
        log.choose(topics)
    for topic, offset in deleted.items():
        log.drop_below(topic, offset)

    def is_moved(record: oracle.Record) -> bool:
        chosen = not chooses or record.topic in topics
        return chosen and record.physical_offset >= deleted.get(record.topic, 0)

    for _ in range(60):
        start = rng.randrange(end_of_log)
        if rng.random() < 0.3:
            start -= start % file_size
        stop = min(end_of_log, start + rng.choice([1, 100, 5_000, file_size]))
        if rng.random() < 0.3:
            stop = rng.choice(entries).physical_offset
        stop = min(stop, start - start % file_size + file_size)
        since = rng.choice(records).store_timestamp + rng.choice([0, 0, 1, 10**12])
        inside = [record for record in records if start <= record.physical_offset < stop]
        after = [record for record in inside if record.store_timestamp >= since]
        expected_end = 0
        if inside:
            at = entries.index(inside[-1]) + 1
            if at < len(entries) and not isinstance(entries[at], oracle.Record):
                at += 1
            expected_end = entries[at].physical_offset if at < len(entries) else end_of_log
        found = log.measure(start, max(start, stop), since)
        assert found[0] == (inside[0].physical_offset if inside else -1)
        if inside:
            assert found[1] == expected_end
        assert found[2:] == (
            len(inside),
            sum(record.store_size for record in inside if is_moved(record)),
            after[0].physical_offset if after else -1,
            sum(
                record.store_size
                for record in inside
                if after and record.physical_offset >= after[0].physical_offset and is_moved(record)
            ),
        )
    log.close()


@pytest.mark.parametrize("seed", range(6))
def test_copies_differ_in_what_their_places_say_alone(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    file_size = make_log(rng, tmp_path)
    records = list(oracle_store.walk_log(tmp_path / "commitlog"))
    numbered, timed = rng.random() < 0.5, rng.random() < 0.5
    bases = {(r.topic, r.queue_id): rng.randrange(1 << 40) for r in records}
    log = _core.LogMove(tmp_path / "commitlog", file_size)
    if numbered:
        for (topic, queue_id), base in bases.items():
            log.number(topic, queue_id, base)
    time = 1_900_000_000_123 if timed else -1
    first, last = sorted(rng.sample(range(len(records)), 2))
    chosen = records[first:last]
    position, file_start = 7_000_123, 7_000_000
    with (tmp_path / "copy").open("wb+") as file:
        start, stop = chosen[0].physical_offset, records[last].physical_offset
        found = log.copy(start, stop, file.fileno(), file_start, position, time)
        data = file.read()
    assert data[:123] == bytes(123)
    at = position
    for record in chosen:
        expected = bytearray(bytes_of(tmp_path, record, file_size))
        struct.pack_into(">q", expected, 28, at)
        if numbered and record.is_queued:
            base = bases[record.topic, record.queue_id]
            struct.pack_into(">q", expected, 20, base + record.queue_offset)
        if timed:
            struct.pack_into(">q", expected, store_time_at(record), time)
        assert data[at - file_start :][: record.store_size] == expected
        at += record.store_size
    assert len(data) == at - file_start
    newest = time if timed else max(record.store_timestamp for record in chosen)
    assert found == (at - position, len(chosen), at - chosen[-1].store_size, newest)
    log.close()


def test_the_checksum_of_a_whole_record_follows(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small(record_checksum=True)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        for number in range(5):
            store.put("orders", b"body" * number, queue_id=number % 4)
    log = _core.LogMove(tmp_path / "store" / "commitlog", config.mapped_file_size_commit_log)
    for queue_id in range(4):
        log.number("orders", queue_id, 1000)
    with rmqstore.open(tmp_path / "store") as store:
        stop = store.recovery.log_end
    copied = tmp_path / "copied" / "commitlog"
    copied.mkdir(parents=True)
    with (copied / f"{0:020d}").open("wb") as file:
        file.truncate(config.mapped_file_size_commit_log)
        log.copy(0, stop, file.fileno(), 0, 0, 1_900_000_000_000)
    log.close()
    with rmqstore.open(tmp_path / "copied") as store:
        messages = list(store.scan())  # checked with their checksums
        assert [len(message.body) for message in messages] == [0, 4, 8, 12, 16]
        assert [message.queue_offset for message in messages] == [1000, 1000, 1000, 1000, 1001]


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    file_size = make_log(random.Random(1), tmp_path)
    records = list(oracle_store.walk_log(tmp_path / "commitlog"))
    hurt = next(record for record in records[20:] if record.raw_body)
    start = hurt.physical_offset - hurt.physical_offset % file_size
    path = tmp_path / "commitlog" / f"{start:020d}"
    with path.open("rb+") as file:
        data = bytearray(file.read())
        at = hurt.physical_offset - start
        data[at + hurt.store_size - len(hurt.raw_properties) - len(hurt.topic.encode()) - 4] ^= 1
        file.seek(0)
        file.write(data)
    log = _core.LogMove(tmp_path / "commitlog", file_size)
    fd = os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    with pytest.raises(rmqstore.StoreCorruptError) as raised:
        log.copy(0, hurt.physical_offset + 1, fd, 0, 0, -1)
    assert (raised.value.path, raised.value.offset) == (str(path), hurt.physical_offset)
    assert log.measure(0, hurt.physical_offset + 1, 0)[2] > 0  # bodies are not looked at
    data[at + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(rmqstore.StoreCorruptError, match="MAGICCODE is none of a record"):
        log.measure(start, hurt.physical_offset + 1, 0)
    os.close(fd)
    log.close()


def test_a_queue_without_a_number(tmp_path: Path) -> None:
    file_size = make_log(random.Random(2), tmp_path)
    log = _core.LogMove(tmp_path / "commitlog", file_size)
    log.number("no such topic", 0, 5)
    fd = os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    with pytest.raises(rmqstore.StoreCorruptError, match="of a queue that has no number"):
        log.copy(0, file_size, fd, 0, 0, -1)
    os.close(fd)
    log.close()


def test_a_queue_id_below_zero_has_no_number(tmp_path: Path) -> None:
    """It is no place before the first queue of the topic's."""
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=65536, mode="a") as part:
        part.append([rmqstore.encode_record("Topic1", b"x", queue_id=-1)])
    log = _core.LogMove(tmp_path / "commitlog", 65536)
    log.number("Topic1", 0, 5)
    with (tmp_path / "copy").open("w+b") as file, pytest.raises(rmqstore.StoreCorruptError):
        log.copy(0, 65536, file.fileno(), 0, 0, -1)
    log.close()


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    file_size = 20_000
    records = [oracle.encode_record("t", bytes(900)) for _ in range(100)]
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=file_size, mode="a") as made:
        made.append(records)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    log = _core.LogMove(tmp_path / "commitlog", file_size)
    with pytest.raises(rmqstore.MessagesRemovedError) as raised:
        log.measure(0, 60_000, 0)
    assert (raised.value.offset, raised.value.min_offset) == (0, file_size)
    (tmp_path / "commitlog" / f"{2 * file_size:020d}").unlink()
    with pytest.raises((rmqstore.StoreCorruptError, rmqstore.MessagesRemovedError)):
        log.measure(file_size, 4 * file_size, 0)
    log.close()


@pytest.mark.parametrize("at", [-1, 93, 101])
def test_no_room_for_a_filler(tmp_path: Path, at: int) -> None:
    with (tmp_path / "file").open("wb+") as file:
        _core.write_blank(file.fileno(), 100, 92)
        assert file.read() == bytes(92) + struct.pack(">iI", 8, 0xCBD43194)
        with pytest.raises(ValueError, match="no room for a blank"):
            _core.write_blank(file.fileno(), 100, at)


def test_what_is_put_to_the_log_alone(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=20_000)
    log_only = _core.Engine()
    log_only.core.make_topic = lambda topic: log_only.core.set_topic(topic, 2)
    (tmp_path / "log").mkdir()
    log_only.core.open(str(tmp_path / "log"), "a", config, 0.0, lambda: ({}, None), log_only=True)
    for number in range(100):
        log_only.put("orders", bytes(900), queue_id=number % 3)
    assert _core.queue_ends(log_only.core) == {"orders": {0: 34, 1: 33, 2: 33}}
    log_only.close()
    assert not list((tmp_path / "log" / "consumequeue").rglob("*"))
    records = list(oracle_store.walk_log(tmp_path / "log" / "commitlog"))
    assert [(r.queue_id, r.queue_offset) for r in records] == [
        divmod(n, 3)[::-1] for n in range(100)
    ]


def test_a_sealed_store_is_opened_without_walking_its_log(tmp_path: Path) -> None:
    rng = random.Random(3)
    config = scan_model.config(rng)
    records = scan_model.random_records(rng, 400, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path, records, config)
    last = list(oracle_store.walk_log(tmp_path / "commitlog"))[-1]
    newest = last.store_timestamp
    before = (tmp_path / "checkpoint").read_bytes()
    (tmp_path / "checkpoint").unlink()
    with rmqstore.open(tmp_path) as store:
        end = _core.seal_store(store.core, last.physical_offset, newest)
    assert end == last.physical_offset + last.store_size
    assert (tmp_path / "checkpoint").read_bytes()[8:] == before[8:]  # but for the physic time
    oracle_store.check_store(tmp_path, exact_index=True)
    with rmqstore.open(tmp_path, "a") as store:
        assert store.recovery.clean
        assert "queues were completed from the whole log" not in store.recovery.notes
