"""Random limits against random services: acknowledged messages are there once, or listed.

``drive`` goes through drawn steps and returns what is wrong at the end; a property test and a fault
campaign share it.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessageIllegalError
from rmqstore.services.schedule import Schedule

LOG_SIZE = 1 << 16
LIMITS = (300, 1000, 2000, 30_000, LOG_SIZE - 8, 1 << 20)
TOPICS = tuple("t" * length for length in (1, 19, 20, 24, 25, 26, 127))
GROUPS = ("g", "g" * 120)
KINDS = ("delay", "begin", "put")
ENDS = ("commit", "rollback", "check", "retry", "advance", "reopen", "kill")
ROOM = 400  # bytes around a limit
PATIENCE = 60  # seconds

Step = tuple[str, int, int, int]  # which, a choice, a size, another choice


class Drive:
    """A store under changing limits, and the acknowledged messages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.limit = LIMITS[3]
        self.checksum = False
        self.ahead = 0.0  # of the store's clock
        self.count = 0
        self.due: dict[bytes, str] = {}  # acknowledged: to be in a topic once
        self.doubtful: dict[bytes, str] = {}
        self.retried: Counter[bytes] = Counter()  # given back: so often in topics of the group
        self.answers: dict[bytes, str] = {}
        self.store = self.opened("a")

    def opened(self, mode: str) -> rmqstore.MessageStore:
        config = StoreConfig.small(
            mapped_file_size_commit_log=LOG_SIZE, max_message_size=self.limit,
            record_checksum=self.checksum, message_delay_level="1s 2s 3s",
            transaction_check=lambda one: self.answers.get(one.message.body[:8]),
            transaction_check_max=1000, transaction_check_interval=1000 * 3600,
        )  # fmt: skip
        with mock.patch.object(Schedule, "begin", return_value=None):
            store = rmqstore.open(self.root, mode, config=config)
            store.clock.advance(self.ahead)
        store.schedule.begin()
        return store

    def step(self, name: str, choice: int, size: int, other: int) -> None:
        if name in KINDS:
            self.hand_in(name, TOPICS[choice % len(TOPICS)], size, other)
        elif name in ("reopen", "kill"):
            self.reopen(kill=name == "kill", limit=LIMITS[choice % len(LIMITS)], other=other)
        elif name == "advance":
            self.advance(choice % 4)
        elif name == "check":
            for body in list(self.doubtful):
                if (int(body) + other) % 2:
                    self.answers[body] = "commit"
            self.check()
        elif name == "retry":
            self.retry(GROUPS[choice % 2], TOPICS[other % len(TOPICS)])
        elif self.doubtful:
            waits = self.store.in_doubt()
            one = waits[choice % len(waits)]
            body = one.message.body[:8]
            if name == "commit":
                one.commit()
                self.due[body] = self.doubtful.pop(body)
            else:
                one.rollback()
                del self.doubtful[body]

    def hand_in(self, name: str, topic: str, size: int, other: int) -> None:
        """Hand in a message whose record is about as large as may be, in body or properties."""
        self.count += 1
        mark = b"%08d" % self.count
        length = max(8, min(self.limit, LOG_SIZE) - ROOM + size)
        properties = None
        if other % 3 == 0:
            length = 8
            properties = {"p": "x" * max(1, 32767 - ROOM + size)}
        body = mark + bytes(length - 8)
        try:
            if name == "delay":
                self.store.put(topic, body, delay_level=1 + other % 3, properties=properties)
            elif name == "put":
                self.store.put(topic, body, properties=properties)
            else:
                self.store.begin(topic, body, properties=properties)
        except MessageIllegalError:
            return
        (self.doubtful if name == "begin" else self.due)[mark] = topic

    def retry(self, group: str, topic: str) -> None:
        if topic not in self.store:
            return
        with self.store.consumer(topic, group=group) as consumer:
            for message in consumer:
                try:
                    consumer.retry(message, delay_level=1)
                except MessageIllegalError:  # its properties leave no room: it stays where it is
                    continue
                self.retried[group.encode() + message.body[:8]] += 1
            consumer.commit()

    def advance(self, seconds: int) -> None:
        self.ahead += seconds
        self.store.clock.advance(seconds)

    def check(self) -> None:
        self.advance(3601)
        self.store.housekeeper.run_due()
        for body, answer in list(self.answers.items()):
            if body in self.doubtful and answer == "commit":
                self.due[body] = self.doubtful.pop(body)

    def reopen(self, *, kill: bool, limit: int, other: int) -> None:
        if kill:
            copy = Path(f"{self.root}.{time.monotonic_ns()}")
            # A kill is one moment; a copy takes a while, in which nothing may go on.
            with self.store.housekeeper._running, self.store.schedule._lock:
                self.store.flush()
                shutil.copytree(self.root, copy)
            self.store.close()
            shutil.rmtree(self.root)
            copy.rename(self.root)
        else:
            self.store.close()
        self.limit = limit
        self.checksum = bool(other % 2)
        self.store = self.opened("r+")

    def wrong(self) -> list[str]:
        """Wait until nothing moves any more, and return the violations."""
        self.answers = dict.fromkeys(self.doubtful, "commit")
        self.check()
        deadline = time.monotonic() + PATIENCE
        while self.store.delayed() and time.monotonic() < deadline:
            self.advance(4)
            time.sleep(0.01)
        found = [f"waits: {one}" for one in self.store.delayed()]
        found += [f"in doubt: {one!r}" for one in self.store.in_doubt()]
        there: Counter[tuple[str, bytes]] = Counter()
        again: Counter[bytes] = Counter()
        for message in self.store.scan():
            topic, mark = message.topic, message.body[:8]
            if topic in TOPICS:
                there[topic, mark] += 1
            elif topic.startswith(("%RETRY%", "%DLQ%")):
                again[topic.partition("%")[2].partition("%")[2].encode() + mark] += 1
        wanted = Counter((topic, mark) for mark, topic in self.due.items())
        if there != wanted:
            found.append(f"lost {wanted - there}, more than once {there - wanted}")
        if again != self.retried:
            found.append(f"retries lost {self.retried - again}, more {again - self.retried}")
        return found


def drive(root: Path, steps: Iterable[Step]) -> list[str]:
    """Go through the steps; return the violations at the end."""
    one = Drive(root)
    try:
        for step in steps:
            one.step(*step)
        return one.wrong()
    finally:
        one.store.close()
