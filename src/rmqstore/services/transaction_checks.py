"""Checks of transactions in doubt: whoever knows their end is asked for it.

Source: ``broker/transaction/queue/TransactionalMessageServiceImpl.java check``,
``DefaultTransactionalMessageCheckListener.java``,
``broker/transaction/TransactionalMessageCheckService.java``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqstore._core import Message
from rmqstore.base.warn import log_warning
from rmqstore.errors import MessageIllegalError
from rmqstore.services.base import STORE_ENDED
from rmqstore.services.half_queue import Half, HalfQueue, checks_of, number_of
from rmqstore.services.stored import HALF_TOPIC, MAX_TIME_TOPIC, Place, put_again
from rmqstore.services.transaction import InDoubt
from rmqstore.services.transactions import TransactionEngine

__all__ = ["CheckingEngine"]

_CHECK_SECONDS = 60.0  # how long a round of checks may take, as in 4.9.3
_HOUR_MILLIS = 3_600_000


class CheckingEngine(TransactionEngine):
    """Checks of transactions in doubt; a base of ``MessageStore``."""

    _checks_stopping = False
    _checks_begun = False
    _ask_producer: Callable[[InDoubt], object] | None = None

    def _start_services(self) -> None:
        """Start the checks if there is somebody to ask."""
        super()._start_services()
        self._half_errors: dict[tuple[int, int], str] = {}
        if self.core.config.transaction_check is not None:
            self._begin_checks()

    def _stop_services(self) -> None:
        """Stop the checks."""
        self._checks_stopping = True
        super()._stop_services()

    def _begin_checks(self) -> None:
        if self.mode != "r" and not self._checks_begun:
            self._checks_begun = True
            seconds = self.core.config.transaction_check_interval / 1000
            self._housekeeper.every(seconds, self._check_transactions, "checks of transactions")

    def _ask_producers_by(self, ask: Callable[[InDoubt], object] | None) -> None:
        """Set, or clear, an outside party to ask for the ends of transactions.

        ``ask`` is called in the thread of the housekeeping with a transaction in doubt, of which
        the half message was put back; the end comes by :meth:`_end_half`, at any time.
        """
        self._ask_producer = ask
        if ask is not None:
            self._begin_checks()

    def _check_transactions(self) -> None:
        """Ask for each transaction that is in doubt for too long."""
        if self.core.config.transaction_check is None and self._ask_producer is None:
            return
        until = time.monotonic() + _CHECK_SECONDS
        with self._half_lock:
            asked = [(queue, list(queue.pending)) for queue in self._readable_halves()]
            there = {(queue.queue_id, offset) for queue, offsets in asked for offset in offsets}
            for place in self._half_errors.keys() - there:
                del self._half_errors[place]
        for queue, offsets in asked:
            for offset in offsets:
                if self._checks_stopping or time.monotonic() > until:
                    break
                self._check_half_safely(queue, offset)
        self._note_ended()
        self._save_progress()

    def _check_half_safely(self, queue: HalfQueue, offset: int) -> None:
        """Run :meth:`_check_half`; a check that fails is logged once, and made again later."""
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
            self._half_errors.pop(place, None)
            return
        if place not in self._half_errors:
            log_warning(
                "%s: the half message at %s cannot be checked, and will be tried again: %s",
                self.path, half.physical_offset, failed,
            )  # fmt: skip
        self._half_errors[place] = str(failed)

    def _check_half(self, queue: HalfQueue, offset: int) -> MessageIllegalError | None:
        """Put a half message back and ask for its end, or give it up.

        A message too large to be put back is asked for where it is, and the error returned.
        """
        failed = None
        with self._half_lock:
            half = queue.pending.get(offset)
            message = None if half is None else queue.read_half(half)
            if half is None or message is None:
                return None
            if isinstance(message, Exception):
                if half.damaged:
                    return None
                raise message
            properties = message.properties
            age = self.core.now() - message.born_timestamp
            checks = checks_of(properties)
            if checks >= self.core.config.transaction_check_max or self._is_expired(age):
                self._give_up(queue, message)
                return None
            if 0 <= age <= self._immunity(properties):
                return None
            properties["TRANSACTION_CHECK_TIMES"] = str(checks + 1)
            try:
                half = self._put_back(queue, half, message, properties)
                message = self.at(half.physical_offset)
            except MessageIllegalError as error:
                failed = error
            one = InDoubt(self._end_half, queue.queue_id, half, message, now=self.core.now())
        answer = self._ask(one)
        if answer is not None:
            self._end_half(
                queue.queue_id, half.queue_offset, commit=answer == "commit", may_have_ended=True
            )
        return failed

    def _put_back(
        self, queue: HalfQueue, half: Half, message: Message, properties: dict[str, str]
    ) -> Half:
        """Store a half message again with another number of checks; return its newest copy."""
        done = put_again(self, Place(HALF_TOPIC, queue.queue_id), message, properties)
        queue.renew(half.queue_offset, done.queue_offset, done.physical_offset)
        known = self._half_errors.pop((queue.queue_id, half.queue_offset), None)
        if known is not None:
            self._half_errors[queue.queue_id, done.queue_offset] = known
        # Putting a half message back does not change what is known of its end.
        if (queue.queue_id, half.queue_offset) in self._fresh_halves:
            self._fresh_halves.discard((queue.queue_id, half.queue_offset))
            self._fresh_halves.add((queue.queue_id, done.queue_offset))
        return queue.pending[done.queue_offset]

    def _immunity(self, properties: dict[str, str]) -> int:
        """Return how long after its birth a message is not checked, in milliseconds."""
        seconds = number_of(properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"), -1)
        return self.core.config.transaction_timeout if seconds == -1 else seconds * 1000

    def _is_expired(self, age: int) -> bool:
        """Whether a half message is older than what the store retains."""
        hours: int | None = self.core.config.file_reserved_time
        return hours is not None and age > hours * _HOUR_MILLIS

    def _ask(self, one: InDoubt) -> str | None:
        """Return the callback's answer: commit, rollback, or ``None`` to be asked again.

        Where it does not know, a producer that is a client is asked, and answers later.
        """
        answer = self._ask_callback(one)
        if answer is None and self._ask_producer is not None:
            self._ask_producer(one)
        return answer

    def _ask_callback(self, one: InDoubt) -> str | None:
        check = self.core.config.transaction_check
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
        """Move a half message out of the way: it was checked too often, or is too old."""
        first = min(queue.pending)
        log_warning(
            "%s: the half message %s of %s goes to %s: nobody has ended it",
            self.path, message.msg_id, message.properties.get("REAL_TOPIC"), MAX_TIME_TOPIC,
        )  # fmt: skip
        put_again(self, Place(MAX_TIME_TOPIC, 0), message, message.properties)
        if first != message.queue_offset:  # its group's offset does not pass it yet
            self._put_op(queue.queue_id, message.queue_offset)
        queue.end(message.queue_offset)
