"""Division of queues among the consumers of a group, within one store object.

A *share* is one group's reading of one topic.  Its queues are divided evenly among its members, in
the order in which they joined, as the real client does.  A queue that moves to another member
continues at the committed offset; an orderly one only once its messages are committed or given up.

Source: ``client/consumer/rebalance/AllocateMessageQueueAveragely.java``,
``client/impl/consumer/RebalanceImpl.java``, ``broker/client/rebalance/RebalanceLockManager.java``.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqstore._core import CallLock, Message
from rmqstore.base.arguments import wrong_value

if TYPE_CHECKING:
    from rmqstore.directory.registry import TopicRegistry

__all__ = ["Member", "Share", "SharedQueue", "Sharing", "allocate"]


def allocate(queues: list[int], members: int, index: int) -> list[int]:
    """Return the run of queues of member ``index``; the first members have one more."""
    size, more = divmod(len(queues), members)
    start = index * size + min(index, more)
    return queues[start : start + size + (index < more)]


class Member:
    """Membership of a consumer; does not keep the consumer alive."""

    def __init__(self, pinned: frozenset[int] | None) -> None:
        self.pinned = pinned
        self._lock = CallLock()
        self._wakes: list[weakref.WeakMethod[Callable[[], object]]] = []

    def add_wake(self, wake: Callable[[], object]) -> None:
        """Add a method, held weakly, to call when the consumer's queues may have changed."""
        with self._lock:
            self._wakes = [known for known in self._wakes if known() is not None]
            self._wakes.append(weakref.WeakMethod(wake))

    def wake(self) -> None:
        """Wake the waiters for messages of the consumer."""
        with self._lock:
            wakes = [known() for known in self._wakes]
        for wake in wakes:
            if wake is not None:
                wake()


@dataclass
class SharedQueue:
    """A queue of a share; changed under the lock of all shares, read without it."""

    owner: Member | None = None  # its reader
    # Orderly consumer with uncommitted messages, and its thread.
    holder: tuple[Member, int] | None = None
    resume: int | None = None  # first offset of its next owner; None before the first one


@dataclass
class Share:
    """One group's reading of a topic."""

    topic: str
    group: str
    members: list[Member] = field(default_factory=list)
    queues: dict[int, SharedQueue] = field(default_factory=dict)
    epoch: int = 0  # increased when owners change
    # Increased when the topic is deleted: earlier offsets are void.
    generation: int = 0


class Sharing:
    """All shares of a store object."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self.lock = CallLock()
        self._shares: dict[tuple[str, str], Share] = {}
        self._deleted: dict[str, int] = {}  # in a reader, by topic: the log's end at its deletion
        self._gone: deque[tuple[Share, Member]] = deque()  # of unclosed consumers

    def has_group(self, group: str) -> bool:
        """Whether a group has members."""
        with self.lock:
            self._clear()
            return any(share.group == group for share in self._shares.values())

    def has_topic(self, topic: str, group: str) -> bool:
        """Whether a group reads a topic."""
        return (topic, group) in self._shares

    def join(self, topic: str, group: str, queue_ids: Iterable[int], member: Member) -> Share:
        """Add a member and divide the queues anew; ``ValueError`` if another has pinned one."""
        with self.lock:
            self._clear()
            share = self._shares.get((topic, group)) or Share(topic, group)
            for other in share.members:
                both = sorted((member.pinned or frozenset()) & (other.pinned or frozenset()))
                if both:
                    raise wrong_value(
                        "queues", f"none that another consumer of {group!r} has pinned", both
                    )
            self._shares[topic, group] = share
            share.members.append(member)
            self._divide(share, queue_ids)
            return share

    def leave(self, share: Share, member: Member) -> None:
        """Remove a member, and divide its queues among the others."""
        with self.lock:
            self._remove(share, member)
            self._clear()

    def left_behind(self, share: Share, member: Member) -> None:
        """Remove a member later: for its consumer's finalizer, which may take no lock."""
        self._gone.append((share, member))

    def divide(self, share: Share, queue_ids: Iterable[int]) -> None:
        """Divide the queues anew if members have left or queues are new."""
        with self.lock:
            self._clear()
            if not share.queues.keys() >= set(queue_ids):
                self._divide(share, queue_ids)

    def clear(self) -> None:
        """Remove the members whose consumers are gone."""
        if self._gone:
            with self.lock:
                self._clear()

    def forget_topic(self, topic: str) -> None:
        """Restart all queues of a deleted topic, for every group that reads it."""
        with self.lock:
            for share in self._shares.values():
                if share.topic == topic:
                    for queue in share.queues.values():
                        queue.holder = queue.resume = None
                    share.generation += 1
                    share.epoch += 1
                    self._wake(share)

    def is_made_again(self, topic: str, messages: Sequence[Message] = ()) -> bool:
        """Whether, in a reader, the owner has deleted a topic; if so, restart its queues.

        Also true for messages from before the deletion: the reader still sees their queue.
        """
        if not self._topics.lenient:
            return False
        log_end = self._topics.current_deleted().get(topic, -1)
        with self.lock:
            before = self._deleted.get(topic, log_end)
            self._deleted[topic] = log_end
        if before != log_end:
            self.forget_topic(topic)
        return bool(before != log_end or (messages and messages[0].physical_offset < log_end))

    def owned(self, share: Share, member: Member) -> tuple[int, int, dict[int, int | None]]:
        """Return epoch, generation, and the member's queues with their first offsets."""
        with self.lock:
            queues = {
                queue_id: queue.resume
                for queue_id, queue in sorted(share.queues.items())
                if queue.owner is member
            }
            return share.epoch, share.generation, queues

    def begin(self, share: Share, generation: int, queue_id: int, offset: int) -> int:
        """Return a queue's first offset: this one, unless another member has begun it."""
        with self.lock:
            queue = share.queues[queue_id]
            if share.generation != generation:
                return offset  # the caller tries again
            if queue.resume is None:
                queue.resume = offset
            return queue.resume

    def restart(self, share: Share, queue_id: int, offset: int) -> None:
        """Restart at ``offset`` a queue that ends below the reading position."""
        with self.lock:
            share.queues[queue_id].resume = offset

    def hold(self, share: Share, queue_id: int, member: Member) -> bool:
        """Take an orderly queue for the calling thread; ``False`` if another holds it."""
        me = (member, threading.get_ident())
        with self.lock:
            queue = share.queues[queue_id]
            if queue.owner is not member or queue.holder not in (None, me):
                return False
            queue.holder = me
            return True

    def commit(
        self,
        share: Share,
        queue_id: int,
        member: Member,
        offset: int,
        note: Callable[[int, int], object],
        *,
        generation: int,
    ) -> None:
        """Move a queue forward and release it; ``note`` is called if it has moved.

        An offset of another generation is ignored: its message is in no queue any more.
        """
        with self.lock:
            if share.generation != generation:
                return
            queue = share.queues[queue_id]
            if queue.resume is None or offset > queue.resume:
                note(queue_id, offset)
                queue.resume = offset
            if self._release(queue, member):
                self._wake(share)

    @staticmethod
    def _release(queue: SharedQueue, member: Member) -> bool:
        """Release a queue if this member holds it."""
        if queue.holder is None or queue.holder[0] is not member:
            return False
        queue.holder = None
        return True

    @staticmethod
    def _wake(share: Share) -> None:
        for member in share.members:
            member.wake()

    def _clear(self) -> None:
        while self._gone:
            self._remove(*self._gone.popleft())

    def _remove(self, share: Share, member: Member) -> None:
        if member not in share.members:
            return
        share.members.remove(member)
        for queue in share.queues.values():
            self._release(queue, member)
        if share.members:
            self._divide(share, share.queues)
        elif self._shares.get((share.topic, share.group)) is share:
            del self._shares[share.topic, share.group]

    def _divide(self, share: Share, queue_ids: Iterable[int]) -> None:
        """Give each queue an owner; the lock is held."""
        ids = sorted(set(queue_ids) | share.queues.keys())
        owners: dict[int, Member] = {}
        for member in share.members:
            owners.update(dict.fromkeys(member.pinned or (), member))
        free = [queue_id for queue_id in ids if queue_id not in owners]
        sharers = [member for member in share.members if member.pinned is None]
        for index, member in enumerate(sharers):
            owners.update(dict.fromkeys(allocate(free, len(sharers), index), member))
        for queue_id in sorted(owners.keys() | set(ids)):
            share.queues.setdefault(queue_id, SharedQueue()).owner = owners.get(queue_id)
        share.epoch += 1
        self._wake(share)
