"""Access of clients: requests are checked on arrival, and again before late answers."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore.serve.accounts.account import Caller
    from rmqstore.serve.accounts.acl import Acl
    from rmqstore.serve.accounts.aclresources import Resource
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.wire.frames import Request
    from rmqstore.store import MessageStore

__all__ = ["Access"]


class Access:
    """Checks of requests against the accounts; without accounts everything is allowed."""

    def __init__(self, acl: Acl | None, store: MessageStore, handled: Container[int]) -> None:
        self._acl = acl
        self._store = store
        self._handled = handled  # codes with handlers

    @property
    def version(self) -> int:
        """Number of changes of the accounts."""
        return 0 if self._acl is None else self._acl.version

    def check(self, connection: Connection, request: Request) -> None:
        """Note the caller of a request; ``Refusal`` if it is not allowed."""
        if self._acl is not None:
            connection.caller = self._acl.check(
                connection.peer, request, self._store, is_handled=request.code in self._handled
            )

    def ask_again(self, connection: Connection, request: Request, version: int) -> None:
        """Check a delayed request again if the accounts have changed since ``version``."""
        if self._acl is not None and self._acl.version != version:
            self._acl.check(
                connection.peer, request, self._store, is_handled=request.code in self._handled
            )

    def allows(self, caller: Caller | None, *resources: Resource) -> bool:
        """Whether a caller still has permission for these resources."""
        acl = self._acl
        return acl is None or (caller is not None and acl.allows(caller, *resources))
