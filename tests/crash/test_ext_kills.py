"""Killed where an ext unit is written or forced: the queue and its ext units agree again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore import _core
from support import oracle_ext, oracle_store

pytestmark = [pytest.mark.crash, pytest.mark.needs_debug_build]

CONFIG = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 700,
}
WRITER = f"""
import sys, rmqstore
config = rmqstore.StoreConfig(**{CONFIG!r}, flush_interval_consume_queue=5)
with rmqstore.open(sys.argv[1], "a", config=config) as store:
    store.core.set_bitmap_filters({{"T": [("TAGS = 'a'", [1, 20])]}}, 4)
    for n in range(300):
        store.put("T", b"%d" % n, tags="ab"[n % 2], queue_id=n % 3)
        if n % 50 == 49:
            store.flush()
"""


@pytest.fixture(autouse=True)
def _faults_build() -> None:
    if not _core.FAULTS:
        pytest.fail("no failure injection in this build: build it with RMQSTORE_BUILD=faults")


@pytest.mark.parametrize(
    "point",
    [
        *("before-ext-unit:1", "after-ext-unit:1", "before-ext-unit:40", "after-ext-unit:217"),
        *("before-ext-sync:1", "before-ext-sync:9", "before-queue-sync:3", "before-unit:101"),
    ],
)
def test_killed_there(tmp_path: Path, point: str) -> None:
    root = tmp_path / "s"
    done = subprocess.run(
        [sys.executable, "-c", WRITER, root],
        env=os.environ | {"RMQ_KILL_AT": point},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == -9, done.stderr
    config = rmqstore.StoreConfig(**CONFIG)
    with rmqstore.open(root, "r") as store:
        seen = {one.body for one in store.scan(tags="a")} if "T" in store else set()
    with rmqstore.open(root, "r+", config=config) as store:
        store.core.set_bitmap_filters({"T": [("TAGS = 'a'", [1, 20])]}, 4)
        for n in range(20):
            store.put("T", b"more", tags="ab"[n % 2], queue_id=n % 3)
    found = oracle_ext.check_ext(root, orphans=True)
    records = list(oracle_store.walk_log(root / "commitlog"))
    assert {one.body for one in records if one.properties["TAGS"] == "a"} >= seen
    units = sum(len(one) for one in oracle_store.read_queues(root).values())
    assert units == len(records) == len(found)
    for record in records:
        bitmap = found["T", record.queue_id, record.queue_offset].bitmap
        wanted = bytes([2, 0, 16, 0]) if record.properties["TAGS"] == "a" else bytes(4)
        # Without subscriptions at the opening the units that it wrote anew have none.
        assert bitmap == b"" or all(a & b == b for a, b in zip(bitmap, wanted, strict=True))
