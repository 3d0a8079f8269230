"""S12, S13: a disk that is full under the log, the queues or the index, and has space again."""

from __future__ import annotations

import errno
import os
import shutil
import time

import pytest

import rmqstore
from rmqstore import PutError, PutStatus
from support import oracle_store
from support.mounts import mount

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
PATIENCE = 60


def fill(directory, leave):
    """Take all the space of a file system but some bytes; return the file that does."""
    path = directory / "filler"
    free = os.statvfs(directory)
    size = free.f_bavail * free.f_frsize - leave
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return path


@pytest.mark.long
@pytest.mark.parametrize("size", ["1m", "3m", "8m"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_s12_a_full_disk(tmp_path, flush, size):
    """DISK_FULL with errno, alive; readable; and everything acknowledged is there afterwards."""
    config = CONFIG.replace(flush_disk_type=flush)
    acknowledged = []
    with mount(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as disk:
        root = disk / "store"
        store = rmqstore.open(root, "a", config=config)
        errors = []
        for number in range(20_000):
            try:
                put = store.put("Topic1", b"x" * 1000, queue_id=number % 3, keys=f"k{number}")
            except PutError as error:
                errors.append(error)
                if len(errors) == 20:
                    break
            else:
                acknowledged.append((number, number % 3, put.queue_offset))
        assert len(errors) == 20, "the disk never was full"
        for error in errors:
            assert (error.status, error.errno) == (PutStatus.DISK_FULL, errno.ENOSPC), error
            assert error.result is None
        assert len(acknowledged) > 300
        first = acknowledged[0]
        assert store.get("Topic1", first[1], first[2], 1).messages[0].keys == ("k0",)
        try:
            store.close()
        except (OSError, rmqstore.StoreError):
            assert (root / "abort").exists()
        shutil.copytree(root, tmp_path / "copy")
        try:  # while it is full still
            rmqstore.open(root, "r+", config=config).close()
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017
        check_acknowledged(root, "r", None, acknowledged)
        check_acknowledged(tmp_path / "copy", "r+", config, acknowledged)


def check_acknowledged(root, mode, config, acknowledged):
    with rmqstore.open(root, mode, config=config) as store:
        found = {
            (queue_id, m.queue_offset): m.keys
            for queue_id, queue in store["Topic1"].items()
            for m in queue
        }
        for number, queue_id, queue_offset in acknowledged:
            assert found[queue_id, queue_offset] == (f"k{number}",)
        for number, *_ in acknowledged[:: max(1, len(acknowledged) // 100)]:
            assert len(store.query("Topic1", f"k{number}")) == 1
    if mode == "r+":
        oracle_store.check_store(root)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_s13_it_goes_on_when_there_is_space_again(tmp_path, flush):
    config = CONFIG.replace(flush_disk_type=flush)
    with mount(tmp_path / "disk", "-t", "tmpfs", "-o", "size=6m", "tmpfs") as disk:
        root = disk / "store"
        acknowledged = []
        with rmqstore.open(root, "a", config=config) as store:
            store.put("Topic1", b"x" * 1000, queue_id=0, keys="first")
            store.flush()
            filler = fill(disk, 300_000)
            number = 0
            with pytest.raises(PutError) as raised:  # noqa: PT012 - one of many
                for number in range(5000):
                    put = store.put("Topic1", b"x" * 1000, queue_id=0, keys=f"k{number}")
                    acknowledged.append((number, 0, put.queue_offset))
            assert raised.value.status == PutStatus.DISK_FULL
            filler.unlink()
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    put = store.put("Topic1", b"again", queue_id=0, keys="again")
                    break
                except PutError:
                    assert time.monotonic() < until, "it did not resume"
                    time.sleep(0.05)
            assert put.queue_offset == len(acknowledged) + 1
            assert store.query("Topic1", "again")[0].body == b"again"
        with rmqstore.open(root, "r+", config=config) as store:
            assert store.recovery.clean
            assert len(list(store["Topic1"][0])) == len(acknowledged) + 2
        oracle_store.check_store(root)


def test_a_store_cannot_be_made_on_a_full_disk(tmp_path):
    with mount(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as disk:
        fill(disk, 0)
        with pytest.raises(OSError, match="No space") as raised:
            rmqstore.open(disk / "store", "a", config=CONFIG)
        assert raised.value.errno == errno.ENOSPC
        (disk / "filler").unlink()
        with rmqstore.open(disk / "store", "a", config=CONFIG) as store:
            assert store.put("Topic1", b"x", queue_id=0).queue_offset == 0


@pytest.mark.parametrize("place", ["consumequeue", "index"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_full_disk_under_queues_or_index_alone(tmp_path, flush, place):
    """Puts stop, reading what is not in its queue yet says why, and all goes on by itself."""
    config = CONFIG.replace(flush_disk_type=flush)
    root = tmp_path / "store"
    (root / place).mkdir(parents=True)
    acknowledged = 0
    with mount(root / place, "-t", "tmpfs", "-o", "size=1m", "tmpfs") as disk:
        filler = fill(disk, 64 << 10)
        store = rmqstore.open(root, "a", config=config)
        with pytest.raises(PutError) as raised:  # noqa: PT012 - one of many
            for _ in range(20_000):
                store.put_many("Topic1", [b"x" * 100] * 50, queue_id=0, keys="key")
                acknowledged += 50
        acknowledged += raised.value.stored
        assert (raised.value.status, raised.value.errno) == (PutStatus.DISK_FULL, errno.ENOSPC)
        # Nothing that was acknowledged waits for space in its queue.
        end = time.monotonic() + PATIENCE
        while len(store["Topic1"][0]) < acknowledged and time.monotonic() < end:
            time.sleep(0.01)
        assert len(store["Topic1"][0]) == acknowledged
        if place == "index":
            assert store.stats()["dispatch_behind_bytes"] > 0
            with pytest.raises(OSError, match=r"dispatch .* \d+ bytes behind") as behind:
                store.get("Topic1", 0, acknowledged)
            assert behind.value.errno == errno.ENOSPC
            assert behind.value.filename.startswith(str(root / place))
        assert store.get("Topic1", 0, 0, 1).messages[0].body == b"x" * 100
        with pytest.raises(PutError):
            store.put("Topic1", b"refused", queue_id=0)
        filler.unlink()
        end = time.monotonic() + PATIENCE
        while store.stats()["dispatch_behind_bytes"] and time.monotonic() < end:
            time.sleep(0.01)
        assert store.put("Topic1", b"after", queue_id=0).queue_offset == acknowledged
        assert store.get("Topic1", 0, acknowledged).messages[0].body == b"after"
        assert len(store["Topic1"][0]) == acknowledged + 1
        store.close()
        oracle_store.check_store(root)
