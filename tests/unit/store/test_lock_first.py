"""The lock comes first: nothing is read before it, and no child of a fork keeps it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore import _core, opening
from rmqstore.base import syncing

CONFIG = rmqstore.StoreConfig.small()
OWNER = """
import sys
import rmqstore

store = rmqstore.open(sys.argv[1], "r+", config=rmqstore.StoreConfig.small())
print("has it", flush=True)
sys.stdin.readline()
store.create_topic("made", 7, order=True)
store.put("made", b"last", queue_id=6)
store.delete_topic("deleted")
if sys.argv[2] == "close":
    store.close()
else:
    import os
    store.flush()
    os._exit(0)
"""


@pytest.mark.parametrize("end", ["close", "exit"])
@pytest.mark.parametrize("config", [CONFIG, None])
def test_who_waits_for_the_lock_sees_what_the_last_owner_did(tmp_path, end, config):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put("kept", b"first", queue_id=0)
        store.put("deleted", b"gone", queue_id=0)
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, root, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout.readline() == "has it\n"

        def go_on() -> None:
            time.sleep(0.5)  # open() waits by then
            owner.stdin.write("\n")
            owner.stdin.flush()

        threading.Thread(target=go_on).start()
        with rmqstore.open(root, "r+", config=config, timeout=60) as store:
            assert set(store) == {"kept", "made"}
            assert store["made"].write_queue_nums == 7
            assert store["made"][6][0].body == b"last"
            assert store.get("deleted", 0, 0).messages == []
            store.create_topic("later")
        assert owner.wait() == 0
    with rmqstore.open(root, "r") as store:
        assert set(store) == {"kept", "made", "later"}
        assert store["made"].write_queue_nums == 7


@pytest.mark.needs_debug_build
def test_a_fork_during_recovery_does_not_keep_the_lock(tmp_path, monkeypatch):
    if not _core.FAULTS:
        pytest.fail("no kill points in this build: build it with RMQSTORE_BUILD=faults")
    root = tmp_path / "store"
    rmqstore.open(root, "a", config=CONFIG).close()
    held, go_on = os.pipe()
    monkeypatch.setenv("RMQ_HOLD_AT", f"recover-after-abort:{held}")
    opened = []
    opener = threading.Thread(target=lambda: opened.append(rmqstore.open(root, "r+")))
    opener.start()
    while not (root / "abort").exists():
        time.sleep(0.01)
    waiting, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(waiting, 1)
        os._exit(0)
    os.write(go_on, b"x")
    opener.join()
    opened[0].close()
    monkeypatch.delenv("RMQ_HOLD_AT")
    try:
        rmqstore.open(root, "r+").close()  # the child is still there
    finally:
        for descriptor in (held, go_on, waiting, end):
            os.close(descriptor)
        assert os.waitpid(child, 0)[1] == 0


def test_a_child_that_was_forked_before_the_lock_was_free(tmp_path):
    """The one that waits has a descriptor of the lock's file already."""
    root = tmp_path / "store"
    first = rmqstore.open(root, "a", config=CONFIG)
    opened = []
    opener = threading.Thread(target=lambda: opened.append(rmqstore.open(root, "r+", timeout=60)))
    opener.start()
    time.sleep(0.3)  # it waits by then
    waiting, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(waiting, 1)
        os._exit(0)
    first.close()
    opener.join()
    opened[0].close()
    try:
        rmqstore.open(root, "r+").close()
    finally:
        os.close(waiting)
        os.close(end)
        assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def synced(monkeypatch):
    """The paths that Python has synced, in order."""
    paths = []

    def note(path):
        paths.append(Path(path))
        real(path)

    real = syncing.sync_path
    monkeypatch.setattr(syncing, "sync_path", note)
    return paths


def test_the_name_of_each_directory_above_a_new_store_lasts(tmp_path, synced):
    rmqstore.open(tmp_path / "a" / "b" / "store", "a", config=CONFIG).close()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_a_directory_that_a_killed_opening_made_is_synced_by_the_next(tmp_path, synced):
    (tmp_path / "store").mkdir()
    rmqstore.open(tmp_path / "store", "a", config=CONFIG).close()
    assert synced == [tmp_path]
    rmqstore.open(tmp_path / "store", "a").close()
    assert synced == [tmp_path]  # there is a store in it by now


def test_a_parent_that_cannot_be_synced_refuses_a_new_store(tmp_path, monkeypatch):
    def fails(path):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(syncing, "sync_path", fails)
    with pytest.raises(OSError, match="Input/output error") as raised:
        rmqstore.open(tmp_path / "new" / "store", "a")
    assert raised.value.filename == str(tmp_path)
    assert not (tmp_path / "new" / "store").exists()


def test_a_file_where_a_directory_should_be(tmp_path):
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="is not a directory"):
        opening.open(tmp_path / "store", "a")
