"""Sustained writing of many GiB: both stores, and the disk by itself."""

from __future__ import annotations

import os
import time
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
            done, taken = write(path, wanted)
            lines.append(f"| {name} | {done / (1 << 30):.1f} | {done / taken / (1 << 20):,.0f} |")
    return "\n".join(lines)


def to_disk(path: Path, wanted: int) -> tuple[int, float]:
    """Write a file from end to end and sync it; return bytes and seconds, as all do."""
    chunk = os.urandom(CHUNK)
    began = time.perf_counter()
    with (path / "file").open("wb", buffering=0) as file:
        for _ in range(wanted // CHUNK):
            file.write(chunk)
        os.fsync(file.fileno())
    return wanted, time.perf_counter() - began


def by_ours(path: Path, wanted: int) -> tuple[int, float]:
    """Put batches until so many bytes of log are there, and close."""
    rows = workloads.bodies(BODY, MESSAGES)
    calls, done = calls_for(wanted)
    store = rmqstore.open(path / "store", "a")
    store.create_topic(workloads.TOPIC, workloads.QUEUES)
    began = time.perf_counter()
    for _ in range(calls):
        store.put_many(workloads.TOPIC, rows)
    store.close()
    return done, time.perf_counter() - began


def by_theirs(path: Path, wanted: int) -> tuple[int, float]:
    """Put the same messages in batches of 64, and close."""
    calls, done = calls_for(wanted)
    fields = {"topic": workloads.TOPIC, "queues": workloads.QUEUES, "size": BODY}
    with RealStore() as real:
        real.ask("open", dir=path / "store")
        taken = (
            sum(real.round("put_batch", count=MESSAGES, **fields).ns for _ in range(calls)) / 1e9
        )
        began = time.perf_counter()
        real.ask("close")
        return done, taken + time.perf_counter() - began


def calls_for(wanted: int) -> tuple[int, int]:
    """Return the calls after which the log has the wanted bytes, and its bytes then."""
    each = MESSAGES * workloads.record_size(BODY)
    calls = -(-wanted // each)
    return calls, calls * each
