"""Random delays, transactions, moves of the clock, kills and openings, against a plain model."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.services.schedule import Schedule

SMALL = StoreConfig.small()
LEVELS = {1: 1, 2: 5, 3: 10, 5: 60}  # seconds
STEP = st.one_of(
    st.tuples(st.just("delay"), st.sampled_from(list(LEVELS))),
    st.tuples(st.just("begin"), st.booleans()),
    st.tuples(st.just("commit"), st.integers(0, 3)),
    st.tuples(st.just("rollback"), st.integers(0, 3)),
    st.tuples(st.just("advance"), st.sampled_from([1, 2, 7, 30, 70])),
    st.tuples(st.just("kill"), st.integers(0, 4)),
    st.tuples(st.just("reopen"), st.just(0)),
)


class Run:
    """A store, and what must be in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ahead = 0.0  # of the store's clock
        self.waiting: dict[bytes, tuple[int, int]] = {}  # body: level, earliest time
        self.doubtful: list[bytes] = []
        self.there: list[bytes] = []
        self.count = 0
        self.store = rmqstore.open(root, "a", config=SMALL)

    def body(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def end(self, number: int, *, commit: bool) -> None:
        if number < len(self.doubtful):
            one = self.store.in_doubt()[number]
            self.doubtful.remove(one.message.body)
            if commit:
                one.commit()
                self.there.append(one.message.body)
            else:
                one.rollback()

    def kill(self, drop: int) -> None:
        """Go on with a copy as a kill leaves it; at ``drop`` 0 without delayOffset.json."""
        copy = Path(f"{self.root}.{self.count}.{drop}.{time.monotonic_ns()}")
        self.store.flush()
        # A file that is being written is gone when it is copied, and its name is the next write's.
        shutil.copytree(self.root, copy, ignore=shutil.ignore_patterns("*.tmp"))
        if drop == 0:
            (copy / "config" / "delayOffset.json").unlink(missing_ok=True)
        self.store.close()
        self.root = copy
        self.open()

    def open(self) -> None:
        """Open with the clock where it was: to the schedule it has not gone back meanwhile."""
        with mock.patch.object(Schedule, "begin", return_value=None):
            self.store = rmqstore.open(self.root, "r+")
            self.store.clock.advance(self.ahead)
        self.store.schedule.begin()

    def settle(self) -> None:
        """Wait for what is due; nothing else is delivered, and nothing twice."""
        deadline = time.monotonic() + 60
        while True:
            found = self.bodies()
            now = self.store.clock.now()  # which goes on meanwhile
            due = [body for body, (_, at) in self.waiting.items() if at <= now]
            for body in due:
                del self.waiting[body]
            self.there += due
            if Counter(found) == Counter(self.there):
                return
            assert time.monotonic() < deadline, (found, self.there)
            time.sleep(0.005)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.store.scan("t")]

    def check(self) -> None:
        self.settle()
        self.store.flush()  # a reader looks for new files at times only
        for mode in ("own", "r"):
            store = self.store if mode == "own" else rmqstore.open(self.root, "r")
            if mode == "r":
                store.clock.advance(self.ahead)
            deadline = time.monotonic() + 60
            while True:  # a reader sees what is new a little later
                found = {one.message.body for one in store.delayed()}
                now = self.store.clock.now()
                wanted = {body for body, (_, at) in self.waiting.items() if at > now}
                if found >= wanted:
                    break
                assert time.monotonic() < deadline, (mode, found, wanted)
                time.sleep(0.02)
            assert [one.message.body for one in store.in_doubt()] == self.doubtful
            if mode == "r":
                store.close()
        assert {one.message.body for one in self.store.delayed()} <= set(self.waiting)


@settings(deadline=None, max_examples=12 if os.environ.get("CI") is None else 40)
@given(st.lists(STEP, min_size=5, max_size=40))
def test_each_is_delivered_once(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory, "s"))
        try:
            for name, argument in steps:
                if name == "delay":
                    body = run.body()
                    done = run.store.put("t", body, delay_level=argument, tags="x")
                    run.waiting[body] = argument, done.store_timestamp + LEVELS[argument] * 1000
                elif name == "begin":
                    body = run.body()
                    run.store.begin("t", body, uniq_key=bool(argument), born_timestamp=run.count)
                    run.doubtful.append(body)
                elif name in ("commit", "rollback"):
                    run.end(argument, commit=name == "commit")
                elif name == "advance":
                    run.ahead += argument
                    run.store.clock.advance(argument)
                    run.settle()
                elif name == "kill":
                    run.settle()
                    run.kill(argument)
                else:
                    run.store.close()
                    run.open()
            run.check()
            run.ahead += 100
            run.store.clock.advance(100)
            run.settle()
            assert run.waiting == {}
        finally:
            run.store.close()
