"""Flushing: positions, who waits for the disk, and what is forced."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from support.oracle_store import read_checkpoint
from support.serving import wait_until

NEVER = rmqstore.StoreConfig.small().replace(
    flush_interval_commit_log=60_000, flush_commit_log_thorough_interval=60_000
)


def test_flush_reaches_the_end_of_the_log(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=NEVER) as store:
        put = store.put("t", b"x", queue_id=0)
        assert store.stats()["flush_behind_bytes"] > 0
        store.flush()
        figures = store.stats()
        assert figures["flush_behind_bytes"] == 0
        assert figures["flushed_position"] == figures["wrote_position"]
        assert read_checkpoint(tmp_path / "store")[:2] == (put.store_timestamp,) * 2
        syncs = figures["commit_log_syncs"]
        store.flush()  # there is nothing
        assert store.stats()["commit_log_syncs"] == syncs


def test_a_synchronous_put_is_flushed_when_it_returns(tmp_path: Path) -> None:
    config = NEVER.replace(flush_disk_type="SYNC_FLUSH")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        for _ in range(3):
            put = store.put("t", b"x", queue_id=0)
            assert store.stats()["flushed_position"] > put.physical_offset
        put = store.put("t", b"x", queue_id=0, wait=False)
        assert store.wait_durable(put.physical_offset)
        assert store.stats()["flush_behind_bytes"] == 0


def test_one_sync_serves_all_that_wait(tmp_path: Path) -> None:
    config = NEVER.replace(flush_disk_type="SYNC_FLUSH")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        before = store.stats()["commit_log_syncs"]
        store.put_many("t", [b"x"] * 1000, queue_id=0)
        assert store.stats()["commit_log_syncs"] - before < 10


def test_wait_durable(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=NEVER) as store:
        assert store.wait_durable(timeout=0)
        put = store.put("t", b"x", queue_id=0)
        done: list[Any] = []
        waiter = threading.Thread(target=lambda: done.append(store.wait_durable()))
        waiter.start()
        store.flush()
        waiter.join(60)
        assert done == [True]
        assert store.wait_durable(put.physical_offset, timeout=0)
        with pytest.raises(ValueError, match="physical_offset"):
            store.wait_durable(store.stats()["wrote_position"] + 1)


def test_the_interval_flushes_by_itself(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small().replace(
        flush_interval_commit_log=10, flush_commit_log_least_pages=0
    )
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        store.put("t", b"x", queue_id=0)
        wait_until(lambda: store.stats()["flush_behind_bytes"] == 0)


def test_a_reader_has_nothing_to_flush(tmp_path: Path) -> None:
    path = tmp_path / "store"
    rmqstore.open(path, "a", config=NEVER).close()
    began = time.monotonic()
    with rmqstore.open(path) as reader, pytest.raises(rmqstore.ReadOnlyStoreError):
        reader.flush()
    assert time.monotonic() - began < 30
