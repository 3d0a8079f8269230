"""Transactions as a program ends them: begun by it, or in doubt.

Source: ``client/impl/producer/DefaultMQProducerImpl.java sendMessageInTransaction``,
``endTransaction``.
"""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

from rmqstore._core import CallLock, Message, PutResult
from rmqstore.errors import StoreError
from rmqstore.services.half_queue import Half, checks_of
from rmqstore.services.stored import real_message, real_place

__all__ = ["InDoubt", "Transaction"]


class _EndHalf(Protocol):
    """End of a half message by the store: a commit, or a rollback that returns ``None``."""

    def __call__(self, queue_id: int, offset: int, *, commit: bool) -> PutResult | None: ...


class Transaction:
    """A stored message that is invisible until it is committed.

    Made by :meth:`MessageStore.begin`.  As a context manager it commits, or rolls back if the
    block raises.

    Attributes
    ----------
    msg_id : str
        The store's id of the half message.
    uniq_key : str or None
        The client's id, which the committed message has too.
    half_offset : int
        Queue offset of the half message.
    prepared_offset : int
        Byte of the commit log at which it begins.
    """

    def __init__(self, path: str, end_half: _EndHalf, half: PutResult) -> None:
        self._path = path
        self._end_half = end_half
        self._half = half
        self._ended = False
        self._lock = CallLock()

    @property
    def msg_id(self) -> str:
        """The store's id of the half message."""
        return self._half.msg_id

    @property
    def uniq_key(self) -> str | None:
        """The client's id, which the committed message has too."""
        return self._half.uniq_key

    @property
    def half_offset(self) -> int:
        """Queue offset of the half message."""
        return self._half.queue_offset

    @property
    def prepared_offset(self) -> int:
        """Byte of the commit log at which the half message begins."""
        return self._half.physical_offset

    def commit(self) -> PutResult:
        """Make the message visible in its topic.

        Returns
        -------
        PutResult
            Of the message in its topic.

        Raises
        ------
        StoreError
            The transaction has ended, or retention has removed its half message.
        PutError, StoreFailedError
            As for ``put``; the transaction may be committed again.
        StoreClosedError, ForkedStoreError
            The store is not open here.
        """
        result = self._end(commit=True)
        assert result is not None
        return result

    def rollback(self) -> None:
        """End the transaction without the message.

        Raises
        ------
        StoreError, PutError, StoreFailedError, StoreClosedError, ForkedStoreError
            As :meth:`commit`.
        """
        self._end(commit=False)

    def _end(self, *, commit: bool) -> PutResult | None:
        with self._lock:
            if self._ended:
                raise StoreError(
                    f"{self._path}: the transaction {self.msg_id} has ended: each ends once; "
                    "begin another"
                )
            half = self._half
            result = self._end_half(half.queue_id, half.queue_offset, commit=commit)
            self._ended = True
            return result

    def __enter__(self) -> Self:
        """Return the transaction."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Commit, or roll back on an exception; nothing if it has ended."""
        if not self._ended:
            self._end(commit=error is None)

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open"
        return f"<rmqstore.Transaction {self.msg_id} {state}>"


class InDoubt:
    """A half message without an end.

    Attributes
    ----------
    message : Message or None
        With its real topic and queue; ``physical_offset`` and ``queue_offset`` are those of the
        half message. None if it is damaged.
    producer_group : str
        Empty if it is damaged.
    checks : int
        Number of its checks so far; 0 if it is damaged.
    age : timedelta
        Time since its birth, as of the listing; 0 if it is damaged.
    error : str or None
        Why it cannot be read, or why the last check failed; else None.
    half_offset, physical_offset : int
        Queue offset and physical offset of the half message, damaged or not; -1 if its unit
        names no record.
    """

    message: Message | None

    def __init__(
        self,
        end_half: _EndHalf,
        queue_id: int,
        half: Half,
        read: Message | Exception,
        *,
        now: int,
        error: str | None = None,
    ) -> None:
        self._end_half = end_half
        self._queue_id = queue_id
        self.half_offset = half.queue_offset
        self.physical_offset = half.physical_offset
        if isinstance(read, Exception):
            self.message, self.producer_group, self.checks = None, "", 0
            self.age = timedelta()
            self.error: str | None = str(read)
            return
        self.physical_offset = read.physical_offset
        properties = read.properties
        self.message = real_message(read, real_place(properties))
        self.producer_group = properties.get("PGROUP", "")
        self.checks = checks_of(properties)
        self.age = timedelta(milliseconds=now - read.born_timestamp)
        self.error = error

    def commit(self) -> PutResult:
        """Make the message visible in its topic; once, even after a crash in between.

        Returns
        -------
        PutResult
            Of the message in its topic.

        Raises
        ------
        StoreError
            The transaction has ended meanwhile, or retention has removed the half message.
        StoreCorruptError
            The half message is damaged: it can only be rolled back.
        PutError, StoreFailedError, ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            As for ``put``.
        """
        result = self._end_half(self._queue_id, self.half_offset, commit=True)
        assert result is not None
        return result

    def rollback(self) -> None:
        """End the transaction without the message.

        Raises
        ------
        StoreError, PutError, StoreFailedError, ReadOnlyStoreError, StoreClosedError, \
ForkedStoreError
            As :meth:`commit`.
        """
        self._end_half(self._queue_id, self.half_offset, commit=False)

    def __repr__(self) -> str:
        if self.message is None:
            return f"<rmqstore.InDoubt {self.half_offset} at {self.physical_offset}, damaged>"
        return (
            f"<rmqstore.InDoubt {self.message!r} of {self.producer_group!r}, "
            f"{self.checks} checks, {self.age}>"
        )
