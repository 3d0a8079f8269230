"""Held pulls: long polling until a message arrives.

The core notes for each of them its queue and the offset that it waits for. When the dispatch has
put messages in their queues it makes a descriptor readable; then the pulls whose queues have what
they wait for are read again, the oldest first, and answered if they find something. That is work
of the loop's turns, as one filter may take long, and there may be thousands.

Pulls that time out are answered some at a time: a thousand idle consumers would otherwise wake
the loop a hundred times a second for it, and as often for their next pulls.

Source: ``broker/longpolling/PullRequestHoldService.java``, ``NotifyMessageArrivingListener.java``.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from rmqstore._core import QueueHolds
from rmqstore.serve.accounts.aclresources import Resource, topic_resource
from rmqstore.serve.consuming.pulling import PullRequest, answer_pull
from rmqstore.serve.shares import Shares
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal

if TYPE_CHECKING:
    from rmqstore.serve.accounts.acl import Caller
    from rmqstore.serve.gateway import Gateway
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.shares import Owners

__all__ = ["Holds"]

_NOTHING_WANTED = (1 << 63) - 1
_LATE = 1 / 64  # of the time that a pull may be held: so much later it ends, at most
_SLOW_SECONDS = 0.05  # until clients that do not read are looked at again
_LEAST = 4096  # bytes of an answer that is not known: so many are read at once


@dataclass(slots=True)
class _Hold:
    connection: Connection
    pull: PullRequest
    caller: Caller | None
    order: int  # the older of two has the lower
    size: int
    owners: Owners
    ends: float  # time of the loop
    is_aside: bool = False  # until its client has read more
    is_over: bool = False  # then it is answered, whatever it finds


def _end(now: float, seconds: float) -> float:
    """Return the end of a hold from now on, rounded so that holds of the same length share one."""
    step = math.ldexp(1.0, math.frexp(seconds * _LATE)[1] - 1)  # a power of two
    return math.ceil((now + seconds) / step) * step


class Holds:
    """The held pulls of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._queues = QueueHolds(gateway.store)
        self._wakeup = gateway.store._dispatch_wakeup()
        self._holds: dict[int, _Hold] = {}
        self._of: dict[Connection, set[int]] = {}
        self._order = count()
        self._ending: dict[float, dict[int, None]] = {}  # by time; each has a timer, empty or not
        self._slow: dict[Connection, list[tuple[int, _Hold]]] = {}  # that do not read
        self._over: deque[int] = deque()  # were held long enough, and their clients read again
        limits = gateway.settings.limits
        self._count = Shares(limits.held_pulls)
        self._sizes = Shares(limits.held_bytes)
        self._moved = False  # a look is due
        self._looking = False  # the look is among the loop's turns
        self._closed = False
        gateway.loop.add_reader(self._wakeup.fileno(), self._ring)
        gateway.lost.append(self.drop)
        gateway.closing.append(self.close)

    def __len__(self) -> int:
        """Return the number of held pulls."""
        return len(self._holds)

    @property
    def taken(self) -> int:
        """Bytes of the held pulls."""
        return self._sizes.taken

    def has_room(self, owners: Owners) -> bool:
        """Whether owners have room for one more."""
        return not self._closed and self._count.has_room(owners) and self._sizes.has_room(owners)

    def add(self, connection: Connection, pull: PullRequest) -> None:
        """Hold a pull that has found nothing."""
        number = self._queues.add(pull.topic, pull.queue_id, pull.offset)
        size, owners = pull.request.held_bytes, connection.owners
        self._count.take(owners)
        self._sizes.take(owners, size)
        loop = self._gateway.loop
        ends = _end(loop.time(), pull.suspend / 1000)
        self._holds[number] = _Hold(
            connection, pull, connection.caller, next(self._order), size, owners, ends
        )
        ending = self._ending.get(ends)
        if ending is None:
            ending = self._ending[ends] = {}
            loop.call_at(ends, self._expire, ends)
        ending[number] = None
        self._of.setdefault(connection, set()).add(number)
        if len(self._holds) == 1:
            self._want()
        if pull.size:
            self._put_aside(number)
            return
        bounds = self._gateway.store._bounds(pull.topic, pull.queue_id)
        if bounds is not None and bounds[1] > pull.offset:  # arrived since
            self._look_soon()

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of a lost connection."""
        self._gateway.turns.add(self._dropped(connection))

    def _dropped(self, connection: Connection) -> Steps:
        for number in list(self._of.get(connection, ())):
            hold = self._holds.get(number)
            if hold is not None and hold.connection is connection:
                self._remove(number)
            yield

    def close(self) -> None:
        """Drop all; the connections are closed next."""
        self._closed = True
        self._slow.clear()
        self._gateway.loop.remove_reader(self._wakeup.fileno())
        for number in list(self._holds):
            self._remove(number)
        self._wakeup.close()

    def _remove(self, number: int) -> _Hold:
        hold = self._holds.pop(number)
        self._count.give(hold.owners)
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
        """Answer the pulls that are no longer allowed."""
        self._gateway.turns.add(self._end_refused())

    def _end_refused(self) -> Steps:
        for number in list(self._holds):
            hold = self._holds.get(number)
            if hold is not None and not self._is_allowed(hold):
                self._end(number)
            yield

    def _is_allowed(self, hold: _Hold) -> bool:
        if self._gateway.settings.acl is None:
            return True
        pull = hold.pull
        return self._gateway.allows(
            hold.caller, topic_resource(pull.topic), Resource(pull.group, is_group=True)
        )

    # Arrivals

    def _ring(self) -> None:
        """Go on: the dispatch has moved."""
        self._wakeup.drain()
        if not self._closed:
            self._moved = True
            if not self._looking:
                self._looking = True
                self._gateway.turns.start(self._look())

    def _look_soon(self) -> None:
        self._moved = True
        if not self._looking:
            self._looking = True
            self._gateway.turns.add(self._look())

    def _want(self) -> None:
        """Have the next message make the descriptor readable."""
        if not self._holds:
            self._wakeup.reached(_NOTHING_WANTED)
            return
        # Above what was dispatched when it is set; what came before that is looked at now.
        reached = self._wakeup.reached(_NOTHING_WANTED)
        if reached >= 0 and self._wakeup.reached(reached + 1) > reached:
            self._look_soon()

    def _look(self) -> Steps:
        """Read the pulls of moved queues, and again when queues move meanwhile."""
        try:
            while self._moved and not self._closed:
                self._moved = False
                self._want()  # before the look: later messages are for the next one
                moved = self._queues.moved()
                moved.sort(key=self._age)
                for number in moved:
                    if number in self._holds:
                        self._read(number)
                    yield
                while self._over:
                    number = self._over.popleft()
                    if number in self._holds:
                        self._end(number)
                    yield
        finally:
            self._looking = False

    def _age(self, number: int) -> int:
        return self._holds[number].order

    def _read(self, number: int) -> None:
        """Read one pull again; it stays held if nothing matches."""
        hold = self._holds[number]
        pull = hold.pull
        if not self._may_be_sent(hold.connection, pull.size):
            self._put_aside(number)
            return
        before = pull.offset
        if self._answer(hold, may_hold=True):
            self._remove(number)
        elif pull.size:
            self._put_aside(number)
        else:
            self._queues.set_offset(number, pull.offset)
            if pull.offset != before:  # past messages that it does not want: others may follow them
                self._look_soon()

    def _end(self, number: int) -> None:
        """Answer a pull that is held no longer; one that its client has no room for waits for it.

        Else what it does not read would grow with each of its pulls.
        """
        hold = self._holds[number]
        hold.is_over = True
        self._ending.get(hold.ends, {}).pop(number, None)
        if (
            not hold.is_aside
            and self._may_be_sent(hold.connection, hold.pull.size)
            and self._answer(hold, may_hold=False)
        ):
            self._remove(number)
        else:
            self._put_aside(number)

    # Clients do not read

    def _may_be_sent(self, connection: Connection, size: int) -> bool:
        return not connection.is_slow and self._gateway.unread.has_room(connection, size)

    def _put_aside(self, number: int) -> None:
        """Let a pull wait until its client has read more of what it was sent."""
        hold = self._holds[number]
        self._queues.set_offset(number, _NOTHING_WANTED)
        if hold.is_aside:
            return
        hold.is_aside = True
        if not self._slow:
            self._gateway.loop.call_later(_SLOW_SECONDS, self._look_at_slow)
        self._slow.setdefault(hold.connection, []).append((number, hold))

    def go_on(self, connection: Connection) -> None:
        """Read pulls of a client again, which has read all that it was sent."""
        if connection in self._slow:
            self._resume(connection)

    def _look_at_slow(self) -> None:
        """Go on with the pulls of clients that have read what they were sent."""
        self._gateway.unread.measure()
        for connection in list(self._slow):  # others have left it room, or it is gone
            if not (connection.is_open and connection.is_slow):
                self._resume(connection)
        if self._slow:
            self._gateway.loop.call_later(_SLOW_SECONDS, self._look_at_slow)

    def _resume(self, connection: Connection) -> None:
        """Read those pulls of a client again for which there is room."""
        waiting = self._slow.pop(connection)
        size = 0
        for at, (number, hold) in enumerate(waiting):
            size += max(hold.pull.size, _LEAST)
            if connection.is_open and not self._may_be_sent(connection, size):
                self._slow[connection] = waiting[at:] if at else waiting
                break
            if self._holds.get(number) is hold:
                hold.is_aside = False
                if hold.is_over:
                    self._over.append(number)
                else:
                    self._queues.set_offset(number, hold.pull.offset)
        self._look_soon()

    def _expire(self, ends: float) -> None:
        """Answer pulls that have timed out."""
        self._gateway.turns.add(self._expired(ends))

    def _expired(self, ends: float) -> Steps:
        ending = self._ending[ends]
        while ending:
            for number in list(ending):
                if number in ending:
                    self._end(number)
                yield
        del self._ending[ends]

    def _answer(self, hold: _Hold, *, may_hold: bool) -> bool:
        try:
            if not self._is_allowed(hold):
                raise Refusal(
                    ResponseCode.NO_PERMISSION,
                    "org.apache.rocketmq.acl.common.AclException: no permission any more for "
                    f"topic:{hold.pull.topic}, group:{hold.pull.group}",
                )
            return answer_pull(
                self._gateway, hold.connection, hold.pull, may_hold=may_hold, woken=True
            )
        except Refusal as refusal:
            answer = refusal.answer
        except Exception as error:
            answer = self._gateway.answer_to(hold.pull.request, error)
        hold.connection.answer(hold.pull.request, answer)
        return True
