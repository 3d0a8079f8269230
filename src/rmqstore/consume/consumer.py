"""Consumer of a group: takes messages of a topic, and commits their offsets.

Source: ``client/impl/consumer/DefaultLitePullConsumerImpl.java``, ``AssignedMessageQueue.java``,
``ConsumeMessageOrderlyService.java``.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqstore import _core
from rmqstore._core import CallLock
from rmqstore.base.arguments import named_delay, wrong_type
from rmqstore.base.closing import Closing
from rmqstore.base.warn import log_warning
from rmqstore.consume.reading import Reading
from rmqstore.consume.retry import send_back
from rmqstore.consume.sharing import Member, Share, Sharing
from rmqstore.errors import MessagesRemovedError, StoreClosedError
from rmqstore.types import GetStatus

if TYPE_CHECKING:
    from rmqstore.consume.follow import Follower
    from rmqstore.consume.retries import Retries
    from rmqstore.consume.state import ConsumerState

__all__ = ["Consumer"]

_BATCH = 128
_RETRIES = -1  # stands for the retry topic in the order of queues
_LOOK_SECONDS = 1.0  # how often an idle consumer looks for new queues


def _left_behind(sharing: Sharing, share: Share, retries: Retries, member: Member) -> None:
    """Have the next member that looks remove a consumer collected without a close."""
    retries.left_behind(member)
    sharing.left_behind(share, member)


class Consumer(Closing):
    """A consumer of a group; made by ``store.consumer``, closed by ``with`` or :meth:`close`.

    ``for message in consumer`` ends at the heads of the queues at its start; ``for message in
    consumer.follow()`` and ``async for message in consumer`` wait for more. Each of them continues
    after the last message taken. Messages taken but not committed come again, to the group's next
    consumer.

    A consumer is for one thread at a time: :meth:`commit` covers every message that it has handed
    out, to any thread.  Threads that share the work of a group have a consumer each.

    Attributes
    ----------
    topic, group : str
    orderly : bool
    closed : bool
    queues : tuple of int
        Ids of the queues currently assigned to it.

    Notes
    -----
    Source: ``client/impl/consumer/DefaultLitePullConsumerImpl.java``.
    """

    topic: str
    group: str
    orderly: bool
    closed: bool

    def __init__(
        self,
        state: ConsumerState,
        topic: str,
        group: str,
        *,
        filters: Mapping[str, Any],
        start: str | int,
        pinned: frozenset[int] | None,
        orderly: bool,
        raises: bool,
        skips_damaged: bool,
    ) -> None:
        self.topic = topic
        self.group = group
        self.orderly = orderly
        self.closed = False
        self._state = state
        self._core = state.core
        self._filters = dict(filters)
        self._start = start
        self._raises = raises
        self._skips_damaged = skips_damaged
        self._lock = CallLock(again=True)
        self._reading: dict[int, Reading] = {}
        self._order: list[int] = []  # queues and retries, which take turns
        self._turn = 0
        self._taken: dict[int, int] = {}  # the offset after the last message taken, by queue
        self._retried = False  # messages of the retry topic were taken
        self._looked = time.monotonic()
        self._one_by_one = False  # queue offsets may differ from the messages' own
        self._in_row = 0  # messages taken in a row from such a queue
        self._member = Member(pinned)
        self._sharing = state.sharing
        queue_ids = self._queue_ids()
        with state.joining:
            self._retries = state.retries_of(group)
            self._share = self._sharing.join(topic, group, queue_ids, self._member)
        self._epoch = self._generation = -1
        self._left = weakref.finalize(
            self, _left_behind, self._sharing, self._share, self._retries, self._member
        )
        self._left.atexit = False
        try:
            with self._lock:
                self._sharing.is_made_again(self.topic)
                self._rebalance()  # fixes where "last" is
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<rmqstore.Consumer {self.topic!r} group={self.group!r}{' closed' * self.closed}>"

    def close(self) -> None:
        """Leave the group; messages taken but not committed come again.

        Iterators of :meth:`follow` end. Closing again does nothing.
        """
        if not self._state.ownership.is_here():  # forked: threads of the parent may hold locks
            self.closed = True
            self._left.detach()
            return
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._left.detach()
            self._sharing.leave(self._share, self._member)
            self._retries.give_back(self._member, self.topic)
            self._reading.clear()
        self._member.wake()

    # Take

    def __iter__(self) -> Iterator[_core.Message]:
        """Iterate over the messages up to the heads as of now."""
        self._state.ownership.check_here()
        heads: dict[int, int] = {}
        retries = self._retries.heads()
        with self._lock:
            if not self.closed:
                self._look_for_queues()
        while (message := self._take(heads, retries)) is not None:
            yield message

    def __aiter__(self) -> Follower:
        """Iterate over the messages in asyncio, and wait for more; see :meth:`follow`."""
        return self.follow()

    def follow(self) -> Follower:
        """Return an iterator that waits for messages, for threads and for asyncio.

        ``for message in consumer.follow()`` waits in the calling thread, without the GIL, and
        ``async for message in consumer.follow()`` blocks neither the loop nor a thread. Both end
        when the consumer is closed. In a store opened for writing they wake as soon as a message
        arrives; in mode ``"r"`` they poll every 100 ms.

        Returns
        -------
        iterator of Message
            For one thread or one task.

        Raises
        ------
        StoreClosedError, StoreFailedError
            From the iteration, if the store is closed or fails first.

        Notes
        -----
        Source: ``client/impl/consumer/PullMessageService.java``.
        """
        from rmqstore.consume.follow import Follower

        return Follower(self._state, self._member, self._take_next, is_closed=lambda: self.closed)

    @property
    def queues(self) -> tuple[int, ...]:
        """Ids of the queues currently assigned to it."""
        self._state.ownership.check_here()
        self._sharing.clear()
        return tuple(self._sharing.owned(self._share, self._member)[2])

    def _take(
        self, heads: dict[int, int] | None, retries: Mapping[int, int] | None
    ) -> _core.Message | None:
        """Return the next message, ``None`` if there is none now.

        ``heads`` and ``retries``: ends of the queues, noted at the first read, at which reading
        stops; ``None``: their current ends.
        """
        self._state.ownership.check_here()
        with self._lock:
            self._check_open()
            self._core.check_open()
            self._sharing.clear()
            if self._share.epoch != self._epoch:
                self._rebalance()
            for _ in range(len(self._order)):
                place = self._order[self._turn]
                if place == _RETRIES:
                    message = self._take_retried(retries)
                else:
                    message = self._take_from(place, heads)
                if message is not None:
                    if self._is_used_up(place):
                        self._turn = (self._turn + 1) % len(self._order)
                        if heads is None:
                            self._look_for_queues_at_times()
                    return message
                self._turn = (self._turn + 1) % len(self._order)
            self._look_for_queues_at_times()
            return self._take(heads, retries) if self._share.epoch != self._epoch else None

    def _take_next(self) -> _core.Message | None:
        """Return the next message, ``None`` if there is none or the consumer is closed."""
        with self._lock:
            return None if self.closed else self._take(None, None)

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError(f"{self!r}: it is closed")

    def _is_used_up(self, place: int) -> bool:
        """Whether a queue has had its turn: all messages of its last read are taken."""
        if place == _RETRIES:
            return not self._retries.has_waiting(self.topic)
        if self._one_by_one:
            self._in_row = (self._in_row + 1) % _BATCH
            return self._in_row == 0
        return not self._reading[place].buffer

    def _take_retried(self, heads: Mapping[int, int] | None) -> _core.Message | None:
        message = self._retries.take(self.topic, self._member, heads, orderly=self.orderly)
        self._retried = self._retried or message is not None
        return message

    def _take_from(self, queue_id: int, heads: dict[int, int] | None) -> _core.Message | None:
        """Return the next message of a queue."""
        reading = self._reading[queue_id]
        shared = self._share.queues[queue_id]
        head = None
        if heads is not None:
            if queue_id not in heads:
                low, high = self._bounds_of(queue_id)
                if self._sharing.is_made_again(self.topic):
                    return None
                if high < reading.next and not reading.buffer:
                    self._restart(queue_id, reading, low, high)
                heads[queue_id] = high
            head = heads[queue_id]
        while True:
            holder = shared.holder
            if holder is not None and holder[0] is not self._member:
                return None
            reading.catch_up(shared.resume)
            if not reading.buffer and not self._read(queue_id, reading, head):
                return None
            if not self.orderly:
                break
            if not self._sharing.hold(self._share, queue_id, self._member):
                return None
            if (shared.resume or 0) < reading.buffer[0][0]:
                break  # else the previous holder has committed past it
        after, message = reading.buffer.popleft()
        self._taken[queue_id] = after
        return message

    def _read(self, queue_id: int, reading: Reading, head: int | None) -> bool:
        """Read messages of a queue, up to ``head``; return whether there are any."""
        while head is None or reading.next < head:
            count = 1 if self._one_by_one else _BATCH
            if head is not None:
                count = min(count, head - reading.next)
            got = reading.read(self._core, self.topic, queue_id, count, self._filters)
            if got is None:
                self._taken[queue_id] = reading.next
                continue
            if self._sharing.is_made_again(self.topic, got.messages):
                return False
            if got.status is GetStatus.FOUND:
                if not self._one_by_one and any(m.topic != self.topic for m in got.messages):
                    self._one_by_one = True  # records of other topics, by multi-dispatch
                    continue
                if self._one_by_one and got.messages[0].topic == self._retries.topic:
                    reading.next = got.next_offset  # taken as a retry
                    self._taken[queue_id] = reading.next
                    continue
                for message in got.messages:
                    reading.buffer.append((message.queue_offset + 1, message))
                # No message between the last one and ``next_offset`` passes the filter.
                reading.buffer[-1] = (got.next_offset, reading.buffer[-1][1])
                reading.next = got.next_offset
                return True
            if got.status is GetStatus.OFFSET_OVERFLOW_BADLY:
                self._restart(queue_id, reading, got.min_offset, got.max_offset)
                return False
            if got.next_offset <= reading.next or got.status is GetStatus.OFFSET_OVERFLOW_ONE:
                return False
            if got.status is GetStatus.OFFSET_TOO_SMALL:
                self._note_removed(queue_id, reading.next, got.min_offset)
            reading.next = got.next_offset
            self._taken[queue_id] = reading.next  # no message below passes the filter
        return False

    def _note_removed(self, queue_id: int, offset: int, first: int) -> None:
        if self._raises:
            self._reading[queue_id].next = first  # the next call continues there
            raise MessagesRemovedError(self.topic, queue_id, offset, first)
        gone = f"{offset} to {first - 1} of {self.topic}/{queue_id}"
        log_warning("group %s: messages %s are gone, retention removed them", self.group, gone)

    # Queues

    def _queue_ids(self) -> set[int]:
        """Return the ids of the topic's queues."""
        entry = self._state.topics.get(self.topic)
        ids = set(self._core.queue_files().get(self.topic, ()))
        return ids if entry is None else ids | set(range(entry.read_queue_nums))

    def _look_for_queues_at_times(self) -> None:
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look_for_queues()

    def _look_for_queues(self) -> None:
        """Find new queues of the topic, and divide them."""
        self._looked = time.monotonic()
        self._sharing.is_made_again(self.topic)
        self._sharing.divide(self._share, self._queue_ids())

    def _rebalance(self) -> None:
        """Take up newly assigned queues, release the others."""
        epoch, generation, owned = self._sharing.owned(self._share, self._member)
        if generation != self._generation:  # state of a deleted topic
            self._reading.clear()
            self._taken.clear()
            self._generation = generation
        for queue_id in self._reading.keys() - owned.keys():
            del self._reading[queue_id]
        for queue_id in owned.keys() - self._reading.keys():
            at = owned[queue_id]
            if at is None:
                at = self._sharing.begin(self._share, generation, queue_id, self._first(queue_id))
            self._reading[queue_id] = Reading(at, self.group if self._skips_damaged else None)
            self._taken.pop(queue_id, None)  # from before another consumer had it
        self._order = sorted(self._reading)
        if self.topic != self._retries.topic:
            self._order.append(_RETRIES)
        self._turn = min(self._turn, max(0, len(self._order) - 1))
        self._epoch = epoch

    def _bounds_of(self, queue_id: int) -> tuple[int, int]:
        return self._core.bounds(self.topic, queue_id) or (0, 0)

    def _restart(self, queue_id: int, reading: Reading, low: int, high: int) -> None:
        """Restart a queue that now ends below the reading position.

        Its topic was deleted, or, in a reader, the owner lost the end in a power failure.
        """
        reading.next = high if self._core.mode == "r" else low
        self._sharing.restart(self._share, queue_id, reading.next)
        self._taken.pop(queue_id, None)

    def _first(self, queue_id: int) -> int:
        """Return the first offset for a queue that no consumer of the group has."""
        low, high = self._bounds_of(queue_id)
        if self._start == "first":
            return low
        if self._start == "last":
            return low if self._epoch >= 0 else high  # created since: all of it is new
        if isinstance(self._start, int):
            return self._core.first_after(self.topic, queue_id, self._start - 1, None)
        offset = self._state.progress.get(self.topic, self.group).get(queue_id)
        return low if offset is None else min(max(offset, 0), high)

    # Commit and retry

    def commit(self, *, sync: bool = False) -> None:
        """Commit, for each queue, the offset after the last message taken.

        Parameters
        ----------
        sync : bool, optional
            Return once the offsets, and the log up to them, are on the disk. By default they are
            written within 5 s, and when the store is closed.

        Raises
        ------
        ReadOnlyStoreError
            The store was opened with ``"r"``.
        OSError
            With ``sync``: the file cannot be written.
        StoreClosedError
            The consumer is closed: messages taken but not committed come again.
        StoreFailedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        The offset of a queue that has since gone to another consumer counts too, but never moves
        the group back.
        Source: ``broker/offset/ConsumerOffsetManager.java commitOffset``.
        """
        progress = self._state.progress
        self._core.check_writable()
        with self._lock:
            if self._taken or self._retried:
                self._check_open()
            for queue_id, offset in self._taken.items():
                self._sharing.commit(
                    self._share,
                    queue_id,
                    self._member,
                    offset,
                    partial(progress.commit, self.topic, self.group),
                    generation=self._generation,
                )
            self._taken.clear()
            if self._retried:
                self._retried = False
                note = partial(progress.commit, self._retries.topic, self.group)
                self._retries.commit(self._member, note)
        if sync:
            progress.save()

    def retry(
        self, message: _core.Message, *, delay_level: int | str | None = None
    ) -> _core.PutResult:
        """Give a message back, to be tried again later, or as a dead letter.

        It is stored once more: for ``%RETRY%<group>``, which the group's consumers read under
        the original topic, after a delay of level 3 plus the number of its retries; after
        ``retry_max`` retries in ``%DLQ%<group>``, queue 0, instead. Commit it as any other.

        Parameters
        ----------
        message : Message
            A message taken before.
        delay_level : int or str, optional
            Another delay level, as for ``put``; below 0 the message becomes a dead letter at once.

        Returns
        -------
        PutResult
            Of the record in ``SCHEDULE_TOPIC_XXXX``, or of the dead letter.

        Raises
        ------
        StoreError
            The group has no retry queue, by its entry in ``subscriptionGroup.json``.
        PutError, StoreFailedError, TypeError
            As ``put``, but configured limits do not apply: ``MessageIllegalError`` if the record
            has no room for the properties of a retry. Do not commit the message then.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``broker/processor/SendMessageProcessor.java asyncConsumerSendMsgBack``.
        """
        self._core.check_writable()
        if not isinstance(message, _core.Message):
            raise wrong_type("message", "a Message", message)
        if isinstance(delay_level, str):
            delay_level = named_delay(delay_level, self._core.config.message_delay_level)
        if isinstance(delay_level, bool) or not isinstance(delay_level, int | None):
            raise wrong_type("delay_level", "int", delay_level)
        entry = self._state.enter_group(self.group)
        return send_back(self._core, self._state.topics, message, entry, delay_level)
