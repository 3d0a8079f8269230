"""The driver on stores of a real broker: that what it says is what the broker itself said."""

from __future__ import annotations

import base64
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from interop import checks
from interop.driver import DEFAULT, FOREVER, SMALL, Driver, DriverError, Unit, copy

STORES = {"quickstart": DEFAULT, "broker-clean": SMALL, "broker-killed": SMALL}
UNLIMITED = {"maxMsgsNumBatch": 1 << 14}
ROLLBACK = 0xC
MORE_THAN_DUMPED = {"quickstart": 0, "broker-clean": 0, "broker-killed": 10}


def property_text(properties: dict[str, str]) -> str:
    names = sorted(properties, key=lambda name: name.encode("utf-16-be"))
    return "{" + ", ".join(f"{name}={properties[name]}" for name in names) + "}"


def as_dumped(unit: Unit) -> tuple:
    """The unit in the columns of a broker's ``dump.tsv``."""
    record = unit.record
    assert record is not None
    return (
        *unit[:6],
        record["topic"],
        record["queue_id"],
        record["queue_offset"],
        record["sys_flag"],
        record["born_timestamp"],
        record["store_timestamp"],
        record["msg_id"],
        record["born_host"].rpartition(":")[0],
        record["body_crc"],
        base64.b64decode(record["body_sha1"]),
        property_text(record["properties"]),
    )


def row(dumped) -> tuple:
    return tuple(getattr(dumped, name) for name in dumped.__dataclass_fields__)


def open_copy(real: Driver, broker_copy: Callable, name: str, tmp_path: Path):
    store = broker_copy(name, tmp_path)
    opened = real.open(store.root, {**STORES[name], **UNLIMITED})
    assert opened["load"], real.log()
    assert opened["start"]
    assert opened["clean"] == (name != "broker-killed")
    assert opened["writeable"]
    return store


@pytest.mark.parametrize("name", STORES)
def test_dump_is_the_brokers(
    name: str, real: Driver, broker_copy: Callable, tmp_path: Path
) -> None:
    store = open_copy(real, broker_copy, name, tmp_path)
    units = real.dump()
    found = {unit[:3]: as_dumped(unit) for unit in units}
    assert len(found) == len(units)
    wanted = {row(dumped)[:3]: row(dumped) for dumped in store.dump}
    assert {key: found.get(key) for key in wanted} == wanted
    assert len(found) == len(wanted) + MORE_THAN_DUMPED[name]
    ends: dict[tuple[str, int], int] = {}
    for unit in units:
        ends[unit[:2]] = unit.queue_offset + 1
    assert {queue: end for queue, (_, end) in real.minmax().items() if end} == ends
    assert real.shutdown()


@pytest.mark.parametrize("name", ["quickstart", "broker-clean"])
def test_keys_are_the_brokers(
    name: str, real: Driver, broker_copy: Callable, tmp_path: Path
) -> None:
    open_copy(real, broker_copy, name, tmp_path)
    wanted = defaultdict(set)
    keys_of = {}
    for unit in real.dump():
        record = unit.record
        if record["sys_flag"] & ROLLBACK != ROLLBACK:
            properties = record["properties"]
            keys = {properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")} - {None, ""}
            keys_of[unit.physical_offset] = {(record["topic"], key) for key in keys}
            for key in keys_of[unit.physical_offset]:
                wanted[key].add(unit.physical_offset)
    assert wanted
    for key, hits in zip(wanted, real.locate(list(wanted)), strict=True):
        assert hits == sorted(hits, reverse=True)
        assert {hit for hit in hits if key in keys_of[hit]} == wanted[key]
    for key in random.Random(3).sample(sorted(wanted), min(50, len(wanted))):
        found = {record["physical_offset"] for record in real.query(*key)}
        assert found >= set(sorted(wanted[key])[-30:])
    assert real.shutdown()


def test_get_and_time(real: Driver, broker_copy: Callable, tmp_path: Path) -> None:
    open_copy(real, broker_copy, "broker-clean", tmp_path)
    units = [unit for unit in real.dump("orders") if unit.queue_id == 1]
    got = real.get("orders", 1, 5, 32)
    assert (got.status, got.next_offset) == ("FOUND", 37)
    assert [record["queue_offset"] for record in got.records] == list(range(5, 37))
    wanted = [u.physical_offset for u in units if u.record["properties"].get("TAGS") == "paid"]
    found, at = [], 0
    while (got := real.get("orders", 1, at, 32, "paid")).status != "OFFSET_OVERFLOW_ONE":
        found += [record["physical_offset"] for record in got.records]
        assert got.next_offset > at
        at = got.next_offset
    assert found == wanted != []
    assert real.get("orders", 1, len(units) + 1).status == "OFFSET_OVERFLOW_BADLY"
    assert real.get("orders", 1, -1).status == "OFFSET_TOO_SMALL"
    assert real.get("no-such-topic", 0, 0).status == "NO_MESSAGE_IN_QUEUE"
    times = [unit.record["store_timestamp"] for unit in units]
    for time, offset in zip(times, real.offsets_at("orders", 1, times), strict=True):
        assert times[offset] == time
    assert real.shutdown()


@pytest.mark.parametrize("leave", ["shutdown", "halt", "kill"])
def test_append(
    leave: str, start: Callable[[], Driver], broker_copy: Callable, tmp_path: Path
) -> None:
    real = start()
    real.reset()
    store = open_copy(real, broker_copy, "broker-clean", tmp_path)
    before = real.dump()
    messages = [
        {
            "topic": "new",
            "queue_id": n % 3,
            "flag": n - 50,
            "body": random.Random(n).randbytes(n * 200),
            "born_host": "[2001:db8::7]:4321" if n % 2 else "10.1.2.3:65535",
            "born_timestamp": 1_700_000_000_000 + n,
            "properties": {"first": "\u00e9\U0001f680", "KEYS": f"k{n} all", "TAGS": "Aa"},
        }
        for n in range(100)
    ]
    puts = real.append(messages)
    assert {put.status for put in puts} == {"PUT_OK"}
    batch = real.batch("new", 1, [{"body": b"five", "properties": {"KEYS": "b"}}] * 5)
    assert batch.status == "PUT_OK"
    with pytest.raises(DriverError, match="open already"):
        real.open(store.root, SMALL)
    if leave == "shutdown":
        assert real.shutdown()
    else:
        getattr(real, leave)()
        real = start()
    opened = real.open(store.root, SMALL)
    assert opened["load"]
    assert opened["clean"] == (leave == "shutdown")
    after = {unit.physical_offset: unit for unit in real.dump(body=True)}
    assert {unit[:6] for unit in before} <= {unit[:6] for unit in after.values()}
    assert len(after) == len(before) + 105
    for message, put in zip(messages, puts, strict=True):
        unit = after[put.physical_offset]
        assert (unit.topic, unit.queue_id) == ("new", message["queue_id"])
        assert (unit.queue_offset, unit.size) == (put.queue_offset, put.wrote_bytes)
        assert unit.record["msg_id"] == put.msg_id
        for name in ("flag", "body", "born_timestamp", "properties"):
            assert unit.record[name] == message[name]
        hits = real.locate([("new", message["properties"]["KEYS"].split(" ")[0])])[0]
        assert set(hits) == {put.physical_offset}  # named twice where a file was made anew
    found = real.query("new", "b", 64, 0, FOREVER)
    assert [record["queue_offset"] for record in found][:5] == list(
        range(batch.queue_offset, batch.queue_offset + 5)
    )
    assert real.shutdown()


@pytest.mark.parametrize("name", ["quickstart", "broker-clean"])
def test_queues_and_index_made_anew(
    name: str, real: Driver, broker_copy: Callable, tmp_path: Path
) -> None:
    """What the comparison of our files rests on: the log alone decides both kinds of file."""
    store = broker_copy(name, tmp_path)
    anew = copy(store.root, tmp_path / "anew")
    checks.rebuild(real, anew, STORES[name])
    assert checks.assert_same_queue_files(store.root, anew) > 0
    slots = STORES[name].get("maxHashSlotNum", checks.DEFAULT_SLOTS)
    assert checks.assert_same_index_files(store.root, anew, slots) > 0


def test_refusals(real: Driver, broker_copy: Callable, tmp_path: Path) -> None:
    store = broker_copy("broker-clean", tmp_path)
    with pytest.raises(DriverError, match="no store is open"):
        real.dump()
    with pytest.raises(DriverError, match="not taken: noSuchSetting"):
        real.open(store.root, {"noSuchSetting": 1})
    opened = real.open(store.root, {**SMALL, "mappedFileSizeCommitLog": 1 << 19})
    assert not opened["load"]
    assert not opened["start"]
    assert "length not matched" in real.log()


def test_no_answer_in_time(
    start: Callable[[], Driver], broker_copy: Callable, tmp_path: Path
) -> None:
    real = start()
    real.reset()
    open_copy(real, broker_copy, "broker-clean", tmp_path)
    with pytest.raises(DriverError, match="timeout"):
        real.call("dump", timeout=0)  # longer than any wait for a processor
    assert not real.alive
    with pytest.raises(DriverError, match="has ended"):
        real.info()


def test_listens_on_loopback_only(real: Driver, broker_copy: Callable, tmp_path: Path) -> None:
    """Replication is what would listen on all addresses, and on a fixed port."""
    open_copy(real, broker_copy, "broker-clean", tmp_path)
    assert checks.assert_loopback_only(real.pid) == 1
    assert real.shutdown()
