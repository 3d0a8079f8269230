"""Answers of handlers: at once, later, in steps, and after failures.

Source: ``remoting/netty/NettyRemotingAbstract.java processRequestCommand``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from rmqstore.errors import StoreError
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Answer, Refusal, Request

if TYPE_CHECKING:
    from rmqstore.base.warn import Log
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.work import Work

__all__ = ["AnswerSteps", "Answers", "Handled", "Handler"]

AnswerSteps = Generator[None, None, Answer]
# None: the handler answers later, by Connection.answer. Steps: the answer may be long, and is built
# between the requests of other clients; a coroutine may also return them.
Handled = Answer | AnswerSteps | Coroutine[Any, Any, Answer | AnswerSteps | None] | None
Handler = Callable[["Connection", Request], Handled]

_DRAIN_SECONDS = 6.0  # limit for answers at a stop: somewhat longer than a wait for the disk


class Answers:
    """Answers that are not immediate; used in the loop."""

    def __init__(self, work: Work) -> None:
        self._loop = work.loop
        self._log: Log = work.log
        self._answering: set[asyncio.Future[None]] = set()

    def later(
        self,
        connection: Connection,
        request: Request,
        done: asyncio.Future[None],
        *,
        alone: bool = False,
    ) -> None:
        """Count a request answered when a future is done; a stop waits for it.

        ``alone``: the connection's next requests are handled after it.
        """
        self._answering.add(done)
        (connection.waits_alone if alone else connection.waits_for)(request, done)
        done.add_done_callback(self._answering.discard)

    def to(self, request: Request, error: Exception) -> Answer:
        """Return the answer to a failed request."""
        if isinstance(error, Refusal):
            return error.answer
        if isinstance(error, OSError):  # of the disk: its paths are not for the client
            self._log.warning("request %s failed: %s", request.code, error)
            return Answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error.strerror}")
        if not isinstance(error, StoreError):
            self._log.exception("request %s failed", request.code, error=error)
        return Answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    async def drain(self) -> None:
        """Wait for the answers in progress, including answers that they cause."""
        left, until = _DRAIN_SECONDS, self._loop.time() + _DRAIN_SECONDS
        while self._answering and left > 0:
            _, pending = await asyncio.wait(set(self._answering), timeout=left)
            left = 0 if pending else until - self._loop.time()
