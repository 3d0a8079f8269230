"""Checks of transactions in doubt: a callback, or producers, are asked how they end.

Source: ``broker/transaction/queue/TransactionalMessageServiceImpl.java check``,
``DefaultTransactionalMessageCheckListener.java``,
``broker/transaction/TransactionalMessageCheckService.java``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqstore._core import Core, Message
from rmqstore.base.warn import log_warning
from rmqstore.consume.progress import GroupProgress
from rmqstore.errors import MessageIllegalError
from rmqstore.services.base import STORE_ENDED, Service
from rmqstore.services.half_queue import Half, HalfQueue, checks_of, number_of
from rmqstore.services.housekeeping import Housekeeper
from rmqstore.services.stored import HALF_TOPIC, MAX_TIME_TOPIC, Place, put_again
from rmqstore.services.transaction import InDoubt
from rmqstore.services.transactions import TransactionService

__all__ = ["TransactionChecks"]

_CHECK_SECONDS = 60.0  # limit of a round of checks, as in 4.9.3
_HOUR_MILLIS = 3_600_000


class TransactionChecks(Service):
    """Checks of transactions in doubt."""

    def __init__(
        self,
        core: Core,
        transactions: TransactionService,
        progress: GroupProgress,
        housekeeper: Housekeeper,
    ) -> None:
        self._core = core
        self._transactions = transactions
        self._progress = progress
        self._housekeeper = housekeeper
        self._stopping = False
        self._begun = False
        self._ask_producer: Callable[[InDoubt], object] | None = None

    def start(self) -> None:
        """Start the checks if a callback is configured."""
        if self._core.config.transaction_check is not None:
            self._begin()

    def stop(self) -> None:
        """Stop the checks."""
        self._stopping = True

    def _begin(self) -> None:
        if self._core.mode != "r" and not self._begun:
            self._begun = True
            seconds = self._core.config.transaction_check_interval / 1000
            self._housekeeper.every(seconds, self.check, "checks of transactions")

    def ask_producers_by(self, ask: Callable[[InDoubt], object] | None) -> None:
        """Set, or clear, the function that asks remote producers.

        ``ask`` is called in the housekeeping thread with a transaction in doubt, after its half
        message was put back; ``TransactionService.end`` ends the transaction at any later time.
        """
        self._ask_producer = ask
        if ask is not None:
            self._begin()

    def check(self) -> None:
        """Ask for the end of each transaction that has been in doubt for too long."""
        if self._core.config.transaction_check is None and self._ask_producer is None:
            return
        until = time.monotonic() + _CHECK_SECONDS
        with self._transactions.lock:
            asked = [(queue, list(queue.pending)) for queue in self._transactions.readable()]
            there = {(queue.queue_id, offset) for queue, offsets in asked for offset in offsets}
            for place in self._transactions.check_errors.keys() - there:
                del self._transactions.check_errors[place]
        for queue, offsets in asked:
            for offset in offsets:
                if self._stopping or time.monotonic() > until:
                    break
                self._check_half_safely(queue, offset)
        self._transactions.note_ended()
        self._progress.save()

    def _check_half_safely(self, queue: HalfQueue, offset: int) -> None:
        """Run :meth:`_check_half`; log a failed check once, for a later round to repeat."""
        failed: Exception | None
        try:
            failed = self._check_half(queue, offset)
        except STORE_ENDED:
            raise
        except Exception as error:
            failed = error
        place = queue.queue_id, queue.newest(offset)
        half = queue.pending.get(place[1])
        if failed is None or half is None:
            self._transactions.check_errors.pop(place, None)
            return
        if place not in self._transactions.check_errors:
            log_warning(
                "%s: the half message at %s cannot be checked, and will be tried again: %s",
                self._core.path, half.physical_offset, failed,
            )  # fmt: skip
        self._transactions.check_errors[place] = str(failed)

    def _check_half(self, queue: HalfQueue, offset: int) -> MessageIllegalError | None:
        """Put a half message back and ask for its end, or give it up.

        A message too large to be put back stays in place when asked for; its error is returned.
        """
        failed = None
        with self._transactions.lock:
            half = queue.pending.get(offset)
            message = None if half is None else queue.read_half(half)
            if half is None or message is None:
                return None
            if isinstance(message, Exception):
                if half.damaged:
                    return None
                raise message
            properties = message.properties
            age = self._core.now() - message.born_timestamp
            checks = checks_of(properties)
            if checks >= self._core.config.transaction_check_max or self._is_expired(age):
                self._give_up(queue, message)
                return None
            if 0 <= age <= self._immunity(properties):
                return None
            properties["TRANSACTION_CHECK_TIMES"] = str(checks + 1)
            try:
                half = self._put_back(queue, half, message, properties)
                message = self._core.at(half.physical_offset)
            except MessageIllegalError as error:
                failed = error
            one = InDoubt(
                self._transactions.end, queue.queue_id, half, message, now=self._core.now()
            )
        answer = self._ask(one)
        if answer is not None:
            self._transactions.end(
                queue.queue_id, half.queue_offset, commit=answer == "commit", may_have_ended=True
            )
        return failed

    def _put_back(
        self, queue: HalfQueue, half: Half, message: Message, properties: dict[str, str]
    ) -> Half:
        """Store a half message again with another number of checks; return its newest copy."""
        done = put_again(self._core, Place(HALF_TOPIC, queue.queue_id), message, properties)
        queue.renew(half.queue_offset, done.queue_offset, done.physical_offset)
        known = self._transactions.check_errors.pop((queue.queue_id, half.queue_offset), None)
        if known is not None:
            self._transactions.check_errors[queue.queue_id, done.queue_offset] = known
        # A half message put back is as fresh as before.
        if (queue.queue_id, half.queue_offset) in self._transactions.fresh:
            self._transactions.fresh.discard((queue.queue_id, half.queue_offset))
            self._transactions.fresh.add((queue.queue_id, done.queue_offset))
        return queue.pending[done.queue_offset]

    def _immunity(self, properties: dict[str, str]) -> int:
        """Return the age in milliseconds up to which a message is not checked."""
        seconds = number_of(properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"), -1)
        return self._core.config.transaction_timeout if seconds == -1 else seconds * 1000

    def _is_expired(self, age: int) -> bool:
        """Whether a half message is older than the store's retention."""
        hours: int | None = self._core.config.file_reserved_time
        return hours is not None and age > hours * _HOUR_MILLIS

    def _ask(self, one: InDoubt) -> str | None:
        """Return the callback's answer: commit, rollback, or ``None`` to be asked again.

        Without an answer a remote producer is asked, which answers later.
        """
        answer = self._ask_callback(one)
        if answer is None and self._ask_producer is not None:
            self._ask_producer(one)
        return answer

    def _ask_callback(self, one: InDoubt) -> str | None:
        check = self._core.config.transaction_check
        if check is None:
            return None
        try:
            answer = check(one)
        except Exception as error:
            log_warning("transaction_check failed, and will be asked again: %r", error)
            return None
        if answer not in ("commit", "rollback", None):
            log_warning(
                "transaction_check must return 'commit', 'rollback' or None, got %r", answer
            )
            return None
        return answer

    def _give_up(self, queue: HalfQueue, message: Message) -> None:
        """Move a half message to a topic of its own: it was checked too often, or is too old."""
        first = min(queue.pending)
        log_warning(
            "%s: the half message %s of %s goes to %s: nobody has ended it",
            self._core.path, message.msg_id, message.properties.get("REAL_TOPIC"), MAX_TIME_TOPIC,
        )  # fmt: skip
        put_again(self._core, Place(MAX_TIME_TOPIC, 0), message, message.properties)
        if first != message.queue_offset:  # the group's offset has not passed it
            self._transactions.put_op(queue.queue_id, message.queue_offset)
        queue.end(message.queue_offset)
        self._transactions.fresh.discard((queue.queue_id, message.queue_offset))
