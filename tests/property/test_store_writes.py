"""Every writing method: what lies on disk is what was put, where it was said to be."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from support import oracle, oracle_store
from support.store_model import Draft, LogModel, batches, columns, drafts, tables

pytestmark = pytest.mark.property

configs = st.builds(
    rmqstore.StoreConfig,
    mapped_file_size_commit_log=st.sampled_from([5000, 6144, 8192]),
    mapped_file_size_consume_queue=st.integers(1, 8).map((20).__mul__),
    max_hash_slot_num=st.integers(1, 16),
    max_index_num=st.integers(2, 60),
    flush_disk_type=st.sampled_from(["ASYNC_FLUSH"] * 3 + ["SYNC_FLUSH"]),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), drafts()),
        st.tuples(st.just("put_batch"), batches()),
        st.tuples(st.just("put_many"), tables()),
    ),
    min_size=1,
    max_size=20,
)


def put(store, model, draft):
    (physical_offset, queue_offset), *_ = model.put(draft)
    done = store.put(
        draft.topic,
        draft.body,
        queue_id=draft.queue_id,
        tags=draft.tags,
        keys=draft.keys or None,
        properties=draft.properties or None,
        flag=draft.flag,
        uniq_key=draft.uniq_key,
    )
    assert (done.physical_offset, done.queue_offset) == (physical_offset, queue_offset)
    assert done.queue_id == draft.queue_id
    assert done.msg_id == oracle.message_id("127.0.0.1:10911", physical_offset)
    assert bool(done.uniq_key) == (draft.uniq_key is not False)
    if isinstance(draft.uniq_key, str):
        assert done.uniq_key == draft.uniq_key


def put_batch(store, model, rows):
    physical_offset, queue_offset = model.put(*rows)[0]
    done = store.put_batch(
        rows[0].topic,
        [row.body for row in rows],
        queue_id=rows[0].queue_id,
        tags=[row.tags for row in rows],
        keys=[" ".join(row.keys) or None for row in rows],
        properties=[row.properties for row in rows],
        uniq_key=rows[0].uniq_key,
    )
    assert (done.physical_offset, done.queue_offset) == (physical_offset, queue_offset)
    assert done.queue_id == rows[0].queue_id


def put_many(store, model, rows):
    placed = model.put_each(rows)
    done = store.put_many(**columns(rows))
    assert done.count == len(rows)
    assert done.physical_offset.tolist() == [physical_offset for physical_offset, _ in placed]
    assert done.queue_offset.tolist() == [queue_offset for _, queue_offset in placed]
    assert done.queue_id.tolist() == [row.queue_id for row in rows]


METHODS = {"put": put, "put_batch": put_batch, "put_many": put_many}


def assert_reads(store, model):
    """The store itself reads back what the model has, by queue, by place and by key."""
    for (topic, queue_id), expected in model.queues.items():
        found = store.get(topic, queue_id, 0, len(expected) + 1)
        assert found.status == rmqstore.GetStatus.FOUND
        assert (found.next_offset, found.min_offset) == (len(expected), 0)
        assert found.max_offset == len(expected)
        for number, (message, (physical_offset, draft)) in enumerate(
            zip(found.messages, expected, strict=True)
        ):
            assert (message.topic, message.queue_id) == (topic, queue_id)
            assert (message.queue_offset, message.physical_offset) == (number, physical_offset)
            assert message.store_size == draft.size
            assert message.body == draft.body == bytes(message.raw_body)
            assert (message.tags, message.keys) == (draft.tags or None, draft.keys)
            assert message.properties == draft.stored_properties(message.uniq_key)
            assert store.at(physical_offset) == message
            assert store.message(message.msg_id) == message
            if message.uniq_key and draft.uniq_key is True:
                assert store.query(topic, message.uniq_key) == [message]
        units = store[topic][queue_id].units().tolist()
        codes = [oracle.tags_code(draft.tags) for _, draft in expected]
        assert units == [
            (at, draft.size, code) for (at, draft), code in zip(expected, codes, strict=True)
        ]
    for topic, key in {
        (draft.topic, key)
        for _, draft, _ in model.log
        for key in (*draft.keys, draft.uniq_key)
        if isinstance(key, str)
    }:
        hits = [message.physical_offset for message in store.query(topic, key)]
        assert hits == model.with_key(topic, key)
        assert [m.physical_offset for m in store.query(topic, key, max_num=1)] == hits[:1]


def assert_on_disk(root, config, model):
    by_queue = oracle_store.check_store(root, slot_num=config.max_hash_slot_num, exact_index=True)
    model.assert_holds(by_queue)
    assert oracle_store.is_clean(root)
    sizes = {
        "commitlog": config.mapped_file_size_commit_log,
        "consumequeue": config.mapped_file_size_consume_queue,
        "index": config.index_file_bytes,
    }
    for folder, size in sizes.items():
        for path in (Path(root) / folder).rglob("*"):
            assert path.is_dir() or path.stat().st_size == size, path


@given(configs, operations)
def test_everything_put_is_there(config, steps):
    with TemporaryDirectory() as root:
        model = LogModel(config.mapped_file_size_commit_log)
        with rmqstore.open(root, "a", config=config) as store:
            for name, drawn in steps:
                METHODS[name](store, model, drawn)
            assert_reads(store, model)
        assert_on_disk(root, config, model)
        with rmqstore.open(root, "r", config=config) as store:
            assert_reads(store, model)


@given(configs, operations, st.sampled_from(["r+", "a"]))
def test_a_store_goes_on_where_it_ended(config, steps, mode):
    with TemporaryDirectory() as root:
        model = LogModel(config.mapped_file_size_commit_log)
        for part in (steps[: len(steps) // 2], steps[len(steps) // 2 :]):
            with rmqstore.open(root, mode if model.log else "a", config=config) as store:
                for name, drawn in part:
                    METHODS[name](store, model, drawn)
                assert_reads(store, model)
        model.assert_holds(oracle_store.check_store(root, slot_num=config.max_hash_slot_num))


FILE_SIZE = 1024
TIGHT = {
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 60,
    "max_hash_slot_num": 5,
    "max_index_num": 20,
}


def of_size(size, topic="t", **fields):
    """A message whose record has ``size`` bytes."""
    draft = Draft(topic, 0, b"", **fields)
    return Draft(topic, 0, b"x" * (size - draft.size), **fields)


@pytest.mark.parametrize("method", ["put", "put_batch", "put_many"])
def test_every_room_left_at_the_end_of_a_file(tmp_path, method):
    config = rmqstore.StoreConfig(**TIGHT)
    model = LogModel(FILE_SIZE)
    group = [of_size(100, keys=("k",)), of_size(110), of_size(101, tags="Aa")]
    fits = sum(draft.size for draft in group) if method == "put_batch" else group[0].size
    rolled = set()
    with rmqstore.open(tmp_path, "a", config=config) as store:
        for room in range(8, fits + 8 + 4):
            if model.end % FILE_SIZE:  # begin with a file of its own
                put(store, model, of_size(FILE_SIZE - 8))
            put(store, model, of_size(FILE_SIZE - room))
            assert model.room == room
            files = model.end // FILE_SIZE
            METHODS[method](store, model, group[0] if method == "put" else group)
            first = model.log[-1 if method == "put" else -len(group)][0]
            rolled.add((room < fits + 8, first // FILE_SIZE > files))
        assert rolled == {(True, True), (False, False)}
        assert_reads(store, model)
    assert_on_disk(tmp_path, config, model)
    entries = list(oracle_store.walk_entries(tmp_path / "commitlog"))
    sizes = {entry.store_size for entry in entries if isinstance(entry, oracle_store.Filler)}
    assert sizes >= set(range(8, fits + 8))


def test_the_largest_record_fills_a_file_but_for_eight_bytes(tmp_path):
    config = rmqstore.StoreConfig(**TIGHT)
    model = LogModel(FILE_SIZE)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        for _ in range(3):
            put(store, model, of_size(FILE_SIZE - 8))
        for size in (FILE_SIZE - 7, FILE_SIZE, 10 * FILE_SIZE):
            with pytest.raises(rmqstore.MessageIllegalError):
                store.put("t", of_size(size).body, queue_id=0, uniq_key=False)
            with pytest.raises(rmqstore.MessageIllegalError):
                store.put_batch("t", [b"", of_size(size).body], queue_id=0, uniq_key=False)
        put(store, model, of_size(FILE_SIZE - 8))
        assert_reads(store, model)
    assert_on_disk(tmp_path, config, model)


REFUSED = [
    {"topic": ""},
    {"topic": "t" * 128},
    {"topic": "../t"},
    {"topic": "a b"},
    {"topic": "\u00e9"},
    {"queue_id": -1},
    {"delay_level": -1},
    {"properties": {"KEYS": "k"}},
    {"properties": {"a\x01": "b"}},
    {"properties": {"a": "b\x02"}},
    {"properties": {"a": "b" * 32768}},
    {"tags": "a\x02"},
    {"keys": ["a b"]},
    {"keys": ["a\x01"]},
    {"uniq_key": "a\x01b"},
    {"born_host": "nowhere"},
    {"body": "text"},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=lambda arguments: ascii(arguments)[:40])
def test_what_is_refused_leaves_nothing_behind(tmp_path, arguments):
    config = rmqstore.StoreConfig.small()
    model = LogModel(config.mapped_file_size_commit_log)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        put(store, model, Draft("Topic1", 0, b"before"))
        wrong = {"topic": "Topic1", "body": b"x", "queue_id": 0} | arguments
        with pytest.raises((ValueError, TypeError)):
            store.put(**wrong)
        put(store, model, Draft("Topic1", 0, b"after"))
        assert_reads(store, model)
    assert_on_disk(tmp_path, config, model)


def test_a_batch_with_one_bad_message_stores_nothing(tmp_path):
    config = rmqstore.StoreConfig.small()
    model = LogModel(config.mapped_file_size_commit_log)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        put(store, model, Draft("Topic1", 0, b"before"))
        properties = [{}, {"a": "\x01"}, {}]
        for method in (store.put_batch, store.put_many):
            with pytest.raises(ValueError, match=r"'a'|propert"):
                method("Topic1", [b"1", b"2", b"3"], queue_id=0, properties=properties)
        put(store, model, Draft("Topic1", 0, b"after"))
    assert_on_disk(tmp_path, config, model)


def test_one_value_for_all_rows(tmp_path):
    config = rmqstore.StoreConfig.small()
    model = LogModel(config.mapped_file_size_commit_log)
    fields = {"tags": "TagA", "keys": ("k1", "k2"), "properties": {"psly": "psly"}}
    rows = [Draft("Topic1", 2, b"%d" % number, **fields) for number in range(10)]
    shared = {"tags": "TagA", "keys": "k1 k2", "properties": {"psly": "psly"}, "uniq_key": False}
    bodies = [row.body for row in rows]
    with rmqstore.open(tmp_path, "a", config=config) as store:
        assert store.put_many("Topic1", bodies, queue_id=2, **shared).count == 10
        store.put_batch("Topic1", bodies, queue_id=2, **shared)
        model.put_each(rows)
        model.put(*rows)
        assert_reads(store, model)
        assert [m.queue_offset for m in store.query("Topic1", "k2")] == list(range(19, -1, -1))
    assert_on_disk(tmp_path, config, model)


def test_a_delayed_message_waits_in_the_schedule_topic(tmp_path):
    config = rmqstore.StoreConfig.small()
    with rmqstore.open(tmp_path, "a", config=config) as store:
        for number in range(3):
            store.put("orders", b"%d" % number, queue_id=1, tags="paid", delay_level=18)
    by_queue = oracle_store.check_store(tmp_path)
    records = by_queue[oracle.SCHEDULE_TOPIC, 17]
    assert [record.body for record in records] == [b"0", b"1", b"2"]
    assert not by_queue.get(("orders", 1))
    for record in records:
        assert record.tags_code == record.store_timestamp + 7_200_000
        names = ("DELAY", "REAL_TOPIC", "REAL_QID", "TAGS")
        assert [record.properties[name] for name in names] == ["18", "orders", "1", "paid"]
