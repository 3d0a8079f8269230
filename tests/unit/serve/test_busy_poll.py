"""Staying awake after a request: only while that pays, and never on one processor."""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import cast

import pytest

from rmqstore.serve.network import busypoll
from rmqstore.serve.network.busypoll import BusyPoll


class Turns:
    """A loop of which a test makes the turns, and a clock that goes on with them."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.now = 1000.0
        self.made = 0

    def call_soon(self, call: Callable[[], None]) -> None:
        self.due.append(call)

    def turn(self, seconds: float = 5e-6) -> None:
        self.now += seconds
        self.made += len(self.due)
        due, self.due = self.due, []
        for call in due:
            call()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    made = Turns()
    monkeypatch.setattr(busypoll, "perf_counter", lambda: made.now)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return made


def busy_poll(turns: Turns) -> BusyPoll:
    return BusyPoll(cast("AbstractEventLoop", turns))


def test_requests_that_come_at_once_keep_the_loop_awake(turns: Turns) -> None:
    poll = busy_poll(turns)
    for _ in range(busypoll._TRY_EACH + 8):
        poll.came("client")
        turns.turn()
        turns.turn()
    for _ in range(200):
        assert turns.due
        poll.came("client")
        turns.turn()
        turns.turn()
    poll.came("client")
    turns.turn(busypoll._SECONDS)
    assert not turns.due
    poll.came("client")  # a single time does not count
    assert turns.due


def test_requests_that_come_late_let_it_sleep(turns: Turns) -> None:
    poll = busy_poll(turns)
    for _ in range(busypoll._TRY_EACH + 8):
        poll.came("client")
        turns.turn()
    for _ in range(10):  # now and then
        for _ in range(20):
            turns.turn()
        poll.came("client")
    turns.turn(1)
    assert not turns.due
    before = turns.made
    for _ in range(10 * busypoll._TRY_EACH):
        poll.came("client")
        for _ in range(20):
            turns.turn()
        assert not turns.due
    # One try each 64 requests, of 50 us.
    assert 0 < turns.made - before <= 10 * (busypoll._SECONDS / 5e-6 + 2)


def test_a_crowd_of_clients_lets_it_sleep(turns: Turns) -> None:
    poll = busy_poll(turns)
    for crowd in range(400):
        for client in range(20):
            poll.came(client)
            turns.turn(1e-6)
        turns.turn(1)
        turns.turn(1)
        assert not turns.due
        if crowd == 100:
            before = turns.made
    assert turns.made - before < 300 * 20 / busypoll._TRY_EACH * (busypoll._SECONDS / 1e-6)


def test_on_one_processor_it_sleeps(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    poll = busy_poll(turns)
    for _ in range(1000):
        poll.came("client")
        turns.turn()
        assert not turns.due
