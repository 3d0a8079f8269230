"""The same messages with the same store times: the same files, byte for byte."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop import checks, turns
from interop.driver import Driver, Put, copy
from interop.test_real_reads_ours import write
from interop.test_turns import real_message

Count = Callable[[str, int], None]
CONFIGS = {"small": turns.SIZES, "default": {}}
MESSAGES = {"small": 1500, "default": 200}
BATCH_BYTES = 80_000  # more than any batch has
PORTION = 20  # messages a request
MAGIC_BLANK = 0xCBD43194
# A record's fields that encode_record takes under the names that the driver gives them.
FIELDS = [
    *("queue_id", "queue_offset", "physical_offset", "flag", "sys_flag", "born_timestamp"),
    *("born_host", "store_timestamp", "store_host", "reconsume_times"),
    "prepared_transaction_offset",
]
HOST_BITS = 0x30  # of the sys flag: that hosts are IPv6, which encode_record sets itself


@dataclass
class Theirs:
    """A store that the real one wrote and closed, and its records in the order of its log."""

    path: Path
    config: dict[str, int]
    records: list[dict[str, Any]]


def physical_offsets(put: Put) -> list[int]:
    """The places of one message or of a batch, whose ids the answer names all."""
    assert put.status == "PUT_OK"
    return [int(msg_id[-16:], 16) for msg_id in put.msg_id.split(",")]


def write_theirs(real: Driver, path: Path, config: dict[str, int], count: int) -> Theirs:
    """Messages of every kind: IPv6 hosts, batches, delayed, prepared, committed, rolled back."""
    assert real.open(path, config)["start"], real.log()
    offsets: list[int] = []
    file_size = config.get("mappedFileSizeCommitLog", 1 << 30)
    for turn in itertools.count():  # each has another store host
        if len(offsets) >= count:
            break
        names = turns.Names(turn, 0)
        kinds = names.random.choices("pt", [3, 1], k=PORTION)
        puts = real.append([real_message(names.some(kind)[0]) for kind in kinds])
        for put in puts:
            offsets += physical_offsets(put)
        # A batch that does not fit takes the next file as a whole. CommitLog.append, which gets
        # records one by one, would put what fits of it in this file.
        if -(puts[-1].physical_offset + puts[-1].wrote_bytes) % file_size < BATCH_BYTES:
            continue
        batch = names.some("b", names.random.randint(1, 10))
        leader = turns.message_of(batch[0])
        fields = {each: leader[each] for each in ("topic", "queue_id", "store_host")}
        messages = [real_message(name) for name in batch]
        offsets += physical_offsets(real.batch(messages=messages, **fields))
    assert offsets == sorted(offsets)
    records = [record for record, _ in real.records(offsets)]
    assert real.shutdown()
    return Theirs(path, config, records)


@pytest.fixture(scope="module", params=CONFIGS)
def theirs(
    request: pytest.FixtureRequest,
    start: Callable[[], Driver],
    seed: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Theirs:
    real = start()
    real.reset()
    path = tmp_path_factory.mktemp("theirs") / "store"
    written = write_theirs(real, path, CONFIGS[request.param], MESSAGES[request.param])
    flags = {record["sys_flag"] & turns.ROLLBACK for record in written.records}
    assert flags == {0, turns.PREPARED, turns.COMMIT, turns.ROLLBACK}
    assert {record["sys_flag"] & HOST_BITS for record in written.records} == {0, 0x10, 0x20, 0x30}
    if request.param == "small":
        assert len(list((path / "commitlog").iterdir())) > 3
        assert len(list((path / "index").iterdir())) > 1
        queues = (path / "consumequeue" / turns.TOPICS[0]).iterdir()
        assert max(len(list(queue.iterdir())) for queue in queues) > 1
    assert (path / "consumequeue" / turns.SCHEDULE_TOPIC).is_dir()
    return written


def test_ours_makes_queues_and_index_of_their_log(
    theirs: Theirs, tmp_path: Path, compared: Count
) -> None:
    ours = copy(theirs.path, tmp_path / "ours")
    shutil.rmtree(ours / "consumequeue")
    shutil.rmtree(ours / "index")
    config = rmqstore.StoreConfig(**turns.OUR_SIZES) if theirs.config else None
    with rmqstore.open(ours, "r+", config=config) as store:
        assert store.recovery.clean
    compared("5 queue files", checks.assert_same_queue_files(ours, theirs.path))
    slots = theirs.config.get("maxHashSlotNum", checks.DEFAULT_SLOTS)
    entries = checks.assert_same_index_files(ours, theirs.path, slots)
    assert entries > len(theirs.records)
    compared("5 index entries", entries)


def stored_properties(record: dict[str, Any]) -> bytes:
    """The properties string as it is in the record: the last field, behind its length."""
    raw = record["raw"]
    topic = record["topic"].encode()
    at = raw.rindex(bytes([len(topic)]) + topic) + 1 + len(topic)
    (length,) = struct.unpack_from(">h", raw, at)
    assert at + 2 + length == len(raw)
    return raw[at + 2 :]


def test_ours_encodes_their_records(theirs: Theirs, tmp_path: Path, compared: Count) -> None:
    """Given all fields of the records, ours writes the very files of the commit log."""
    encoded = []
    for record in theirs.records:
        fields = {name: record[name] for name in FIELDS}
        one = rmqstore.encode_record(
            record["topic"], record["body"], properties=stored_properties(record), **fields
        )
        assert one == record["raw"], record
        encoded.append(one)
    compared("5 records encoded by ours", len(encoded))
    size = theirs.config.get("mappedFileSizeCommitLog", 1 << 30)
    log = tmp_path / "commitlog"
    with rmqstore.CommitLog(log, file_size=size, mode="a") as ours:
        offsets = ours.append(encoded)
    assert offsets == [record["physical_offset"] for record in theirs.records]
    checks.assert_same_log_files(log, theirs.path / "commitlog")
    compared("5 log bytes", offsets[-1] + len(encoded[-1]))
    fillers = 0
    for path in sorted(log.iterdir())[:-1]:
        end = max(offset for offset in offsets if offset < int(path.name) + size)
        at = end + len(encoded[offsets.index(end)]) - int(path.name)
        with path.open("rb") as file:
            file.seek(at)
            filler = file.read()
        assert struct.unpack(">iI", filler[:8]) == (size - at, MAGIC_BLANK)
        assert not any(filler[8:])
        fillers += 1
    if fillers:
        compared("5 fillers", fillers)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "end"), [("small", "close"), ("small", "recovered"), ("default-v6", "close")]
)
def test_theirs_makes_queues_and_index_of_our_log(
    kind: str, end: str, real: Driver, tmp_path: Path, compared: Count
) -> None:
    """And encodes our records to the bytes that they are."""
    written = write(tmp_path, kind, end)
    theirs = copy(written.path, tmp_path / "theirs")
    checks.rebuild(real, theirs, written.config)
    queue_files = checks.assert_same_queue_files(written.path, theirs)
    assert queue_files >= 13
    compared("5 queue files", queue_files)
    slots = written.config.get("maxHashSlotNum", checks.DEFAULT_SLOTS)
    if end == "recovered":
        entries = checks.assert_same_index_keys(written.path, theirs, slots)
    else:
        entries = checks.assert_same_index_files(written.path, theirs, slots)
    assert entries > len(written.expected)
    compared("5 index entries", entries)

    with rmqstore.CommitLog(written.path / "commitlog") as log:
        offsets = [offset for offset, _ in log.records()]
    assert len(offsets) == len(written.expected)
    assert real.open(theirs, written.config)["start"], real.log()
    for record, encoded in real.records(offsets):
        assert record["raw"] == encoded, record
    compared("5 records encoded by the real one", len(offsets))
    assert real.shutdown()
    checks.assert_same_log_files(written.path / "commitlog", theirs / "commitlog")
    compared("5 log bytes", offsets[-1] + len(encoded))
