"""Queue locks for orderly consumption: one client of a group at a time.

A lock lives for 60 seconds from its last renewal, even after its client is gone.

Source: ``broker/client/rebalance/RebalanceLockManager.java``,
``broker/processor/AdminBrokerProcessor.java lockBatchMQ``, ``unlockBatchMQ``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore.base.layout import INT32_MAX
from rmqstore.files import paths
from rmqstore.serve.accounts.aclresources import Resource, topic_resource
from rmqstore.serve.shares import Owners, Shares
from rmqstore.serve.wire.codes import RequestCode
from rmqstore.serve.wire.fields import json_body_in_steps, refused
from rmqstore.serve.wire.frames import Answer, Request
from rmqstore.serve.wire.names import checked_topic
from rmqstore.serve.wire.objecttext import Entries, dumps_in_steps

if TYPE_CHECKING:
    from rmqstore.serve.accounts.account import Caller
    from rmqstore.serve.network.answers import AnswerSteps, Handler
    from rmqstore.serve.network.connection import Connection
    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.settings import Settings
    from rmqstore.serve.topics.topictable import ServedTopics

__all__ = ["LOCK_MILLIS", "LockRequests", "LockedQueue", "Locks"]

LOCK_MILLIS = 60_000
_MAX_LOCKS = 100_000  # of all groups
_FORGOTTEN_STEP = 64  # expired locks removed between two steps
_MOST_NAME = 255


class LockedQueue(NamedTuple):
    """A queue as the key of a lock."""

    topic: str
    broker: str
    queue_id: int


@dataclass(slots=True)
class _Held:
    client_id: str
    renewed: int  # ms
    owners: Owners
    caller: Caller | None  # of the last renewal, where there are accounts

    def is_expired(self, now: int) -> bool:
        return now - self.renewed > LOCK_MILLIS


class Locks:
    """Table of at most ``most`` queue locks, of which each owner and each group has a share."""

    def __init__(self, now: Callable[[], int], most: int = _MAX_LOCKS) -> None:
        self._now = now  # milliseconds
        self._shares = Shares(most)
        self._groups: dict[str, dict[LockedQueue, _Held]] = {}
        # Group and queue of each lock, in the order of their last renewals.
        self._renewed: OrderedDict[tuple[str, LockedQueue], None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of locks, with expired ones not yet removed."""
        return self._shares.taken

    def holder(self, group: str, queue: LockedQueue) -> str | None:
        """Return the holder's client id."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or lock.is_expired(self._now()) else lock.client_id

    def make_room(self, group: str, owner: str) -> Steps:
        """Remove expired locks until owner and group may have one more, or none is expired."""
        now = self._now()
        owners = _owners(group, owner)
        while not self._shares.has_room(owners) and self._forget_expired(now, _FORGOTTEN_STEP):
            yield

    def lock(
        self,
        group: str,
        queues: Iterable[LockedQueue],
        client_id: str,
        owner: str,
        caller: Caller | None = None,
    ) -> list[LockedQueue]:
        """Lock free queues within the shares, renew the client's own, and return both."""
        now = self._now()
        shares = self._shares
        owners = _owners(group, owner)
        held = self._groups.get(group, {})
        locked = []
        for queue in dict.fromkeys(queues):
            lock = held.get(queue)
            if lock is None:
                if not shares.has_room(owners):
                    self._forget_expired(now, len(self._renewed))
                    if not shares.has_room(owners):
                        continue
                held = self._groups.setdefault(group, held)
                held[queue] = _Held(client_id, now, owners, caller)
                self._renewed[group, queue] = None
                shares.take(owners)
            elif lock.client_id == client_id or lock.is_expired(now):
                lock.client_id, lock.renewed = client_id, now
                shares.give(lock.owners)
                lock.owners, lock.caller = owners, caller
                shares.take(owners)
                self._renewed.move_to_end((group, queue))
            else:
                continue
            locked.append(queue)
        return locked

    def unlock(self, group: str, queues: Iterable[LockedQueue], client_id: str) -> None:
        """Release the client's locks among these queues."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._forget(group, queue)

    def end_refused(self, allows: Callable[..., bool]) -> Steps:
        """Release the locks of callers that are no longer permitted: others wait for them."""
        for group, queue in list(self._renewed):
            lock = self._groups.get(group, {}).get(queue)
            wanted = Resource(group, is_group=True), topic_resource(queue.topic)
            if lock is not None and not allows(lock.caller, *wanted):
                self._forget(group, queue)
            yield

    def _forget(self, group: str, queue: LockedQueue) -> None:
        held = self._groups[group]
        self._shares.give(held.pop(queue).owners)
        del self._renewed[group, queue]
        if not held:
            del self._groups[group]

    def _forget_expired(self, now: int, most: int) -> int:
        """Remove up to ``most`` expired locks; return how many there were."""
        for number in range(most):
            group, queue = next(iter(self._renewed), ("", None))
            if queue is None or not self._groups[group][queue].is_expired(now):
                return number
            self._forget(group, queue)
        return most


def _owners(group: str, owner: str) -> Owners:
    return (("owner", owner), ("group", group))


class LockRequests:
    """Requests to lock and unlock queues."""

    def __init__(self, locks: Locks, topics: ServedTopics, settings: Settings) -> None:
        self._locks = locks
        self._topics = topics
        self._settings = settings

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def _lock(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer LOCK_BATCH_MQ; missing queues are not locked."""
        group, client_id, queues = yield from _asked(request)
        locked = []
        for queue in queues:
            yield from self._locks.make_room(group, connection.owner)
            if (
                queue.broker == self._settings.broker
                and self._topics.has_queue(queue.topic, queue.queue_id)
                and self._locks.lock(group, [queue], client_id, connection.owner, connection.caller)
            ):
                locked.append(
                    {"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic}
                )
            yield
        return Answer(body=(yield from dumps_in_steps(Entries([("lockOKMQSet", iter(locked))]))))

    def _unlock(self, connection: Connection, request: Request) -> AnswerSteps:
        """Answer UNLOCK_BATCH_MQ."""
        group, client_id, queues = yield from _asked(request)
        for queue in queues:
            self._locks.unlock(group, [queue], client_id)
            yield
        return Answer()


def _asked(request: Request) -> Generator[None, None, tuple[str, str, list[LockedQueue]]]:
    """Parse group, client and queues of a body, one queue a step; each is listed once."""
    body = yield from json_body_in_steps(request)
    if not isinstance(body, dict):
        raise refused("the body must be an object", body)
    group, client_id = body.get("consumerGroup"), body.get("clientId")
    if not isinstance(group, str) or not paths.is_group_name(group):
        raise refused("consumerGroup must be 1 to 120 of [%|a-zA-Z0-9_-]", group)
    if not isinstance(client_id, str) or not 1 <= len(client_id) <= _MOST_NAME:
        raise refused(f"clientId must be 1 to {_MOST_NAME} characters", client_id)
    queues = body.get("mqSet", [])
    if not isinstance(queues, list):
        raise refused("mqSet must be a list", queues)
    found: dict[LockedQueue, None] = {}
    for entry in queues:
        found[_queue(entry)] = None
        yield
    return group, client_id, list(found)


def _queue(entry: Any) -> LockedQueue:
    if not isinstance(entry, dict):
        raise refused("a queue of mqSet must be an object", entry)
    topic, broker, queue_id = (entry.get(name) for name in ("topic", "brokerName", "queueId"))
    if not isinstance(topic, str):
        raise refused("topic must be a text", topic)
    if not isinstance(broker, str) or len(broker) > _MOST_NAME:
        raise refused(f"brokerName must be up to {_MOST_NAME} characters", broker)
    if isinstance(queue_id, str) and queue_id.isascii() and queue_id.isdigit():
        queue_id = int(queue_id[:11])  # C++ may send it as text
    if (
        isinstance(queue_id, bool)
        or not isinstance(queue_id, int)
        or not 0 <= queue_id <= INT32_MAX
    ):
        raise refused(f"queueId must be 0 to {INT32_MAX}", queue_id)
    return LockedQueue(checked_topic(topic), broker, queue_id)
