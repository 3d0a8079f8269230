"""Directories of consumequeue_ext that cannot be removed with their topic."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreConfig, _core
from support import oracle_ext

CONFIG = StoreConfig.small(enable_consume_queue_ext=True)


def fill(store: rmqstore.MessageStore, count: int) -> None:
    for i in range(count):
        store.put("T", b"%d" % i, tags="TagA", queue_id=i % 2)


@pytest.mark.needs_debug_build
@pytest.mark.parametrize("which", range(1, 7))
def test_a_directory_that_cannot_be_removed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """Of a topic of two queues: theirs, each with its ext directory, then the topic's two."""
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        fill(store, 20)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        passed, failed = _core.fault_counts()
        monkeypatch.setenv("RMQ_FAIL_AT", f"rmdir:{passed + which}:{errno.EIO}")
        with pytest.raises(OSError, match="T") as raised:
            store.delete_topic("T")
        monkeypatch.delenv("RMQ_FAIL_AT")
        assert raised.value.errno == errno.EIO
        reached = which + (which == 5)  # the topic's own directory is removed all the same
        assert _core.fault_counts() == (passed + reached, failed + 1)
        fill(store, 10)
    assert len(oracle_ext.check_ext(root)) == (20 if which < 3 else 10)  # the second queue's stay
    with rmqstore.open(root, "r+") as store:
        store.delete_topic("T")
    assert list((root / "consumequeue_ext").iterdir()) == []


def test_an_ext_directory_that_stays_refuses_no_opening(tmp_path: Path) -> None:
    """Queues of a deleted topic are there again, as a backup leaves them."""
    root, kept = tmp_path / "s", tmp_path / "kept"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        fill(store, 20)
    shutil.copytree(root / "consumequeue/T", kept)
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        store.delete_topic("T")
    shutil.copytree(kept, root / "consumequeue/T")
    (root / "consumequeue_ext/T/9").mkdir(parents=True)
    (root / "consumequeue_ext/T/9/mine").write_text("")
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert "T" not in store
    assert (root / "consumequeue_ext/T/9/mine").exists()
