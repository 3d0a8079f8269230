"""Checks of transactions that nobody ended: who knows their end is asked for it.

Source: ``broker/transaction/queue/TransactionalMessageServiceImpl.java check``,
``DefaultTransactionalMessageCheckListener.java``,
``broker/transaction/TransactionalMessageCheckService.java``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqstore._core import Message
from rmqstore.services.half_queue import HalfQueue, checks_of, number_of
from rmqstore.services.schedule_search import record_at
from rmqstore.services.stored import HALF_TOPIC, MAX_TIME_TOPIC, Place, put_again
from rmqstore.services.transaction import InDoubt
from rmqstore.services.transactions import TransactionEngine
from rmqstore.warn import log_warning

__all__ = ["CheckingEngine"]

_CHECK_SECONDS = 60.0  # how long a round of checks may take, as in 4.9.3
_HOUR_MILLIS = 3_600_000


class CheckingEngine(TransactionEngine):
    """A store that asks for the ends of transactions."""

    _checks_stopping = False
    _checks_begun = False
    _ask_producer: Callable[[InDoubt], object] | None = None

    def _start_services(self) -> None:
        """Have somebody asked for transactions without an end, if there is somebody."""
        super()._start_services()
        if self._config.transaction_check is not None:
            self._begin_checks()

    def _stop_services(self) -> None:
        """Ask no more."""
        self._checks_stopping = True
        super()._stop_services()

    def _begin_checks(self) -> None:
        if self.mode != "r" and not self._checks_begun:
            self._checks_begun = True
            seconds = self._config.transaction_check_interval / 1000
            self._housekeeper.every(seconds, self._check_transactions, "checks of transactions")

    def _ask_producers_by(self, ask: Callable[[InDoubt], object] | None) -> None:
        """Have the ends of transactions asked for from outside, or no longer.

        ``ask`` is called in the thread of the housekeeping with one in doubt, of which the half
        message was put back; the end is told by :meth:`_end_half`, at any time.
        """
        self._ask_producer = ask
        if ask is not None:
            self._begin_checks()

    def _check_transactions(self) -> None:
        """Ask for each transaction that is in doubt for too long."""
        if self._config.transaction_check is None and self._ask_producer is None:
            return
        until = time.monotonic() + _CHECK_SECONDS
        with self._half_lock:
            asked = [(queue, list(queue.pending)) for queue in self._read_halves()]
        for queue, offsets in asked:
            for offset in offsets:
                if self._checks_stopping or time.monotonic() > until:
                    break
                self._check_half(queue, offset)
        self._note_ended()
        self._save_progress()

    def _check_half(self, queue: HalfQueue, offset: int) -> None:
        """Put a half message back, and ask for its end; or give it up."""
        with self._half_lock:
            half = queue.pending.get(offset)
            message = None if half is None else record_at(self, half.physical_offset)
            if message is None:
                return
            properties = message.properties
            age = self._now() - message.born_timestamp
            checks = checks_of(properties)
            if checks >= self._config.transaction_check_max or self._is_expired(age):
                self._give_up(queue, message)
                return
            if 0 <= age <= self._immunity(properties):
                return
            properties["TRANSACTION_CHECK_TIMES"] = str(checks + 1)
            done = put_again(self, Place(HALF_TOPIC, queue.queue_id), message, properties)
            queue.renew(offset, done.queue_offset, done.physical_offset)
            # What is known of the half message's end does not change by putting it back.
            if (queue.queue_id, offset) in self._fresh_halves:
                self._fresh_halves.discard((queue.queue_id, offset))
                self._fresh_halves.add((queue.queue_id, done.queue_offset))
            one = InDoubt(self, self.at(done.physical_offset), self._now())
        answer = self._ask(one)
        if answer is not None:
            self._end_half(
                queue.queue_id, done.queue_offset, commit=answer == "commit", may_have_ended=True
            )

    def _immunity(self, properties: dict[str, str]) -> int:
        """Return how long nobody is asked, in milliseconds since the message was born."""
        seconds = number_of(properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"), -1)
        return self._config.transaction_timeout if seconds == -1 else seconds * 1000

    def _is_expired(self, age: int) -> bool:
        """Tell whether a half message is older than what the store retains."""
        hours: int | None = self._config.file_reserved_time
        return hours is not None and age > hours * _HOUR_MILLIS

    def _ask(self, one: InDoubt) -> str | None:
        """Return what the callback says: commit, rollback, or ``None`` to be asked again.

        Where it does not know, a producer that is a client is asked, and tells the end later.
        """
        answer = self._ask_callback(one)
        if answer is None and self._ask_producer is not None:
            self._ask_producer(one)
        return answer

    def _ask_callback(self, one: InDoubt) -> str | None:
        check = self._config.transaction_check
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
