"""A small store of some log files, damaged byte by byte; tests of recovery share it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import rmqstore
from rmqstore import StoreCorruptError
from support import oracle, oracle_store

LOG_SIZE = 16384
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
COUNT = 120
BROKER_LOG = 1 << 20


def make(root: Path) -> Path:
    """Put COUNT messages of 300 to 2,100 bytes into two queues."""
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(COUNT):
            body = b"%03d" % number * (100 + number % 7 * 100)
            store.put("Topic1", body, queue_id=number % 2, keys=f"k{number}", tags=f"t{number % 3}")
    assert len(oracle_store.log_files(root / "commitlog")) > 3
    return root


def with_group(root: Path) -> Path:
    """Make the store, with a group that has consumed 50 messages."""
    with rmqstore.open(make(root), "r+") as store, store.consumer("Topic1", group="g") as consumer:
        messages = iter(consumer)
        for _ in range(50):
            next(messages)
        consumer.commit()
    return root


def killed(root: Path) -> Path:
    """Make it a store that was killed, of which nothing is known to be synced."""
    (root / "abort").touch()
    (root / "checkpoint").unlink(missing_ok=True)
    return root


def records(root: Path) -> list[oracle.Record]:
    return list(oracle_store.walk_log(root / "commitlog"))


def poke(root: Path, offset: int, data: bytes, size: int = LOG_SIZE) -> None:
    start = offset - offset % size
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(offset - start)
        file.write(data)


def flip(root: Path, offset: int, size: int = LOG_SIZE, bit: int = 1) -> None:
    start = offset - offset % size
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(offset - start)
        byte = file.read(1)[0]
        file.seek(offset - start)
        file.write(bytes([byte ^ bit]))


def zero_beginning(root: Path, number: int, size: int) -> int:
    """Zero the first bytes of a log file; return where it begins."""
    path = sorted((root / "commitlog").iterdir())[number]
    with path.open("r+b") as file:
        file.write(bytes(size))
    return int(path.name)


def state(root: Path) -> dict[str, str]:
    """Every name below, and the bytes of each file; the lock file may come."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.name != "lock":
            name = str(path.relative_to(root))
            found[name] = oracle_store.digest(path) if path.is_file() else "directory"
    return found


def bodies(store) -> dict[tuple[str, int, int], bytes]:
    """Every message of every queue that can be read."""
    found = {}
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            for at in range(queue.min_offset, queue.max_offset):
                try:
                    found[name, queue_id, at] = queue[at].raw_body.tobytes()
                except (StoreCorruptError, LookupError):
                    continue
    return found


def read(root: Path) -> dict[tuple[str, int, int], bytes]:
    with rmqstore.open(root) as store:
        return bodies(store)


@contextlib.contextmanager
def owned(root: Path) -> Iterator[None]:
    """Hold the store's lock, as an owner in another process does."""
    with (root / "lock").open("r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        yield
