"""Zeros ahead of the log's writer: never over a record, and not needed for one."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest

import rmqstore
from support import oracle_store
from support.serving import wait_until

pytestmark = pytest.mark.needs_debug_build

RUN = 256 << 10
LOG = 3 * RUN
CONFIG = rmqstore.StoreConfig.small(mapped_file_size_commit_log=LOG)
SEED = b"zeros ahead"


def bodies() -> list[bytes]:
    """Five files of records of all lengths, some as long as a run of zeros."""
    draw = random.Random(SEED)
    return [draw.randbytes(draw.choice([0, 50, 1000, 5000, RUN])) for _ in range(60)]


def assert_whole(root: Path) -> None:
    log = root / "commitlog"
    assert [record.body for record in oracle_store.walk_log(log)] == bodies()
    with rmqstore.open(root, "r") as store:
        assert [message.body for message in store["orders"][0]] == bodies()
        end = store.stats()["wrote_position"]
    last = max(log.iterdir())
    assert not any(last.read_bytes()[end - int(last.name) :])


PLANS = {
    "as ever": "",
    "no zeros": f"zeros:1:{errno.EIO}+",
    "zeros fail once": f"zeros:3:{errno.ENOSPC}",
    "no blocks ahead": f"fallocate:2:{errno.ENOSPC}",
    "blocks by writing": f"fallocate:1:{errno.EOPNOTSUPP}+",
}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_records_are_whole_however_zeros_go(tmp_path, monkeypatch, plan, flush):
    with rmqstore.open(tmp_path, "a", config=CONFIG.replace(flush_disk_type=flush)) as store:
        monkeypatch.setenv("RMQ_FAIL_AT", plan)
        for body in bodies():
            store.put("orders", body, queue_id=0)
        monkeypatch.delenv("RMQ_FAIL_AT")
    assert_whole(tmp_path)


@pytest.mark.parametrize("opened", ["as left", "again"])
def test_a_disk_that_hangs_while_zeros_are_written(tmp_path, monkeypatch, opened):
    """The writer stays below the zeros until they are written; a file found is given none."""
    store = rmqstore.open(tmp_path, "a", config=CONFIG)
    store.put("orders", bodies()[0], queue_id=0)
    if opened == "again":
        store.close()
        store = rmqstore.open(tmp_path, "r+", config=CONFIG)
    held, go_on = os.pipe()
    monkeypatch.setenv("RMQ_HOLD_AT", f"after-zeros:{held}")

    def put() -> None:
        for body in bodies()[1:]:
            store.put("orders", body, queue_id=0)

    writer = threading.Thread(target=put)
    writer.start()
    try:
        wrote = -1
        while wrote != (wrote := store.stats()["wrote_position"]):  # it waits
            writer.join(0.2)
        assert writer.is_alive()
        assert 0 < wrote <= (LOG if opened == "again" else 2 * RUN)
    finally:
        monkeypatch.delenv("RMQ_HOLD_AT")
        os.close(go_on)
        writer.join()
        os.close(held)
    wait_until(lambda: store.stats()["dispatched_position"] == store.stats()["wrote_position"])
    store.close()
    assert_whole(tmp_path)
