"""Shares of a bounded table: no owner can fill it alone.

The rule is that of a switch's shared buffer: an owner may have as much as is free. A single owner
gets half of the table, n owners get 1/(n + 1) of it each, and as much stays free for the next.

Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

__all__ = ["Owners", "Shares", "largest_of_largest"]

Owners = tuple[Hashable, ...]
T = TypeVar("T")


class Shares:
    """Use of a table by owner.

    An entry belongs to several owners at once, such as an account and one of its connections;
    together they may have as much as is free: a single connection gets a third of the table.
    """

    def __init__(self, most: int) -> None:
        self.most = most  # size of the table
        self.taken = 0  # by all owners
        self._of: dict[Hashable, int] = {}

    def of(self, owner: Hashable) -> int:
        """Return an owner's use."""
        return self._of.get(owner, 0)

    def has_room(self, owners: Owners, amount: int = 1) -> bool:
        """Whether owners have room for an amount."""
        for owner in owners:
            amount += self._of.get(owner, 0)
        return amount <= self.most - self.taken

    def take(self, owners: Owners, amount: int = 1) -> None:
        """Charge owners for an amount, whether or not there is room."""
        self.taken += amount
        for owner in owners:
            self._of[owner] = self._of.get(owner, 0) + amount

    def give(self, owners: Owners, amount: int = 1) -> None:
        """Credit owners with an amount."""
        self.taken -= amount
        for owner in owners:
            left = self._of.get(owner, 0) - amount
            if left:
                self._of[owner] = left
            else:
                self._of.pop(owner, None)


def largest_of_largest(uses: Iterable[tuple[T, Hashable, int]]) -> tuple[T, int] | None:
    """Return the largest user of the largest owner, with its amount; ``None`` without use."""
    taken: dict[Hashable, int] = {}
    largest: dict[Hashable, tuple[T, int]] = {}
    for user, owner, amount in uses:
        taken[owner] = taken.get(owner, 0) + amount
        if owner not in largest or amount > largest[owner][1]:
            largest[owner] = user, amount
    owner = max(taken, key=taken.__getitem__, default=None)
    return largest[owner] if taken.get(owner) else None
