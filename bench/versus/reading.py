"""Reading: a store written by the real one, in "r" and in "r+"."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import rmqstore
import workloads
from versus.limits import Limits
from versus.real import RealStore, Round
from versus.rows import Row, timed

ASKED = 20_000
TIMES = 5_000
BODY = 1024
BATCH = 32
MODES = ("r", "r+")
WITHOUT_BODY = ("topic", "queue_id", "queue_offset", "store_timestamp", "tags", "keys")
WITH_BODY = ("body", *WITHOUT_BODY)
GOALS = {
    "query": 1.7,
    "offset_at": 5,
    "locate_many": 8,
    "query_many, decoded": 3,
    "get of 32, fields used": 1.3,
    "scan, body and six columns": 7,
    "scan, six columns": 10,
}


def lines() -> list[Row]:
    """Return the lines: each workload in each mode."""
    return [Row(f'{name}, "{mode}"', goal) for name, goal in GOALS.items() for mode in MODES]


class Reading:
    """The written store, a copy of it for ours, and the requests to both."""

    def __init__(self, real: RealStore, folder: Path, count: int, limits: Limits) -> None:
        self.limits = limits
        self.real = real
        self.theirs = folder / "theirs"
        self.ours = folder / "ours"
        self.count = count
        keys = workloads.keys(count)
        self.wanted = random.Random(3).sample(keys, min(ASKED, count))
        for name, some in (("all", keys), ("wanted", self.wanted)):
            file = folder / f"keys-{name}"
            file.write_text("\n".join(some))
            real.ask("keys", name=name, file=file)
        real.ask("open", dir=self.theirs)
        fields = {"topic": workloads.TOPIC, "queues": workloads.QUEUES, "size": BODY}
        real.round("put", count=count, keys="all", **fields)
        real.ask("close")
        workloads.copy(self.theirs, self.ours)
        with rmqstore.open(self.ours) as store:
            queue = store[workloads.TOPIC][0]
            first, last = queue[0].store_timestamp, queue[-1].store_timestamp
            self.in_queues = [len(queue) for queue in store[workloads.TOPIC].values()]
        self.times = random.Random(6).choices(range(first, last + 1), k=TIMES)

    def run(self, rows: list[Row]) -> None:
        """Run one round of the lines, theirs and ours in turn, each after a warm-up."""
        self.real.ask("open", dir=self.theirs)
        theirs = dict(self._theirs())
        for row in rows:
            name, mode = row.name.rsplit(", ", 1)
            with rmqstore.open(self.ours, mode.strip('"')) as store:
                ours = dict(self._ours(store))[name]
                ours()
                theirs[name]()
                row.theirs.append(theirs[name]())
                row.ours.append(timed(ours, row.theirs[-1].count))
            if name.startswith("scan"):
                log_file = min((self.ours / "commitlog").iterdir())
                row.limits += self.limits.read(log_file, body="body" in name)
        self.real.ask("close")

    def _theirs(self) -> Iterator[tuple[str, Callable]]:
        topic = {"topic": workloads.TOPIC}

        def query(decode: bool) -> Callable:
            return lambda: self.real.round("query", keys="wanted", decode=decode, **topic)

        def get(queue_id: int) -> Round:
            count = self.in_queues[queue_id]
            return self.real.round("get", count=count, batch=BATCH, queue_id=queue_id, **topic)

        yield "query", query(False)
        yield (
            "offset_at",
            lambda: self.real.round("offset_at", times=self.times, queue_id=0, **topic),
        )
        yield "locate_many", query(False)
        yield "query_many, decoded", query(True)

        def get_all() -> Round:
            rounds = [get(queue_id) for queue_id in range(workloads.QUEUES)]
            return Round(*map(sum, zip(*rounds, strict=True)))

        yield "get of 32, fields used", lambda: get(0)
        yield "scan, body and six columns", get_all
        yield "scan, six columns", get_all

    def _ours(self, store: rmqstore.MessageStore) -> Iterator[tuple[str, Callable]]:
        topic = workloads.TOPIC
        queue = store[topic][0]

        def offset_at() -> None:
            for each in self.times:
                queue.offset_at(each)

        def decoded() -> None:
            for (message,) in store.query_many(topic, self.wanted):
                _ = message.body, message.queue_offset, message.store_timestamp, message.properties

        def scan(columns: tuple[str, ...]) -> Callable:
            def work() -> None:
                rows = 0
                for batch in store.scan(topic, columns=columns).to_batches():
                    rows += batch.num_rows
                assert rows == self.count

            return work

        yield "query", lambda: workloads.query_each(store, self.wanted)
        yield "offset_at", offset_at
        yield "locate_many", lambda: store.locate_many(topic, self.wanted)
        yield "query_many, decoded", decoded
        yield "get of 32, fields used", lambda: workloads.get_all(store, self.in_queues[0])
        yield "scan, body and six columns", scan(WITH_BODY)
        yield "scan, six columns", scan(WITHOUT_BODY)
