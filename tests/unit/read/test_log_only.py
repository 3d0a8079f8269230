"""Of a store only the log survived, with a hole in it: readers go on behind the hole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore.cli import main
from support import damaged_store, oracle, oracle_store

HOLE = 4096
BROKER_AT = {"broker-clean": (1 << 20) + 10 * HOLE, "broker-killed": (1 << 20) + 20 * HOLE}


def only_log(root: Path, *, config: bool = False, killed: bool = False) -> Path:
    """Remove all but the log."""
    for path in root.iterdir():
        if path.name == "commitlog" or (config and path.name == "config"):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if killed:
        (root / "abort").touch()
    return root


def dig(root: Path, at: int, size: int, length: int = HOLE) -> tuple[int, int]:
    damaged_store.poke(root, at, bytes(length), size)
    return at, at + length


def outside(records: Iterable[oracle.Record], hole: tuple[int, int]) -> list[oracle.Record]:
    return [
        record
        for record in records
        if record.physical_offset + record.store_size <= hole[0]
        or record.physical_offset >= hole[1]
    ]


def rows(*arguments: object) -> tuple[list[int], int, str]:
    """The physical offsets of the messages that a verb shows, its exit code, what it says."""
    done = CliRunner().invoke(main, [*map(str, arguments)])
    found = [json.loads(line)["physical_offset"] for line in done.stdout.splitlines()]
    return found, done.exit_code, done.stderr


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize("name", BROKER_AT)
def test_a_brokers_log(broker_copy, tmp_path, name, config, killed):
    root = broker_copy(name, tmp_path).root
    every = list(oracle_store.walk_log(root / "commitlog"))
    with rmqstore.open(root) as store:
        before = {
            (topic, queue_id): list(queue.units()["physical_offset"])
            for topic, queues in store.topics.items()
            for queue_id, queue in queues.items()
            if len(queue)
        }
    only_log(root, config=config, killed=killed)
    # From the beginning of a record on: what a hole leaves of one may still check.
    first = min(r.physical_offset for r in every if r.physical_offset >= BROKER_AT[name])
    hole = dig(root, first, 1 << 20)
    good = outside(every, hole)
    whole = {record.physical_offset for record in good}
    assert 0 < len(good) < len(every)
    with rmqstore.open(root) as store:
        [damage] = store.recovery.ranges
        assert (damage.kind, damage.named) == ("damaged", False)
        assert damage.start == hole[0]
        assert damage.stop == min(at for at in whole if at >= hole[1])
        after = {}
        for topic, queues in store.topics.items():
            for queue_id, queue in queues.items():
                for message in queue:
                    assert before[topic, queue_id][message.queue_offset] == message.physical_offset
                    after.setdefault((topic, queue_id), []).append(message.physical_offset)
        for place, offsets in before.items():
            assert after.get(place, []) == [at for at in offsets if at in whole], place
        assert store.recovery.log_end == every[-1].physical_offset + every[-1].store_size
        places: dict[tuple[str, str], list[int]] = {}
        for record in good:
            for key in dict.fromkeys(oracle.index_keys(record)):
                places.setdefault((record.topic, key), []).insert(0, record.physical_offset)
        for topic, key in [*places][::20]:
            found = [message.physical_offset for message in store.query(topic, key)]
            assert found == places[topic, key], (topic, key)
        of_topic: dict[str, list[int]] = {}
        for record in good:
            of_topic.setdefault(record.topic, []).append(record.physical_offset)
        for topic, offsets in of_topic.items():
            scanned = store.scan(topic, on_corruption="skip")
            assert [message.physical_offset for message in scanned] == offsets
            with pytest.raises(rmqstore.StoreCorruptError, match=f"offset {damage.start}: "):
                store.scan(topic).count()
        with pytest.raises(rmqstore.StoreCorruptError, match=f"offset {damage.start}: "):
            store.scan().count()


def test_find_searches_behind_the_hole(broker_copy, tmp_path):
    root = broker_copy("broker-clean", tmp_path).root
    healthy = rows("find", only_log(root), "-k", "order-315")
    assert (len(healthy[0]), *healthy[1:]) == (4, 0, "")
    dig(root, BROKER_AT["broker-clean"], 1 << 20)
    for options in ([], ["-t", "%DLQ%orders-group"]):
        found, code, said = rows("find", root, "-k", "order-315", *options)
        assert found == (healthy[0][:1] if options else healthy[0])
        assert code == 4
        first, last = said.splitlines()
        assert first.startswith("rmqstore: commit log damaged from 1089557 to 1093919 ")
        assert "messages may be left out" in last
    # As many as were asked for: nothing that lacks was asked for.
    assert rows("find", root, "-k", "order-315", "-n", 2)[:2] == (healthy[0][:2], 0)
    assert rows("cat", root, "-n", 2)[1] == 0
    found, code, said = rows("find", root, "-k", "nobody has it")
    assert (found, code) == ([], 4)
    assert "messages may be left out" in said


@pytest.mark.parametrize("killed", [False, True])
def test_the_first_record_is_damaged(tmp_path, killed):
    root = damaged_store.make(tmp_path / "store")
    every = damaged_store.records(root)
    only_log(root, killed=killed)
    hole = dig(root, 0, damaged_store.LOG_SIZE)
    good = outside(every, hole)
    with rmqstore.open(root) as store:
        assert [m.physical_offset for m in store.scan("Topic1", on_corruption="skip")] == [
            record.physical_offset for record in good
        ]
        with pytest.raises(rmqstore.StoreCorruptError, match="offset 0: "):
            store.scan("Topic1").count()
        assert {(m.queue_id, m.queue_offset) for q in store["Topic1"].values() for m in q} == {
            (record.queue_id, record.queue_offset) for record in good
        }
        assert [one.start for one in store.recovery.ranges] == [0]


def test_a_topic_whose_queues_are_gone_lies_behind_the_hole(tmp_path):
    """The other queues end in front of it: the search along the records would end there too."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        for number in range(30):
            store.put("first", b"x" * 500, queue_id=0, keys=f"k{number}")
        torn = store.put("second", b"y" * 500, queue_id=0, keys="torn")
        for number in range(30):
            store.put("second", b"z" * 500, queue_id=0, keys=f"k{number}")
    shutil.rmtree(root / "consumequeue" / "second")
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    damaged_store.poke(root, torn.physical_offset, bytes(500))
    with rmqstore.open(root) as store:
        assert [m.queue_offset for m in store["second"][0]] == [*range(1, 31)]
        assert [m.body[:1] for m in store.query("second", "k7")] == [b"z"]
        assert [m.body[:1] for m in store.query("first", "k7")] == [b"x"]
        assert store.scan("second", on_corruption="skip").count() == 30


def test_a_topic_scan_meets_the_damage_whichever_queue_has_it(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        puts = [store.put(f"topic{n % 2}", b"x" * 500, queue_id=0) for n in range(60)]
    shutil.rmtree(root / "consumequeue" / "topic1")
    (root / "checkpoint").unlink()
    damaged_store.poke(root, puts[30].physical_offset, bytes(500))
    with rmqstore.open(root) as store:
        assert store.scan("topic1", on_corruption="skip").count() == 30
        for topic in ("topic0", "topic1"):
            with pytest.raises(rmqstore.StoreCorruptError):
                store.scan(topic).count()
        [damage] = store.recovery.ranges
        assert damage.named
