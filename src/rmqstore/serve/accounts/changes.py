"""Changes of the accounts of a running gateway: pulls, memberships and locks that they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.serve.accounts.acl import LOOK_SECONDS

if TYPE_CHECKING:
    from rmqstore.serve.accounts.acl import Acl
    from rmqstore.serve.gateway import Gateway

__all__ = ["AccountChanges"]


class AccountChanges:
    """Looks for changes in the loop; ends what was held by callers that may not any more."""

    def __init__(self, gateway: Gateway, acl: Acl) -> None:
        self._gateway = gateway
        self._acl = acl
        self._seen = acl.version
        gateway.every(LOOK_SECONDS, self.look, "the look at the accounts")

    def look(self) -> None:
        """Read the accounts if their file has changed."""
        self._acl.look()
        if self._acl.version != self._seen:
            self._seen = self._acl.version
            self._gateway.holds.ask_again()
            self._gateway.clients.ask_again()
            self._gateway.turns.add(self._gateway.locks.end_refused(self._gateway.allows))
