"""Consumers that come and go, take, commit, give back and are forgotten, against a model.

The model knows only which messages there are, who has taken which, and what was committed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import rmqstore

QUEUES = 3
CONFIG = rmqstore.StoreConfig.small()
GROUP = "billing"
Place = tuple[int, int]


class Consumers(RuleBasedStateMachine):
    """Consumers of one group on one topic."""

    @initialize(orderly=st.booleans())
    def begin(self, orderly: bool) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="consumers-"))
        self.orderly = orderly
        self.store = rmqstore.open(self.root, "a", config=CONFIG)
        self.store.create_topic("orders", QUEUES)
        self.put = [0] * QUEUES  # messages of each queue
        self.committed: set[Place] = set()  # taken, and committed by who took them
        self.given_back: dict[bytes, int] = {}  # bodies, and how often
        self.waiting: list[bytes] = []  # given back, and not due yet
        self.retried: set[bytes] = set()  # came again by the retry topic, and committed
        self.consumers: list[rmqstore.Consumer] = []
        self.taken: dict[int, list[rmqstore.Message]] = {}  # by consumer, since its last commit
        self.passes: dict[int, Iterator[rmqstore.Message]] = {}

    @rule(queue_id=st.integers(0, QUEUES - 1), count=st.integers(1, 5))
    def produce(self, queue_id: int, count: int) -> None:
        for _ in range(count):
            body = b"%d/%d" % (queue_id, self.put[queue_id])
            self.store.put("orders", body, queue_id=queue_id)
            self.put[queue_id] += 1

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(pinned=st.none() | st.integers(0, QUEUES - 1))
    def come(self, pinned: int | None) -> None:
        queues = None if pinned is None else [pinned]
        try:
            made = self.store.consumer("orders", group=GROUP, orderly=self.orderly, queues=queues)
        except ValueError:
            assert pinned is not None
            assert any(one._member.pinned == {pinned} for one in self.consumers)
            return
        self.consumers.append(made)
        self.taken[id(made)] = []

    @precondition(lambda self: self.consumers)
    @rule(which=st.integers(0, 3), count=st.integers(1, 6))
    def take(self, which: int, count: int) -> None:
        one = self.consumers[which % len(self.consumers)]
        messages = iter(one)
        for message in messages:
            if message.reconsume_times == 0:
                place = message.queue_id, message.queue_offset
                assert message.body == b"%d/%d" % place
                assert message.queue_id in one.queues
                if self.orderly:
                    others = [two for two in self.consumers if two is not one]
                    assert all(
                        message.queue_id != other.queue_id or other.reconsume_times
                        for two in others
                        for other in self.taken[id(two)]
                    )
            assert message.topic == "orders"
            self.taken[id(one)].append(message)
            count -= 1
            if not count:
                break

    @precondition(lambda self: self.consumers)
    @rule(which=st.integers(0, 3), give_back=st.integers(0, 2), sync=st.booleans())
    def commit(self, which: int, give_back: int, sync: bool) -> None:
        one = self.consumers[which % len(self.consumers)]
        taken = self.taken[id(one)]
        for message in taken[:give_back]:
            one.retry(message, delay_level=1)
            self.given_back[message.body] = self.given_back.get(message.body, 0) + 1
        self.retried -= {message.body for message in taken[:give_back]}
        one.commit(sync=sync)
        for message in taken:
            if message.reconsume_times == 0:
                self.committed.add((message.queue_id, message.queue_offset))
            elif message not in taken[:give_back]:
                self.retried.add(message.body)
        taken.clear()

    @rule(count=st.integers(1, 4))
    def become_due(self, count: int) -> None:
        topic = self.store.topics.get("SCHEDULE_TOPIC_XXXX")
        if topic is None:
            return
        done = self.delivered()
        for message in topic[0][done : done + count]:
            properties = message.properties
            self.store.core.put_stored(
                properties["REAL_TOPIC"],
                int(properties["REAL_QID"]),
                message.body,
                "\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
                reconsume_times=message.reconsume_times,
            )

    def delivered(self) -> int:
        topic = f"%RETRY%{GROUP}"
        return len(self.store[topic][0]) if topic in self.store else 0

    @precondition(lambda self: self.consumers)
    @rule(which=st.integers(0, 3), forgets=st.booleans())
    def go(self, which: int, forgets: bool) -> None:
        one = self.consumers.pop(which % len(self.consumers))
        del self.taken[id(one)]
        if not forgets:
            one.close()

    @rule(forgets=st.booleans())
    def reopen(self, forgets: bool) -> None:
        if not forgets:
            for one in self.consumers:
                one.close()
        self.consumers.clear()
        self.taken.clear()
        self.store.close()
        self.store = rmqstore.open(self.root, "r+", config=CONFIG)

    @invariant()
    def nothing_is_passed_that_was_not_committed(self) -> None:
        offsets = self.store.offsets.get(("orders", GROUP), {})
        for queue_id, offset in offsets.items():
            assert offset <= self.put[queue_id]
            assert {(queue_id, at) for at in range(offset)} <= self.committed
        for queue_id in range(QUEUES):
            lags = {lag.queue_id: lag for lag in self.store.lag(GROUP, "orders")}
            if queue_id in offsets:
                assert lags[queue_id].messages == self.put[queue_id] - offsets[queue_id]

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        for one in self.consumers:
            one.close()
        while self.delivered() < sum(self.given_back.values()):
            self.become_due(4)
        with self.store.consumer("orders", group=GROUP, orderly=self.orderly) as last:
            for message in last:
                if message.reconsume_times == 0:
                    self.committed.add((message.queue_id, message.queue_offset))
                else:
                    self.retried.add(message.body)
            last.commit()
            assert list(last) == []
        assert self.committed == {
            (queue_id, at) for queue_id in range(QUEUES) for at in range(self.put[queue_id])
        }
        assert self.retried == set(self.given_back)
        assert all(lag.messages == 0 for lag in self.store.lag(GROUP))
        self.store.close()
        shutil.rmtree(self.root)


TestConsumers = Consumers.TestCase
