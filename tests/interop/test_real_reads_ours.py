"""Stores that rmqstore wrote, opened by the real DefaultMessageStore 4.9.3, and back again."""

from __future__ import annotations

import base64
import hashlib
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop import checks, writers
from interop.driver import Driver, Unit, copy, host

WRITE_TIMEOUT = 120
LEVEL_MS = {16: 1_800_000, 17: 3_600_000, 18: 7_200_000}
UNITS_PER_FILE = 300
BORN_V6, STORE_V6 = 0x10, 0x20
APPENDED = 100
TIMED_QUEUES = 8
SAME_NAMES = [
    *("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "flag", "sys_flag"),
    *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
    *("body_crc", "msg_id"),
]


@dataclass
class Written:
    """A store that a child process wrote, and what it put.

    ``end``: closed by it, killed with it, or killed and then recovered and closed by ours.
    """

    path: Path
    kind: str
    end: str
    began: int  # ms
    expected: list[dict[str, Any]]

    @property
    def config(self) -> dict[str, int]:
        """For the real store."""
        return {**writers.CONFIGS[self.kind][0], "maxMsgsNumBatch": 1 << 14}

    @property
    def store_host(self) -> str:
        return writers.CONFIGS[self.kind][1].get("store_host", "127.0.0.1:10911")


def write(directory: Path, kind: str, end: str) -> Written:
    path, result = directory / "store", directory / "expected"
    writers_end = "close" if end == "close" else "kill"
    done = subprocess.run(
        [sys.executable, writers.__file__, str(path), kind, writers_end, str(result)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WRITE_TIMEOUT,
        check=False,
    )
    output = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == (0 if end == "close" else -signal.SIGKILL), output
    if end == "recovered":
        with rmqstore.open(path, "r+", config=writers.config_of(kind)) as store:
            assert not store.recovery.clean
    with result.open("rb") as file:
        loaded = pickle.load(file)
    return Written(path, kind, end, loaded["began"], loaded["expected"])


SCENARIOS = [
    ("small", "close"),
    ("small", "kill"),
    ("small", "recovered"),
    ("small-sync", "kill"),
    ("default-v6", "close"),
    ("default-v6", "kill"),
    ("checksum", "kill"),
]


@pytest.fixture(scope="module", params=SCENARIOS, ids="-".join)
def written(
    request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory
) -> Written:
    return write(tmp_path_factory.mktemp("ours"), *request.param)


@dataclass
class Read:
    """The store as a real one of its own has it open, on a copy."""

    real: Driver
    path: Path
    units: list[Unit]
    indexed_from: int
    delayed: set[tuple[str, int, int]]  # places of what had been dispatched before it was opened

    def __post_init__(self) -> None:
        self.at = {unit.physical_offset: unit for unit in self.units}
        self.places = {unit[:3]: unit for unit in self.units}

    def unit_of(self, put: dict[str, Any]) -> Unit:
        """Return the unit of one message that was put."""
        if put["physical_offset"] is not None:
            return self.at[put["physical_offset"]]
        return self.places[put["topic"], put["queue_id"], put["queue_offset"]]


@pytest.fixture(scope="module")
def read(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    path = copy(written.path, tmp_path_factory.mktemp("read") / "store")
    indexed_from = checks.index_survives_from(path)
    delayed = checks.delayed_units(path)
    with Driver() as real:
        opened = real.open(path, written.config)
        assert opened["load"], real.log()
        assert opened["start"]
        assert opened["clean"] == (written.end != "kill")
        assert opened["behind"] == 0
        yield Read(real, path, real.dump(body=True, raw=True), indexed_from, delayed)


def check_record(put: dict[str, Any], unit: Unit, written: Written, forgotten: bool) -> None:
    """Compare one record, as the real store decodes it, with what was put, field by field.

    ``forgotten``: the real store has dispatched it in recovery, see DELAY_FORGOTTEN.
    """
    record = unit.record
    assert record is not None
    properties = dict(put["properties"])
    level = put["delay_level"]
    raw = record["raw"]
    there = dict(record["properties"])
    if written.kind == "checksum":  # one more property, which 4.9.3 has like any other
        digits = f"{zlib.crc32(raw[:-20]) & 0x7FFFFFFF:010d}"[::-1]
        assert there.pop("__CRC32#") == digits
        assert raw[-20:] == f"__CRC32#\x01{digits}\x02".encode()
        raw = raw[:-20]
    if put["keys"]:
        properties["KEYS"] = " ".join(put["keys"])
    if put["tags"] is not None:
        properties["TAGS"] = put["tags"]
    if put["uniq_key"] is True:
        properties["UNIQ_KEY"] = record["properties"]["UNIQ_KEY"]
        assert len(properties["UNIQ_KEY"]) == 32
    elif put["uniq_key"] is not None:
        properties["UNIQ_KEY"] = put["uniq_key"]
    in_order = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    if level:
        real_queue = put["queue_id"]
        if real_queue is None:
            real_queue = int(record["properties"]["REAL_QID"])
            assert 0 <= real_queue < writers.WRITE_QUEUES
        properties |= {
            "DELAY": str(level),
            "REAL_TOPIC": put["topic"],
            "REAL_QID": str(real_queue),
        }
    assert there == properties
    if not level:
        stored = raw[-len(in_order.encode()) - 1 :] if in_order else b"\x00\x00"
        assert stored.rstrip(b"\x02").endswith(in_order.encode())

    topic, queue_id = (
        (checks.SCHEDULE_TOPIC, level - 1) if level else (put["topic"], put["queue_id"])
    )
    assert (unit.topic, unit.queue_id) == (record["topic"], record["queue_id"]) == (topic, queue_id)
    assert unit.queue_offset == record["queue_offset"] == (put["queue_offset"] or unit.queue_offset)
    assert unit.physical_offset == record["physical_offset"]
    assert unit.size == record["store_size"] == len(record["raw"])
    if level and not forgotten:
        assert unit.tags_code == record["store_timestamp"] + LEVEL_MS[level]
    else:
        assert unit.tags_code == (writers.java_hash(put["tags"]) if put["tags"] else 0)

    born_host = put["born_host"] or written.store_host
    assert host(record["born_host"]) == host(born_host)
    assert host(record["store_host"]) == host(written.store_host)
    v6 = (BORN_V6 if "[" in born_host else 0) | (STORE_V6 if "[" in written.store_host else 0)
    assert record["sys_flag"] == v6
    assert record["body"] == put["body"]
    assert record["flag"] == put["flag"]
    now = int(time.time() * 1000)
    assert written.began <= record["store_timestamp"] <= now
    if put["born_timestamp"] is None:
        assert written.began <= record["born_timestamp"] <= record["store_timestamp"]
    else:
        assert record["born_timestamp"] == put["born_timestamp"]
    assert record["reconsume_times"] == 0
    assert record["prepared_transaction_offset"] == 0
    assert put.get("msg_id") in (None, record["msg_id"])


def check_message(message: Any, unit: Unit) -> None:
    """Compare a message that ours reads with the same one as the real store decodes it."""
    record = unit.record
    assert record is not None
    for name in SAME_NAMES:
        assert getattr(message, name) == record[name], (name, unit[:6])
    assert host(message.born_host) == host(record["born_host"])
    assert host(message.store_host) == host(record["store_host"])
    digest = hashlib.sha1(message.raw_body).digest()
    assert digest == base64.b64decode(record["body_sha1"])
    properties = record["properties"]
    assert dict(message.properties) == properties
    assert message.tags == properties.get("TAGS")
    assert list(message.keys) == [key for key in properties.get("KEYS", "").split(" ") if key]
    assert message.uniq_key == properties.get("UNIQ_KEY")


def check_ours(store: Any, units: list[Unit]) -> None:
    """Compare the whole map of queue offsets to messages with what the real store has."""
    queues = defaultdict(list)
    for unit in units:
        queues[unit.topic, unit.queue_id].append(unit)
    mine = {
        (name, queue_id): queue
        for name, topic in store.topics.items()
        for queue_id, queue in topic.items()
        if len(queue)
    }
    assert sorted(mine) == sorted(queues)
    for place, queue in mine.items():
        theirs = queues[place]
        assert (queue.min_offset, queue.max_offset) == (
            theirs[0].queue_offset,
            theirs[-1].queue_offset + 1,
        )
        assert [tuple(u) for u in queue.units().tolist()] == [unit[3:6] for unit in theirs]
        for message, unit in zip(queue, theirs, strict=True):
            check_message(message, unit)


def test_every_unit_and_record(
    written: Written, read: Read, compared: Callable[[str, int], None]
) -> None:
    found = {read.unit_of(put).physical_offset for put in written.expected}
    assert len(found) == len(written.expected) == len(read.units) == len(read.at)
    for put in written.expected:
        unit = read.unit_of(put)
        forgotten = written.end == "kill" and unit[:3] not in read.delayed
        check_record(put, unit, written, forgotten)
    in_log_order = [read.at[offset] for offset in sorted(read.at)]
    times = [unit.record["store_timestamp"] for unit in in_log_order]
    assert times == sorted(times)
    ends: dict[tuple[str, int], int] = {}
    for unit in read.units:
        assert unit.queue_offset == ends.get(unit[:2], 0)
        ends[unit[:2]] = unit.queue_offset + 1
    if written.kind == "small":
        assert len(list((written.path / "commitlog").iterdir())) > 2
        assert len(list((written.path / "index").iterdir())) > 1
        assert max(ends.values()) > UNITS_PER_FILE
    wide = {queue_id for topic, queue_id in ends if topic == writers.WIDE}
    assert wide == set(range(writers.WIDE_QUEUES))
    compared("1 units and records", len(read.units))


def test_every_key(written: Written, read: Read, compared: Callable[[str, int], None]) -> None:
    wanted = defaultdict(set)
    keys_of = {}
    for put in written.expected:
        unit = read.unit_of(put)
        keys = {*put["keys"], unit.record["properties"].get("UNIQ_KEY")} - {None}
        keys_of[unit.physical_offset] = {(unit.topic, key) for key in keys}
        for key in keys_of[unit.physical_offset]:
            wanted[key].add(unit.physical_offset)
    lost, lost_before = 0, read.indexed_from
    for key, hits in zip(wanted, read.real.locate(list(wanted)), strict=True):
        assert hits == sorted(hits, reverse=True)
        exact = {hit for hit in hits if key in keys_of[hit]}
        assert exact <= wanted[key]
        # What 4.9.3 throws away of an index after a crash is not ours to answer for.
        missing = wanted[key] - exact
        assert all(offset < lost_before for offset in missing)
        lost += len(missing)
    assert lost == 0 or written.end == "kill"
    rare = [key for key, hits in wanted.items() if len(hits) < 20 and min(hits) >= lost_before]
    for key in rare[:: max(1, len(rare) // 50)]:
        found = {record["physical_offset"] for record in read.real.query(*key)}
        assert {offset for offset in found if key in keys_of[offset]} == wanted[key]
    compared("1 keys", len(wanted))


def test_get_as_ours(written: Written, read: Read, compared: Callable[[str, int], None]) -> None:
    """Both have the directory open: the real store as its owner, ours to read."""
    gets = 0
    with rmqstore.open(read.path, "r") as store:
        queues = defaultdict(list)
        for unit in read.units:
            queues[unit.topic, unit.queue_id].append(unit)
        for (topic, queue_id), units in queues.items():
            for tags in (None, "TagA || BB"):
                codes = {writers.java_hash("TagA"), writers.java_hash("BB")}
                wanted = [u[3] for u in units if tags is None or u.tags_code in codes]
                found, at = [], 0
                while (got := read.real.get(topic, queue_id, at, 32, tags)).next_offset > at:
                    assert got.status in {"FOUND", "NO_MATCHED_MESSAGE"}
                    found += [record["physical_offset"] for record in got.records]
                    at = got.next_offset
                    gets += 1
                assert got.status == "OFFSET_OVERFLOW_ONE"
                assert found == wanted
            end = len(units)
            for offset in (0, end - 1, end, end + 1, end + 100):
                theirs = read.real.get(topic, queue_id, offset, 1)
                ours = store.get(topic, queue_id, offset, 1)
                gets += 1
                assert ours.status.name == theirs.status
                assert ours.next_offset == theirs.next_offset
                assert (ours.min_offset, ours.max_offset) == (theirs.min_offset, theirs.max_offset)
                assert [m.physical_offset for m in ours.messages] == [
                    record["physical_offset"] for record in theirs.records
                ]
        assert store.get("no-such-topic", 0, 0).status.name == "NO_MESSAGE_IN_QUEUE"
        assert read.real.get("no-such-topic", 0, 0).status == "NO_MESSAGE_IN_QUEUE"
    compared("1 gets", gets)


def file_of(path: Path, times: list[int], at: int) -> tuple[int, int]:
    """The units of the queue file that 4.9.3 looks in for a time: first and behind the last.

    It takes the first file that was modified then or later, else the last; here each counts as
    modified when its last message was stored.
    """
    starts = [int(file.name) // checks.UNIT_BYTES for file in sorted(path.iterdir())]
    for start, stop in zip(starts, [*starts[1:], len(times)], strict=True):
        if times[stop - 1] >= at or stop == len(times):
            return start, stop
    raise AssertionError(path)


def test_offsets_at_times(
    written: Written, read: Read, compared: Callable[[str, int], None]
) -> None:
    """Both answer with a message that is nearest; but 4.9.3 looks in one file of the queue only."""
    queues = defaultdict(list)
    for unit in read.units:
        queues[unit.topic, unit.queue_id].append(unit)
    some = random.Random(5).sample(sorted(queues), TIMED_QUEUES)
    longest = max(queues, key=lambda queue: len(queues[queue]))
    with rmqstore.open(read.path, "r") as store:
        for topic, queue_id in {*some, longest, (writers.FEW, 0)}:
            times = [unit.record["store_timestamp"] for unit in queues[topic, queue_id]]
            path = read.path / "consumequeue" / topic / str(queue_id)
            for file in sorted(path.iterdir()):
                stop = (int(file.name) + file.stat().st_size) // checks.UNIT_BYTES
                modified = times[min(stop, len(times)) - 1] * 1_000_000
                os.utime(file, ns=(modified, modified))
            asked = {times[0] - 1000, times[-1] + 1000}
            asked |= {t + by for t in times[:: max(1, len(times) // 100)] for by in (-1, 0, 1)}
            at_ends = times[UNITS_PER_FILE - 1 :: UNITS_PER_FILE]  # of the small files
            asked |= {t + by for t in at_ends for by in (0, 1, 2)}
            for at, theirs in zip(
                asked, read.real.offsets_at(topic, queue_id, list(asked)), strict=True
            ):
                start, stop = file_of(path, times, at)
                assert start <= theirs < stop
                nearest = min(abs(t - at) for t in times[start:stop])
                assert abs(times[theirs] - at) == nearest
                ours = store[topic][queue_id].offset_at(at, boundary="nearest")
                assert abs(times[ours] - at) == min(abs(t - at) for t in times)
            compared("1 offsets by time", len(asked))


@pytest.mark.long
@pytest.mark.parametrize("leave", ["shutdown", "kill"])
def test_it_appends_and_ours_reads_on(
    leave: str,
    written: Written,
    start: Callable[[], Driver],
    tmp_path: Path,
    compared: Callable[[str, int], None],
) -> None:
    real = start()
    real.reset()
    path = copy(written.path, tmp_path / "store")
    assert real.open(path, written.config)["start"], real.log()
    puts = real.append(
        [
            {
                "topic": ("orders", "Topic1", "theirs")[n % 3],
                "queue_id": n % writers.WRITE_QUEUES,
                "flag": n,
                "body": b"theirs " * n,
                "born_host": "[2001:db8::2]:2" if n % 2 else "192.0.2.1:1",
                "properties": {"n": str(n), "KEYS": f"their-{n} \u952e", "TAGS": "TagA"},
            }
            for n in range(APPENDED)
        ]
    )
    assert {put.status for put in puts} == {"PUT_OK"}
    units = real.dump()
    assert len(units) == len(written.expected) + APPENDED
    if leave == "shutdown":
        assert real.shutdown()
    else:
        real.kill()
    place = ("orders", 0)
    end = 1 + max(unit.queue_offset for unit in units if unit[:2] == place)

    with rmqstore.open(path, "r") as store:
        check_ours(store, units)
        for n, put in enumerate(puts):
            found = store.query(("orders", "Topic1", "theirs")[n % 3], f"their-{n}")
            assert [message.physical_offset for message in found] == [put.physical_offset]
    with rmqstore.open(path, "r+") as store:
        assert store.recovery.clean == (leave == "shutdown")
        check_ours(store, units)
        done = store.put("orders", b"ours again", queue_id=0, keys="again", tags="TagB")
        assert done.queue_offset == end
        assert store["orders"][0][end].body == b"ours again"
        found = store.query("orders", "again")
        assert [message.physical_offset for message in found] == [done.physical_offset]

    again = start()
    assert again.open(path, written.config)["clean"]
    after = {unit[:3]: unit for unit in again.dump(body=True)}
    last = after.pop((*place, end))
    assert last.physical_offset == done.physical_offset
    assert last.tags_code == writers.java_hash("TagB")
    assert last.record["body"] == b"ours again"
    assert {key: unit[:6] for key, unit in after.items()} == {unit[:3]: unit[:6] for unit in units}
    compared("1 units and records, appended to by both", len(units) * 2 + len(after))
    assert again.shutdown()


def test_ours_is_locked_out(written: Written, read: Read) -> None:
    """A real store that is running holds the lock against ours."""
    assert (read.path / "abort").exists()
    with pytest.raises(rmqstore.StoreLockedError):
        rmqstore.open(read.path, "r+")
