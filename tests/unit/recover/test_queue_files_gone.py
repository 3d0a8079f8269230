"""Queue files that are missing, empty, short or zeroed are made from the log, wherever they lie."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sized
from pathlib import Path

import pytest

import rmqstore
from support import damaged_store

WHERE = ("first", "middle", "last")
HARMS = ("missing", "empty", "short", "zeros")
LIGHT = damaged_store.CONFIG.replace(enable_multi_dispatch=True, enable_lmq=True)
EXT = damaged_store.CONFIG.replace(
    enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024
)


def harm(directory: Path, where: str, how: str) -> Path:
    files = sorted(directory.iterdir())
    path = files[{"first": 0, "middle": len(files) // 2, "last": -1}[where]]
    size = path.stat().st_size
    if how == "missing":
        path.unlink()
    elif how == "zeros":
        path.write_bytes(bytes(size))
    else:
        os.truncate(path, 0 if how == "empty" else size // 2 + 7)
    return path


def bodies(store: rmqstore.MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """Every way along a queue has the same."""
    found, at = [], 0
    while (result := store.get(topic, queue_id, at, 9)).next_offset > at:
        found += [one.body for one in result]
        at = result.next_offset
    queue = store[topic][queue_id]
    assert [one.body for one in queue] == found
    assert [queue[at].body for at in range(queue.min_offset, queue.max_offset)] == found
    assert len(queue.units()) == len(found)
    return found


@pytest.mark.parametrize("state", ["closed", "killed", "no checkpoint"])
@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("where", WHERE)
def test_of_a_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str, how: str, state: str
) -> None:
    root = damaged_store.make(tmp_path / "store")
    with rmqstore.open(root) as store:
        wanted = bodies(store, "Topic1", 0)
    harm(root / "consumequeue" / "Topic1" / "0", where, how)
    if state == "killed":
        (root / "abort").touch()
    elif state == "no checkpoint":
        (root / "checkpoint").unlink()
    caplog.set_level(logging.WARNING, "rmqstore")
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:  # type: ignore[arg-type]
            assert bodies(store, "Topic1", 0) == wanted
            assert [m.body for m in store.scan("Topic1", 0)] == wanted
            assert store.scan("Topic1").count() == damaged_store.COUNT
            assert store.lag() == []
            assert sum(1 for _ in store.consumer("Topic1", group="g")) == damaged_store.COUNT
    with rmqstore.open(root) as store:  # nothing is left to be told
        assert not store.recovery.notes
    if where == "middle" and state == "closed":
        assert "Topic1/0/" in caplog.text


@pytest.mark.parametrize("units", [1, 7])
@pytest.mark.parametrize("where", [*WHERE, "only"])
def test_the_beginning_of_a_file_zeroed(tmp_path: Path, where: str, units: int) -> None:
    """The last file of a closed store too, of which the end still looks as it was."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        for number in range(19 if where == "only" else 59):  # of 20 units a file
            store.put("Topic1", b"%d" % number, queue_id=0)
        wanted = bodies(store, "Topic1", 0)
    files = sorted((root / "consumequeue" / "Topic1" / "0").iterdir())
    path = files[{"first": 0, "middle": 1, "last": 2, "only": 0}[where]]
    path.write_bytes(bytes(20 * units) + path.read_bytes()[20 * units :])
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:  # type: ignore[arg-type]
            assert bodies(store, "Topic1", 0) == wanted
            assert [m.body for m in store.scan("Topic1", 0)] == wanted
    with rmqstore.open(root) as store:
        assert not store.recovery.notes


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("where", WHERE)
def test_of_a_light_queue(tmp_path: Path, where: str, how: str) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=LIGHT) as store:
        for number in range(100):
            store.put("Topic1", b"%d" % number, queue_id=0, lite_topics=["one"])
    harm(root / "consumequeue" / "%LMQ%one" / "0", where, how)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=LIGHT) as store:  # type: ignore[arg-type]
            assert bodies(store, "%LMQ%one", 0) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("where", WHERE)
def test_of_ext_units(tmp_path: Path, where: str, how: str) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=EXT) as store:
        for number in range(150):
            store.put("Topic1", b"%d" % number, queue_id=0, tags=f"t{number % 3}")
    harm(root / "consumequeue_ext" / "Topic1" / "0", where, how)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=EXT) as store:  # type: ignore[arg-type]
            found = store.get("Topic1", 0, 0, 200, tags="t1").messages
            assert [one.body for one in found] == [b"%d" % n for n in range(1, 150, 3)]


def test_what_retention_removed_is_not_missed(tmp_path: Path) -> None:
    root = damaged_store.make(tmp_path / "store")
    with rmqstore.open(root, "r+", config=damaged_store.CONFIG) as store:
        end = store.recovery.log_end
        assert store.delete_expired(before=1 << 50).files > 1
        first = store["Topic1"][0].min_offset
        assert first >= 20  # a file of units
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:  # type: ignore[arg-type]
            assert not store.recovery.notes
            assert store["Topic1"][0].min_offset == first
            assert store.recovery.log_end == end


def test_a_file_missing_in_front_is_told(tmp_path: Path) -> None:
    root = damaged_store.make(tmp_path / "store")
    harm(root / "consumequeue" / "Topic1" / "1", "first", "missing")
    with rmqstore.open(root) as store:
        assert len(bodies(store, "Topic1", 1)) == damaged_store.COUNT // 2
        assert "in front of it is missing" in store.recovery.notes[-1]


@pytest.mark.parametrize("content", [b"", b"x"])
def test_a_file_further_behind_than_the_log_has_units(tmp_path: Path, content: bytes) -> None:
    """Neither are all files in between made, nor all places in between looked at."""
    root = damaged_store.make(tmp_path / "store")
    directory = root / "consumequeue" / "Topic1" / "0"
    with rmqstore.open(root) as store:
        wanted = bodies(store, "Topic1", 0)
    size = damaged_store.CONFIG.mapped_file_size_consume_queue
    far = directory / f"{size << 32:020d}"
    far.write_bytes(content.ljust(size, b"\0"))
    files = sorted(directory.iterdir())
    for mode in ("r+", "a"):
        with pytest.raises(rmqstore.IncompatibleStoreError, match=f"{far.name}.* so wide a gap"):
            rmqstore.open(root, mode)  # type: ignore[call-overload]
        assert sorted(directory.iterdir()) == files
        assert not (root / "abort").exists()
    with rmqstore.open(root) as store:
        assert bodies(store, "Topic1", 0) == wanted


def ways(store: rmqstore.MessageStore) -> dict[str, Callable[[], Sized]]:
    """Each way along a queue to its end."""
    queue = store["Topic1"][0]
    return {
        "get": lambda: bodies(store, "Topic1", 0),
        "iteration": lambda: list(queue),
        "items": lambda: [queue[at] for at in range(queue.min_offset, queue.max_offset)],
        "units": queue.units,
        "scan": lambda: list(store.scan("Topic1", 0)),
    }


WAYS = ("get", "iteration", "items", "units", "scan")


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_beside_an_owner_names_the_file(tmp_path: Path, way: str) -> None:
    root = damaged_store.make(tmp_path / "store")
    path = harm(root / "consumequeue" / "Topic1" / "0", "middle", "missing")
    with damaged_store.owned(root), rmqstore.open(root) as store:
        with pytest.raises((rmqstore.StoreCorruptError, OSError), match=path.name):
            ways(store)[way]()
        found = [one.body for one in store.scan("Topic1", 0, on_corruption="skip")]
        assert len(found) == damaged_store.COUNT // 2 - 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_nothing_is_skipped_of_a_file_that_goes_while_the_store_is_open(
    tmp_path: Path, mode: str, way: str
) -> None:
    root = damaged_store.make(tmp_path / "store")
    held = damaged_store.owned(root) if mode == "r" else contextlib.nullcontext()
    with held, rmqstore.open(root, mode) as store:  # type: ignore[arg-type]
        path = harm(root / "consumequeue" / "Topic1" / "0", "middle", "missing")
        said = ""
        try:
            found = ways(store)[way]()
        except (rmqstore.StoreCorruptError, OSError) as error:
            said = str(error)
        assert path.name in said or len(found) == damaged_store.COUNT // 2
    with rmqstore.open(root, "r+") as store:
        assert len(bodies(store, "Topic1", 0)) == damaged_store.COUNT // 2


def one_file_each(root: Path, queues: int) -> rmqstore.StoreConfig:
    """A store of queues with one file, of 400 bytes."""
    with rmqstore.open(root, "a", config=damaged_store.CONFIG) as store:
        for number in range(queues * 15):
            store.put("Topic1", b"%d" % number, queue_id=number % queues)
    return damaged_store.CONFIG


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("cut", [1, 2])
def test_one_file_cut_to_whole_units_beside_a_whole_one(
    tmp_path: Path, cut: int, state: str
) -> None:
    root = tmp_path / "store"
    config = one_file_each(root, 3)
    for queue_id in range(cut):
        os.truncate(root / "consumequeue" / "Topic1" / f"{queue_id}" / f"{0:020d}", 200)
    if state == "killed":
        (root / "abort").touch()
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=config) as store:  # type: ignore[arg-type]
            assert [len(bodies(store, "Topic1", at)) for at in range(3)] == [15, 15, 15]


@pytest.mark.parametrize("queues", [1, 3])
def test_files_of_one_length_are_of_another_size(tmp_path: Path, queues: int) -> None:
    root = tmp_path / "store"
    config = one_file_each(root, queues)
    for queue_id in range(queues):
        os.truncate(root / "consumequeue" / "Topic1" / f"{queue_id}" / f"{0:020d}", 200)
    before = damaged_store.state(root)
    with pytest.raises(rmqstore.IncompatibleStoreError, match="mapped_file_size_consume_queue"):
        rmqstore.open(root, "r+", config=config)
    assert damaged_store.state(root) == before
    with rmqstore.open(root, config=config) as store:
        assert [len(bodies(store, "Topic1", at)) for at in range(queues)] == [15] * queues
