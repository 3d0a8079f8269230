"""The stores that a real 4.9.3 broker left behind, read through the package."""

from __future__ import annotations

import hashlib

import pytest

import rmqstore
from conftest import property_text
from support import oracle, oracle_store
from support.strategies import assert_same

STORES = {"quickstart": 1, "broker-clean": 3498, "broker-killed": 3339}  # units
SMALL = ["broker-clean", "broker-killed"]
TOO_FAR = 1_000_000


def assert_every_row(store, dump):
    """Every row of the dump, in every column, by unit and by message."""
    queues = {}
    for row in dump:
        name = (row.topic, row.queue_id)
        if name not in queues:
            queue = store[row.topic][row.queue_id]
            assert queue.min_offset == 0
            messages = list(queue)
            units = queue.units().tolist()
            assert len(messages) == len(units) == queue.max_offset == len(queue)
            queues[name] = units, messages
        units, messages = queues[name]
        message = messages[row.queue_offset]
        read = (
            row.topic,
            row.queue_id,
            row.queue_offset,
            *units[row.queue_offset],
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.sys_flag,
            message.born_timestamp,
            message.store_timestamp,
            message.msg_id,
            message.born_host.rpartition(":")[0],
            message.body_crc,
            hashlib.sha1(message.raw_body).digest(),
            property_text(dict(message.properties)),
        )
        assert read == tuple(vars(row).values())
        assert (message.physical_offset, message.store_size) == (row.physical_offset, row.size)
    return sum(len(units) for units, _ in queues.values())


def keys_of(records):
    """The (topic, key) of all that is in the index: physical offsets, newest first."""
    places = {}
    for record in records:
        for key in dict.fromkeys(oracle.index_keys(record)):
            places.setdefault((record.topic, key), []).insert(0, record.physical_offset)
    return places


def assert_every_key(store, records, **options):
    places = keys_of(records)
    for (topic, key), expected in places.items():
        found = store.query(topic, key, **options)
        assert [message.physical_offset for message in found] == expected, (topic, key)
    return len(places)


@pytest.mark.parametrize("name", STORES)
def test_every_row_of_the_dump(broker_store, name):
    broker = broker_store(name)
    with rmqstore.open(broker.root, "r") as store:
        assert assert_every_row(store, broker.dump) == STORES[name]
        assert {row.topic for row in broker.dump} <= set(store.topics)
        for row in broker.dump[:: max(1, len(broker.dump) // 50)]:
            at = store.at(row.physical_offset)
            assert at.queue_offset == row.record_queue_offset
            assert store.message(row.msg_id) == at


@pytest.mark.parametrize("name", STORES)
def test_every_field_of_every_record(broker_store, name):
    broker = broker_store(name)
    with rmqstore.open(broker.root, "r") as store:
        for record in oracle_store.walk_log(broker.root / "commitlog"):
            message = store.at(record.physical_offset)
            assert_same(message, record)
            assert message.body == record.body


@pytest.mark.parametrize("name", STORES)
def test_whole_queues_in_one_get(broker_store, name):
    broker = broker_store(name)
    with rmqstore.open(broker.root, "r") as store:
        for (topic, queue_id), units in oracle_store.read_queues(broker.root).items():
            assert store[topic][queue_id].units().tolist() == list(units)
            found = store.get(topic, queue_id, 0, TOO_FAR)
            assert found.status == rmqstore.GetStatus.FOUND
            assert found.next_offset == found.max_offset == len(units)
            places = [message.physical_offset for message in found.messages]
            assert places == [physical_offset for physical_offset, _, _ in units]
            end = store.get(topic, queue_id, len(units))
            assert end.status == rmqstore.GetStatus.OFFSET_OVERFLOW_ONE


@pytest.mark.parametrize("index_only", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_every_key_is_found_newest_first(broker_store, name, index_only):
    broker = broker_store(name)
    records = list(oracle_store.walk_log(broker.root / "commitlog"))
    with rmqstore.open(broker.root, "r") as store:
        count = assert_every_key(store, records, index_only=index_only)
        assert count == (1 if name == "quickstart" else len(keys_of(records)))
        assert store.query("Topic1", "no such key", index_only=index_only) == []
        assert store.query("no such topic", "order-1", index_only=index_only) == []


@pytest.mark.parametrize("name", SMALL)
def test_keys_that_collide_are_not_mixed_up(broker_store, name):
    broker = broker_store(name)
    places = keys_of(oracle_store.walk_log(broker.root / "commitlog"))
    by_hash = {}
    for topic, key in places:
        by_hash.setdefault(oracle.string_hash(f"{topic}#{key}"), []).append((topic, key))
    colliding = [names for names in by_hash.values() if len(names) > 1]
    assert colliding
    with rmqstore.open(broker.root, "r") as store:
        for names in colliding:
            for topic, key in names:
                found = [message.physical_offset for message in store.query(topic, key)]
                assert found == places[topic, key]


@pytest.mark.parametrize("name", SMALL)
def test_many_keys_at_once(broker_store, name):
    broker = broker_store(name)
    places = keys_of(oracle_store.walk_log(broker.root / "commitlog"))
    keys = [key for topic, key in places if topic == "orders"] + ["no such key"]
    with rmqstore.open(broker.root, "r") as store:
        offsets, starts = store.locate_many("orders", keys)
        found = store.query_many("orders", keys)
        assert len(found) == len(starts) - 1 == len(keys)
        for number, key in enumerate(keys):
            expected = places.get(("orders", key), [])
            assert offsets[starts[number] : starts[number + 1]].tolist() == expected
            assert [message.physical_offset for message in found[number]] == expected


@pytest.mark.parametrize("name", STORES)
def test_reading_changes_nothing_on_disk(broker_copy, name, tmp_path):
    broker = broker_copy(name, tmp_path)
    before = oracle_store.snapshot(broker.root)
    with rmqstore.open(broker.root) as store:
        assert_every_row(store, broker.dump)
        assert_every_key(store, oracle_store.walk_log(broker.root / "commitlog"))
        with pytest.raises(rmqstore.ReadOnlyStoreError):
            store.put("Topic1", b"x")
    assert oracle_store.snapshot(broker.root) == before


@pytest.mark.parametrize("name", STORES)
def test_a_directory_that_cannot_be_written_to(broker_copy, name, tmp_path):
    broker = broker_copy(name, tmp_path)
    directories = [broker.root, *(path for path in broker.root.rglob("*") if path.is_dir())]
    for path in directories:
        path.chmod(0o555)
    try:
        with rmqstore.open(broker.root, "r") as store:
            assert_every_row(store, broker.dump)
    finally:
        for path in directories:
            path.chmod(0o755)


@pytest.mark.usefixtures("undelivered")
@pytest.mark.parametrize("name", SMALL)
def test_appends_go_on_where_the_broker_ended(broker_copy, name, tmp_path):
    broker = broker_copy(name, tmp_path)
    records = list(oracle_store.walk_log(broker.root / "commitlog"))
    queues = oracle_store.read_queues(broker.root)
    log_end = records[-1].physical_offset + records[-1].store_size
    orders = {queue_id: queues["orders", queue_id].max_offset for queue_id in range(4)}
    assert oracle_store.is_clean(broker.root) == (name == "broker-clean")

    with rmqstore.open(broker.root, "r+") as store:
        assert store.recovery.clean == (name == "broker-clean")
        assert store.recovery.bytes_cut == 0
        assert assert_every_row(store, broker.dump) == STORES[name]
        assert_every_key(store, records)
        placed = []
        for number in range(2000):
            queue_id = number % 4
            done = store.put(
                "orders",
                b"%d" % number * 100,
                queue_id=queue_id,
                tags="Aa",
                keys=[f"new-{number}", "new"],
            )
            assert done.queue_offset == orders[queue_id]
            assert done.physical_offset >= log_end
            orders[queue_id] += 1
            log_end = done.physical_offset + 1
            placed.append(done.physical_offset)
        assert assert_every_row(store, broker.dump) == STORES[name] + 2000
        assert_every_key(store, records)
        assert [message.physical_offset for message in store.query("orders", "new")] == placed[::-1]

    by_queue = oracle_store.check_store(broker.root)
    assert oracle_store.is_clean(broker.root)
    for queue_id, count in orders.items():
        assert len(by_queue["orders", queue_id]) == count
    after = {
        record.physical_offset: record
        for record in oracle_store.walk_log(broker.root / "commitlog")
    }
    assert [after[record.physical_offset] for record in records] == records
    for number, physical_offset in enumerate(placed):
        assert after[physical_offset].body == b"%d" % number * 100
        assert after[physical_offset].keys == (f"new-{number}", "new")

    with rmqstore.open(broker.root, "r") as store:
        assert assert_every_row(store, broker.dump) == STORES[name] + 2000
        assert store.query("orders", "new-1999")[0].physical_offset == placed[-1]


def test_the_quickstart_store_goes_on_with_its_big_files(broker_copy, tmp_path):
    broker = broker_copy("quickstart", tmp_path)
    with rmqstore.open(broker.root, "r+") as store:
        assert_every_row(store, broker.dump)
        done = store.put("Topic1", b"Hello RocketMQ", tags="TagA", keys=["order-1"], queue_id=2)
        assert (done.queue_offset, done.physical_offset) == (1, 223)
        assert [message.queue_offset for message in store.get("Topic1", 2, 0)] == [0, 1]
        assert store.query("Topic1", "order-1")[0].physical_offset == 223
    records = oracle_store.check_store(broker.root)["Topic1", 2]
    assert [record.tags for record in records] == ["TagA", "TagA"]
