"""The real store of 5.3.3: the way up from ours and back, and its own stores read by ours."""

from __future__ import annotations

import base64
import hashlib
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop.driver import SMALL, Unit, host
from interop.five import FiveDriver
from rmqstore.config.store_config import StoreConfig
from support import oracle_store

CONFIG = StoreConfig(
    mapped_file_size_commit_log=SMALL["mappedFileSizeCommitLog"],
    mapped_file_size_consume_queue=SMALL["mappedFileSizeConsumeQueue"],
    max_hash_slot_num=SMALL["maxHashSlotNum"],
    max_index_num=SMALL["maxIndexNum"],
)
QUEUES = 3
FIELDS = [
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "flag",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "body_crc",
    "msg_id",
    "properties",
]


@pytest.fixture(scope="module")
def five_driver(java: None) -> Iterator[Callable[[], FiveDriver]]:
    """A function that gives the module's driver, a new one where the last was killed."""
    drivers: list[FiveDriver] = []

    def running() -> FiveDriver:
        if not drivers or not drivers[-1].alive:
            drivers.append(FiveDriver())
        return drivers[-1]

    yield running
    for driver in drivers:
        driver.close()


@pytest.fixture
def five(five_driver: Callable[[], FiveDriver]) -> Iterator[FiveDriver]:
    """The driver, with no store open before and after."""
    driver = five_driver()
    driver.reset()
    yield driver
    driver.reset()


def fields_of(message: rmqstore.Message) -> dict[str, Any]:
    found = {name: getattr(message, name) for name in FIELDS}
    found["properties"] = dict(message.properties)
    found["born_host"] = host(message.born_host)
    found["store_host"] = host(message.store_host)
    found["body_sha1"] = base64.b64encode(hashlib.sha1(message.body).digest()).decode()
    return found


def fields_of_theirs(record: dict[str, Any]) -> dict[str, Any]:
    found = {name: record[name] for name in (*FIELDS, "body_sha1")}
    found["born_host"] = host(record["born_host"])
    found["store_host"] = host(record["store_host"])
    return found


def keys_of(record: dict[str, Any]) -> set[str]:
    properties = record["properties"]
    words = set(properties.get("KEYS", "").split(" ")) | {properties.get("UNIQ_KEY", "")}
    return words - {""}


def assert_reads_all(root: Path, units: list[Unit]) -> int:
    """By place, by queue and by key what the real store read by queue; the number of records."""
    with rmqstore.open(root) as store:
        by_queue: dict[tuple[str, int], list[dict[str, Any]]] = {}
        by_key: dict[tuple[str, str], list[int]] = {}
        for unit in units:
            assert unit.record is not None
            wanted = fields_of_theirs(unit.record)
            by_queue.setdefault((unit.topic, unit.queue_id), []).append(wanted)
            assert fields_of(store.at(unit.physical_offset)) == wanted
            for key in keys_of(unit.record):
                by_key.setdefault((unit.topic, key), []).append(unit.physical_offset)
        found = {
            (name, queue_id): [fields_of(message) for message in queue]
            for name, topic in store.topics.items()
            for queue_id, queue in topic.items()
            if len(queue)
        }
        assert found == by_queue
        for (topic, key), offsets in by_key.items():
            hits = [message.physical_offset for message in store.query(topic, key)]
            assert hits == sorted(offsets, reverse=True), (topic, key)
        pa = pytest.importorskip("pyarrow")
        table = pa.table(store.scan(columns=["physical_offset", "body"]))
        bodies = {
            offset: base64.b64encode(hashlib.sha1(body).digest()).decode()
            for offset, body in zip(*(column.to_pylist() for column in table.columns), strict=True)
        }
        assert bodies == {unit.physical_offset: unit.record["body_sha1"] for unit in units}
    return len(units)


def traffic(chance: random.Random, topics: list[str], count: int) -> list[dict[str, Any]]:
    """Messages of every kind that 5.3.3's store takes for ordinary queues."""
    keys = ["Aa", "BB", "order-1", "\u952e", *(f"k{n}" for n in range(50))]
    messages = []
    for n in range(count):
        properties = {"UNIQ_KEY": f"{n:032X}"}
        if chance.random() < 0.7:
            properties["KEYS"] = " ".join(chance.sample(keys, chance.randint(1, 3)))
        if chance.random() < 0.6:
            properties["TAGS"] = chance.choice(["TagA", "Aa", "BB", "\U0001f680"])
        if chance.random() < 0.3:
            properties["\u5c5e\u6027"] = "x" * chance.randint(1, 2000)
        message = {
            "topic": chance.choice(topics),
            "queue_id": chance.randrange(QUEUES),
            "flag": chance.choice([0, 7, -1]),
            "body": chance.randbytes(chance.choice([1, 50, 50, 3000])) * chance.choice([1, 1, 30]),
            "properties": properties,
            "born_host": chance.choice(["127.0.0.1:1", "[fe80::1]:9"]),
            "store_host": chance.choice(["127.0.0.1:10911", "[::1]:10911"]),
        }
        if chance.random() < 0.6:
            message["compression"] = chance.choice(["LZ4", "ZSTD", "ZLIB"])
        messages.append(message)
    return messages


@pytest.mark.long
@pytest.mark.parametrize(("queues", "crc"), [("files", True), ("rocksdb", False)])
def test_ours_reads_what_five_wrote(
    five: FiveDriver, tmp_path: Path, seed: str, compared: Any, crc: bool, queues: str
) -> None:
    chance = random.Random(f"{seed}-{crc}-{queues}")
    root = tmp_path / "store"
    topics = ["t", "a_b-c%1|2", "T" * 127, "T" * 128, "u" * chance.randint(129, 255)]
    config: dict[str, Any] = {
        **SMALL,
        "enabledAppendPropCRC": str(crc).lower(),
        "maxTopicLength": 255,
    }
    if queues == "rocksdb":
        config["storeType"] = "defaultRocksDB"
    assert five.open(root, config)["start"]
    messages = traffic(chance, topics, 400)
    put = five.append(messages)
    assert Counter(one.status for one in put) == {"PUT_OK": len(messages)}
    units = five.dump()
    until = time.monotonic() + 60
    while len(units) < len(messages) and time.monotonic() < until:  # RocksDB writes in its own time
        time.sleep(0.1)
        units = five.dump()
    assert len(units) == len(messages)
    assert five.shutdown()
    compared("five: records of its stores", assert_reads_all(root, units))
    checked = sum("__CRC32#" in unit.record["properties"] for unit in units)
    assert checked == (len(units) if crc else 0)
    before = oracle_store.snapshot(root)
    with rmqstore.open(root) as store:
        notes = [note for note in store.recovery.notes if "RocksDB" in note]
        assert len(notes) == (queues == "rocksdb")
    for mode in ("r+", "a"):
        with pytest.raises(rmqstore.IncompatibleStoreError, match="RocketMQ 5"):
            rmqstore.open(root, mode, config=CONFIG)
    assert oracle_store.snapshot(root) == before
    if crc:
        starts = {unit.physical_offset for unit in units}
        followed = [unit for unit in units if unit.physical_offset + unit.size in starts]
        assert_checksum_counts(root, followed[len(followed) // 2])


def assert_checksum_counts(root: Path, unit: Unit) -> None:
    """A byte that only the whole record's checksum covers: the record is refused by its name.

    Another record follows it: else the filler behind it is taken for damaged as well.
    """
    size = SMALL["mappedFileSizeCommitLog"]
    start = unit.physical_offset - unit.physical_offset % size
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(unit.physical_offset - start + 47)  # of the born time
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    with rmqstore.open(root, verify="full") as store:
        # Without queue files only a walk knows of a record that is not good.
        stop = unit.physical_offset + unit.size
        wanted = f"bytes {unit.physical_offset} to {stop} of the log are no good record"
        assert wanted in store.recovery.notes
        if not any("RocksDB" in note for note in store.recovery.notes):
            with pytest.raises(rmqstore.StoreCorruptError, match="__CRC32#") as caught:
                store.at(unit.physical_offset)
            assert caught.value.offset == unit.physical_offset


@pytest.mark.long
def test_batch_queues_are_named(five: FiveDriver, tmp_path: Path, compared: Any) -> None:
    root = tmp_path / "store"
    assert five.open(root, SMALL, batch_topics=["batched"])["start"]
    batches = [
        {
            "topic": "batched",
            "body": b"%d" % n,
            "sys_flag": 0x80,
            "properties": {"INNER_NUM": str(n + 1), "KEYS": f"b{n}"},
        }
        for n in range(5)
    ]
    put = five.append(batches)
    assert [one.queue_offset for one in put] == [0, 1, 3, 6, 10]
    assert five.shutdown()
    with rmqstore.open(root) as store:
        assert any("batch consume queues of batched" in note for note in store.recovery.notes)
        for n, one in enumerate(put):
            assert store.at(one.physical_offset).body == b"%d" % n
            (hit,) = store.query("batched", f"b{n}")
            assert hit.physical_offset == one.physical_offset
    with pytest.raises(rmqstore.IncompatibleStoreError, match="batch consume queues"):
        rmqstore.open(root, "r+", config=CONFIG)
    compared("five: records of batch queues", len(put))


WRITE = """
import os, sys, rmqstore
from rmqstore.config.store_config import StoreConfig
store = rmqstore.open(sys.argv[1], "a", config=sys.argv[2])
for n in range(int(sys.argv[3])):
    store.put("orders", b"%d " % n * (n % 300), queue_id=n % 3, keys=[f"k{n % 60}"], tags="TagA")
store.put_batch("orders", [b"b1", b"b2", b"b3"], queue_id=1)
store.flush()
os.kill(os.getpid(), 9) if sys.argv[4] == "killed" else store.close()
"""


@pytest.mark.long
@pytest.mark.parametrize(("left", "crc"), [("closed", True), ("killed", False)])
def test_the_way_up_and_back(
    five_driver: Callable[[], FiveDriver],
    tmp_path: Path,
    seed: str,
    compared: Any,
    left: str,
    crc: bool,
) -> None:
    """5.3.3 opens what ours left, reads all of it and appends; ours goes on, in turns."""
    chance = random.Random(f"{seed}-{left}-{crc}")
    root = tmp_path / "store"
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SMALL.items()))
    count = chance.randint(1500, 2500)
    subprocess.run([sys.executable, "-c", WRITE, root, conf, str(count), left], check=False)
    total = count + 3
    for turn in range(3):
        five = five_driver()
        five.reset()
        opened = five.open(root, {**SMALL, "enabledAppendPropCRC": str(crc).lower()})
        assert opened["start"]
        assert opened["clean"] == (left == "closed" or turn > 0)
        assert len(five.dump("orders")) == total
        assert len(five.query("orders", "k7", 1 << 10)) == keyed(root, "k7")
        messages = [
            {**one, "properties": {**one["properties"], "KEYS": f"five{turn}"}}
            for one in traffic(chance, ["orders", "more"], 200)
        ]
        put = five.append(messages)
        assert {one.status for one in put} == {"PUT_OK"}
        total += sum(one["topic"] == "orders" for one in messages)
        units = five.dump()
        if turn == 1:  # a broker that is killed leaves its log in the page cache
            five.kill()
        else:
            assert five.shutdown()
        compared("five: records of both", assert_reads_all(root, units))
        with rmqstore.open(root, "r+", config=CONFIG) as store:
            assert store.recovery.bytes_cut == 0
            assert sum(len(queue) for queue in store["orders"].values()) == total
            assert len(store.query("orders", f"five{turn}")) == sum(
                one["topic"] == "orders" for one in messages
            )
            for n in range(20):
                store.put("orders", b"ours", queue_id=n % QUEUES, keys=[f"k{n}"])
            total += 20


def keyed(root: Path, key: str) -> int:
    with rmqstore.open(root) as store:
        return len(store.query("orders", key))
