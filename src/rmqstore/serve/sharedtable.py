"""Shares of a table of the store, which is not the gateway's alone.

Its entries have keys, and those of a key belong to who has made the first. Others make and remove
entries as well: before an owner is refused the table is looked at, unused entries are removed, and
the rest is counted. A table may be large, so the look is work of the loop's turns, and who comes
before its end is refused.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqstore.serve.shares import Owners, Shares

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Gateway
    from rmqstore.serve.network.turns import Steps

__all__ = ["SharedTable"]

K = TypeVar("K", bound=Hashable)

_AT_ONCE = 128  # steps of a look: a small table's is done with them
_REST_SECONDS = 1.0  # between two looks, at least
_ENTRY_REST_SECONDS = 0.0001  # for each entry: some ten times what a look takes


class SharedTable(ABC, Generic[K]):
    """What each owner has of a table; used in the loop.

    Parameters
    ----------
    gateway : Gateway
    most : int
        Size of the table.
    """

    def __init__(self, gateway: Gateway, most: int) -> None:
        self._gateway = gateway
        self._shares = Shares(most)
        self._counted: dict[K, int] = {}  # entries of each key
        self._makers: dict[K, str] = {}
        self._looking = False
        self._look_from = 0.0
        for key in self._keys():
            self.count(key)

    @abstractmethod
    def _keys(self) -> Iterable[K]:
        """Return the keys of the table as it is now."""

    @abstractmethod
    def _has(self, key: K) -> int:
        """Return how many entries a key has now."""

    @abstractmethod
    def _size(self) -> int:
        """Return how many entries there are now."""

    @abstractmethod
    def _remove_unused(self) -> Steps:
        """Remove entries that nobody needs."""

    def _owners(self, key: K, maker: str | None) -> Owners:
        """Return whose shares the entries of a key count in; nobody's if no client has made it."""
        return () if maker is None else (maker,)

    def of(self, owner: str) -> int:
        """Return how much an owner has."""
        return self._shares.of(owner)

    def take(self, key: K, owner: str) -> bool:
        """Count an entry that is about to be made, and tell whether there is room for it."""
        self.count(key)
        maker = self._makers.get(key, owner)
        owners = self._owners(key, maker)
        if not self._has_room(owners):
            self._look_for_room()
            if not self._has_room(owners):
                return False
        self._set(key, maker, self._has(key) + 1)
        return True

    def count(self, key: K) -> None:
        """Count the entries of a key anew."""
        has = self._has(key)
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
        """Begin a look, unless the last one was just now and nothing was removed since."""
        is_rested = time.monotonic() >= self._look_from
        if not self._looking and (is_rested or self._size() < self._shares.taken):
            self._looking = True
            look = self._look()
            for _ in islice(look, _AT_ONCE):
                pass
            if self._looking:
                self._gateway.turns.add(look)

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
