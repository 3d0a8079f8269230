"""Dispatch by the appending thread: what it takes, and what it leaves to a parse of the log."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import rmqstore
from support.oracle_store import check_store

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=4000,
    max_hash_slot_num=25,
    max_index_num=100,
)


@pytest.mark.parametrize("mode", ["a", "r+"])
@pytest.mark.parametrize("count", [1, 2, 511, 512, 513, 2000])
def test_a_put_many_of_any_size(tmp_path: Path, mode: str, count: int) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put("t", b"first", queue_id=0, keys="first")
    with rmqstore.open(root, mode, config=CONFIG) as store:
        store.put_many(
            "t",
            [b"%d" % n for n in range(count)],
            queue_id=0,
            keys=[f"k{n} odd" if n % 2 else f"k{n}" for n in range(count)],
            tags=["A", "B"] * (count // 2) + ["A"] * (count % 2),
        )
        assert [one.body for one in store["t"][0]][1:] == [b"%d" % n for n in range(count)]
        assert store.query("t", f"k{count - 1}")[0].body == b"%d" % (count - 1)
    check_store(root, exact_index=True, slot_num=25)


@pytest.mark.parametrize("keys", [0, 3, 4, 5, 9])
@pytest.mark.parametrize("unique", [True, False])
def test_more_keys_than_are_noted(tmp_path: Path, keys: int, unique: bool) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(20):
            names = [f"{number}-{key}" for key in range(keys)]
            store.put("t", b"x", queue_id=0, keys=names, uniq_key=unique)
        for key in range(keys):
            assert len(store.query("t", f"7-{key}")) == 1
    check_store(root, exact_index=True, slot_num=25)


def test_keys_and_tags_among_the_properties_of_a_table(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    root = tmp_path / "store"
    table = arrow.table({
        "topic": ["t"] * 40,
        "queue_id": arrow.array([0] * 40, arrow.int32()),
        "body": [b"x"] * 40,
        "properties": arrow.array(
            [[("KEYS", f"p{n}"), ("TAGS", "A"), ("own", "y")] for n in range(40)],
            arrow.map_(arrow.string(), arrow.string()),
        ),
    })  # fmt: skip
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put_table(table)
        assert len(store.query("t", "p39")) == 1
        assert len(store.get("t", 0, 0, 40, tags="A").messages) == 40
    check_store(root, exact_index=True, slot_num=25)


def test_a_topic_deleted_and_made_again_between_puts(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for life in range(5):
            for number in range(10):
                put = store.put("t", b"%d" % life, queue_id=1, keys=f"{life}-{number}")
                assert put.queue_offset == number
            store.put_batch("t", [b"%d" % life] * 3, queue_id=1, keys="b")
            assert {one.body for one in store["t"][1]} == {b"%d" % life}
            if life < 4:
                store.delete_topic("t")
    check_store(root, exact_index=True, deleted={"t"}, slot_num=25)


def test_puts_beside_a_deletion(tmp_path: Path) -> None:
    """A topic may be deleted between a message's append and its dispatch."""
    root = tmp_path / "store"
    ended = threading.Event()
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.create_topic("t", 1)

        def delete() -> None:
            while not ended.is_set():
                if "t" in store:
                    store.delete_topic("t")

        thread = threading.Thread(target=delete)
        thread.start()
        try:
            for _ in range(40):
                store.put_many("t", [b"x"] * 50, queue_id=0, keys="k", tags="A")
                store.put("t", b"y", queue_id=0)
        finally:
            ended.set()
            thread.join()
        store.put("t", b"last", queue_id=0, keys="last")
        assert [one.body for one in store["t"][0]][-1] == b"last"
        assert store.query("t", "last")[0].body == b"last"
    check_store(root, deleted={"t"}, slot_num=25)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.recovery.clean
        assert store.query("t", "last")[0].body == b"last"
