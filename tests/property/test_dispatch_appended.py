"""Dispatch by the appending thread leaves the very files that a parse of the log leaves."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmqstore
from support.oracle_store import check_store

pytestmark = pytest.mark.property

SMALL = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 25,
    "max_index_num": 100,
}
CONFIGS = [
    rmqstore.StoreConfig(**SMALL),
    rmqstore.StoreConfig(**SMALL, flush_disk_type="SYNC_FLUSH"),
    rmqstore.StoreConfig(**SMALL, message_index_enable=False),
]

words = st.text("abAZ0\u017c\u0142\u00f3\u8ba2", min_size=1, max_size=9)
# More than are noted beside a message, none, and the same twice.
keys = st.lists(words, max_size=7).map(" ".join)
tags = st.none() | words
properties = st.none() | st.dictionaries(st.sampled_from(["own", "x", "TAGSX"]), words)
bodies = st.binary(max_size=300)
topics = st.sampled_from(["t", "u"])
queue_ids = st.integers(0, 2)
rows = st.lists(st.tuples(bodies, keys, tags), min_size=1, max_size=40)
uniques = st.booleans()

calls = st.one_of(
    st.tuples(st.just("put"), topics, queue_ids, bodies, keys, tags, properties, uniques),
    st.tuples(st.just("delayed"), topics, queue_ids, keys),
    st.tuples(st.just("half"), topics, queue_ids, keys, st.booleans()),
    st.tuples(st.just("light"), topics, queue_ids, keys),
    st.tuples(st.just("many"), topics, rows, uniques),
    st.tuples(st.just("batch"), topics, queue_ids, rows, uniques),
    st.tuples(st.just("delete"), topics),
    st.tuples(st.just("reopen")),
)


def columns(some: list[tuple[bytes, str, str | None]]) -> dict[str, list[object]]:
    """Return rows as the arguments of put_many."""
    found, keyed, tagged = zip(*some, strict=True)
    return {
        "bodies": list(found),
        "keys": [text or None for text in keyed],
        "tags": list(tagged),
    }


def act(store: rmqstore.MessageStore, call: tuple) -> None:
    """Make one call, and read it back where that waits for dispatch."""
    match call:
        case "put", topic, queue_id, body, text, tag, own, unique:
            put = store.put(
                topic, body, queue_id=queue_id, keys=text or None, tags=tag, properties=own,
                uniq_key=unique,
            )  # fmt: skip
            assert store.get(topic, queue_id, put.queue_offset, 1).messages[0].body == body
        case "delayed", topic, queue_id, text:
            store.put(topic, b"later", queue_id=queue_id, keys=text or None, delay_level=18)
        case "half", topic, queue_id, text, commits:
            half = store.begin(topic, b"half", queue_id=queue_id, keys=text or None)
            half.commit() if commits else half.rollback()
        case "light", topic, queue_id, text:
            store.put(topic, b"l", queue_id=queue_id, keys=text or None, lite_topics=["x", "y"])
        case "many", topic, some, unique:
            store.put_many(topic, **columns(some), uniq_key=unique)
        case "batch", topic, queue_id, some, unique:
            put = store.put_batch(topic, **columns(some), queue_id=queue_id, uniq_key=unique)
            found = store.get(topic, queue_id, put.queue_offset, len(some)).messages
            assert [one.body for one in found] == [body for body, _, _ in some]
        case "delete", topic:
            if topic in store:
                store.delete_topic(topic)


def derived(root: Path, *, light: bool) -> dict[str, list[bytes]]:
    """Return the bytes of queues by file, and of index files, whose names are times, in order.

    A light queue keeps the units of a deleted topic's records, which a rebuild does not see.
    """
    queues = {}
    for path in sorted((root / "consumequeue").rglob("*")):
        if not light and "%LMQ%" in str(path):
            continue
        # A file made ahead has no unit.
        if path.is_file() and any(path.read_bytes()):
            queues[str(path.relative_to(root))] = [path.read_bytes()]
    index = root / "index"
    if index.exists():
        queues["index"] = [path.read_bytes() for path in sorted(index.iterdir())]
    return queues


@settings(max_examples=60, deadline=None)
@given(st.lists(calls, min_size=1, max_size=12), st.sampled_from(CONFIGS))
def test_files_as_of_a_parse(some, config):
    with TemporaryDirectory() as folder:
        root, parsed = Path(folder) / "store", Path(folder) / "parsed"
        deleted = {call[1] for call in some if call[0] == "delete"}
        store = rmqstore.open(root, "a", config=config)
        try:
            for call in some:
                if call[0] == "reopen":
                    store.close()
                    store = rmqstore.open(root, "r+", config=config)
                else:
                    act(store, call)
        finally:
            store.close()
        if config.message_index_enable:
            check_store(root, exact_index=True, deleted=deleted, slot_num=25)
        shutil.copytree(root, parsed)
        for name in ("consumequeue", "index"):
            shutil.rmtree(parsed / name, ignore_errors=True)
        rmqstore.open(parsed, "r+", config=config).close()
        light = not deleted
        assert derived(parsed, light=light) == derived(root, light=light)


@pytest.mark.parametrize("config", CONFIGS)
def test_threads_that_dispatch_for_each_other(tmp_path, config):
    root = tmp_path / "store"

    def work(number: int) -> None:
        for turn in range(30):
            store.put("t", b"x" * number, queue_id=number % 3, keys=f"k{number} j{turn}")
            store.put_many("t", [b"y"] * 20, queue_id=number % 3, keys=f"m{turn}", tags="A")

    with rmqstore.open(root, "a", config=config) as store:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        assert sum(len(list(queue)) for queue in store["t"].values()) == 4 * 30 * 21
    if config.message_index_enable:
        check_store(root, exact_index=True, slot_num=25)
