"""Pulls: stored records for a consumer, now or on arrival.

Source: ``broker/processor/PullMessageProcessor.java``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.serve.consuming.pullreader import PullReader, PullRequest, parsed_pull
from rmqstore.serve.wire.codes import RequestCode
from rmqstore.serve.wire.fields import number
from rmqstore.serve.wire.frames import Refusal, Request

if TYPE_CHECKING:
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.consuming.holding import Holds
    from rmqstore.serve.consuming.offsets import Offsets
    from rmqstore.serve.network.answers import Handled, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.unread import Unread

__all__ = ["Pulls"]

_COMMIT_OFFSET = 1  # bit of sysFlag
_HELD_FIELDS = ("subscription", "expressionType")


class Pulls:
    """Pull requests, answered or held until messages arrive, and their commits."""

    def __init__(
        self, reader: PullReader, holds: Holds, offsets: Offsets, access: Access, unread: Unread
    ) -> None:
        self._reader = reader
        self._holds = holds
        self._offsets = offsets
        self._access = access
        self._unread = unread

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return dict.fromkeys((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self._pull)

    def _pull(self, connection: Connection, request: Request) -> Handled:
        """Answer PULL_MESSAGE and LITE_PULL_MESSAGE, or hold them until messages arrive."""
        pull = parsed_pull(request)
        holds = self._holds
        hold = pull.suspend > 0 and not request.oneway and holds.has_room(connection.owners)
        if pull.sys_flag & _COMMIT_OFFSET:
            committed = number(request, "commitOffset", least=INT64_MIN, most=INT64_MAX)
        later: Handled = None
        if self._reader.answer(connection, pull, may_hold=hold):
            pass
        elif not hold:
            later = self._answer_later(connection, pull)
        else:
            # While held it keeps only fields that are read again: a body may have 16 MiB.
            fields = request.fields
            request.fields = {name: fields[name] for name in _HELD_FIELDS if name in fields}
            request.body = b""
            holds.add(connection, pull)
        if pull.sys_flag & _COMMIT_OFFSET and committed >= 0:
            with suppress(Refusal):  # the pull is answered
                self._offsets.commit(
                    pull.topic, pull.group, pull.queue_id, committed, owner=connection.owner
                )
        return later

    async def _answer_later(self, connection: Connection, pull: PullRequest) -> None:
        """Answer a pull that may not be held once its client has read enough earlier answers."""
        version = self._access.version
        answered = False
        while not answered:
            async with self._unread.room(connection, pull.size):
                self._access.ask_again(connection, pull.request, version)
            answered = self._reader.answer(connection, pull, may_hold=False)
