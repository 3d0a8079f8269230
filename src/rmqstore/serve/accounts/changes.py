"""Changes of a running gateway's accounts: pulls, memberships and locks that they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqstore.serve.accounts.acl import LOOK_SECONDS

if TYPE_CHECKING:
    from rmqstore.serve.accounts.acl import Acl
    from rmqstore.serve.network.work import Work

__all__ = ["AccountChanges"]


class AccountChanges:
    """Checks for changes in the loop, and calls back to recheck what callers hold."""

    def __init__(self, work: Work, acl: Acl, changed: Callable[[], object]) -> None:
        self._work = work
        self._acl = acl
        self._changed = changed
        self._seen = acl.version
        self._reading: asyncio.Task[None] | None = None
        work.every(LOOK_SECONDS, self.look, "the look at the accounts")

    def look(self) -> None:
        """Read the accounts if their file has changed."""
        self._acl.look()
        self._ask_again()
        if self._reading is None and self._acl.is_outdated:
            self._reading = self._work.spawn(self._read_aside())

    async def _read_aside(self) -> None:
        """Read a long file; until then the accounts stay."""
        try:
            await self._acl.look_aside()
        finally:
            self._reading = None
        self._ask_again()

    def _ask_again(self) -> None:
        if self._acl.version != self._seen:
            self._seen = self._acl.version
            self._changed()
