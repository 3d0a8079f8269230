"""A store of many GiB that takes almost no disk, and the memory of a process that reads it.

Each record is whole and has its checksum: of a body of zeros, which is a hole in the file.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import rmqstore
import workloads
from rmqstore import offline
from scale import memory
from scale.growth import opening
from scale.rows import Line, at_most

FILE = 1 << 30
BODY = 4_000_000
TIME = 1_700_000_000_000
INDEX_NAME = "20231114221320000"

HEAD = 88  # bytes of a record before its body
QUEUE_ID, OFFSETS = struct.Struct(">i"), struct.Struct(">qq")
QUEUE_ID_AT, OFFSETS_AT, STORE_TIMESTAMP_AT = 12, 20, 56
BLANK = struct.pack(">i", -875286124)  # the magic number of what ends a file


def write(path: Path, gib: int) -> Path:
    """Write a closed store of so many GiB."""
    template = rmqstore.encode_record(workloads.TOPIC, bytes(BODY), properties=properties(0))
    keys, offsets, times = [], [], []
    places = list(records(gib * FILE, len(template)))
    units: dict[int, list[int]] = {number: [] for number in range(workloads.QUEUES)}
    (path / "commitlog").mkdir(parents=True)
    for start in range(0, gib * FILE, FILE):
        with (path / "commitlog" / f"{start:020d}").open("wb") as file:
            file.truncate(FILE)
            for physical_offset in (at for at in places if start <= at < start + FILE):
                queue_id = len(keys) % workloads.QUEUES
                of_queue = units[queue_id]
                head = bytearray(template[:HEAD])
                QUEUE_ID.pack_into(head, QUEUE_ID_AT, queue_id)
                OFFSETS.pack_into(head, OFFSETS_AT, len(of_queue), physical_offset)
                struct.pack_into(">q", head, STORE_TIMESTAMP_AT, TIME + len(keys))
                tail = rmqstore.encode_record(
                    workloads.TOPIC, b"", properties=properties(physical_offset)
                )[HEAD:]
                os.pwrite(file.fileno(), head, physical_offset - start)
                os.pwrite(file.fileno(), tail, physical_offset - start + HEAD + BODY)
                of_queue.append(physical_offset)
                keys.append(f"{workloads.TOPIC}#{key(physical_offset)}")
                offsets.append(physical_offset)
                times.append(TIME + len(times))
            blank = offsets[-1] + len(template) - start
            os.pwrite(file.fileno(), QUEUE_ID.pack(FILE - blank) + BLANK, blank)
    for queue_id, of_queue in units.items():
        place = path / "consumequeue" / workloads.TOPIC / str(queue_id)
        with rmqstore.ConsumeQueue(place, mode="a") as queue:
            for queue_offset, physical_offset in enumerate(of_queue):
                queue.put_unit(physical_offset, len(template), 0, queue_offset)
    (path / "index").mkdir()
    with rmqstore.IndexFile(path / "index" / INDEX_NAME, mode="a") as index:
        index.put_keys(keys, offsets, times)
    with rmqstore.open(path) as store:
        offline.seal_store(store, offsets[-1], times[-1])
    return path


def key(physical_offset: int) -> str:
    """Return the key of the record there; all are equally long."""
    return f"key-{physical_offset:020d}"


def properties(physical_offset: int) -> dict[str, str]:
    """Return the properties of the record there."""
    return {"KEYS": key(physical_offset)}


def records(stop: int, size: int) -> Iterator[int]:
    """Yield where each record begins: as many in a file as leave room for its end."""
    for start in range(0, stop, FILE):
        yield from range(start, start + FILE - size - 8, size)


def peak() -> int:
    """Return this process's greatest resident size, in KiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def read(path: str, mode: str, most: str) -> None:
    """Get messages from all over each queue, find them by their keys, scan a piece of the log."""
    with rmqstore.open(path, mode) as store:
        for queue in store[workloads.TOPIC].values():
            step = max(1, len(queue) // int(most))
            for at in range(0, len(queue), step):
                (message,) = store.get(workloads.TOPIC, queue.queue_id, at, 1).messages
                assert len(message.body) == BODY
                assert message.queue_offset == at
                (found,) = store.query(workloads.TOPIC, key(message.physical_offset))
                assert found.physical_offset == message.physical_offset
            assert queue.offset_at(0) == 0
        assert sum(1 for _ in store.scan(stop=FILE // 4).to_batches())
        print(peak(), memory.own())


def lines(folder: Path, gib: int, rounds: int, most: int) -> list[Line]:
    """Return the memory of a reader in a process of its own, and opening."""
    path = write(folder / "sparse", gib)
    found = []
    for mode in ("r", "r+"):
        resident, own = (kib / 1024 for kib in memory.run("sparse", "read", path, mode, most))
        what = f'a reader of {gib} GiB, "{mode}"'
        if mode == "r":
            found.append(at_most(f"{what}: resident at most", resident, memory.READER_MIB, "MiB"))
        else:  # its own files stay mapped: pages that the system takes back when it wants them
            found.append(Line(f"{what}: resident at most", f"{resident:,.1f} MiB"))
        found.append(at_most(f"{what}: of its own", own, memory.READER_MIB, "MiB"))
    found += opening(path, f"a closed store of {gib} GiB", rounds)
    shutil.rmtree(path)
    return found
