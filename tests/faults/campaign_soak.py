"""A store at work for minutes, 256 descriptors, 2,000 queues: nothing grows, nothing is lost."""

from __future__ import annotations

import os
import random
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import rmqstore
from crash.writer import FAST
from faults.framework import Case, Run, campaign

DESCRIPTORS = 256
TOPICS, QUEUES = 50, 40
SECONDS = 600
BATCH = 100  # messages of a put_many
RATE = 500  # messages a second
# Beyond what the first third of the time had, at the end.
MORE_MEMORY = 12 << 20  # bytes that are no file's
MORE_DESCRIPTORS = 8
MORE_MAPPINGS = 100  # as many files of queues roll from one flush to the next, and stay open
LOG_FILE, SHORT_LOG_FILE = 256 << 10, 1 << 10  # either way more of them than descriptors
CONFIG = {
    "mapped_file_size_consume_queue": 400,  # the limit of mappings is reached in the first third
    "max_hash_slot_num": 20_000,
    "max_index_num": 80_000,
}


def measure() -> tuple[int, int, int]:
    """Bytes of memory that are no file's, descriptors, mappings."""
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("RssAnon:")[1].split()[0]) << 10
    with open("/proc/self/maps", "rb") as maps:  # noqa: PTH123
        return memory, len(os.listdir("/proc/self/fd")), sum(1 for _ in maps)  # noqa: PTH208


class Soak:
    def __init__(self, case: Case, seconds: float) -> None:
        self.case = case
        self.seconds = seconds
        self.draw = case.draw
        self.put_so_far = [0] * (TOPICS * QUEUES)
        self.samples: list[tuple[int, int, int]] = []

    def put(self, store: Any) -> None:
        queues = [self.draw.randrange(TOPICS * QUEUES) for _ in range(BATCH)]
        rows = []
        for queue in queues:
            rows.append((queue, self.put_so_far[queue]))
            self.put_so_far[queue] += 1
        store.put_many(
            [f"topic{queue // QUEUES}" for queue, _ in rows],
            [body(queue, offset) for queue, offset in rows],
            queue_id=[queue % QUEUES for queue, _ in rows],
            keys=[f"{queue}-{offset}" for queue, offset in rows],
            uniq_key=False,
        )

    def look(self, store: Any, queue: int) -> None:
        """The newest and any message of a queue, by place and by key."""
        count = self.put_so_far[queue]
        topic, queue_id = f"topic{queue // QUEUES}", queue % QUEUES
        while store.mode != "r" and store.stats()["dispatch_behind_bytes"]:
            time.sleep(0.001)  # 2,000 queues are new at once
        for offset in {count - 1, self.draw.randrange(count)} if count else set():
            found = store.get(topic, queue_id, offset, 1).messages
            if not found or found[0].body != body(queue, offset):
                self.case.violation("I1", f"{topic}/{queue_id} at {offset} of {count}: {found!r}")
            hits = store.query(topic, f"{queue}-{offset}")
            if [hit.queue_offset for hit in hits] != [offset]:
                self.case.violation("I4", f"{topic} {queue}-{offset}: {hits!r}")

    def run(self, root: Path) -> None:
        log = LOG_FILE if self.seconds >= SECONDS / 10 else SHORT_LOG_FILE
        sizes = CONFIG | {"mapped_file_size_commit_log": log}
        config = rmqstore.StoreConfig(**sizes, **FAST, flush_disk_type="ASYNC_FLUSH")
        flushed = 0
        with rmqstore.open(root, "a", config=config) as store:
            for number in range(TOPICS):
                store.create_topic(f"topic{number}", QUEUES)
            began = time.monotonic()
            rounds = 0
            while (now := time.monotonic()) < began + self.seconds:
                self.put(store)
                rounds += 1
                for _ in range(3):
                    self.look(store, self.draw.randrange(TOPICS * QUEUES))
                if rounds % 20 == 0:
                    store.flush()
                    position = store.stats()["flushed_position"]
                    if position < flushed:
                        self.case.violation("I8", f"flushed up to {position}, once {flushed}")
                    flushed = position
                self.samples.append(measure())
                time.sleep(max(0.0, began + rounds * BATCH / RATE - now))
            self.case.note("log files", len(os.listdir(root / "commitlog")))  # noqa: PTH208
        self.case.note("messages", sum(self.put_so_far))
        with rmqstore.open(root, self.draw.choice(["r", "r+"])) as store:
            for queue in self.draw.sample(range(TOPICS * QUEUES), 200):
                self.look(store, queue)
                topic, queue_id = f"topic{queue // QUEUES}", queue % QUEUES
                if (count := self.put_so_far[queue]) and (len(store[topic][queue_id]) != count):
                    self.case.violation("I1", f"{topic}/{queue_id}: {count} were put")
        self.check_samples()

    def check_samples(self) -> None:
        third = len(self.samples) // 3
        for at, (name, more) in enumerate(
            [
                ("bytes of memory", MORE_MEMORY),
                ("descriptors", MORE_DESCRIPTORS),
                ("mappings", MORE_MAPPINGS),
            ]
        ):
            values = [sample[at] for sample in self.samples]
            first, last = (
                statistics.median(part) for part in (values[third : 2 * third], values[-third:])
            )
            self.case.note(f"{name}, second third of the time", int(first))
            self.case.note(f"{name}, last third of the time", int(last))
            if last > first + more and self.seconds >= SECONDS / 10:
                self.case.violation("error", f"{name} grew from {first:,} to {last:,}")


def body(queue: int, offset: int) -> bytes:
    return random.Random(queue << 32 | offset).randbytes(200 + offset % 100)


def soak_one(case: Case, seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    Soak(case, seconds).run(case.scratch / "store")


@campaign("soak", cases=1, slice=1, alongside=True)
def soak(run: Run) -> None:
    """Ten minutes of puts, reads and rolls; in a slice a few seconds, which show no growth."""
    seconds = 8.0 if run.slice else SECONDS * max(1.0, run.scale)
    run.fork(soak_one, [seconds], seconds=seconds * 2 + 120)
