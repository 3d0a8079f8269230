"""Files of the log that are made ahead, and those whose blocks are had by writing."""

from __future__ import annotations

import errno

import pytest

import rmqstore
from crash.checks import output_of
from support import oracle_store

COUNT = 3000
WRITE = """
    import sys, threading, time, rmqstore
    from pathlib import Path
    config = rmqstore.StoreConfig.small(mapped_file_size_commit_log=int(sys.argv[2]))
    store = rmqstore.open(sys.argv[1], "a", config=config)
    store.create_topic("orders", 4)
    before = len(list(Path("/proc/self/fd").iterdir()))

    def put(queue_id):
        for n in range(int(sys.argv[3])):
            store.put("orders", b"%d" % n * 40, queue_id=queue_id, uniq_key=False)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The writer's file and the one made ahead, whichever was overtaken; once no file is being made.
    until = time.monotonic() + 60
    while len(list(Path("/proc/self/fd").iterdir())) > before + 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    store.close()
"""


@pytest.mark.long
@pytest.mark.parametrize("blocks", ["reserved", "written"])
@pytest.mark.parametrize("size", [4096, 64 << 10])
def test_rolls_however_blocks_are_had(tmp_path, blocks, size):
    """Four writers roll every few records: all is there, fillers are whole, no file is left."""
    plan = {"RMQ_FAIL_AT": f"fallocate:1:{errno.EOPNOTSUPP}+"} if blocks == "written" else {}
    output_of(WRITE, tmp_path / "store", size, COUNT, seconds=120, **plan)
    log = tmp_path / "store" / "commitlog"
    assert len(list(log.iterdir())) > 10
    assert len(list(oracle_store.walk_log(log))) == 4 * COUNT
    with rmqstore.open(tmp_path / "store", verify="full") as store:
        for queue_id in range(4):
            bodies = [m.body for m in store["orders"][queue_id]]
            assert bodies == [b"%d" % n * 40 for n in range(COUNT)]
