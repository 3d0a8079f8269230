"""Writing into fresh stores, and the index file by itself."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import rmqstore
import workloads
from versus.limits import Limits
from versus.real import RealStore
from versus.rounds import Round, measured, minor_faults, timed
from versus.rows import Goal, Row, Work

# Size, threads, messages of --messages, whether each is synchronous.
PUTS: dict[str, tuple[int, int, float, bool]] = {
    "put, 1 KiB": (1024, 1, 1, False),
    "put, 128 B": (128, 1, 2, False),
    "put, 1 KiB, 4 threads": (1024, 4, 1, False),
    "synchronous put, 1 thread": (1024, 1, 1 / 400, True),
    "synchronous put, 32 threads": (1024, 32, 1 / 50, True),
}
MANY = {"put_many until visible, 128 B": (128, 4), "put_many until visible, 1 KiB": (1024, 1)}
VISIBLE = ("put to visible, median", "put to visible, 99 of 100")
INDEX = {
    "list": ("index file: put_keys of a list", "index file: select_many of a list"),
    "arrow": ("index file: put_keys from Arrow", "index file: select_many from Arrow"),
}
GOALS = {
    "put, 1 KiB": Goal(2.5, 2.5),
    "put, 128 B": Goal(2.5, 3),
    "put, 1 KiB, 4 threads": Goal(2, 2),
    "synchronous put, 1 thread": Goal(1.3, 1.5),
    "synchronous put, 32 threads": Goal(1.15, 1.2),
    "put_many until visible, 128 B": Goal(4, 4),
    "put_many until visible, 1 KiB": Goal(4, 4.5),
    "put to visible, median": Goal(100),
    "put to visible, 99 of 100": Goal(50),
    "index file: put_keys of a list": Goal(1.8),
    "index file: put_keys from Arrow": Goal(3),
    "index file: select_many of a list": Goal(8),
    "index file: select_many from Arrow": Goal(8),
}


def works(folder: Path, messages: int, entries: int, limits: Limits) -> list[Work]:
    """Return the workloads, each into a fresh store or file in each round."""

    def row(name: str, limit: Callable[[], list[float]] = list) -> Row:
        return Row(name, GOALS[name], limit)

    found = []
    for name, (size, threads, part, sync) in PUTS.items():
        count = max(threads, round(messages * part))
        limit = list if sync else partial(limits.put, size, count)
        theirs, ours = (partial(put, size, count, threads, sync) for put in (their_put, our_put))
        found.append(Work([row(name, limit)], theirs, [ours]))
    for name, (size, part) in MANY.items():
        count = messages * part
        theirs, ours = (partial(put, size, count) for put in (their_put_many, our_put_many))
        found.append(Work([row(name, partial(limits.put, size, count))], theirs, [ours]))
    count = max(1, messages // 200)
    theirs, ours = partial(their_visible, count), partial(our_visible, count)
    found.append(Work([row(name) for name in VISIBLE], theirs, [ours]))
    named = [f"{workloads.TOPIC}#{key}" for key in workloads.keys(entries)]
    (folder / "index-all").write_text("\n".join(named))
    some = random.Random(4).sample(named, max(1, entries // 10))
    (folder / "index-some").write_text("\n".join(some))
    rows = []
    for put, select in INDEX.values():
        rows += [row(put, partial(limits.index, entries)), row(select)]
    ours_each = [partial(our_index, folder, kind) for kind in INDEX]
    return [*found, Work(rows, partial(their_index, folder), ours_each)]


def theirs_on_stores(
    ask: Callable[[RealStore], list[Round]], config: dict[str, str] | None = None
) -> list[Round]:
    """Ask for rounds on a fresh store that has a message, after a warm-up on three others.

    With fewer, what is new about a store has compiled methods made anew in the measured round.  A
    shutdown goes on behind the next store, and may write in its folder again; the measured one is
    not closed: its process ends.
    """
    with workloads.scratch() as folder, RealStore() as real:
        paths = (folder / f"store-{number}" for number in itertools.count())

        def on_fresh(work: Callable[[], Any]) -> Any:
            path = next(paths)
            real.ask("open", dir=path, config=config)
            real.ask("put", topic=workloads.TOPIC, queues=1, size=128, count=1)
            done = work()
            shutil.rmtree(path, ignore_errors=True)
            return done

        def closed() -> None:
            real.warm_up(lambda: ask(real), 1)
            real.ask("close", behind=True)

        def warm() -> None:
            for _ in range(3):
                on_fresh(closed)

        return measured(lambda: on_fresh(lambda: ask(real)), warm=warm)


def their_put(size: int, count: int, threads: int, sync: bool) -> list[Round]:
    """Put messages into one queue, a call each."""
    fields = {"topic": workloads.TOPIC, "queues": 1, "size": size, "threads": threads}
    config = {"flushDiskType": "SYNC_FLUSH"} if sync else None
    return theirs_on_stores(lambda real: [real.round("put", count=count, **fields)], config)


def our_put(size: int, count: int, threads: int, sync: bool) -> list[Round]:
    """Put messages into one queue, a call each; faults are of the threads that put."""
    rows = workloads.bodies(size, count)
    parts = [rows[n::threads] for n in range(threads)]
    config = rmqstore.StoreConfig(flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH")

    def work() -> list[Round]:
        faults: list[int] = []

        def put_part(some: list[bytes]) -> None:
            before = minor_faults()
            workloads.put_each(store, some)
            faults.append(minor_faults() - before)

        def put() -> int:
            list(writers.map(put_part, parts))
            return count

        with workloads.fresh_store(config) as store, ThreadPoolExecutor(threads) as writers:
            store.put(workloads.TOPIC, b"warm", queue_id=0)
            done = timed(put, lambda: workloads.wait_dispatched(store, count + 1))
            return [done._replace(faults=sum(faults))]

    return measured(work)


def their_put_many(size: int, count: int) -> list[Round]:
    """Put batches of 64 until the last is in its queue; encoding them is in the time."""
    fields = {"topic": workloads.TOPIC, "queues": workloads.QUEUES, "size": size}
    return theirs_on_stores(lambda real: [real.round("put_batch", count=count, **fields)])


def our_put_many(size: int, count: int) -> list[Round]:
    """One put_many, until its last message is in its queue."""
    rows = workloads.bodies(size, count)

    def work() -> list[Round]:
        faults = []

        def put() -> int:
            before = minor_faults()
            store.put_many(workloads.TOPIC, rows)
            faults.append(minor_faults() - before)
            workloads.wait_dispatched(store, count + 1)
            return count

        with workloads.fresh_store() as store:
            store.put(workloads.TOPIC, b"warm", queue_id=0)
            return [timed(put)._replace(faults=sum(faults))]

    return measured(work)


def their_visible(count: int) -> list[Round]:
    """Time each put until the queue has its message."""
    fields = {"topic": workloads.TOPIC, "size": 1024, "count": count}

    def ask(real: RealStore) -> list[Round]:
        end = real.ask("visible", **fields)
        return [Round(end[each], None, 1) for each in ("median_ns", "p99_ns")]

    return theirs_on_stores(ask)


def our_visible(count: int) -> list[Round]:
    """Time each put until get has its message."""
    rows = workloads.bodies(1024, count)

    def work() -> list[Round]:
        took = []
        with workloads.fresh_store() as store:
            for at, body in enumerate(rows):
                began = time.perf_counter_ns()
                store.put(workloads.TOPIC, body, queue_id=0)
                while not store.get(workloads.TOPIC, 0, at, 1).messages:
                    pass
                took.append(time.perf_counter_ns() - began)
        took.sort()
        return [Round(took[count * part // 100], None, 1) for part in (50, 99)]

    return measured(work)


def their_index(folder: Path) -> list[Round]:
    """Enter all keys into a fresh index file, then find a tenth of them."""
    with RealStore() as real:
        for name in ("all", "some"):
            real.ask("keys", name=name, file=folder / f"index-{name}")

        def work() -> list[Round]:
            with workloads.scratch() as path:
                file = path / f"{0:017d}"
                return [
                    real.round("index_put", file=file, keys="all"),
                    real.round("index_select", keys="some"),
                ]

        return measured(work, warm=lambda: real.warm_up(work, 2))


def our_index(folder: Path, kind: str) -> list[Round]:
    """Enter all keys into a fresh index file, then find a tenth of them."""
    keys, some = ((folder / f"index-{name}").read_text().split("\n") for name in ("all", "some"))
    offsets = [250 * n for n in range(len(keys))]
    given: list[Any] = [keys, offsets, [1_700_000_000_000 + n // 100 for n in range(len(keys))]]
    if kind == "arrow":
        given, some = [pa.array(column) for column in given], pa.array(some)

    def work() -> list[Round]:
        def put() -> int:
            index.put_keys(*given)
            return len(keys)

        def select() -> int:
            index.select_many(some)
            return len(some)

        with workloads.scratch() as path, rmqstore.IndexFile(path / f"{0:017d}", mode="a") as index:
            return [timed(put), timed(select)]

    return measured(work)
