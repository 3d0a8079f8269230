"""Random faults over two streams from a store into another, and the invariants in spite of them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rmqstore
from support import clusters, killable_sink
from support.killable_driver import CLOSING, forget_last_commit

EXECUTOR, WORKER = "executor killed in mid-batch", "worker killed in mid-batch"
REPLAY, RESTART = "committed batch replayed", "query stopped in mid-batch"
ANY_MOMENT = "driver killed at any moment"
IN_LIFE = (WORKER, killable_sink.AFTER_STAGING, REPLAY, RESTART)
DEATHS = (
    killable_sink.BEFORE_LEDGER,
    ANY_MOMENT,
    *killable_sink.COMMIT_POINTS,
)  # the two of the issue first

QUERIES = ("copies", "minutes")
TAGS = ("africa", "america", "asia", "europe")
MINUTE = 60_000
FIRST_TIME = 1_767_225_600_000
BOUND = 240.0  # seconds; a tenth of it on two idle cores
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=256 << 10,
    mapped_file_size_consume_queue=20 * 200,
    max_hash_slot_num=500,
    max_index_num=2000,
)


def plan(rng: random.Random, faults: int) -> list[tuple[str, list[str]]]:
    """Lives of the driver: the kind of master, and its faults; all but the last end in a death."""
    deaths = (3 * faults) // 10
    ends = [*DEATHS, *(rng.choice(DEATHS) for _ in range(deaths))][:deaths]
    lives: list[tuple[str, list[str]]] = [
        ("cluster" if number % 4 == 0 else "local", []) for number in range(deaths + 1)
    ]
    others = faults - deaths
    kinds: list[str] = []
    while len(kinds) < others:
        kinds += rng.sample(IN_LIFE, len(IN_LIFE))
    for number in range(others):
        kind, own = lives[number % len(lives)]
        own.append(EXECUTOR if kind == "cluster" and EXECUTOR not in own else kinds.pop())
    for (_, own), end in zip(lives, ends, strict=False):
        own.append(end)
    return lives


class Faults:
    """The stores, the living driver, and the messages put."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.control = killable_sink.Control(str(directory / "control"))
        self.control.held.mkdir(parents=True)
        self.source = rmqstore.open(directory / "source", "a", config=CONFIG)
        self.source.create_topic("events", queue_nums=4)
        self.output = directory / "output"
        self.sent: list[tuple[str, int]] = []  # tag and value of each event
        self.foreign: dict[int, bytes] = {}  # bodies by physical offset
        self.hits: Counter[str] = Counter()
        self.orders = 0
        self.driver: subprocess.Popen[str]
        # The first writer decides its sizes, and the sink is given none.
        self.put_foreign(keys=["first"])

    def run(self, lives: list[tuple[str, list[str]]]) -> None:
        """Let the driver live and die; the last one finishes what is left."""
        with self.source:
            for kind, own in lives:
                with self.living(kind):
                    for fault in own:
                        self.put(self.rng.randint(60, 240))
                        if self.rng.random() < 0.3:
                            self.put_foreign()
                        self.inflict(fault)
                        self.hits[fault] += 1
                    if own == lives[-1][1]:
                        self.finish()
                        return
                if self.rng.random() < 0.5:
                    forgotten = forget_last_commit(self.checkpoint(self.rng.choice(QUERIES)))
                    self.hits["last commit forgotten between two drivers"] += forgotten
                self.put_foreign()

    def checkpoint(self, name: str) -> Path:
        return self.directory / f"checkpoint-{name}"

    # The driver

    @contextlib.contextmanager
    def living(self, kind: str) -> Iterator[None]:
        places = (self.directory / "source", self.output, self.directory)
        started = clusters.child("killable_driver.py", kind, *places, directory=self.directory)
        with started as self.driver:
            self.orders = 0
            self.answer("starts")
            yield

    def tell(self, what: str, **arguments: Any) -> None:
        """Give the driver an order, and do not wait."""
        self.orders += 1
        line = json.dumps({"number": self.orders, "what": what, **arguments})
        self.driver.stdin.write(line + "\n")
        self.driver.stdin.flush()

    def answer(self, what: str) -> Any:
        """Wait for the answer to the last order."""
        answer = self.directory / "control" / f"answer-{self.driver.pid}-{self.orders}"
        self.until(answer.exists, what)
        return json.loads(answer.read_text())

    def ask(self, what: str, **arguments: Any) -> Any:
        self.tell(what, **arguments)
        return self.answer(what)

    def until(self, done: Callable[[], bool], what: str, *, dies: bool = False) -> None:
        """Wait until something has happened; the driver may not die unless it is to."""
        give_up = time.monotonic() + BOUND
        while not done():
            died = self.driver.poll() is not None
            if died and not (dies and self.control.hit.exists()):
                self.fail(f"the driver died: {what}")
            if time.monotonic() > give_up:
                self.fail(f"this never happened: {what}")
            time.sleep(0.01)

    def fail(self, what: str) -> None:
        errors = clusters.errors_of("killable_driver.py", self.directory).read_text(
            errors="replace"
        )
        raise AssertionError(f"{what}\nso far: {dict(self.hits)}\n{errors[-5000:]}")

    # Input

    def put(self, count: int) -> None:
        numbers = range(len(self.sent), len(self.sent) + count)
        new = [(self.rng.choice(TAGS), self.rng.randrange(1000)) for _ in numbers]
        self.sent += new
        self._put(numbers, new, [FIRST_TIME + number * 1000 for number in numbers])

    def put_last(self) -> None:
        """One event far behind the others: all minutes end."""
        end = FIRST_TIME + len(self.sent) * 1000 + 600 * MINUTE
        self._put(range(len(self.sent), len(self.sent) + 1), [(CLOSING, 0)], [end])
        self.sent.append((CLOSING, 0))

    def _put(self, numbers: range, new: list[tuple[str, int]], times: list[int]) -> None:
        bodies = [
            json.dumps({"number": number, "value": value}).encode()
            for number, (_, value) in zip(numbers, new, strict=True)
        ]
        for number, (tag, _), body, time_of in zip(numbers, new, bodies, times, strict=True):
            self.source.put(
                "events",
                body,
                queue_id=number % 4,
                tags=tag,
                keys=[f"event-{number}"],
                born_timestamp=time_of,
            )

    def put_foreign(self, keys: list[str] | None = None) -> None:
        """Another writer of the output store, which is not Spark."""
        with rmqstore.open(self.output, "a", config=CONFIG, timeout=BOUND) as store:
            for _ in range(self.rng.randint(1, 5)):
                body = self.rng.randbytes(self.rng.randint(1, 200))
                self.foreign[store.put("foreign", body, keys=keys).physical_offset] = body

    # Faults

    def inflict(self, fault: str) -> None:
        if fault in (WORKER, EXECUTOR):
            self.in_mid_batch(lambda: self.kill_held(executor=fault == EXECUTOR))
        elif fault == RESTART:
            self.in_mid_batch(lambda: self.ask("restart", name=self.rng.choice(QUERIES)))
        elif fault == REPLAY:
            self.ask("drain")
            name = self.rng.choice(QUERIES)
            for _ in range(20):
                if self.ask("restart", name=name, forget=True):
                    return
                self.ask("drain")
            self.fail(f"{name} has always a batch under way")
        elif fault == ANY_MOMENT:
            time.sleep(self.rng.uniform(0, 1.5))
            clusters.kill_session(self.driver.pid)
        else:
            self.control.arm(fault)
            self.put(50)  # a batch that comes to the point for sure
            died = fault in killable_sink.COMMIT_POINTS
            self.until(self.control.hit.exists, fault, dies=died)
            if died:
                self.driver.wait(BOUND)

    def in_mid_batch(self, act: Callable[[], object]) -> None:
        """Do something while tasks are held in the middle of a batch."""
        time.sleep(5 * killable_sink.HELD_TICK)  # no task of an earlier fault waits any more
        for path in self.control.held.iterdir():
            path.unlink()
        self.control.hold.touch()
        try:
            self.put(50)
            self.until(lambda: any(self.control.held.iterdir()), "a task is held")
            act()
        finally:
            self.control.hold.unlink()

    def kill_held(self, *, executor: bool) -> None:
        pid = int(next(self.control.held.iterdir()).name)
        if executor:
            alive = clusters.processes_of(self.driver.pid)
            while "CoarseGrainedExecutorBackend" not in " ".join(alive[pid]):
                pid = clusters.parent_of(pid)
        os.kill(pid, signal.SIGKILL)

    # The end

    def finish(self) -> None:
        self.ask("drain")
        self.put_last()
        expected = len(self.minutes())
        give_up = time.monotonic() + BOUND
        while True:
            self.ask("drain")
            with rmqstore.open(self.output) as store:
                written = store.scan("minutes").count()
            if written >= expected or time.monotonic() > give_up:
                break
            time.sleep(0.2)
        self.differences = self.ask("verify")
        self.ask("end")

    def minutes(self) -> list[dict[str, Any]]:
        """The expected sums, by plain Python."""
        values: Counter[tuple[int, str]] = Counter()
        messages: Counter[tuple[int, str]] = Counter()
        for number, (tag, value) in enumerate(self.sent):
            if tag != CLOSING:
                minute = (FIRST_TIME + number * 1000) // MINUTE * MINUTE
                values[minute, tag] += value
                messages[minute, tag] += 1
        return [
            {"minute": minute, "tags": tag, "value": values[minute, tag], "messages": count}
            for (minute, tag), count in sorted(messages.items())
        ]

    def check(self) -> None:
        """No message is lost, none is there twice, and nothing of others was touched."""
        with rmqstore.open(self.output, "a", verify="full") as store:
            assert store.recovery.clean
            copies = sorted(
                (json.loads(found.body)["number"], found.tags, found.keys, found.body)
                for found in store.scan("copies")
            )
            assert copies == [
                (
                    number,
                    tag,
                    (f"event-{number}",),
                    json.dumps({"number": number, "value": value}).encode(),
                )
                for number, (tag, value) in enumerate(self.sent)
            ]
            minutes = [json.loads(found.body) for found in store.scan("minutes")]
            assert sorted(minutes, key=lambda row: (row["minute"], row["tags"])) == self.minutes()
            foreign = {found.physical_offset: found.body for found in store.scan("foreign")}
            assert foreign == self.foreign
            assert store.scan().count() == len(copies) + len(minutes) + len(foreign)
        assert self.differences == []
        spark = self.output / ".spark"
        assert not (spark / "intent.json").exists()
        left = [str(path) for path in (spark / "staging").glob("*")]
        assert left == []
