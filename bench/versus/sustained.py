"""Writing many GiB without a pause: both stores, and the disk by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import rmqstore
import workloads
from versus.real import RealStore

BODY = 1024
MESSAGES = 200_000  # of one call
CHUNK = 1 << 20


def table(gibibytes: int) -> str:
    """Write so much with each, until it is on the disk, and return the rates as a table."""
    wanted = gibibytes << 30
    lines = ["| written without a pause | GiB | MiB/s |", "| --- | --: | --: |"]
    for name, write in (("disk", to_disk), ("ours", by_ours), ("theirs", by_theirs)):
        with workloads.scratch() as path:
            os.sync()
            began = time.perf_counter()
            done = write(path, wanted)
            rate = done / (time.perf_counter() - began) / (1 << 20)
            lines.append(f"| {name} | {done / (1 << 30):.1f} | {rate:,.0f} |")
    return "\n".join(lines)


def to_disk(path: Path, wanted: int) -> int:
    """Write a file from end to end and sync it."""
    chunk = os.urandom(CHUNK)
    with (path / "file").open("wb", buffering=0) as file:
        for _ in range(wanted // CHUNK):
            file.write(chunk)
        os.fsync(file.fileno())
    return wanted


def by_ours(path: Path, wanted: int) -> int:
    """Put batches until so many bytes of log are there, and close."""
    with rmqstore.open(path / "store", "a") as store:
        store.create_topic(workloads.TOPIC, workloads.QUEUES)
        rows = workloads.bodies(BODY, MESSAGES)
        return repeated(lambda: store.put_many(workloads.TOPIC, rows), wanted)


def by_theirs(path: Path, wanted: int) -> int:
    """Put the same number of messages in batches of 64, and close."""
    with RealStore() as real:
        real.ask("open", dir=path / "store")
        fields = {"topic": workloads.TOPIC, "queues": workloads.QUEUES, "size": BODY}
        done = repeated(lambda: real.round("put_batch", count=MESSAGES, **fields), wanted)
        real.ask("close")
    return done


def repeated(put: Callable[[], object], wanted: int) -> int:
    """Put so often that the log has the wanted bytes; return them."""
    each = MESSAGES * workloads.record_size(BODY)
    for _ in range(-(-wanted // each)):
        put()
    return -(-wanted // each) * each
