"""Topics made at the same time: one write of ``topics.json`` for many, none seen before."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore._core import CallLock
from rmqstore.brokerfiles import fastjson
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.groups import GroupConfig, GroupTable
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from support.gates import Gate


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rmqstore.MessageStore]:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as store:
        yield store


def names(store: rmqstore.MessageStore) -> set[str]:
    file = Path(store.path, "config", "topics.json")
    return set(json.loads(file.read_bytes())["topicConfigTable"]) if file.exists() else set()


def put(store: rmqstore.MessageStore, name: str) -> None:
    store.put(name, b"1")
    assert name in names(store)


def create(store: rmqstore.MessageStore, name: str) -> None:
    store.create_topic(name, 3)
    assert name in names(store)
    assert store[name].write_queue_nums == 3


WAYS = {"put": put, "create": create}


@pytest.mark.parametrize("way", WAYS)
def test_one_write_for_those_that_come_meanwhile(
    store: rmqstore.MessageStore, gate: Gate, way: str, wait_until: Callable[..., None]
) -> None:
    make = WAYS[way]
    gate.close()
    with ThreadPoolExecutor(17) as threads:
        first = threads.submit(make, store, "first")
        assert gate.reached.wait(60)
        rest = [threads.submit(make, store, f"t{n}") for n in range(16)]
        wait_until(lambda: len(store.registry) == 17)
        assert list(store) == []
        assert "first" not in store
        assert store.registry.get("t3") is None
        gate.open.set()
        for future in (first, *rest):
            future.result(60)
    assert gate.writes == 2
    assert set(store) == {"first", *(f"t{n}" for n in range(16))} == names(store)


@pytest.mark.parametrize("way", WAYS)
def test_a_write_that_fails_fails_all_and_leaves_nothing(
    store: rmqstore.MessageStore, gate: Gate, way: str, wait_until: Callable[..., None]
) -> None:
    store.create_topic("there", 2)
    gate.close()
    gate.error = PermissionError(13, "Permission denied", "topics.json")
    with ThreadPoolExecutor(9) as threads:
        futures = [threads.submit(WAYS[way], store, "t0")]
        assert gate.reached.wait(60)
        futures += [threads.submit(WAYS[way], store, f"t{n % 4}") for n in range(1, 8)]
        futures.append(threads.submit(store.create_topic, "there", 8))
        wait_until(lambda: "there" in store.registry._next.entries)
        gate.open.set()
        for future in futures:
            with pytest.raises(rmqstore.PutError, match="cannot be entered: Permission denied"):
                future.result(60)
    assert list(store) == ["there"]
    assert store["there"].write_queue_nums == 2
    assert store.stats()["wrote_position"] == 0
    gate.error = None
    WAYS[way](store, "t1")
    assert names(store) == {"there", "t1"}


@pytest.mark.parametrize("way", WAYS)
def test_the_write_before_has_nothing_of_one_that_fails(
    store: rmqstore.MessageStore, gate: Gate, way: str, wait_until: Callable[..., None]
) -> None:
    """What its caller hears of as refused is not on the disk either."""
    store.create_topic("there", 2)
    gate.close()
    gate.error = OSError(errno.ENOSPC, "No space left on device", "topics.json")
    gate.fails_from = gate.writes + 2
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(WAYS[way], store, "first")
        assert gate.reached.wait(60)
        second = threads.submit(WAYS[way], store, "second")
        changed = threads.submit(store.create_topic, "there", 8)
        wait_until(lambda: {"second", "there"} <= store.registry._next.entries.keys())
        gate.open.set()
        first.result(60)
        for name, one in (("second", second), ("there", changed)):
            with pytest.raises(rmqstore.PutError, match=f"'{name}' cannot be entered: No space"):
                one.result(60)
    assert names(store) == set(store) == {"first", "there"}
    gate.error = None
    store.close()
    with rmqstore.open(store.path, "r+") as again:
        assert set(again) == {"first", "there"}
        assert again["there"].write_queue_nums == 2


def test_a_change_that_raises_changes_nothing(store: rmqstore.MessageStore) -> None:
    def fail(_there: TopicConfig | None) -> TopicConfig:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.registry.change({"n1": lambda _there: TopicConfig("n1"), "n2": fail})
    store.create_topic("n3")
    assert set(store) == names(store) == {"n3"}


def test_an_interrupt_leaves_nothing_half_entered(store: rmqstore.MessageStore, gate: Gate) -> None:
    gate.error = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        store.create_topic("t")
    assert set(store) == names(store) == set()
    gate.error = None
    store.create_topic("u")
    assert set(store) == names(store) == {"u"}


@pytest.mark.parametrize("fails", ["rmqstore-deleted.json", "consumerOffset.json", "topics.json"])
def test_a_deletion_that_fails_keeps_the_topic(
    store: rmqstore.MessageStore, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Or, where only offsets of groups cannot be written, goes on: they are written later."""
    store.put_many("old", [b"x"] * 20, queue_id=0)
    with store.consumer("old", group="g") as consumer:
        next(iter(consumer))
        consumer.commit(sync=True)
    save = ConfigFile.save

    def failing(file: ConfigFile, value: object) -> None:
        if file.path.name == fails:
            raise OSError(errno.ENOSPC, "No space left on device", str(file.path))
        save(file, value)

    with monkeypatch.context() as patched:
        patched.setattr(ConfigFile, "save", failing)
        if fails == "consumerOffset.json":
            store.delete_topic("old")
        else:
            with pytest.raises(OSError, match="No space left"):
                store.delete_topic("old")
    left = set() if fails == "consumerOffset.json" else {"old"}
    assert set(store) == names(store) == left
    assert store.deleted_topics.keys() == {"old"} - left
    store.close()
    with rmqstore.open(store.path, "r+") as again:
        assert set(again) == left
        assert again.scan("old").count() == 20
        assert {name: len(topic[0]) for name, topic in again.topics.items()} == dict.fromkeys(
            left, 20
        )


def test_a_second_put_to_a_topic_waits_for_its_entry(
    store: rmqstore.MessageStore, gate: Gate
) -> None:
    gate.close()
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(store.put, "t", b"1") for _ in range(2)]
        assert gate.reached.wait(60)
        assert store.stats()["wrote_position"] == 0
        gate.open.set()
        for future in futures:
            future.result(60)
    assert gate.writes == 1
    assert sum(len(queue) for queue in store["t"].values()) == 2


def is_held(lock: CallLock) -> bool:
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


def test_deleted_while_another_is_written(
    store: rmqstore.MessageStore, gate: Gate, wait_until: Callable[..., None]
) -> None:
    store.put("old", b"1")
    gate.close()
    with ThreadPoolExecutor(2) as threads:
        made = threads.submit(store.put, "new", b"1")
        assert gate.reached.wait(60)
        gone = threads.submit(store.delete_topic, "old")
        wait_until(lambda: is_held(store.registry.lock))
        gate.open.set()
        made.result(60)
        gone.result(60)
    assert set(store) == names(store) == {"new"}


@given(
    there=st.sets(st.sampled_from("abcd")),
    steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([0, 1, 4])), max_size=12),
    groups=st.booleans(),
)
def test_the_text_is_that_of_all_entries(
    tmp_path_factory: pytest.TempPathFactory,
    there: set[str],
    steps: list[tuple[str, int]],
    groups: bool,
) -> None:
    root = tmp_path_factory.mktemp("store")
    kind = GroupTable if groups else TopicTable
    made = GroupConfig if groups else TopicConfig
    (root / "config").mkdir()
    table = kind(root)
    for name in sorted(there):
        table.put(made(name))  # type: ignore[arg-type]
    table.save()
    table = kind.load(root)
    for name, nums in steps:
        if nums:
            entry = GroupConfig(name, retry_max_times=nums) if groups else TopicConfig(name, nums)
            table.put(entry)  # type: ignore[arg-type]
        else:
            table.remove(name)
        table.save()
        written = table.file.path.read_text()
        assert written == fastjson.dumps(table.to_json())
