"""Retry topic of a group, whose messages go to the consumers of their original topics.

A group has one retry topic for all topics that it reads, and one offset in each of its queues: of
the first message that is not done.  A message whose topic has no readers at present holds this
offset, so that no consumer of another topic passes it; once many behind it are done, it is moved to
the end.  A damaged record holds it too, and is then skipped for good, as it cannot be moved.

Source: ``client/impl/consumer/ProcessQueue.java``, ``DefaultMQPushConsumerImpl.java
resetRetryAndNamespace``.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqstore._core import CallLock
from rmqstore.base.warn import log_warning
from rmqstore.consume.sharing import Member
from rmqstore.errors import (
    ForkedStoreError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFailedError,
)
from rmqstore.files import paths
from rmqstore.services.stored import Place, put_again
from rmqstore.types import GetStatus

if TYPE_CHECKING:
    from rmqstore._core import Core, Message
    from rmqstore.consume.progress import GroupProgress
    from rmqstore.directory.registry import TopicRegistry
    from rmqstore.types import GetResult

__all__ = ["Retries"]

_BATCH = 32
_WAITING_MOST = 256  # messages kept for the consumers of a topic
_PASSED_MOST = 256  # messages done above the committed offset: they come again after a restart
_MOVED_MOST = 32  # messages that a commit moves to the end


def _topics_of(message: Message) -> tuple[str, ...]:
    """Return the topics whose consumers a retried message is for: its own, then light queues."""
    properties = message.properties
    topic = properties.get("RETRY_TOPIC")
    if topic is None:
        return ()
    further = properties.get("INNER_MULTI_DISPATCH", "").split(",")
    return (topic, *(name for name in further if name and name != topic))


def _store_again(core: Core, topic: str, queue_id: int, message: Message) -> None:
    """Store a message of a retry topic again, unchanged, without waiting for the disk."""
    put_again(
        core,
        Place(topic, queue_id),
        message,
        message.properties,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


@dataclass
class _RetryQueue:
    """A queue of the retry topic; an offset below ``next`` not in ``out`` or ``held`` is done."""

    next: int  # offset to be read
    base: int  # offset that is committed
    out: dict[int, tuple[tuple[str, ...], Member | None]] = field(
        default_factory=dict
    )  # topics, and the taker; None: it is kept
    done: set[int] = field(default_factory=set)  # above ``base``
    held: list[int] = field(default_factory=list)  # to be read again, ascending
    held_topics: set[str] = field(default_factory=set)

    def hold(self, offset: int, topics: Iterable[str]) -> None:
        """Leave a message where it is, to be read again."""
        bisect.insort(self.held, offset)
        self.held_topics.update(topics)

    def rewind(self) -> None:
        """Go back, to read the held messages again."""
        self.next = min(self.next, self.held[0])
        self.held.clear()
        self.held_topics.clear()

    def advance(self) -> bool:
        """Move ``base`` to the first offset that is not done; return whether it has moved."""
        before = self.base
        self.base = min([self.next, *self.held[:1], *self.out])
        self.done = {offset for offset in self.done if offset >= self.base}
        return self.base != before


class Retries:
    """Reader of a group's retry topic, shared by its consumers in a store object."""

    def __init__(
        self,
        group: str,
        core: Core,
        topics: TopicRegistry,
        progress: GroupProgress,
        is_read: Callable[[str], bool],
    ) -> None:
        self._core = core
        self._topics = topics
        self._progress = progress
        self.topic = paths.retry_topic(group)
        self._group = group
        self._is_read = is_read  # whether the group reads a topic at present
        self._lock = CallLock()
        self._gone: deque[Member] = deque()  # of unclosed consumers
        self._queues: dict[int, _RetryQueue] = {}
        self._damaged: set[str] = set()  # errors already logged
        self._waiting: defaultdict[str, deque[tuple[int, int, Message]]] = defaultdict(deque)

    def heads(self) -> dict[int, int]:
        """Return the current end of each queue."""
        entry = self._topics.get(self.topic)
        ids = range(entry.read_queue_nums if entry is not None else 1)
        bounds = {queue_id: self._core.bounds(self.topic, queue_id) for queue_id in ids}
        return {queue_id: found[1] for queue_id, found in bounds.items() if found is not None}

    def take(
        self,
        topic: str,
        member: Member,
        heads: Mapping[int, int] | None,  # where each queue ends for the caller
        *,
        orderly: bool,
    ) -> Message | None:
        """Return the next message of a topic, under its name, and note its taker."""
        with self._lock:
            while self._gone:
                self._give_back(self._gone.popleft())
            waiting = self._waiting[topic]
            if not waiting:
                self._read(topic)
            if not waiting:
                return None
            queue_id, offset, message = waiting[0]
            if heads is not None and offset >= heads.get(queue_id, 0):
                return None
            queue = self._queues[queue_id]
            if orderly and any(by not in (None, member) for _, by in queue.out.values()):
                return None
            waiting.popleft()
            queue.out[offset] = (queue.out[offset][0], member)
            return message

    def has_waiting(self, topic: str) -> bool:
        """Whether messages of a topic were read but not taken."""
        with self._lock:
            return bool(self._waiting[topic])

    def _read(self, topic: str) -> None:
        """Read until a message of the topic is found, or the end."""
        for queue_id, head in self.heads().items():
            if queue_id not in self._queues:
                begin = self._progress.get(self.topic, self._group).get(queue_id)
                low, high = self._core.bounds(self.topic, queue_id) or (0, 0)
                begin = low if begin is None else min(begin, high)
                self._queues[queue_id] = _RetryQueue(begin, begin)
            queue = self._queues[queue_id]
            if topic in queue.held_topics:
                queue.rewind()
            while not self._waiting[topic]:
                got = self._get(queue, queue_id, head)
                if got is None:
                    continue
                if got.status is GetStatus.OFFSET_TOO_SMALL:
                    log_warning(
                        "group %s: retries %s to %s in queue %s are gone, retention removed them",
                        self._group, queue.next, got.next_offset - 1, queue_id,
                    )  # fmt: skip
                for message in got.messages:
                    self._keep(queue, queue_id, message, topic)
                if got.status is GetStatus.OFFSET_OVERFLOW_BADLY:  # the topic was deleted
                    self._drop(queue_id)
                if got.next_offset <= queue.next or queue_id not in self._queues:
                    break
                queue.next = got.next_offset

    def _drop(self, queue_id: int) -> None:
        """Forget a queue, with its messages that wait for consumers of any topic."""
        del self._queues[queue_id]
        for topic, waiting in self._waiting.items():
            self._waiting[topic] = deque(one for one in waiting if one[0] != queue_id)

    def _get(
        self, queue: _RetryQueue, queue_id: int, head: int, most: int = _BATCH
    ) -> GetResult | None:
        """Read the next messages; ``None`` if the first is damaged, which is then held."""
        try:
            return self._core.get(self.topic, queue_id, queue.next, most)
        except StoreCorruptError as error:
            if most > 1:  # it hides good messages before the damage
                return self._get(queue, queue_id, head, 1)
            if queue.next >= head:
                raise
            if str(error) not in self._damaged:
                self._damaged.add(str(error))
                log_warning(
                    "group %s: retry %s in queue %s stays where it is: %s",
                    self._group, queue.next, queue_id, error,
                )  # fmt: skip
        if queue.next not in queue.done:
            queue.hold(queue.next, ())
        queue.next += 1
        return None

    def _keep(self, queue: _RetryQueue, queue_id: int, message: Message, wanted: str) -> None:
        """Keep a message for the consumers of its topic, or leave it where it is."""
        offset = message.queue_offset
        if offset in queue.out or offset in queue.done:
            return
        topics = _topics_of(message) or (wanted,)  # without a topic: to the first reader
        reader = next((topic for topic in topics if topic == wanted or self._is_read(topic)), None)
        if reader is None or len(self._waiting[reader]) >= _WAITING_MOST:
            queue.hold(offset, topics)
            return
        queue.out[offset] = (topics, None)
        self._waiting[reader].append((queue_id, offset, self._core.renamed(message, topics[0])))

    def commit(self, member: Member, note: Callable[[int, int], object]) -> None:
        """Mark a consumer's messages as done; ``note`` is called with new offsets."""
        with self._lock:
            for queue_id, queue in self._queues.items():
                mine = [offset for offset, (_, by) in queue.out.items() if by is member]
                for offset in mine:
                    del queue.out[offset]
                queue.done.update(mine)
                if mine and queue.advance():
                    note(queue_id, queue.base)
                # Never more moves than messages done, however many have no reader.
                if mine and len(queue.done) > max(_PASSED_MOST, len(queue.held)):
                    self._move_unread(queue_id, queue)
                    if queue.advance():
                        note(queue_id, queue.base)

    def _move_unread(self, queue_id: int, queue: _RetryQueue) -> None:
        """Store the first messages without a reader again, at the end: they hold the offset.

        The offset that passes them is on the disk after the log with their copies.
        """
        for _ in range(_MOVED_MOST):
            if not queue.held or queue.held[0] > min([queue.next, *queue.out]):
                return
            offset = queue.held[0]
            try:
                got = self._core.get(self.topic, queue_id, offset, 1)
            except StoreCorruptError as error:
                log_warning(
                    "group %s: retry %s in queue %s is passed over, with %s behind it done: %s",
                    self._group, offset, queue_id, len(queue.done), error,
                )  # fmt: skip
                del queue.held[0]
                queue.done.add(offset)
                continue
            if got.messages and got.messages[0].queue_offset == offset:
                message = got.messages[0]
                topics = _topics_of(message)
                if not topics or any(map(self._is_read, topics)):
                    return
                if len(topics) > 1 and self._core.config.enable_multi_dispatch:
                    return  # a copy would be in the light queues once more
                try:
                    _store_again(self._core, self.topic, queue_id, message)
                except (StoreClosedError, StoreFailedError, ForkedStoreError):
                    raise
                except (StoreError, OSError) as error:
                    log_warning("group %s: a retry stays where it is: %s", self._group, error)
                    return
            elif got.min_offset <= offset:
                return
            del queue.held[0]
            queue.done.add(offset)

    def forget(self) -> None:
        """Start over: the retry topic was deleted."""
        with self._lock:
            self._queues.clear()
            self._waiting.clear()

    def left_behind(self, member: Member) -> None:
        """Give back later: for the finalizer of a consumer, which may take no lock."""
        self._gone.append(member)

    def _give_back(self, member: Member) -> None:
        for queue in self._queues.values():
            mine = [offset for offset, (_, by) in queue.out.items() if by is member]
            for offset in mine:
                queue.hold(offset, queue.out.pop(offset)[0])

    def give_back(self, member: Member, topic: str) -> None:
        """Give back the uncommitted messages of a consumer that has left."""
        with self._lock:
            self._give_back(member)
            if not self._is_read(topic):
                for queue_id, offset, _ in self._waiting.pop(topic, ()):
                    queue = self._queues[queue_id]
                    queue.hold(offset, queue.out.pop(offset)[0])
