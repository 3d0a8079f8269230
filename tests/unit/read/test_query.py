"""``query``: messages by key against a list of all, with an index and without one."""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore

# Some index files, and chains of several keys in each slot.
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=7,
    max_index_num=50,
)
WORDS = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "k", "kk", "\u20ac"]  # with hashes that are equal


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose messages have up to three keys, over two topics."""
    path = tmp_path_factory.mktemp("query") / "store"
    draw = random.Random(7)
    with rmqstore.open(path, "a", config=CONFIG) as store:
        for number in range(200):
            store.clock.advance(draw.choice([0, 0, 1, 1500]))
            store.put(
                draw.choice(["T", "U"]), b"%d" % number, queue_id=number % 3,
                keys=draw.sample(WORDS, draw.randint(0, 3)),
            )  # fmt: skip
    assert len(list((path / "index").iterdir())) > 5
    return path


@pytest.fixture(scope="module", params=["index", "no index", "a part of the index"])
def store(
    request: pytest.FixtureRequest, closed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[rmqstore.MessageStore]:
    path = tmp_path_factory.mktemp("copy") / "store"
    shutil.copytree(closed, path)
    files = sorted((path / "index").iterdir())
    for file in {"index": [], "no index": files}.get(request.param, files[3:]):
        file.unlink()
    with rmqstore.open(path) as made:
        yield made


def expected(store: rmqstore.MessageStore, topic: str, key: str) -> list[rmqstore.Message]:
    """Return all messages that have the key, the newest first."""
    return [m for m in store.scan(topic) if key in m.keys or key == m.uniq_key][::-1]


@pytest.mark.parametrize("topic", ["T", "U"])
@pytest.mark.parametrize("key", WORDS)
def test_keys(store: rmqstore.MessageStore, topic: str, key: str) -> None:
    messages = expected(store, topic, key)
    assert len(messages) > 3
    assert store.query(topic, key) == messages
    for most in (1, 2, len(messages), len(messages) + 1):
        assert store.query(topic, key, max_num=most) == messages[:most]
    assert store.query_many(topic, [key, "absent"]) == [messages, []]


def test_unique_keys(store: rmqstore.MessageStore) -> None:
    for message in store.scan("T"):
        assert message.uniq_key is not None
        assert store.query("T", message.uniq_key) == [message]
        assert store.query("U", message.uniq_key) == []


def test_what_nothing_has(store: rmqstore.MessageStore) -> None:
    for key in ("absent", "aa", "Aa ", "k k", "T#k"):
        assert store.query("T", key) == []
    assert store.query("unknown", "k") == []


def test_times_are_inclusive(store: rmqstore.MessageStore) -> None:
    messages = expected(store, "T", "Aa")
    times = sorted({message.store_timestamp for message in messages})
    for begin in (times[0], times[0] + 1, times[len(times) // 2]):
        for end in (begin - 1, begin, times[-1] - 1, times[-1]):
            found = store.query("T", "Aa", begin=begin, end=end)
            assert found == [m for m in messages if begin <= m.store_timestamp <= end]


def test_index_only_finds_what_the_files_cover(store: rmqstore.MessageStore) -> None:
    covered = store.index_coverage()
    found = store.query("T", "k", index_only=True)
    assert found == [
        message for message in expected(store, "T", "k")
        if any(start <= message.physical_offset < stop for start, stop in covered)
    ]  # fmt: skip


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collecting(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether garbage collection is enabled during the test."""
    if not request.param:
        gc.disable()
    yield request.param
    gc.enable()


def test_lists_of_messages_are_made_without_collections(
    store: rmqstore.MessageStore, collecting: bool
) -> None:
    generations = []
    own = threading.current_thread()

    def note(phase: str, info: dict[str, int]) -> None:
        if threading.current_thread() is own:
            generations.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        found = store.query_many("T", ["absent"] * (3 * gc.get_threshold()[0]))
    finally:
        gc.callbacks.remove(note)
    assert generations == []
    assert gc.isenabled() == collecting
    assert found == [[]] * len(found)


def test_a_query_without_memory_leaves_collection_as_it_was(
    store: rmqstore.MessageStore, collecting: bool
) -> None:
    memory = pytest.importorskip("_testcapi")
    keys = ["k", "absent", "kk"]
    expected = store.query_many("T", keys)
    failed = 0
    for allowed in range(200):
        found = None
        with contextlib.suppress(MemoryError):
            memory.set_nomemory(allowed, allowed + 1)
            try:
                found = store.query_many("T", keys)
            finally:
                memory.remove_mem_hooks()
        assert gc.isenabled() == collecting
        assert found in (None, expected)
        failed += found is None
    assert failed > len(keys)
