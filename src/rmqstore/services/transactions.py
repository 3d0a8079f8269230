"""Transactions: half messages, and their commit or rollback.

Source: ``broker/transaction/queue/TransactionalMessageServiceImpl.java``,
``TransactionalMessageBridge.java``,
``broker/processor/EndTransactionProcessor.java``,
``client/impl/producer/DefaultMQProducerImpl.java sendMessageInTransaction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, SupportsIndex

from rmqstore import _core
from rmqstore._core import CallLock, Core, Message, PutResult
from rmqstore.base.arguments import wrong_value
from rmqstore.base.layout import EXT_ADDRESS, INT32_MAX
from rmqstore.base.warn import log_warning
from rmqstore.consume.groups import group_name
from rmqstore.consume.progress import SAVE_SECONDS, GroupProgress
from rmqstore.errors import MessageIllegalError, StoreError
from rmqstore.services.base import STORE_ENDED, Service
from rmqstore.services.half_queue import (
    Half,
    HalfQueue,
    copy_key,
    named_halves,
)
from rmqstore.services.housekeeping import Housekeeper
from rmqstore.services.schedule_search import (
    Waiting,
    first_behind,
    read_record,
    record_at,
    waiting,
)
from rmqstore.services.stored import (
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    Place,
    properties_text,
    put_again,
    real_place,
)
from rmqstore.services.transaction import InDoubt, Transaction
from rmqstore.types import PutStatus

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rmqstore.base.times import TimeLike

__all__ = ["InDoubt", "Transaction", "TransactionService"]

_NO_REAL_TOPICS = frozenset((HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC))
_GROUP = "CID_RMQ_SYS_TRANS"
_OP_PROPERTIES = "WAIT\1true\2TAGS\1d"
_TRANSACTION_BITS = 0xC
_COMMIT = 0x8
_READ_AT_ONCE = 64  # half messages


class TransactionService(Service):
    """Transactions of a store."""

    def __init__(self, core: Core, progress: GroupProgress, housekeeper: Housekeeper) -> None:
        self._core = core
        self._progress = progress
        self._housekeeper = housekeeper
        self.lock = CallLock(again=True)  # held while half messages are ended or read
        self._queues: dict[int, HalfQueue] = {}  # as far as read; empty in a reader
        self._ends_noted = False
        self._unreadable: set[int] = set()  # queues, each logged once
        # By queue and offset: half messages stored since opening, and errors of failed checks.
        self.fresh: set[tuple[int, int]] = set()
        self.check_errors: dict[tuple[int, int], str] = {}

    def stop(self) -> None:
        """Save the offsets below which all transactions have ended."""
        try:
            self.save()
        except STORE_ENDED:
            pass  # the close itself reports it
        except (StoreError, OSError) as error:
            log_warning("%s: progress of transactions is not noted: %s", self._core.path, error)

    def save(self) -> None:
        """Note the offsets below which all have ended; called before the progress is written."""
        if self._core.mode != "r" and self._queues:
            self.note_ended()

    def begin(
        self,
        topic: str,
        body: Buffer,
        *,
        producer_group: str = "rmqstore",
        queue_id: SupportsIndex | None = None,
        queue_key: str | SupportsIndex | Buffer | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: SupportsIndex = 0,
        delay_level: SupportsIndex = 0,
        born_timestamp: TimeLike | None = None,
        born_host: str | None = None,
        uniq_key: bool | str = True,
        lite_topics: None = None,
        wait: bool = True,
    ) -> Transaction:
        """Store a message that is invisible until its transaction is committed.

        Parameters
        ----------
        topic, body, queue_id, queue_key, tags, keys, properties, flag, born_timestamp
            As for ``put``.
        producer_group : str, optional
            Group whose producers a broker asks how the transaction ends.
        delay_level : int, optional
            0: RocketMQ has no delayed transactions.
        lite_topics : None, optional
            A transaction's message has no light queues.
        born_host, uniq_key, wait
            As for ``put``.

        Returns
        -------
        Transaction

        Raises
        ------
        ValueError
            ``producer_group`` is not a group name of 1 to 120 of ``[%|a-zA-Z0-9_-]``,
            ``delay_level`` is not 0, or ``lite_topics`` are given.
        MessageIllegalError
            ``topic`` is a system topic of delayed or half messages; also as for ``put``.
        TypeError, PutError, StoreFailedError, ReadOnlyStoreError, \
StoreClosedError, ForkedStoreError
            As for ``put``.

        Notes
        -----
        Source: ``broker/transaction/queue/TransactionalMessageBridge.java putHalfMessage``.
        """
        if delay_level != 0:
            raise wrong_value("delay_level", "0 in a transaction", delay_level)
        if lite_topics is not None:
            raise wrong_value("lite_topics", "None in a transaction", lite_topics)
        group_name(producer_group, "producer_group")
        if isinstance(topic, str) and topic in _NO_REAL_TOPICS:
            raise MessageIllegalError(
                f"topic of a transaction must be that to commit to, no system topic, got {topic!r}",
                status=PutStatus.MESSAGE_ILLEGAL,
            )
        self._keep_noting()
        half = self._core.put_half(
            topic, body, queue_id, queue_key, tags, keys, properties, flag, born_timestamp,
            born_host, uniq_key, producer_group, wait,
        )  # fmt: skip
        self.fresh.add((half.queue_id, half.queue_offset))
        return Transaction(self._core.path, self.end, half)

    def put_half(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str],
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
    ) -> PutResult:
        """Store a half message of a client's producer, without waiting for the disk.

        Drops ``DELAY``, as the Java producer does itself: a broker would discard the message.
        """
        if topic in _NO_REAL_TOPICS:
            raise MessageIllegalError(
                f"topic of a transaction must be that to commit to, no system topic, got {topic!r}",
                status=PutStatus.MESSAGE_ILLEGAL,
            )
        self._keep_noting()
        stored = dict(properties)
        stored.pop("DELAY", None)
        stored["REAL_TOPIC"], stored["REAL_QID"] = topic, str(queue_id)
        half = self._core.put_stored(
            HALF_TOPIC,
            0,
            body,
            properties_text(stored),
            flag=flag,
            sys_flag=sys_flag & INT32_MAX & ~_TRANSACTION_BITS,
            born_timestamp=born_timestamp,
            born_host=born_host,
            store_host=store_host,
            reconsume_times=reconsume_times,
            wait=False,
        )
        self.fresh.add((half.queue_id, half.queue_offset))
        return half

    def in_doubt(self) -> list[InDoubt]:
        """Return the half messages without an end.

        Returns
        -------
        list of InDoubt
            Oldest first, damaged records last. A half message that was put back for a check is
            listed as its newest copy.

        Raises
        ------
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        Source: ``broker/transaction/queue/TransactionalMessageServiceImpl.java check``.
        """
        self._core.check_open()
        now = self._core.now()
        found = []
        with self.lock:
            for queue in self._read_queues():
                for half in list(queue.pending.values()):
                    read = queue.read_half(half)
                    if read is not None:
                        error = self.check_errors.get((queue.queue_id, half.queue_offset))
                        found.append(
                            InDoubt(self.end, queue.queue_id, half, read, now=now, error=error)
                        )
        found.sort(
            key=lambda one: (
                one.message is None,
                0 if one.message is None else one.message.born_timestamp,
                one.physical_offset,
            )
        )
        return found

    def _read_queues(self) -> list[HalfQueue]:
        """Return the half queues, read up to their ends; a reader reads them anew."""
        made = self._queues if self._core.mode != "r" else {}
        for queue_id in self._core.queue_files().get(HALF_TOPIC, ()):
            self._read_queue(made, queue_id)
        return list(made.values())

    def readable(self) -> list[HalfQueue]:
        """Return the readable half queues, read up to their ends; log each unreadable one once."""
        found = []
        for queue_id in self._core.queue_files().get(HALF_TOPIC, ()):
            try:
                found.append(self._read_queue(self._queues, queue_id))
                self._unreadable.discard(queue_id)
            except STORE_ENDED:
                raise
            except (StoreError, OSError) as error:
                if queue_id not in self._unreadable:
                    log_warning(
                        "%s: transactions of %s/%s are left as they are for now: %s",
                        self._core.path, HALF_TOPIC, queue_id, error,
                    )  # fmt: skip
                self._unreadable.add(queue_id)
        return found

    def _read_queue(self, made: dict[int, HalfQueue], queue_id: int) -> HalfQueue:
        if queue_id not in made:
            half = self._progress.get(HALF_TOPIC, _GROUP).get(queue_id)
            op = self._progress.get(OP_TOPIC, _GROUP).get(queue_id)
            made[queue_id] = HalfQueue(self._core, queue_id, half, op)
        queue = made[queue_id]
        first = queue.first
        queue.read()
        if queue.first > first:  # retention removed half messages
            for one in tuple(self.fresh):
                if one[0] == queue_id and one[1] < queue.first:
                    self.fresh.discard(one)
        return queue

    def _half_queue(self, queue_id: int) -> HalfQueue:
        if self._core.bounds(HALF_TOPIC, queue_id) is None:
            raise StoreError(
                f"{self._core.path}: {HALF_TOPIC} has no queue {queue_id}: "
                "in_doubt() lists what can end"
            )
        return self._read_queue(self._queues, queue_id)

    def _keep_noting(self) -> None:
        """Start noting the progress of transactions every few seconds, with the first one.

        Messages below it need no memory, and are not read again after a crash.
        """
        if self._ends_noted or self._core.mode == "r":
            return
        with self.lock:
            if not self._ends_noted:
                self._ends_noted = True
                self._housekeeper.every(SAVE_SECONDS, self.note_ended, "progress of transactions")

    def note_ended(self) -> None:
        """Move the offsets of the broker's own group past the messages that have ended."""
        with self.lock:
            for queue in self.readable():
                half, op = queue.progress()
                for topic, offset in ((HALF_TOPIC, half), (OP_TOPIC, op)):
                    known = self._progress.get(topic, _GROUP).get(queue.queue_id)
                    if offset != (known if known is not None else 0):
                        self._progress.commit(topic, _GROUP, queue.queue_id, offset)

    def halves(
        self, *, in_doubt: bool
    ) -> Iterator[tuple[Message, str] | tuple[StoreError | OSError, Waiting]]:
        """Yield the half messages in the order of their queue, each with its state.

        An unreadable one is yielded as its error and its unit.
        """
        with self.lock:
            queues = self._read_queues()
            pending = {(queue.queue_id, offset) for queue in queues for offset in queue.pending}
        for queue in queues:
            bounds = self._core.bounds(HALF_TOPIC, queue.queue_id) or (0, 0)
            start = min(queue.pending, default=bounds[1]) if in_doubt else bounds[0]
            ended = set() if in_doubt else self._named_by_ops(queue.queue_id)
            halves: list[tuple[Waiting, Message | StoreError | OSError]] = []
            last = {}
            for unit in waiting(self._core, HALF_TOPIC, queue.queue_id, start, bounds[1]):
                read = read_record(self._core, unit)
                if read is not None:
                    halves.append((unit, read))
                if isinstance(read, _core.Message):
                    last[copy_key(read, read.properties)] = read.queue_offset
            for unit, half in halves:
                if not isinstance(half, _core.Message):
                    if not in_doubt or (queue.queue_id, unit.queue_offset) in pending:
                        yield half, unit
                elif (queue.queue_id, half.queue_offset) in pending:
                    yield half, "in doubt"
                elif in_doubt:
                    continue
                elif last[copy_key(half, half.properties)] != half.queue_offset:
                    yield half, "put back"  # for a check; a copy follows
                elif half.queue_offset not in ended:
                    yield half, "given up"
                else:
                    place = real_place(half.properties)
                    done = None if place is None else self._committed(half, place)
                    yield half, "rolled back" if done is None else "committed"

    def _named_by_ops(self, queue_id: int) -> set[int]:
        """Return the queue offsets that the op messages of a queue name."""
        bounds = self._core.bounds(OP_TOPIC, queue_id) or (0, 0)
        return {
            offset
            for unit in waiting(self._core, OP_TOPIC, queue_id, *bounds)
            for offset in named_halves(record_at(self._core, unit.physical_offset))
        }

    # Ends

    def end(
        self,
        queue_id: int,
        offset: int,
        *,
        commit: bool,
        may_have_ended: bool = False,
        copy_of: tuple[object, ...] | None = None,
        wait: bool = True,
    ) -> PutResult | None:
        """Commit or roll back the newest copy of a half message.

        ``copy_of`` is the key of a message put back before this opening, to find its newest copy.
        Returns ``None`` for a rollback, or, with ``may_have_ended``, for one that has ended before.
        """
        self._core.check_writable()
        self._keep_noting()
        with self.lock:
            queue = self._half_queue(queue_id)
            newest = queue.newest(offset)
            if newest not in queue.pending and copy_of is not None:
                copies = [one for one in queue.copies(copy_of) if one > offset]
                old = [one for one in copies if (queue_id, one) not in self.fresh]
                newest = old[0] if old else newest
            half = queue.pending.get(newest)
            if half is None:
                if may_have_ended:
                    return None
                at = f"{HALF_TOPIC}/{queue_id}@{newest}"
                if newest < queue.first:
                    raise StoreError(
                        f"{self._core.path}: retention has removed the half message at {at}, the "
                        f"queue begins at {queue.first} now: put the message anew"
                    )
                raise StoreError(
                    f"{self._core.path}: the transaction at {at} has ended: "
                    "in_doubt() lists what can end"
                )
            fresh = (queue_id, newest) in self.fresh
            self.fresh.discard((queue_id, offset))
            self.fresh.discard((queue_id, newest))
            # The op message follows the committed message in the log: a crash may lose the op
            # message or both, never the committed message alone, even without a sync.
            result = self._commit_half(queue, half, fresh=fresh, wait=wait) if commit else None
            self.put_op(queue_id, newest, wait=wait)
            queue.end(newest)
            return result

    def ends_at_once(self, queue_id: int, offset: int) -> bool:
        """Whether :meth:`end` takes only microseconds; call both under the lock.

        True for a half message stored since opening, which needs no search, while few have been
        stored since its queue was last read.
        """
        queue = self._queues.get(queue_id)
        if queue is None or (queue_id, queue.newest(offset)) not in self.fresh:
            return False
        bounds = self._core.bounds(HALF_TOPIC, queue_id) or (0, 0)
        return queue.unread(bounds[1]) <= _READ_AT_ONCE

    def put_op(self, queue_id: int, offset: int, *, wait: bool = True) -> None:
        """Store the op message of an ended half message."""
        body = str(offset).encode("ascii")
        self._core.put_stored(OP_TOPIC, queue_id, body, _OP_PROPERTIES, moved=True, wait=wait)

    def _commit_half(self, queue: HalfQueue, half: Half, *, fresh: bool, wait: bool) -> PutResult:
        """Store a half message in its real topic, unless it is already there."""
        message = queue.read_half(half)
        if message is None:
            raise StoreError(
                f"{self._core.path}: retention has removed the half message at {HALF_TOPIC}/"
                f"{queue.queue_id}@{half.queue_offset}: put the message anew"
            )
        if isinstance(message, Exception):
            raise message
        properties = message.properties
        place = real_place(properties)
        if place is None:
            raise StoreError(
                f"{self._core.path}: the half message at {message.physical_offset} is meant for "
                f"{properties.get('REAL_TOPIC')!r}, queue {properties.get('REAL_QID')!r}: "
                "it cannot be committed; roll it back"
            )
        known = None if fresh else self._committed(message, place)
        if known is None:
            done = put_again(
                self._core,
                place,
                message,
                properties,
                sys_flag=message.sys_flag & ~_TRANSACTION_BITS | _COMMIT,
                prepared_transaction_offset=message.physical_offset,
                wait=wait,
            )
            known = self._core.at(done.physical_offset)
        return self._core.result_of(known)

    def _committed(self, half: Message, place: Place) -> Message | None:
        """Return the message committed before a crash that lost its op message, or ``None``."""
        key = half.uniq_key
        hits: Iterable[Message]
        if key is not None and self._core.config.message_index_enable:
            hits = self._core.query(place.topic, key)
        else:
            hits = self._stored_since(half, place)
        for hit in hits:
            if hit.queue_id != place.queue_id or hit.sys_flag & _TRANSACTION_BITS != _COMMIT:
                continue
            if hit.prepared_transaction_offset == half.physical_offset:
                return hit
            # Committed from an older copy of this half message.
            if (
                hit.uniq_key == key is not None
                and hit.born_timestamp == half.born_timestamp
                and hit.body_crc == half.body_crc
            ):
                return hit
        return None

    def _stored_since(self, half: Message, place: Place) -> Iterable[Message]:
        """Yield the messages with the same tags that a queue has from after a half message."""
        bounds = self._core.bounds(*place)
        if bounds is None:
            return
        tags = half.tags
        code = _core.string_hash(tags) if tags is not None else 0
        begin = first_behind(self._core, place, bounds, half.physical_offset)
        for unit in waiting(self._core, *place, begin, bounds[1]):
            if unit.tags_code == code or unit.tags_code <= EXT_ADDRESS:
                message = record_at(self._core, unit.physical_offset)
                if message is not None:
                    yield message
