"""A loop whose turns have few steps, and that stands still where a test wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rmqstore.serve.network.connection import Connection
from support.remoting import RemotingClient

__all__ = ["SECONDS", "Answers", "Clock"]

SECONDS = 60.0
_ROUTE = 105


class Clock:
    """A clock that moves with each look at it, so that a turn has few steps; it can be stopped.

    Attributes
    ----------
    looks : int
        How often it was looked at: at least once for each step.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.stopped = threading.Event()
        self._stops: Callable[[], object] = lambda: False
        self._go_on = threading.Event()

    def __call__(self) -> float:
        self.looks += 1
        if not self.stopped.is_set() and self._stops():
            self.stopped.set()
            assert self._go_on.wait(SECONDS)
        return self.looks * 0.0011

    def stop_after(self, looks: int) -> None:
        """Have the loop stand still at a step."""
        stop_at = self.looks + looks
        self.stop_when(lambda: self.looks >= stop_at)

    def stop_when(self, holds: Callable[[], object]) -> None:
        """Have the loop stand still at the step at which something holds."""
        self._go_on.clear()
        self._stops = holds
        self.stopped.clear()

    def go_on(self) -> None:
        self._go_on.set()


class Answers:
    """The clients whose requests are answered, in order, each with the looks at the clock by then.

    Pulls that find something are not among them.
    """

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        self._clock = clock
        answer = Connection.answer

        def noted(connection: Connection, *arguments: Any) -> None:
            self.seen.append((connection.peer, clock.looks))
            answer(connection, *arguments)

        monkeypatch.setattr(Connection, "answer", noted)

    @property
    def clients(self) -> list[str]:
        return [name for name, _ in self.seen]

    def is_served_between(self, other: RemotingClient) -> bool:
        """Have a client ask while the loop stands at a step; return whether it comes next."""
        assert self._clock.stopped.wait(SECONDS)
        before = self._clock.looks
        asked = other.send(_ROUTE, {"topic": "t"})
        self._clock.go_on()
        assert other.answer(asked).code == 0
        [looks] = [looks - before for name, looks in self.seen if name == other.name][-1:]
        print(f"{looks} looks at the clock later")
        return looks <= 20
