"""Held pulls: long polling until a message arrives.

The core knows the queue and the awaited offset of each held pull. Dispatch makes a descriptor
readable once it has put messages in their queues; then pulls whose queues have reached their offset
are read again, and answered if they find something. This runs in turns of the loop, as a filter may
take long and pulls may be thousands. Owners take turns, and so do the connections of an owner; the
oldest pull of a connection comes first. So an owner of thousands delays only its own.

Pulls that time out are answered the same way, many at a time: a thousand idle consumers would
otherwise wake the loop a hundred times a second, and as often for their next pulls.

Source: ``broker/longpolling/PullRequestHoldService.java``, ``NotifyMessageArrivingListener.java``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING

from rmqstore._core import QueueHolds
from rmqstore.base.layout import INT64_MAX
from rmqstore.serve.accounts.aclresources import Resource, topic_resource
from rmqstore.serve.network.rotation import FairQueue
from rmqstore.serve.shares import Shares
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal

if TYPE_CHECKING:
    from rmqstore.serve.accounts.access import Access
    from rmqstore.serve.accounts.account import Caller
    from rmqstore.serve.consuming.pullreader import PullReader, PullRequest
    from rmqstore.serve.network.answers import Answers
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.connections import Connections
    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.shares import Owners
    from rmqstore.store import MessageStore

__all__ = ["Holds"]

_NOTHING_WANTED = INT64_MAX
_LATE = 1 / 64  # of a pull's time: how much later it may end
_SLOW_SECONDS = 0.05  # between looks at clients that do not read
_LEAST = 4096  # bytes assumed of an answer not read yet
_STEP = 256  # pulls put in line between two steps


@dataclass(slots=True)
class _Hold:
    connection: Connection
    pull: PullRequest
    caller: Caller | None
    order: int  # of arrival: the oldest has the lowest
    size: int
    owners: Owners
    ends: float  # loop's time
    number: int
    is_aside: bool = False  # until its client has read more
    is_over: bool = False  # timed out or refused: answered even if empty
    is_due: bool = False  # in the queue of due pulls


def _end(now: float, seconds: float) -> float:
    """Return when a hold begun now ends, rounded so that holds of equal length share a timer."""
    step = math.ldexp(1.0, math.frexp(seconds * _LATE)[1] - 1)  # a power of two
    return math.ceil((now + seconds) / step) * step


class Holds:
    """The held pulls of a gateway."""

    def __init__(
        self,
        store: MessageStore,
        settings: Settings,
        work: Work,
        connections: Connections[Connection],
        reader: PullReader,
        *,
        access: Access,
        answers: Answers,
    ) -> None:
        self._store = store
        self._work = work
        self._unread = connections.unread
        self._access = access
        self._answers = answers
        self._reader = reader
        self._has_accounts = settings.acl is not None
        self._queues = QueueHolds(store.core)
        self._wakeup = store.core.dispatch_wakeup()
        self._holds: dict[int, _Hold] = {}
        self._of: dict[Connection, set[int]] = {}
        self._order = count()
        self._ending: dict[float, dict[int, _Hold]] = {}  # by time; each has a timer, empty or not
        self._slow: dict[Connection, list[_Hold]] = {}  # of clients that do not read
        self._slow_awaited = False  # a look at them is scheduled
        self._due: FairQueue[_Hold] = FairQueue()
        limits = settings.limits
        self._sizes = Shares(limits.held_bytes)
        # Least charge of a pull, so that their number stays within its limit.
        self._least_size = -(-limits.held_bytes // limits.held_pulls)
        self._moved = False  # queues may have reached awaited offsets
        self._looking = False  # ``_look`` is among the loop's turns
        self._closed = False
        work.loop.add_reader(self._wakeup.fileno(), self._ring)
        connections.lost.append(self.drop)
        work.closing.append(self.close)

    def __len__(self) -> int:
        """Return the number of held pulls."""
        return len(self._holds)

    @property
    def taken(self) -> int:
        """Bytes charged for the held pulls."""
        return self._sizes.taken

    def has_room(self, owners: Owners) -> bool:
        """Whether owners have room for one more pull."""
        return not self._closed and self._sizes.has_room(owners, self._least_size)

    def add(self, connection: Connection, pull: PullRequest) -> None:
        """Hold a pull that has found nothing."""
        number = self._queues.add(pull.topic, pull.queue_id, pull.offset)
        size, owners = max(pull.request.held_bytes, self._least_size), connection.owners
        self._sizes.take(owners, size)
        loop = self._work.loop
        ends = _end(loop.time(), pull.suspend / 1000)
        hold = self._holds[number] = _Hold(
            connection, pull, connection.caller, next(self._order), size, owners, ends, number
        )
        ending = self._ending.get(ends)
        if ending is None:
            ending = self._ending[ends] = {}
            loop.call_at(ends, self._expire, ends)
        ending[number] = hold
        self._of.setdefault(connection, set()).add(number)
        if len(self._holds) == 1:
            self._want()
        if pull.size:
            self._put_aside(hold)
            return
        bounds = self._store.core.bounds(pull.topic, pull.queue_id)
        if bounds is not None and bounds[1] > pull.offset:  # arrived since
            self._look_soon()

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of a lost connection."""
        self._work.turns.singles.add(self._dropped(connection))

    def _dropped(self, connection: Connection) -> Steps:
        for number in list(self._of.get(connection, ())):
            hold = self._holds.get(number)
            if hold is not None and hold.connection is connection:
                self._remove(number)
            yield

    def close(self) -> None:
        """Drop all pulls; the connections are closed next."""
        self._closed = True
        self._slow.clear()
        self._due.clear()
        self._work.loop.remove_reader(self._wakeup.fileno())
        for number in list(self._holds):
            self._remove(number)
        self._wakeup.close()

    def _remove(self, number: int) -> _Hold:
        hold = self._holds.pop(number)
        self._sizes.give(hold.owners, hold.size)
        self._queues.remove(number)
        self._ending.get(hold.ends, {}).pop(number, None)
        numbers = self._of[hold.connection]
        numbers.discard(number)
        if not numbers:
            del self._of[hold.connection]
        return hold

    # Accounts have changed

    def ask_again(self) -> None:
        """End the pulls that are no longer allowed."""
        self._work.turns.add(self._end_refused())

    def _end_refused(self) -> Steps:
        for number in list(self._holds):
            hold = self._holds.get(number)
            if hold is not None and not self._is_allowed(hold):
                self._end(hold)
            yield

    def _is_allowed(self, hold: _Hold) -> bool:
        if not self._has_accounts:
            return True
        pull = hold.pull
        return self._access.allows(
            hold.caller, topic_resource(pull.topic), Resource(pull.group, is_group=True)
        )

    # Arrivals

    def _ring(self) -> None:
        """Look at the pulls: dispatch has moved."""
        self._wakeup.drain()
        if not self._closed:
            self._moved = True
            if not self._looking:
                self._looking = True
                self._work.turns.start(self._look())

    def _look_soon(self) -> None:
        self._moved = True
        self._go_on()

    def _add_due(self, hold: _Hold) -> None:
        if not hold.is_due:
            hold.is_due = True
            self._due.add(hold.owners, hold)

    def _go_on(self) -> None:
        if not self._looking and not self._closed:
            self._looking = True
            self._work.turns.add(self._look())

    def _want(self) -> None:
        """Have the next message make the descriptor readable."""
        if not self._holds:
            self._wakeup.reached(_NOTHING_WANTED)
            return
        # Wake above the position dispatched now; look at once if it has moved meanwhile.
        reached = self._wakeup.reached(_NOTHING_WANTED)
        if reached >= 0 and self._wakeup.reached(reached + 1) > reached:
            self._look_soon()

    def _look(self) -> Steps:
        """Read the due pulls; pulls whose queues move meanwhile become due as well."""
        try:
            while (self._moved or self._due) and not self._closed:
                if self._moved:
                    self._moved = False
                    self._want()  # first: later messages are for the next look
                    moved = self._queues.moved()
                    if len(moved) == 1 and not self._due:  # as a rule
                        self._read(self._holds[moved[0]])
                        yield
                    else:
                        yield from self._line_up(moved)
                if self._due:
                    hold = self._due.pop()
                    hold.is_due = False
                    # Pulls of a lost connection are dropped meanwhile.
                    if self._holds.get(hold.number) is hold and hold.connection.is_open:
                        self._read(hold)
                    yield
        finally:
            self._looking = False

    def _line_up(self, numbers: list[int]) -> Steps:
        """Make pulls whose queues have moved due: not found again until read."""
        moved = sorted(map(self._holds.__getitem__, numbers), key=attrgetter("order"))
        for at, hold in enumerate(moved, 1):
            if self._holds.get(hold.number) is hold:
                self._queues.set_offset(hold.number, _NOTHING_WANTED)
                self._add_due(hold)
            if not at % _STEP:
                yield

    def _read(self, hold: _Hold) -> None:
        """Read one pull again; it stays held if nothing matches and its time is not over."""
        pull = hold.pull
        if hold.is_over:
            self._end(hold)
            return
        if not self._may_be_sent(hold.connection, pull.size):
            self._put_aside(hold)
            return
        if self._answer(hold, may_hold=True):
            self._remove(hold.number)
        elif pull.size:
            self._put_aside(hold)
        elif pull.goes_on:
            self._add_due(hold)
        else:
            self._queues.set_offset(hold.number, pull.offset)

    def _end(self, hold: _Hold) -> None:
        """End a hold: answer it, or put it aside until its client has read earlier answers.

        Otherwise the unread bytes of a client would grow with each of its pulls.
        """
        hold.is_over = True
        if (
            not hold.is_aside
            and self._may_be_sent(hold.connection, hold.pull.size)
            and self._answer(hold, may_hold=False)
        ):
            self._remove(hold.number)
        else:
            self._put_aside(hold)

    # Clients do not read

    def _may_be_sent(self, connection: Connection, size: int) -> bool:
        return not connection.is_slow and self._unread.has_room(connection, size)

    def _put_aside(self, hold: _Hold) -> None:
        """Let a pull wait until its client has read more of its answers."""
        self._queues.set_offset(hold.number, _NOTHING_WANTED)
        if hold.is_aside:
            return
        hold.is_aside = True
        self._slow.setdefault(hold.connection, []).append(hold)
        self._await_slow()

    def _await_slow(self) -> None:
        if self._slow and not self._slow_awaited:
            self._slow_awaited = True
            self._work.loop.call_later(_SLOW_SECONDS, self._look_at_slow)

    def go_on(self, connection: Connection) -> None:
        """Resume the pulls of a client that has read its answers."""
        if connection in self._slow:
            self._resume(connection)

    def _look_at_slow(self) -> None:
        """Resume the pulls of clients that have read their answers."""
        self._slow_awaited = False
        self._unread.measure()
        for connection in list(self._slow):  # there is room again, or it is gone
            if not (connection.is_open and connection.is_slow):
                self._resume(connection)
        self._await_slow()

    def _resume(self, connection: Connection) -> None:
        """Resume the pulls of a client for which there is room."""
        self._work.turns.begin(self._resumed(connection, self._slow.pop(connection)))

    def _resumed(self, connection: Connection, waiting: list[_Hold]) -> Steps:
        size = 0
        for at, hold in enumerate(waiting):
            if at % _STEP == _STEP - 1:
                yield
            size += max(hold.pull.size, _LEAST)
            if connection.is_open and not self._may_be_sent(connection, size):
                self._slow[connection] = waiting[at:] + self._slow.get(connection, [])
                self._await_slow()
                break
            if self._holds.get(hold.number) is hold:
                hold.is_aside = False
                self._add_due(hold)
        self._go_on()

    def _expire(self, ends: float) -> None:
        """Answer pulls that have timed out."""
        self._work.turns.add(self._expired(self._ending.pop(ends, {})))

    def _expired(self, ending: dict[int, _Hold]) -> Steps:
        for at, hold in enumerate(list(ending.values()), 1):
            if self._holds.get(hold.number) is hold:
                hold.is_over = True
                if not hold.is_aside:
                    self._add_due(hold)
                    self._go_on()
            if not at % _STEP:
                yield

    def _answer(self, hold: _Hold, *, may_hold: bool) -> bool:
        try:
            if not self._is_allowed(hold):
                raise Refusal(
                    ResponseCode.NO_PERMISSION,
                    "org.apache.rocketmq.acl.common.AclException: no permission any more for "
                    f"topic:{hold.pull.topic}, group:{hold.pull.group}",
                )
            return self._reader.answer(hold.connection, hold.pull, may_hold=may_hold, woken=True)
        except Refusal as refusal:
            answer = refusal.answer
        except Exception as error:
            answer = self._answers.to(hold.pull.request, error)
        hold.connection.answer(hold.pull.request, answer)
        return True
