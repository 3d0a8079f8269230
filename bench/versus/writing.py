"""Writing into fresh stores, and the index file by itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa

import rmqstore
import workloads
from versus.limits import Limits
from versus.real import RealStore, Round
from versus.rows import Row, timed

PUT_1K, PUT_128, PUT_THREADS = "put, 1 KiB", "put, 128 B", "put, 1 KiB, 4 threads"
MANY_128, MANY_1K = "put_many until visible, 128 B", "put_many until visible, 1 KiB"
SYNC_1, SYNC_32 = "synchronous put, 1 thread", "synchronous put, 32 threads"
VISIBLE_MEDIAN, VISIBLE_LATE = "put to visible, median", "put to visible, 99 of 100"
KEYS_LIST, KEYS_ARROW = "index file: put_keys of a list", "index file: put_keys from Arrow"
SELECT_LIST = "index file: select_many of a list"
SELECT_ARROW = "index file: select_many from Arrow"
GOALS = {
    PUT_1K: 3,
    PUT_128: 2.5,
    PUT_THREADS: 2,
    MANY_128: 8,
    MANY_1K: 4,
    SYNC_1: 1.5,
    SYNC_32: 1.3,
    VISIBLE_MEDIAN: 100,
    VISIBLE_LATE: 100,
    KEYS_LIST: 1.5,
    KEYS_ARROW: 3,
    SELECT_LIST: 8,
    SELECT_ARROW: 8,
}

SYNC = {"flushDiskType": "SYNC_FLUSH"}
PUTS = {1024: 200_000, 128: 300_000}
MANY = {1024: 200_000, 128: 1_000_000}
THREADS = 4
SYNC_PUTS = {1: 200, 32: 3_200}
VISIBLE = 20_000
ASKED = 200_000


def lines() -> list[Row]:
    """Return the lines."""
    return [Row(name, goal) for name, goal in GOALS.items()]


class Writing:
    """Fresh folders to write to, one at a time."""

    def __init__(self, real: RealStore, folder: Path, limits: Limits, entries: int) -> None:
        self.limits = limits
        self.real = real
        self.folder = folder
        self.keys = [f"{workloads.TOPIC}#{key}" for key in workloads.keys(entries)]
        self.wanted = random.Random(4).sample(self.keys, ASKED)
        for name, some in (("index", self.keys), ("index-wanted", self.wanted)):
            file = folder / f"keys-{name}"
            file.write_text("\n".join(some))
            real.ask("keys", name=name, file=file)
        self.offsets = list(range(0, 250 * entries, 250))
        self.stamps = [1_700_000_000_000 + n // 100 for n in range(entries)]

    def run(self, rows: list[Row]) -> None:
        """Run one round of the lines, theirs and ours in turn."""
        by_name = {row.name: row for row in lines()} | {row.name: row for row in rows}
        wanted = {row.name for row in rows}
        works: dict[tuple[str, ...], Callable[..., None]] = {
            (PUT_1K,): lambda row: self.put(row, 1024, 1),
            (PUT_128,): lambda row: self.put(row, 128, 1),
            (PUT_THREADS,): lambda row: self.put(row, 1024, THREADS),
            (MANY_128,): lambda row: self.put_many(row, 128),
            (MANY_1K,): lambda row: self.put_many(row, 1024),
            (SYNC_1,): lambda row: self.put_sync(row, 1),
            (SYNC_32,): lambda row: self.put_sync(row, 32),
            (VISIBLE_MEDIAN, VISIBLE_LATE): self.visible,
            (KEYS_LIST, KEYS_ARROW, SELECT_LIST, SELECT_ARROW): self.index,
        }
        for names, work in works.items():
            if wanted.intersection(names):
                work(*(by_name[name] for name in names))

    def _theirs(self, op: str, size: int, count: int, **options: object) -> Round:
        """Run a round of the real store in a fresh folder, warmed by a few messages."""
        with workloads.scratch() as path:
            config = options.pop("config", {})
            self.real.ask("open", dir=path / "store", config=config)
            fields = {"topic": workloads.TOPIC, "queues": workloads.QUEUES, "size": size}
            self.real.ask("put", count=64, **fields)
            done = self.real.round(op, count=count, **fields, **options)
            self.real.ask("close")
            return done

    def put(self, row: Row, size: int, threads: int) -> None:
        """Put messages, a call each."""
        count = PUTS[size]
        rows = workloads.bodies(size, count)
        row.theirs.append(self._theirs("put", size, count, threads=threads))
        with workloads.fresh_store() as store:
            store.put(workloads.TOPIC, b"warm", queue_id=0)
            row.ours.append(timed(lambda: put_by(store, rows, threads), count))
        row.limits += self.limits.put(size, count)

    def put_sync(self, row: Row, threads: int) -> None:
        """Put messages of 1 KiB, each durable when its call returns."""
        count = SYNC_PUTS[threads]
        rows = workloads.bodies(1024, count)
        row.theirs.append(self._theirs("put", 1024, count, threads=threads, config=SYNC))
        config = rmqstore.StoreConfig(flush_disk_type="SYNC_FLUSH")
        with workloads.scratch() as path, rmqstore.open(path / "s", "a", config=config) as store:
            store.create_topic(workloads.TOPIC, workloads.QUEUES)
            store.put(workloads.TOPIC, b"warm", queue_id=0)
            row.ours.append(timed(lambda: put_by(store, rows, threads), count))

    def put_many(self, row: Row, size: int) -> None:
        """One put_many, until its last message is in its queue."""
        count = MANY[size]
        rows = workloads.bodies(size, count)
        row.theirs.append(self._theirs("put_batch", size, count))
        with workloads.fresh_store() as store:
            store.put(workloads.TOPIC, b"warm", queue_id=0)

            def work() -> None:
                store.put_many(workloads.TOPIC, rows)
                while sum(queue.max_offset for queue in store[workloads.TOPIC].values()) < count:
                    pass

            row.ours.append(timed(work, count))
        row.limits += self.limits.put(size, count)

    def visible(self, median: Row, late: Row) -> None:
        """Measure the time from the call of put until get has the message."""
        rows = workloads.bodies(1024, VISIBLE)
        with workloads.scratch() as path:
            self.real.ask("open", dir=path / "store")
            end = self.real.ask("visible", topic=workloads.TOPIC, size=1024, count=VISIBLE)
            self.real.ask("close")
        cpu = end["cpu_ns"] / VISIBLE
        took = []
        with workloads.fresh_store() as store:
            used = time.process_time_ns()
            for at, body in enumerate(rows):
                began = time.perf_counter_ns()
                store.put(workloads.TOPIC, body, queue_id=0)
                while not store.get(workloads.TOPIC, 0, at, 1).messages:
                    pass
                took.append(time.perf_counter_ns() - began)
            used = time.process_time_ns() - used
        took.sort()
        for row, theirs, part in ((median, "median_ns", 50), (late, "p99_ns", 99)):
            row.theirs.append(Round(end[theirs], cpu, 1))
            row.ours.append(Round(took[VISIBLE * part // 100], used / VISIBLE, 1))

    def index(self, from_list: Row, from_arrow: Row, in_list: Row, in_arrow: Row) -> None:
        """Enter all keys into an index file, and look some of them up, after a warm-up."""
        with workloads.scratch() as path:
            for name, row in (("0", from_list), ("1", from_arrow)):
                file = path / f"{name:0>17}"
                drop = row is from_list  # the other one is looked into
                row.theirs.append(self.real.round("index_put", file=file, keys="index", drop=drop))
            fields = {"file": file, "keys": "index-wanted"}
            self.real.ask("index_select", drop=False, **fields)
            for row in (in_list, in_arrow):
                done = self.real.round("index_select", drop=row is in_arrow, **fields)
                row.theirs.append(done)
        columns = (self.keys, self.offsets, self.stamps)
        arrays = tuple(map(pa.array, columns))
        wanted = pa.array(self.wanted)
        with workloads.scratch() as path:
            for name, row, given in (("0", from_list, columns), ("1", from_arrow, arrays)):
                index = rmqstore.IndexFile(path / f"{name:0>17}", mode="a")
                row.ours.append(timed(lambda i=index, g=given: i.put_keys(*g), len(self.keys)))
                row.limits += self.limits.index(len(self.keys))
                if row is from_arrow:
                    index.select_many(wanted)
                    for look, some in ((in_list, self.wanted), (in_arrow, wanted)):
                        work = partial(index.select_many, some)
                        look.ours.append(timed(work, ASKED))
                index.close()


def put_by(store: rmqstore.MessageStore, rows: list[bytes], threads: int) -> None:
    """Put each row by a call of its own, from one thread or several."""
    if threads == 1:
        workloads.put_each(store, rows)
        return
    with ThreadPoolExecutor(threads) as writers:
        parts = [rows[n::threads] for n in range(threads)]
        list(writers.map(lambda part: workloads.put_each(store, part), parts))
