"""Dispatch: units, index entries and positions that follow from the records of the log."""

from __future__ import annotations

import random
from pathlib import Path

import rmqstore
from support import oracle
from support.oracle_store import check_store, read_queues, walk_log

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=8 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=25,
    max_index_num=100,
)


def fill(store: rmqstore.MessageStore) -> None:
    """Put messages of every kind that dispatch tells apart."""
    draw = random.Random(3)
    for number in range(120):
        keys = draw.sample(["a", "b", "c"], draw.randint(0, 2))
        topic, queue_id = draw.choice(["t", "u"]), draw.randrange(3)
        match number % 6:
            case 0:
                store.begin(topic, b"half", queue_id=queue_id, keys=keys).commit()
            case 1:
                store.begin(topic, b"half", queue_id=queue_id, keys=keys).rollback()
            case 2:
                store.put(topic, b"later", queue_id=queue_id, delay_level=18, keys=keys)
            case 3:
                store.put(topic, b"light", queue_id=queue_id, lite_topics=["x", "y"])
            case _:
                store.put(topic, b"x", queue_id=queue_id, tags=draw.choice(["A", "B", None]),
                          keys=keys, uniq_key=draw.random() < 0.5)  # fmt: skip


def test_units_and_entries_of_every_kind(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        fill(store)
    check_store(root, exact_index=True)
    records = list(walk_log(root / "commitlog"))
    units: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for record in records:
        if record.is_queued:
            units.setdefault((record.topic, record.queue_id), []).append(record.unit)
        for name, _, code in oracle.dispatched_queues(record):
            unit = (record.physical_offset, record.store_size, code)
            units.setdefault((name, 0), []).append(unit)
    assert {name: list(found) for name, found in read_queues(root).items()} == units


def test_its_position_follows_the_log(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for count in range(1, 60):
            put = store.put("t", b"x" * count, queue_id=0)
            assert len(store.get("t", 0, put.queue_offset)) == 1  # which waits for the dispatch
            figures = store.stats()
            assert figures["dispatched_position"] == figures["wrote_position"]
            assert figures["dispatch_behind_bytes"] == 0


def test_an_opening_dispatches_what_queues_and_index_lack(tmp_path: Path) -> None:
    whole, lacking = tmp_path / "whole", tmp_path / "lacking"
    for root in (whole, lacking):
        with rmqstore.open(root, "a", config=CONFIG) as store:
            store.put_many("t", [b"x"] * 200, queue_id=0, keys="k", tags="A")
    for path in sorted((lacking / "consumequeue/t/0").iterdir())[3:]:
        path.unlink()
    max((lacking / "index").iterdir()).unlink()
    with rmqstore.open(lacking, "r+", config=CONFIG):
        pass
    check_store(lacking)
    assert read_queues(lacking) == read_queues(whole)
