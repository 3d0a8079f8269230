"""Unique keys that a put makes: 32 digits, growing, never the same twice."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import rmqstore


def keys_of(store: rmqstore.MessageStore, topic: str = "t") -> list[str]:
    return [str(message.uniq_key) for message in store.scan(topic)]


def test_they_grow_however_many_are_made_in_a_millisecond(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        first = store.put("t", b"", queue_id=0).uniq_key
        store.put_many("t", [b""] * 70_000, queue_id=0)  # above 65,536, the counter's range
        last = store.put("t", b"", queue_id=0).uniq_key
        keys = keys_of(store)
    assert (keys[0], keys[-1], len(keys)) == (first, last, 70_002)
    assert all(re.fullmatch("[0-9A-F]{32}", key) for key in keys)
    assert keys == sorted(set(keys))
    assert len({key[:20] for key in keys}) == 1
    assert int(keys[0][8:12], 16) == os.getpid() & 0xFFFF


def test_threads_share_them(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:

        def work() -> None:
            for _ in range(500):
                store.put("t", b"", queue_id=0)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(keys_of(store))) == 2_000


def test_none_and_the_callers_own(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=rmqstore.StoreConfig.small()) as store:
        assert store.put("t", b"", queue_id=0, uniq_key=False).uniq_key is None
        assert store.put("t", b"", queue_id=0, uniq_key="mine").uniq_key == "mine"
        assert [message.uniq_key for message in store.scan("t")] == [None, "mine"]
