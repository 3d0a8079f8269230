"""Answers that may be long: short ones are built at once, long ones between other clients.

Heavy askers leave room for others: owners take turns, and an answer that turns out short does not
wait for long ones. Heartbeats and queue locks, which must be in time, have turns of their own. A
connection that waits for a long answer is not read further, so that it has at most one.

Source: none in 4.9.3, where requests have threads.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from rmqstore.serve.network.rotation import Rotation
from rmqstore.serve.network.turns import SHARE_SECONDS, Deadline, Steps
from rmqstore.serve.wire.codes import RequestCode
from rmqstore.serve.wire.fields import SHORT_BODY
from rmqstore.serve.wire.frames import MAX_FRAME, Answer, Request

if TYPE_CHECKING:
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.network.answers import Answers, AnswerSteps
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.unread import Unread
    from rmqstore.serve.network.work import Work

__all__ = ["LongAnswers"]

# Locks have to be renewed within a minute, and clients heard of within two.
_IN_TIME = frozenset(
    (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
)
# Always completed: an unlocking client may be about to leave, and others wait for the queues.
_DONE_ANYWAY = frozenset((RequestCode.UNLOCK_BATCH_MQ,))


class LongAnswers:
    """Builder of answers in steps; used in the loop."""

    def __init__(self, work: Work, unread: Unread, access: Access, answers: Answers) -> None:
        self._work = work
        self._unread = unread
        self._access = access
        self._answers = answers
        self._in_time = Rotation(work.turns)
        self._others = Rotation(work.turns)

    def build(
        self, connection: Connection, request: Request, steps: AnswerSteps, version: int
    ) -> None:
        """Answer at once if that takes little, else in turn.

        Of a long body only the first step is taken at once, and its parsed form is dropped for the
        wait. ``version`` is that of the accounts when the request was allowed.
        """
        deadline = Deadline(SHARE_SECONDS)
        long = len(request.body) > SHORT_BODY
        building = self._build(connection, request, steps, version)
        for _ in building:
            if deadline.passed or long:
                break
        else:
            return
        if long:
            request.parsed = None
        done = self._work.loop.create_future()
        self._answers.later(connection, request, done, alone=True)
        lane = self._in_time if request.code in _IN_TIME else self._others
        begin = partial(lane.add, connection.owner, _noting(building, done), long=long)
        if request.code in _IN_TIME:
            begin()
        else:
            self._unread.when_room(connection, MAX_FRAME, done, begin)

    async def built(self, connection: Connection, steps: AnswerSteps) -> Answer:
        """Return an answer built in its turn; room for it is reserved already."""
        begin = partial(self._others.add, connection.owner)
        return await self._work.turns.run(steps, begin)

    def _build(
        self, connection: Connection, request: Request, steps: AnswerSteps, version: int
    ) -> Steps:
        """Build and write an answer; the asker must still be allowed before each step."""
        access = self._access
        try:
            while connection.is_open or request.code in _DONE_ANYWAY:
                if access.version != version:
                    access.ask_again(connection, request, version)
                    version = access.version
                next(steps)
                yield
            steps.close()
        except StopIteration as ended:
            connection.answer(request, ended.value)
        except Exception as error:
            connection.answer(request, self._answers.to(request, error))


def _noting(work: Steps, done: asyncio.Future[None]) -> Steps:
    """Take the steps of a work, and note its end."""
    try:
        yield from work
    finally:
        if not done.done():
            done.set_result(None)
