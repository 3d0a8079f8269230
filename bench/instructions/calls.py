"""The counted program: each call twice, more often the second time.

    valgrind ... python -m instructions.calls caller|all FOLDER MARK

``MARK`` is the library made of ``mark.c``.  ``caller`` runs the calls of which the calling thread
does the work, and ``all`` those that other threads take part in.
"""

from __future__ import annotations

import ctypes
import gc
import random
import sys
from collections.abc import Callable
from pathlib import Path

import rmqstore
import workloads
from instructions import stores

# A reader looks for new files every 100 ms, a long time for what is counted here: that happens in
# few of so many rounds, and the least is without it.
ROUNDS = 11


class Counter:
    """Runs works between marks."""

    def __init__(self, library: str) -> None:
        self._mark = ctypes.CDLL(library).mark

    def count(
        self, name: str, few: int, many: int, work: Callable[[int], object], *, rounds: int = 1
    ) -> None:
        """Run the work for few, then for many; once before, as a warm-up."""
        work(few)
        self.one("-", 0, lambda _: None)
        for _ in range(rounds):
            self.one(name, few, work)
            self.one(name, many, work)

    def one(self, name: str, count: int, work: Callable[[int], object]) -> None:
        """Run the work once, and mark its end."""
        work(count)
        self._mark(f"{name}={count}".encode())


def writing(counter: Counter, folder: Path) -> None:
    """Count put and put_many."""
    rows = workloads.bodies(stores.SIZE, stores.LARGE)
    keys = workloads.keys(stores.LARGE)
    with rmqstore.open(folder / "written", "a") as store:
        store.create_topic(workloads.TOPIC, workloads.QUEUES)
        counter.count("put", 500, 3_000, lambda n: workloads.put_each(store, rows[:n]))
        counter.count(
            "put_many",
            *(2_000, 12_000),
            lambda n: store.put_many(workloads.TOPIC, rows[:n], keys=keys[:n], tags="TagA"),
        )


def reading(counter: Counter, folder: Path, mode: str) -> None:
    """Count lookups and reads of messages in a closed store."""
    keys = random.Random(3).sample(workloads.keys(stores.LARGE), stores.LARGE)
    last = stores.FIRST_TIME + stores.STEP_MS * stores.LARGE
    times = random.Random(6).choices(range(stores.FIRST_TIME, last), k=60)
    topic = workloads.TOPIC
    with rmqstore.open(folder / "closed", mode) as store:
        queue = store[topic][0]

        def each_time(n: int) -> None:
            for time in times[:n]:
                queue.offset_at(time)

        lookups = {
            "get": (96, 480, lambda n: workloads.get_all(store, n)),
            "query": (10, 60, lambda n: workloads.query_each(store, keys[:n])),
            "query_many": (20, 120, lambda n: store.query_many(topic, keys[:n])),
            "locate_many": (20, 120, lambda n: store.locate_many(topic, keys[:n])),
            "offset_at": (10, 60, each_time),
        }
        for name, (few, many, work) in lookups.items():
            counter.count(f"{name}[{mode}]", few, many, work, rounds=ROUNDS)


def by_itself(counter: Counter, folder: Path) -> None:
    """Count an index file and the checksum."""
    keys = [f"{workloads.TOPIC}#{key}" for key in workloads.keys(stores.LARGE)]
    offsets = list(range(0, 250 * len(keys), 250))
    body = workloads.bodies(1024, 1)[0]

    def checksums(n: int) -> None:
        for _ in range(n):
            rmqstore.crc32(body)

    with rmqstore.IndexFile(folder / f"{0:017d}", mode="a") as index:
        counter.count(
            "put_keys",
            *(2_000, 12_000),
            lambda n: index.put_keys(keys[:n], offsets[:n], stores.FIRST_TIME),
        )
    with rmqstore.IndexFile(folder / f"{1:017d}", mode="a") as index:
        index.put_keys(keys, offsets, stores.FIRST_TIME)
        wanted = random.Random(4).sample(keys, len(keys))
        counter.count("select_many", 2_000, 12_000, lambda n: index.select_many(wanted[:n]))
    counter.count("crc32", 500, 2_500, checksums)


def opening(counter: Counter, folder: Path) -> None:
    """Count dispatch and the recovery of a killed store, each of two stores."""
    rmqstore.open(folder / "killed-first", "r+").close()  # what is imported by it is no call's
    for count in (stores.SMALL, stores.LARGE):
        kept = []
        counter.one("-", 0, lambda _: None)
        counter.one(
            "dispatch",
            count,
            lambda n, to=kept: to.append(stores.dispatched(folder / f"log-{n}", n)),
        )
        kept.pop().close()
        # The threads add what they do meanwhile: the least of the copies counts.
        for number in range(stores.COPIES):
            counter.one("-", 0, lambda _: None)
            counter.one(
                "recovery",
                count,
                lambda n, to=kept, at=number: to.append(
                    rmqstore.open(folder / f"killed-{n}-{at}", "r+")
                ),
            )
            kept.pop().close()


def scanning(counter: Counter, folder: Path, mode: str) -> None:
    """Count a scan of all columns along the log of two stores."""
    for count in (stores.SMALL, stores.LARGE):
        with rmqstore.open(folder / f"log-{count}", mode) as store:
            workloads.scan_all(store)
            counter.one("-", 0, lambda _: None)
            counter.one(f"scan[{mode}]", count, lambda _, s=store: workloads.scan_all(s))


def main() -> None:
    """Run one of the two groups."""
    group, folder, library = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    counter = Counter(library)
    gc.disable()
    if group == "caller":
        writing(counter, folder)
        by_itself(counter, folder)
        for mode in ("r", "r+"):
            reading(counter, folder, mode)
    else:
        opening(counter, folder)
        for mode in ("r", "r+"):
            scanning(counter, folder, mode)


if __name__ == "__main__":
    main()
