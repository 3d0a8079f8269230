"""Index files beyond the limit of descriptors: who writes keeps none, who reads a part of them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

import rmqstore
from crash.checks import output_of
from support.damaged_store import killed

FILES = 400
LIMIT = 256
PATIENCE = 120
CONFIG = rmqstore.StoreConfig.small(max_hash_slot_num=10, max_index_num=6)
USE = """
    import os, resource, sys, rmqstore
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]),) * 2)
    mode, files = sys.argv[2], int(sys.argv[4])
    config = rmqstore.StoreConfig.small(max_hash_slot_num=10, max_index_num=6)
    given = config if sys.argv[5] == "config" else None
    with rmqstore.open(sys.argv[1], mode, config=given) as store:
        for n in range(0, files * 5, 97):
            assert [m.body for m in store.query("orders", f"k{n}", index_only=True)] == [b"%d" % n]
        assert len(store.query("orders", "every", index_only=True)) == files
        assert len(store.index_coverage()) == 1
        if mode == "r+":
            opened = len(os.listdir("/proc/self/fd"))
            for n in range(files * 5, files * 10):
                store.put("orders", b"%d" % n, queue_id=0, keys=f"k{n}", uniq_key=False)
            store.flush()
            assert len(os.listdir("/proc/self/fd")) <= opened + 2
            for n in range(0, files * 10, 97):
                assert len(store.query("orders", f"k{n}", index_only=True)) == 1, n
        print("used", len(os.listdir("/proc/self/fd")))
"""


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def use(root, mode, given):
    return int(output_of(USE, root, mode, LIMIT, FILES, given, seconds=PATIENCE).split()[1])


@pytest.mark.long
@pytest.mark.parametrize("given", ["config", "told"])
@pytest.mark.parametrize("state", ["closed", "killed"])
def test_more_files_than_descriptors(tmp_path, state, given):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for n in range(FILES * 5):
            keys = [f"k{n}"] if n % 5 else ["every", f"k{n}"]
            store.put("orders", b"%d" % n, queue_id=0, keys=keys, uniq_key=False)
    assert len(list((root / "index").iterdir())) >= FILES
    if state == "killed":
        killed(root)
    assert use(root, "r", given) < LIMIT
    assert use(root, "r+", given) < 50
    assert use(root, "r", given) < LIMIT


def test_a_file_that_goes_while_it_has_no_descriptor(tmp_path):
    """Its part of the log is searched itself, and nothing that came in its place is read."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for n in range(FILES):
            store.put("orders", b"%d" % n, queue_id=0, keys=f"k{n}", uniq_key=False)
    files = sorted((root / "index").iterdir())
    assert len(files) == FILES // 5
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, hard))  # a quarter for the index
        store = rmqstore.open(root)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with store:
        # The newest come first: what the oldest file has is found after all others were read.
        assert [m.body for m in store.query("orders", "k0")] == [b"0"]
        assert descriptors() < 120
        files[3].unlink()
        files[4].write_bytes(files[9].read_bytes())
        for n in range(FILES):
            assert [m.body for m in store.query("orders", f"k{n}")] == [b"%d" % n]
        assert descriptors() < 120
