"""Queue files that are missing, empty, short or zeroed are made from the log, wherever they lie."""

from __future__ import annotations

import logging
import os
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
