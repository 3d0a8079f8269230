"""Shares of a table of the store that is also changed outside of the gateway.

A key's entries belong to the owner of the first. Before an owner is refused, unused entries are
removed and the rest is recounted: in turns of the loop, as a table may be large; requests that
arrive before the end are refused.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqstore.serve.shares import Owners, Shares

if TYPE_CHECKING:
    from rmqstore.serve.network.turns import Steps, Turns

__all__ = ["SharedTable"]

K = TypeVar("K", bound=Hashable)

_AT_ONCE = 128  # steps of a sweep taken at once: enough for a small table
_REST_SECONDS = 1.0  # least pause between two sweeps
_ENTRY_REST_SECONDS = 0.0001  # pause per entry: some ten times a sweep's cost


class SharedTable(ABC, Generic[K]):
    """Use of a table by owner; used in the loop."""

    def __init__(self, turns: Turns, most: int) -> None:
        self._turns = turns
        self._shares = Shares(most)
        self._counted: dict[K, int] = {}  # entries of each key
        self._makers: dict[K, str] = {}
        self._begun: Counter[K] = Counter()  # entries being made
        self._looking = False
        self._look_from = 0.0
        for key in self._keys():
            self.count(key)

    @abstractmethod
    def _keys(self) -> Iterable[K]:
        """Return the present keys."""

    @abstractmethod
    def _has(self, key: K) -> int:
        """Return the present number of entries of a key."""

    @abstractmethod
    def _size(self) -> int:
        """Return the present number of entries."""

    @abstractmethod
    def _remove_unused(self) -> Steps:
        """Remove unused entries."""

    def _owners(self, key: K, maker: str | None) -> Owners:
        """Return the owners of a key's entries; none if no client made them."""
        return () if maker is None else (maker,)

    def of(self, owner: str) -> int:
        """Return an owner's use."""
        return self._shares.of(owner)

    def take(self, key: K, owner: str) -> bool:
        """Count an entry about to be made; return whether there is room.

        Also needs :meth:`begun` if the entry is not made at once.
        """
        self.count(key)
        maker = self._makers.get(key, owner)
        owners = self._owners(key, maker)
        if not self._has_room(owners):
            self._look_for_room()
            if not self._has_room(owners):
                return False
        self._set(key, maker, self._has(key) + 1)
        return True

    @contextmanager
    def begun(self, key: K) -> Iterator[None]:
        """Count an entry as existing while it is made, and recount afterwards."""
        self._begun[key] += 1
        try:
            yield
        finally:
            self._begun[key] -= 1
            if not self._begun[key]:
                del self._begun[key]
            self.count(key)

    def count(self, key: K) -> None:
        """Recount a key's entries."""
        has = max(self._has(key), int(key in self._begun))
        if has != self._counted.get(key, 0):
            self._set(key, self._makers.get(key), has)

    def _set(self, key: K, maker: str | None, count: int) -> None:
        before = self._makers.pop(key, None)
        self._shares.give(self._owners(key, before), self._counted.pop(key, 0))
        if count:
            self._shares.take(self._owners(key, maker), count)
            self._counted[key] = count
            if maker is not None:
                self._makers[key] = maker

    def _has_room(self, owners: Owners) -> bool:
        return self._size() < self._shares.most and self._shares.has_room(owners)

    def _look_for_room(self) -> None:
        """Begin a sweep, unless one has just ended and nothing was removed since."""
        is_rested = time.monotonic() >= self._look_from
        if not self._looking and (is_rested or self._size() < self._shares.taken):
            self._looking = True
            look = self._look()
            for _ in islice(look, _AT_ONCE):
                pass
            if self._looking:
                self._turns.add(look)

    def _look(self) -> Steps:
        try:
            yield from self._remove_unused()
            for key in chain(self._keys(), list(self._counted)):
                self.count(key)
                yield
        finally:
            self._looking = False
            rest = max(_REST_SECONDS, _ENTRY_REST_SECONDS * self._size())
            self._look_from = time.monotonic() + rest
