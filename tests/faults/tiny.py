"""Stores of a few kilobytes, held in memory, so that every byte of one can be damaged in turn.

A store has three log files, two queues of three files and two index files, a checkpoint, ``lock``
and ``topics.json``; a killed one ``abort`` as well.  What is in it is told by the slow codec.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rmqstore
from faults.model import Place
from support import archives, oracle, oracle_store

LOG_SIZE = 1024
QUEUE_SIZE = 60
SLOTS = 4
ENTRIES = 24
SECTOR = 512
PAGE = 4096
LARGE = 1 << 20  # nothing that the store is given is as large
TOPIC = "T"
COUNT = 18
STATES = ("closed", "killed", "cut")
BROKERS = Path(__file__).parents[1] / "data" / "stores" / "tiny.tar.xz"

Files = dict[str, bytes]


def config(flush: str = "ASYNC_FLUSH", **changes: Any) -> Any:
    fields = {
        "mapped_file_size_commit_log": LOG_SIZE,
        "mapped_file_size_consume_queue": QUEUE_SIZE,
        "max_hash_slot_num": SLOTS,
        "max_index_num": ENTRIES,
        "flush_disk_type": flush,
    }
    return rmqstore.StoreConfig(**fields | changes)


@dataclass
class Image:
    """A store directory in memory, and what is in it."""

    name: str
    files: Files
    directories: list[str]
    config: Any
    messages: dict[Place, tuple[Any, ...]] = field(default_factory=dict)
    spans: dict[Place, tuple[int, int]] = field(default_factory=dict)  # physical offsets
    keys: dict[Place, list[str]] = field(default_factory=dict)
    torn: list[tuple[tuple[int, int], list[str]]] = field(default_factory=list)  # spans and keys

    def write(self, root: Path) -> None:
        write_files(root, self.files, self.directories)


def write_files(
    root: Path, files: Files, directories: list[str], there: Files | None = None
) -> None:
    """Write the files that are not ``there`` as they are to be; none by default."""
    for name in directories:
        os.makedirs(root / name, exist_ok=True)  # noqa: PTH103 - tens of thousands of times
    for name, data in files.items():
        if there is not None and there.get(name) == data:
            continue
        descriptor = os.open(f"{root}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(descriptor, data)
        os.close(descriptor)


def read_files(root: Path) -> Files:
    """What is in the files; of one of the default size what is written of it, and where."""
    found = {}
    top = len(os.fspath(root)) + 1
    for directory, _, names in os.walk(root):
        for name in names:
            path = f"{directory}/{name}"
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                size = os.fstat(file.fileno()).st_size
                found[path[top:]] = file.read() if size < LARGE else _written(file.fileno(), size)
    return found


def _written(fd: int, size: int) -> bytes:
    parts = [str(size).encode()]
    for start, stop in oracle_store.extents(fd, size):
        for at in range(start, stop, PAGE):  # one that was only looked at is zeros, and no hole
            if any(page := os.pread(fd, min(PAGE, stop - at), at)):
                parts += [b" %d " % at, page]
    return b"".join(parts)


def directories_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root, *root.rglob("*")) if path.is_dir())


def all_of(message: Any) -> tuple[Any, ...]:
    """Every field of a message."""
    m = message
    return (
        m.topic,
        m.queue_id,
        m.queue_offset,
        m.physical_offset,
        m.store_size,
        bytes(m.raw_body),
        tuple(m.properties.items()),
        m.flag,
        m.sys_flag,
        m.born_timestamp,
        m.born_host,
        m.store_timestamp,
        m.store_host,
        m.reconsume_times,
        m.prepared_transaction_offset,
        m.body_crc,
    )


def image_of(name: str, root: Path, settings: Any) -> Image:
    """Take a store as it lies there, sound or killed; the log alone says what is in it."""
    found = Image(name, read_files(root), directories_of(root), settings)
    for record in oracle_store.walk_log(root / "commitlog"):
        if not record.is_queued:
            continue
        place = (record.topic, record.queue_id, record.queue_offset)
        found.messages[place] = (
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.physical_offset,
            record.store_size,
            record.raw_body,
            tuple(record.properties.items()),
            record.flag,
            record.sys_flag,
            record.born_timestamp,
            record.born_host,
            record.store_timestamp,
            record.store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            record.body_crc,
        )
        start = record.physical_offset
        found.spans[place] = (start, start + record.store_size)
        found.keys[place] = oracle.index_keys(record)
    return found


def message(number: int) -> dict[str, Any]:
    return {
        "body": b"body %02d " % number * (1 + number % 3),
        "queue_id": number % 2,
        "tags": [None, "TagA", "TagB"][number % 3],
        "keys": [f"k{number}", "all"][: 1 + number % 2],
    }


def put_all(store: Any, count: int = COUNT, first: int = 0) -> None:
    for number in range(first, first + count):
        store.put(TOPIC, **message(number), uniq_key=number % 9 == 0)


def killed_while_open(root: Path, settings: Any, work: Any) -> None:
    """Have a child do the work on the store and be killed with it open."""
    child = os.fork()
    if child == 0:
        try:
            store = rmqstore.open(root, "a", config=settings)
            work(store)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status


def make(directory: Path, state: str, *, checksum: bool = False, seed: str = "") -> Image:
    """A store of ours: ``closed``, ``killed`` or ``cut``, as a power cut leaves it."""
    name = f"{state}{'-checksum' if checksum else ''}"
    root = directory / name
    synced = directory / f"{name}-synced"
    # Nothing but the first flush is ever synced.
    slow = {
        "flush_interval_commit_log": 600_000,
        "flush_interval_consume_queue": 600_000,
        "flush_consume_queue_thorough_interval": 600_000,
        "flush_commit_log_thorough_interval": 600_000,
    }
    settings = config(record_checksum=checksum, **slow if state != "closed" else {})

    def work(store: Any) -> None:
        store.create_topic(TOPIC, 2)
        put_all(store, COUNT // 2)
        if state != "closed":
            store.flush()
            shutil.copytree(root, synced)
        put_all(store, COUNT - COUNT // 2, COUNT // 2)
        for queue_id in range(2):  # until it is dispatched
            assert len(store.get(TOPIC, queue_id, 0, COUNT).messages) == COUNT // 2

    if state == "closed":
        with rmqstore.open(root, "a", config=settings) as store:
            work(store)
    else:
        killed_while_open(root, settings, work)
    image = image_of(name, root, config(record_checksum=checksum))
    if state == "cut":
        cut(image, read_files(synced), seed)
    shutil.rmtree(root)
    shutil.rmtree(synced, ignore_errors=True)
    return image


def brokers(directory: Path, state: str, *, seed: str = "") -> Image:
    """A store of the real 4.9.3's, in the same states."""
    root = directory / "brokers"
    archives.unpack(BROKERS, root)
    image = image_of(
        f"{state}-broker", root / ("closed" if state == "closed" else "killed"), config()
    )
    if state == "cut":
        cut(image, read_files(root / "synced"), seed)
    shutil.rmtree(root)
    return image


def cut(image: Image, synced: Files, seed: str) -> None:
    """Of each sector that is not synced keep what is there, or what the disk had, at random.

    What is in it then are the records of which nothing is lost.
    """
    draw = random.Random(f"cut {seed}")
    whole = dict(sorted(image.files.items()))
    for name, data in whole.items():
        before = synced.get(name, b"").ljust(len(data), b"\0")
        image.files[name] = b"".join(
            (data if draw.random() < 0.5 else before)[at : at + SECTOR]
            for at in range(0, len(data), SECTOR)
        )

    def log_of(files: Files) -> bytes:
        return b"".join(files[name] for name in sorted(files) if name.startswith("commitlog/"))

    left, right = log_of(whole), log_of(image.files)
    for place, (start, stop) in list(image.spans.items()):
        if left[start:stop] != right[start:stop]:
            image.torn.append(((start, stop), image.keys[place]))
            for table in (image.messages, image.spans, image.keys):
                del table[place]
