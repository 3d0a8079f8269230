"""Jobs of many owners: in rotation by owner, short jobs before long ones.

Source: none in 4.9.3, where requests have threads.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from rmqstore.serve.network.turns import Steps, Turns
from rmqstore.serve.shares import Owners

__all__ = ["FairQueue", "Rotation"]

T = TypeVar("T")

_FEW_STEPS = 32  # limit of a short work
_LONG_MOST = 4  # long works in progress: their parts are in memory


class FairQueue(Generic[T]):
    """Items waiting for a turn: in rotation by owner, then by connection, in order for each."""

    def __init__(self) -> None:
        self._of: OrderedDict[Hashable, OrderedDict[Hashable, deque[T]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, owners: Owners, item: T) -> None:
        """Append an item to those of its owner and connection."""
        owner, connection = owners
        of_owner = self._of.get(owner)
        if of_owner is None:
            of_owner = self._of[owner] = OrderedDict()
        items = of_owner.get(connection)
        if items is None:
            of_owner[connection] = deque((item,))
        else:
            items.append(item)

    def pop(self) -> T:
        """Take the next item."""
        owner, of_owner = self._of.popitem(last=False)
        connection, items = of_owner.popitem(last=False)
        item = items.popleft()
        if items:
            of_owner[connection] = items
        if of_owner:
            self._of[owner] = of_owner
        return item

    def clear(self) -> None:
        """Drop all items."""
        self._of.clear()


class _Short:
    """New works: a step for each owner in rotation, and for each of an owner's works."""

    def __init__(self) -> None:
        self._of: OrderedDict[Hashable, deque[tuple[Steps, int]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, owner: Hashable, work: Steps, steps: int = 0) -> None:
        """Append a work to its owner's, with the number of steps taken."""
        self._of.setdefault(owner, deque()).append((work, steps))

    def step(self) -> tuple[Hashable, Steps] | None:
        """Take a step; return owner and work once a short work's steps are used up."""
        owner, works = self._of.popitem(last=False)
        work, steps = works.popleft()
        if works:
            self._of[owner] = works
        try:
            next(work)
        except StopIteration:
            return None
        if steps + 1 >= _FEW_STEPS:
            return owner, work
        self.add(owner, work, steps + 1)
        return None


class _Long:
    """Works with many steps: one of an owner at a time, and few in all."""

    def __init__(self) -> None:
        self._of: dict[Hashable, deque[Steps]] = {}
        self._begun: deque[Hashable] = deque()
        self._waiting: deque[Hashable] = deque()  # owners, longest wait first

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, owner: Hashable, work: Steps) -> None:
        """Append a work to its owner's."""
        works = self._of.get(owner)
        if works is None:
            self._of[owner] = deque((work,))
            self._waiting.append(owner)
        else:
            works.append(work)

    def step(self) -> None:
        """Take a step of a work in progress; its owner's next work waits for other owners."""
        while self._waiting and len(self._begun) < _LONG_MOST:
            self._begun.append(self._waiting.popleft())
        owner = self._begun.popleft()
        works = self._of[owner]
        goes_on = False
        try:
            next(works[0])
            goes_on = True
        except StopIteration:
            pass
        finally:
            if goes_on:
                self._begun.append(owner)
            else:
                works.popleft()
                if works:
                    self._waiting.append(owner)
                else:
                    del self._of[owner]


class Rotation:
    """Works of many owners, which together have one work's share of the loop's turns.

    Every other step is for works with few steps so far. Of long works an owner has one at a time,
    and at most four owners have one, in rotation.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._short = _Short()
        self._long = _Long()
        self._going = False

    def add(self, owner: Hashable, work: Steps, *, long: bool = False) -> None:
        """Begin in the loop's next turn, or after others."""
        (self._long if long else self._short).add(owner, work)
        self._go_on()

    def _go_on(self) -> None:
        if not self._going and not self._turns.closed:
            self._going = True
            self._turns.add(self._steps())

    def _steps(self) -> Steps:
        try:
            while self._short or self._long:
                if self._short:
                    became_long = self._short.step()
                    if became_long is not None:
                        self._long.add(*became_long)
                    yield
                if self._long:
                    self._long.step()
                    yield
        finally:
            self._going = False
            if self._short or self._long:  # one has failed; continue with the others
                self._go_on()
