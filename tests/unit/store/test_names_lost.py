"""JSON files of an owner whose directory or `lock` is another one now: no call replaces them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
COUNT = 20
Store = rmqstore.MessageStore


def consume(store: Store, count: int) -> None:
    with store.consumer("Topic1", group="g") as consumer:
        for _ in range(count):
            next(iter(consumer))
        consumer.commit()


@pytest.fixture(params=[CONFIG, None], ids=["config", "none"])
def owner(tmp_path: Path, request: pytest.FixtureRequest, wait_until: Callable[..., None]) -> Store:
    """A store with progress that is only in memory: of a group, and of delayed messages."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("Topic1", b"%d" % number, queue_id=0)
        store.put("Delayed", b"x", delay_level=1)
        store.create_group("old")
        consume(store, 5)
    shutil.copytree(root, tmp_path / "copy")
    store = rmqstore.open(root, "r+", config=request.param)
    consume(store, 5)
    store.clock.advance(2)
    wait_until(lambda: not store.delayed())
    return store


def swapped(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))
    root.with_name("copy").rename(root)


def swapped_by_a_link(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))
    root.symlink_to(root.with_name("copy"))


def moved(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


def a_file(root: Path) -> None:
    moved(root)
    root.write_text("")


def without_lock(root: Path) -> None:
    (root / "lock").unlink()


def with_another_lock(root: Path) -> None:
    (root / "lock").rename(root / "old")
    (root / "lock").write_bytes(b"lock")


def commit(store: Store) -> None:
    with store.consumer("Topic1", group="g") as consumer:
        next(iter(consumer))
        consumer.commit(sync=True)


CALLS: dict[str, Callable[[Store], object]] = {
    "close": lambda store: store.close(),
    "commit": commit,
    "create_topic": lambda store: store.create_topic("new"),
    "create_topic again": lambda store: store.create_topic("Topic1", 8),
    "put to a new topic": lambda store: store.put("new", b"x"),
    "delete_topic": lambda store: store.delete_topic("Topic1"),
    "create_group": lambda store: store.create_group("new"),
    "delete_group": lambda store: store.delete_group("old", offsets=True),
    "snapshot": lambda store: store.snapshot(store.path + ".snapshot"),
}


def entries(root: Path) -> dict[str, bytes | None]:
    """All that is in a directory: a file's bytes, by name."""
    found: dict[str, bytes | None] = {}
    for within, directories, names in os.walk(root):
        for path in (Path(within, name) for name in [*directories, *names]):
            found[str(path.relative_to(root))] = path.read_bytes() if path.is_file() else None
    return found


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "change", [swapped, swapped_by_a_link, moved, a_file, without_lock, with_another_lock]
)
def test_no_call_replaces_a_file(owner: Store, change: Callable[[Path], None], call: str) -> None:
    root = Path(owner.path)
    change(root)
    within = root / "config" if "lock" in change.__name__ else root
    before = entries(within)
    named = r"store/lock: removed or" if "lock" in change.__name__ else r"store: the directory was"
    with pytest.raises(rmqstore.StoreFailedError, match=named):
        CALLS[call](owner)
    if not owner.closed:
        with pytest.raises(rmqstore.StoreFailedError, match=named):
            owner.create_topic("never")
        with pytest.raises(rmqstore.StoreFailedError, match=named):
            owner.close()
    assert entries(within) == before
    assert not Path(owner.path + ".snapshot").exists()


def test_one_that_moves_while_a_file_is_forced_to_the_disk(
    owner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqstore.brokerfiles import configfile

    root = Path(owner.path)
    real = configfile.sync_file

    def sync(descriptor: int, path: Path) -> None:
        monkeypatch.undo()
        real(descriptor, path)
        swapped(root)

    monkeypatch.setattr(configfile, "sync_file", sync)
    before = entries(root.with_name("copy"))
    with pytest.raises(rmqstore.StoreFailedError, match="the directory was moved"):
        owner.create_topic("new")
    assert "new" not in owner.topics
    with pytest.raises(rmqstore.StoreFailedError, match="the directory was moved"):
        owner.close()
    assert entries(root) == before


def test_a_name_that_is_back_in_time_is_not_lost(owner: Store) -> None:
    root = Path(owner.path)
    moved(root)
    root.with_name("elsewhere").rename(root)
    owner.create_topic("new")
    owner.close()
    with rmqstore.open(root) as store:
        assert "new" in store.topics
        assert store.offsets["Topic1", "g"] == {0: 10}
