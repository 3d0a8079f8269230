"""Queue of half messages, with their ends.

Source: ``broker/transaction/queue/TransactionalMessageServiceImpl.java fillOpRemoveMap``,
``calculateOpOffset``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rmqstore._core import Core, Message
from rmqstore.base.warn import log_warning
from rmqstore.errors import StoreError
from rmqstore.services.schedule_search import Waiting, read_record, record_at, waiting
from rmqstore.services.stored import HALF_TOPIC, OP_TOPIC, Place

__all__ = ["Half", "HalfQueue", "checks_of", "copy_key", "named_halves", "number_of"]

_REMOVE = "d"  # the tag of an op message
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Half:
    """A half message without an end."""

    queue_offset: int
    physical_offset: int  # -1 if its unit was damaged
    key: tuple[object, ...]  # shared by its copies
    damaged: bool = False  # when it was read; logged then


class HalfQueue:
    """Half messages of a queue from the committed offset on, and their ends.

    An op message of the same queue names half messages that have ended. A half message put back for
    a check has a new place; its older copy no longer counts. Offsets ``None``: from the first.
    """

    def __init__(
        self, core: Core, queue_id: int, half_offset: int | None, op_offset: int | None
    ) -> None:
        self.queue_id = queue_id
        # Half messages without an end, by queue offset, in order. They include damaged ones that no
        # op message names: whether a copy follows is unknown.
        self.pending: dict[int, Half] = {}
        self.first = 0  # first queue offset left by retention
        self._core = core
        self._half_next = half_offset or 0
        self._op_next = op_offset or 0
        self._ended_ahead: set[int] = set()  # named by an op, not read yet
        self._known: set[int] = set()  # put back by us, not read yet
        self._renewed: dict[int, int] = {}  # older copy to newer one
        self._older: dict[int, list[int]] = {}  # a pending copy to all its older ones
        self._copies: dict[tuple[object, ...], list[int]] = {}  # pending, oldest first
        self._ops: deque[tuple[int, int]] = deque()  # queue offset, the last half it names

    def read(self) -> None:
        """Read the messages stored since the last call."""
        first, stop = self._core.bounds(HALF_TOPIC, self.queue_id) or (0, 0)
        self._pass_removed(first)
        ops_first, ops_stop = self._core.bounds(OP_TOPIC, self.queue_id) or (0, 0)
        start = max(self._half_next, first)
        for unit in waiting(self._core, HALF_TOPIC, self.queue_id, start, stop):
            offset = unit.queue_offset
            if offset not in self._known:
                message = read_record(self._core, unit)
                if isinstance(message, Exception):
                    self._add_damaged(offset, unit.physical_offset, message)
                elif message is not None:
                    self._add(offset, message)
            self._known.discard(offset)
            self._half_next = offset + 1  # after an error further on none is entered twice
        self._half_next = max(self._half_next, stop)
        start = max(self._op_next, ops_first)
        for unit in waiting(self._core, OP_TOPIC, self.queue_id, start, ops_stop):
            message = read_record(self._core, unit)
            if isinstance(message, Exception):
                self._warn_damaged("a note of transactions that have ended", message)
                named, last = [], self._half_next - 1  # it may name any half message so far
            else:
                named = named_halves(message)
                last = max(named, default=-1)
            for offset in named:
                if offset >= self._half_next:
                    self._ended_ahead.add(offset)
                else:
                    self.end(self._prepared(offset))
            self._ops.append((unit.queue_offset, last))
            self._op_next = unit.queue_offset + 1
        self._op_next = max(self._op_next, ops_stop)

    def _pass_removed(self, first: int) -> None:
        """End the half messages before the queue's first offset: retention removed them."""
        self.first = max(self.first, first)
        gone = [offset for offset in self.pending if offset < first]
        for offset in gone:
            self.end(offset)
        if gone:
            log_warning(
                "%s: retention has removed %s half messages of %s/%s that nobody had ended, "
                "the last at queue offset %s",
                self._core.path, len(gone), HALF_TOPIC, self.queue_id, max(gone),
            )  # fmt: skip

    def _add(self, offset: int, message: Message) -> None:
        """Enter a half message after it was read."""
        properties = message.properties
        key = copy_key(message, properties)
        older = None
        if "TRANSACTION_CHECK_TIMES" in properties or "TRAN_PREPARED_QUEUE_OFFSET" in properties:
            copies = self._copies.get(key)
            older = copies[0] if copies else None
        if offset in self._ended_ahead:
            self._ended_ahead.discard(offset)
            if older is not None:
                self.end(older)
            return
        self._enter(Half(offset, message.physical_offset, key), older)

    def _add_damaged(self, offset: int, physical_offset: int, error: Exception) -> None:
        """Enter a damaged half message: only its place is known."""
        if offset in self._ended_ahead:
            self._ended_ahead.discard(offset)
            return
        self._warn_damaged("a half message", error)
        self._enter(Half(offset, physical_offset, (offset,), damaged=True), None)

    def _warn_damaged(self, noun: str, error: Exception) -> None:
        if self._core.mode != "r":  # a reader reads anew each time, and lists it
            log_warning("%s: %s cannot be read: %s", self._core.path, noun, error)

    def _enter(self, half: Half, older: int | None) -> None:
        olds: list[int] = []
        if older is not None:
            olds = [*self._older.get(older, ()), older]
            self.end(older)
            self._renewed.update(dict.fromkeys(olds, half.queue_offset))
            self._older[half.queue_offset] = olds
        self.pending[half.queue_offset] = half
        self._copies.setdefault(half.key, []).append(half.queue_offset)

    def _prepared(self, offset: int) -> int:
        """Return the half message meant by an op: a broker's producers may name an older copy.

        4.9.3 accepts an older name only for copies made within CHECK_IMMUNITY_TIME_IN_SECONDS,
        which record the offset of the first.
        """
        if offset in self.pending or offset not in self._renewed:
            return offset
        newest = self.newest(offset)
        half = self.pending.get(newest)
        message = None if half is None else record_at(self._core, half.physical_offset)
        if message is None:
            return offset
        prepared = message.properties.get("TRAN_PREPARED_QUEUE_OFFSET")
        return newest if prepared == str(offset) else offset

    def read_half(self, half: Half) -> Message | StoreError | OSError | None:
        """Return a half message, or the error of reading it; ``None`` if it is gone."""
        place = Place(HALF_TOPIC, self.queue_id)
        return read_record(self._core, Waiting(place, half.queue_offset, half.physical_offset, 0))

    def renew(self, offset: int, newer: int, physical_offset: int) -> None:
        """Enter the new place of a half message that was put back."""
        half = self.pending[offset]
        if newer >= self._half_next:
            self._known.add(newer)
        self._enter(Half(newer, physical_offset, half.key), offset)

    def newest(self, offset: int) -> int:
        """Return the place of the newest copy of a half message."""
        return self._renewed.get(offset, offset)

    def copies(self, key: tuple[object, ...]) -> list[int]:
        """Return the half messages with this key that have no end, oldest first."""
        return list(self._copies.get(key, ()))

    def end(self, offset: int) -> None:
        """Note that a half message has ended; a second call does nothing."""
        half = self.pending.pop(offset, None)
        if half is None:
            return
        copies = self._copies[half.key]
        copies.remove(offset)
        if not copies:
            del self._copies[half.key]
        for old in self._older.pop(offset, ()):
            del self._renewed[old]

    def unread(self, stop: int) -> int:
        """Return the number of half messages stored since the last read, up to ``stop``."""
        return max(0, stop - self._half_next)

    def progress(self) -> tuple[int, int]:
        """Return the offsets below which all half messages, and all op messages, are done."""
        half = min(self.pending, default=self._half_next)
        while self._ops and self._ops[0][1] < half:
            self._ops.popleft()
        return half, self._ops[0][0] if self._ops else self._op_next


def copy_key(message: Message, properties: dict[str, str]) -> tuple[object, ...]:
    """Return the key that all copies of a half message share."""
    return (
        message.uniq_key or (message.body_crc, len(message.raw_body)),
        message.born_timestamp,
        properties.get("REAL_TOPIC"),
        properties.get("REAL_QID"),
        properties.get("PGROUP"),
    )


def named_halves(message: Message | None) -> list[int]:
    """Return the queue offsets that an op message names; RocketMQ 5 names several."""
    if message is None or message.tags != _REMOVE:
        return []
    words = bytes(message.raw_body).decode("ascii", "replace").split(",")
    digits = [word for word in words if word.isascii() and word.isdigit()]
    return [int(word) for word in digits if len(word) <= _MOST_DIGITS]


def number_of(text: str | None, default: int) -> int:
    """Return the integer in a text: ``default`` without a text, -1 for an invalid one."""
    if text is None:
        return default
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else -1


def checks_of(properties: dict[str, str]) -> int:
    """Return the number of checks of a half message."""
    return number_of(properties.get("TRANSACTION_CHECK_TIMES"), 0)
