"""Long work of the loop: a few milliseconds of it, then the requests of clients.

Work that grows with clients' data, such as the pulls that a message wakes or an answer with each
queue of a topic, is a generator that yields at least every fraction of a millisecond. All works
together have one budget per turn of the loop, shared in rotation; in between come the sockets of
all clients.

Source: none in 4.9.3, where requests have threads.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from time import perf_counter
from typing import TypeVar

from rmqstore.base.warn import Log

__all__ = ["SHARE_SECONDS", "Deadline", "Steps", "Turns", "ended"]

_TURN_SECONDS = 0.002  # of all works together, per turn of the loop
# Of one work, until the next one has its share; of a client's received requests, until the rest
# becomes a work.
SHARE_SECONDS = 0.0005

Steps = Generator[None, None, None]
T = TypeVar("T")


class Deadline:
    """A span of the loop's time, beginning now."""

    __slots__ = ("_began", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._began = perf_counter()
        self._seconds = seconds

    @property
    def passed(self) -> bool:
        """Whether the time is used up."""
        return self.spent >= self._seconds

    @property
    def spent(self) -> float:
        """Elapsed seconds."""
        return perf_counter() - self._began


def ended(steps: Generator[None, None, T]) -> T:
    """Take all steps at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Turns:
    """Unfinished work of a loop; used in the loop."""

    def __init__(self, loop: AbstractEventLoop, log: Log) -> None:
        self._loop = loop
        self._log = log  # for work that fails
        self._works: deque[Steps] = deque()
        self._going = False  # in a turn, or one is due
        self._spent = 0.0  # seconds of this turn of the loop, for requests on arrival
        self.closed = False  # nothing more is done
        self.requests = Lane(self)  # the rest of requests sent together by a connection
        self.singles = Lane(self)  # each for one connection or message, possibly hundreds at once

    def __len__(self) -> int:
        return len(self._works)

    @property
    def is_over(self) -> bool:
        """Whether requests have used up this turn's budget."""
        return self._spent >= _TURN_SECONDS

    def spend(self, seconds: float) -> None:
        """Charge seconds of requests or of a work to this turn of the loop."""
        if not self._spent:
            self._loop.call_soon(self._begin)
        self._spent += seconds

    def _begin(self) -> None:
        self._spent = 0.0

    def start(self, work: Steps) -> None:
        """Begin at once if nothing else waits, or ahead of all; the rest follows in rotation.

        REQUIRES: begun once a turn at most, as each begins with the whole budget.
        """
        self._works.appendleft(work)
        if not self._going:
            self._going = True
            self._turn()

    def begin(self, work: Steps) -> None:
        """Do a share at once if this turn has time left, the rest in ``singles``."""
        if not self._is_done_at_once(work):
            self.singles.add(work)

    def _begin_own(self, work: Steps) -> None:
        """Begin as :meth:`begin`; the rest has its own share."""
        if not self._is_done_at_once(work):
            self.add(work)

    def _is_done_at_once(self, work: Steps) -> bool:
        if not self.is_over:
            deadline = Deadline(SHARE_SECONDS)
            goes_on = False
            for _ in work:
                if deadline.passed:
                    goes_on = True
                    break
            self.spend(deadline.spent)  # many may begin in one turn
            return not goes_on
        return False

    async def run(
        self, work: Generator[None, None, T], begin: Callable[[Steps], object] | None = None
    ) -> T:
        """Return the result of a work, begun at once or by a function."""
        done: Future[T] = self._loop.create_future()

        def steps() -> Steps:
            try:
                result = yield from work
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)
            finally:
                done.cancel()  # if the work was closed early

        (begin or self._begin_own)(steps())
        return await done

    def add(self, work: Steps) -> None:
        """Begin in the loop's next turn."""
        if self.closed:
            work.close()
            return
        self._works.append(work)
        if not self._going:
            self._going = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        works = self._works
        now = perf_counter()
        until = now + _TURN_SECONDS
        try:
            while works and not self.closed and now < until:
                work = works.popleft()
                next_one = now + SHARE_SECONDS
                try:
                    while now < next_one:
                        next(work)
                        now = perf_counter()
                    works.append(work)
                except StopIteration:
                    now = perf_counter()
                except Exception as error:
                    self._log.exception("work of the loop failed", error=error)
                    now = perf_counter()
        finally:  # even after a SystemExit, from which the loop may resume
            self._going = bool(works) and not self.closed
            if self._going:
                self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Close all work, and accept no more."""
        self.closed = True
        while self._works:
            self._works.popleft().close()


class Lane:
    """Works of one kind with one common share: a step each in rotation.

    Every other step is for a work expected to be short, if any: it does not wait for many long ones
    before it.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._works: deque[Steps] = deque()
        self._short: deque[Steps] = deque()
        self._going = False

    def add(self, work: Steps, *, short: bool = False) -> None:
        """Begin in the loop's next turn, or after the others."""
        (self._short if short else self._works).append(work)
        if not self._going:
            self._going = True
            self._turns.add(self._steps())

    def _steps(self) -> Steps:
        try:
            while self._short or self._works:
                for works in (self._short, self._works):
                    if works:
                        work = works.popleft()
                        with suppress(StopIteration):
                            next(work)
                            self._works.append(work)
                        yield
        finally:
            self._going = False
            if self._turns.closed:
                for work in (*self._short, *self._works):
                    work.close()
            elif self._short or self._works:  # one has failed; continue with the others
                self._going = True
                self._turns.add(self._steps())
