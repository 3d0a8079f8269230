"""Answers that may be long: short ones are built at once, long ones between other clients.

Long answers are built in the order of their requests, so that parts of no more than one are in
memory; a connection that waits for one is read no further, so that each has one at most.

Source: none in 4.9.3, where requests have threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.serve.network.turns import SHARE_SECONDS, Deadline, Steps
from rmqstore.serve.wire.frames import Answer, Request

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Gateway
    from rmqstore.serve.network.connection import Connection

__all__ = ["AnswerSteps", "LongAnswers"]

AnswerSteps = Generator[None, None, Answer]


class _Asked(NamedTuple):
    connection: Connection
    request: Request
    steps: AnswerSteps
    done: asyncio.Future[None]


class LongAnswers:
    """Builds answers step by step; used in the loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._asked: deque[_Asked] = deque()
        self._building = False

    def build(self, connection: Connection, request: Request, steps: AnswerSteps) -> None:
        """Answer at once if that takes little; else in turn."""
        deadline = Deadline(SHARE_SECONDS)
        try:
            next(steps)
            while not deadline.passed:
                next(steps)
        except StopIteration as ended:
            connection.answer(request, ended.value)
            return
        except Exception as error:
            connection.answer(request, self._gateway.answer_to(request, error))
            return
        done = self._gateway.loop.create_future()
        self._gateway.answers_later(connection, request, done, alone=True)
        self._asked.append(_Asked(connection, request, steps, done))
        if not self._building:
            self._building = True
            self._gateway.turns.add(self._build_all())

    def _build_all(self) -> Steps:
        """Build one after the other."""
        try:
            while self._asked:
                asked = self._asked.popleft()
                try:
                    yield from self._build(asked)
                finally:
                    if not asked.done.done():
                        asked.done.set_result(None)
        finally:
            self._building = False

    def _build(self, asked: _Asked) -> Steps:
        connection, request, steps, _ = asked
        try:
            while connection.is_open:
                next(steps)
                yield
            steps.close()
        except StopIteration as ended:
            connection.answer(request, ended.value)
        except Exception as error:
            connection.answer(request, self._gateway.answer_to(request, error))
