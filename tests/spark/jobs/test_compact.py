"""``compact``: a new store of what is wanted of another one, made by the executors."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.spark.jobs.new_store import DestinationError
from support import oracle, oracle_store, scan_model

pytestmark = [pytest.mark.spark, pytest.mark.long]


def compact(spark: Any, *arguments: Any, **options: Any) -> Any:
    import rmqstore.spark as jobs

    return jobs.compact(spark, *arguments, **options)


def leftovers(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def content(record: oracle.Record) -> dict[str, Any]:
    """All of a record but for its place in the log."""
    fields = dict(vars(record))
    del fields["physical_offset"]
    return fields


def make_store(root: Path, rng: random.Random, count: int) -> rmqstore.StoreConfig:
    config = scan_model.config(rng)
    if config.mapped_file_size_commit_log > 100_000:
        config = config.replace(mapped_file_size_commit_log=65_536)
    records = scan_model.random_records(rng, count, config.mapped_file_size_commit_log)
    scan_model.write_store(root, records, config)
    return config


@pytest.mark.parametrize("seed", range(5))
def test_random_stores(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = make_store(tmp_path / "from", rng, 900)
    before = oracle_store.snapshot(tmp_path / "from")
    records = list(oracle_store.walk_log(tmp_path / "from" / "commitlog"))
    with rmqstore.open(tmp_path / "from") as store:
        known = sorted(store.topics)
    topics = rng.choice([None, "orders", rng.sample(known, 2)])
    since = rng.choice([None, rng.choice(records).store_timestamp])
    first = 0
    if since is not None:
        first = next(n for n, record in enumerate(records) if record.store_timestamp >= since)
    chosen = [topics] if isinstance(topics, str) else topics
    expected = [
        content(record) for record in records[first:] if chosen is None or record.topic in chosen
    ]
    result = compact(spark, tmp_path / "from", tmp_path / "to", topics=topics, since=since)
    assert leftovers(tmp_path) == ["from", "to"]
    assert oracle_store.snapshot(tmp_path / "from") == before
    found = list(oracle_store.walk_log(tmp_path / "to" / "commitlog"))
    assert [content(record) for record in found] == expected
    assert result.messages == len(expected)
    assert result.messages_left == len(records) - len(expected)
    assert result.log_bytes == sum(record["store_size"] for record in expected)
    assert oracle_store.is_clean(tmp_path / "to")
    oracle_store.check_store(
        tmp_path / "to",
        slot_num=config.max_hash_slot_num,
        exact_index=True,
        times_in_order=False,
    )
    with rmqstore.open(tmp_path / "to", "a") as store:
        assert store.recovery.clean
        assert "queues were completed from the whole log" not in store.recovery.notes
        assert store.config.mapped_file_size_commit_log == config.mapped_file_size_commit_log
    by_queue: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in found:
        if record.is_queued and record.topic != scan_model.FOREIGN:
            by_queue[record.topic, record.queue_id].append(record.queue_offset)
    with rmqstore.open(tmp_path / "to", "r+", verify="full") as store:
        for (topic, queue_id), offsets in by_queue.items():
            queue = store[topic][queue_id]
            assert (queue.min_offset, queue.max_offset) == (offsets[0], offsets[-1] + 1)
            assert [message.queue_offset for message in queue] == offsets


@pytest.mark.parametrize("name", ["broker-clean", "broker-killed"])
def test_stores_of_a_real_broker(
    spark: Any, tmp_path: Path, broker_store: Callable[[str], Any], name: str
) -> None:
    source = broker_store(name).root
    result = compact(spark, source, tmp_path / "to")
    old = [content(record) for record in oracle_store.walk_log(source / "commitlog")]
    new = [content(record) for record in oracle_store.walk_log(tmp_path / "to" / "commitlog")]
    assert new == old
    assert result.messages_left == 0
    for path in sorted((source / "config").glob("*.json")):
        copied = tmp_path / "to" / "config" / path.name
        assert copied.is_file(), path.name
    with rmqstore.open(source) as first, rmqstore.open(tmp_path / "to") as second:
        assert set(second.topics) == set(first.topics)
        columns = ["topic", "queue_id", "queue_offset", "uniq_key", "body", "store_timestamp"]
        assert second.scan(columns=columns).to_table() == first.scan(columns=columns).to_table()
        row = next(iter(first.scan()))
        found = second.query(row.topic, row.uniq_key)
        assert row.body in [message.body for message in found]


def test_what_config_says_of_other_topics_stays_behind(spark: Any, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "from", "a", config=rmqstore.StoreConfig.small()) as store:
        store.create_topic("orders", 7)
        store.create_topic("payments", 3)
        for number in range(30):
            store.put("orders" if number % 3 else "payments", b"x", queue_id=0)
    offsets = {"offsetTable": {"orders@g": {0: 11}, "payments@g": {0: 5}, "orders@h": {0: 2}}}
    config = tmp_path / "from" / "config"
    (config / "consumerOffset.json").write_text(json.dumps(offsets))
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"g":{}}}')
    (config / "delayOffset.json").write_text('{"offsetTable":{"1":7}}')
    compact(spark, tmp_path / "from", tmp_path / "to", "orders")
    made = tmp_path / "to" / "config"
    kept = json.loads((made / "consumerOffset.json").read_text())
    assert kept == {"offsetTable": {"orders@g": {"0": 11}, "orders@h": {"0": 2}}}
    assert leftovers(made) == ["consumerOffset.json", "subscriptionGroup.json", "topics.json"]
    with rmqstore.open(tmp_path / "to") as store:
        assert list(store) == ["orders"]
        assert store["orders"].write_queue_nums == 7


def test_what_a_deleted_topic_had_stays_behind(spark: Any, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "from", "a", config=rmqstore.StoreConfig.small()) as store:
        for number in range(20):
            store.put("gone", b"old", queue_id=0)
            store.put("orders", b"%d" % number, queue_id=0)
        store.delete_topic("gone")
        store.put("gone", b"new", queue_id=0)
    result = compact(spark, tmp_path / "from", tmp_path / "to")
    assert (result.messages, result.messages_left) == (21, 20)
    with rmqstore.open(tmp_path / "to", "r+", verify="full") as store:
        assert [message.body for message in store["gone"][0]] == [b"new"]
        assert len(store["orders"][0]) == 20


def test_nothing_is_that_new(spark: Any, tmp_path: Path) -> None:
    make_store(tmp_path / "from", random.Random(8), 50)
    result = compact(spark, tmp_path / "from", tmp_path / "to", since="2100-01-01T00:00:00Z")
    assert (result.messages, result.messages_left) == (0, 50)
    with rmqstore.open(tmp_path / "to", "r+") as store:
        assert store.scan().count() == 0


def test_a_store_that_is_written_meanwhile(spark: Any, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "from", "a", config=rmqstore.StoreConfig.small()) as store:
        for number in range(500):
            store.put("orders", b"%d" % number, queue_id=number % 2)
        result = compact(spark, tmp_path / "from", tmp_path / "to")
        store.put("orders", b"later", queue_id=0)
    assert result.messages == 500


def hurt(root: Path, rng: random.Random) -> tuple[Path, int]:
    """Change a byte in the middle of some record's body."""
    records = [r for r in oracle_store.walk_log(root / "commitlog") if len(r.raw_body) > 100]
    record = rng.choice(records[:-5])
    for start, path in oracle_store.log_files(root / "commitlog"):
        data = bytearray(path.read_bytes())
        if start <= record.physical_offset < start + len(data):
            at = data.index(record.raw_body, record.physical_offset - start)
            data[at + 50] ^= 1
            path.write_bytes(data)
            return path, record.physical_offset
    raise AssertionError


@pytest.mark.parametrize("seed", [1, 2])
def test_a_damaged_record(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    make_store(tmp_path / "from", rng, 300)
    path, offset = hurt(tmp_path / "from", rng)
    with pytest.raises(rmqstore.StoreCorruptError) as raised:
        compact(spark, tmp_path / "from", tmp_path / "to")
    assert (str(raised.value.path), raised.value.offset) == (str(path), offset)
    assert leftovers(tmp_path) == ["from"]


def test_damage_where_a_range_begins(spark: Any, tmp_path: Path) -> None:
    make_store(tmp_path / "from", random.Random(4), 600)
    records = list(oracle_store.walk_log(tmp_path / "from" / "commitlog"))
    _, path = oracle_store.log_files(tmp_path / "from" / "commitlog")[0]
    data = bytearray(path.read_bytes())
    cell = len(data) // 16
    record = next(r for r in records if r.physical_offset >= cell)
    assert record.physical_offset < len(data)
    data[record.physical_offset + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(rmqstore.StoreCorruptError) as raised:
        compact(spark, tmp_path / "from", tmp_path / "to")
    assert raised.value.offset == record.physical_offset
    assert leftovers(tmp_path) == ["from"]


def test_arguments_that_cannot_be(spark: Any, tmp_path: Path) -> None:
    make_store(tmp_path / "from", random.Random(5), 40)
    source, target = tmp_path / "from", tmp_path / "to"
    with pytest.raises(rmqstore.TopicNotFoundError, match="no topic 'no-such'"):
        compact(spark, source, target, ["orders", "no-such"])
    with pytest.raises(rmqstore.StoreNotFoundError, match="no store"):
        compact(spark, tmp_path / "nothing", target)
    with pytest.raises(ValueError, match="dst must not be within src"):
        compact(spark, source, source / "to")
    with pytest.raises(ValueError, match="since must be a time"):
        compact(spark, source, target, since="yesterday")
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(DestinationError, match="is not empty"):
        compact(spark, source, target)
    assert leftovers(target) == ["file"]
    shutil.rmtree(target)
    assert leftovers(tmp_path) == ["from"]


def test_parts_with_a_gap_between_them(tmp_path: Path) -> None:
    from rmqstore.offline import LogSource, Measured
    from rmqstore.spark.jobs.compact import _check_gapless

    log = LogSource(str(tmp_path), 4096)
    parts = [Measured(0, 100, 0, 110, 1, 110, -1, 0), Measured(100, 300, 150, 300, 1, 150, -1, 0)]
    text = "offset 110: no record begins where .* goes on to 300; .* and compact again"
    with pytest.raises(rmqstore.StoreCorruptError, match=text):
        _check_gapless(log, parts, 0, 300)
