"""put_many, dispatch, get and query in stores of more and more messages; opening them.

A goal of growth is on the processor's time of all threads, which neither the disk nor other
processes are in; the time by the clock is beside it.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import rmqstore
import workloads
from scale.rows import Line, Took, at_most, best, timed

BATCH = 100_000  # messages of a put_many
GOT = 100_000  # messages read by get, 32 a call
ASKED = 20_000
SIZE = 128
FLAT = 1.2
OPENED_MS = 200
WORKS = ("put_many until visible", "dispatch", 'get, "r"', 'query, "r"')


def key_column(start: int, count: int) -> pa.Array:
    """Return ``count`` distinct keys in no order, as numbers from ``start`` on give them."""
    numbers = np.arange(start, start + count, dtype=np.uint64)
    # An odd factor: no two numbers below 2^33 have the same product of 33 bits.
    mixed = (numbers * np.uint64(0x9E3779B1)) & np.uint64(0x1FFFFFFFF)
    return pa.array(mixed).cast(pa.string())


def batches(count: int, size: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield bodies and keys of ``count`` messages."""
    for start in range(0, count, BATCH):
        some = min(BATCH, count - start)
        yield pa.array(workloads.bodies(size, BATCH)[:some]), key_column(start, some)


def wait_visible(store: rmqstore.MessageStore, count: int) -> None:
    """Wait until all messages are in their queues, without using the processor."""
    while sum(map(len, store[workloads.TOPIC].values())) < count:
        time.sleep(0.02)


def write(path: Path, count: int, size: int, *, uniq_key: bool = True) -> Took:
    """Write a store of so many messages, close it, and return the duration of put_many."""
    total = Took(0, 0)
    with rmqstore.open(path, "a") as store:
        store.create_topic(workloads.TOPIC, workloads.QUEUES)
        store.put(workloads.TOPIC, b"warm", queue_id=0)
        written = 1
        for bodies, keys in batches(count - 1, size):
            written += len(bodies)

            def work(
                bodies: pa.Array = bodies, keys: pa.Array = keys, written: int = written
            ) -> None:
                store.put_many(workloads.TOPIC, bodies, keys=keys, uniq_key=uniq_key)
                if written == count:
                    wait_visible(store, count)

            took = timed(work)
            total = Took(total.wall + took.wall, total.cpu + took.cpu)
    return total


def dispatch(path: Path, count: int) -> Took:
    """Dispatch the whole log of a closed store again."""
    workloads.forget_dispatch(path)
    kept = []

    def work() -> None:
        kept.append(rmqstore.open(path, "r+"))
        wait_visible(kept[0], count)

    took = timed(work)
    kept[0].close()
    return took


def get(store: rmqstore.MessageStore, count: int) -> int:
    """Read the beginning of one queue again and again; return the number of messages."""
    here = min(count // workloads.QUEUES, GOT)
    turns = max(1, min(GOT, count) // here)
    for _ in range(turns):
        workloads.get_all(store, here)
    return here * turns


def wanted_keys(count: int, asked: int) -> list[str]:
    """Return some of the keys in a store of so many messages."""
    at = random.Random(3).sample(range(count - 1), min(asked, count - 1))
    return [key_column(number, 1)[0].as_py() for number in at]


def reading(path: Path, count: int, rounds: int) -> tuple[Took, int, Took, int]:
    """Return the durations of get and query in "r", and their numbers."""
    wanted = wanted_keys(count, ASKED)
    with rmqstore.open(path, "r") as store:
        got = get(store, count)
        gets = best(lambda: get(store, count), rounds)
        workloads.query_each(store, wanted)
        queries = best(lambda: workloads.query_each(store, wanted), rounds)
    return gets, got, queries, len(wanted)


def opening(path: Path, name: str, rounds: int) -> list[Line]:
    """Return the duration of opening a closed store, without closing it again."""
    lines = []
    for mode in ("r", "r+"):
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            store = rmqstore.open(path, mode)
            took.append(time.perf_counter() - began)
            store.close()
        lines.append(at_most(f'opening {name}, "{mode}"', min(took) * 1000, OPENED_MS, "ms"))
    return lines


def lines(folder: Path, sizes: list[int], rounds: int) -> list[Line]:
    """Return the time of a message in stores of each size, and its growth."""
    each: dict[str, list[Took]] = {name: [] for name in WORKS}
    opened = []
    write(folder / "warm", sizes[0], SIZE)
    dispatch(folder / "warm", sizes[0])
    for count in sizes:
        path = folder / f"grown-{count}"
        put = write(path, count, SIZE)
        gets, got, queries, asked = reading(path, count, rounds)
        opened += opening(path, f"a closed store of {count:,}", rounds)
        dispatched = dispatch(path, count)
        shutil.rmtree(path)
        done = zip(WORKS, (put, dispatched, gets, queries), (count, count, got, asked), strict=True)
        for name, took, times in done:
            each[name].append(Took(took.wall / times * 1e9, took.cpu / times * 1e9))
    return [*itertools.chain(*(growth(name, sizes, took) for name, took in each.items())), *opened]


def growth(name: str, sizes: list[int], each: list[Took]) -> Iterator[Line]:
    """Yield the time of one at each size, and the ratio of the greatest to the first."""
    for count, took in zip(sizes, each, strict=True):
        yield Line(f"{name}, {count:,} messages", f"{took.cpu:,.0f} ns cpu, {took.wall:,.0f} ns")
    grown = max(took.cpu for took in each) / each[0].cpu
    what = f"{name}, growth from {sizes[0]:,} to {sizes[-1]:,}"
    yield Line(what, f"{grown:.2f}", f"<= {FLAT:g}", grown <= FLAT)


def huge(folder: Path, count: int, rounds: int) -> list[Line]:
    """Return get, query and opening of one store of very many messages with tiny bodies."""
    path = folder / "huge"
    put = write(path, count, 1, uniq_key=False)
    gets, got, queries, asked = reading(path, count, rounds)
    name = f"{count:,} messages of 1 byte"
    found = [
        Line(f"put_many, {name}", f"{put.cpu / count * 1e9:,.0f} ns cpu"),
        Line(f'get, "r", {name}', f"{gets.cpu / got * 1e9:,.0f} ns cpu"),
        Line(f'query, "r", {name}', f"{queries.cpu / asked * 1e9:,.0f} ns cpu"),
        *opening(path, f"a closed store of {count:,}", rounds),
    ]
    shutil.rmtree(path)
    return found
