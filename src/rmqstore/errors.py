"""Exceptions of the package.

A message names the fault, its place (path and offset) and the values that disagree.  All of them
pickle.

RocketMQ's store returns ``null`` or ``false`` instead, or writes a log line.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqstore.types import PutStatus

__all__ = [
    "ConsumeDisabledError",
    "FilterError",
    "ForkedStoreError",
    "GroupNotFoundError",
    "IncompatibleStoreError",
    "MessageIllegalError",
    "MessageNotFoundError",
    "MessagesRemovedError",
    "PutError",
    "ReadOnlyStoreError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFailedError",
    "StoreLockedError",
    "StoreNotFoundError",
    "TopicNotFoundError",
]


class StoreError(Exception):
    """Root of the package's own exceptions."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """No store at this path: no ``commitlog`` with a file of 20 digits."""


class StoreLockedError(StoreError):
    """Another process, or another store object, has the store open for writing."""


class StoreCorruptError(StoreError):
    """Bytes on disk contradict themselves or each other.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file.
    offset : int
        Byte in the file; in a file of the commit log, the physical offset. -1 if there is none.
    reason : str
        The disagreement, with both values.
    """

    path: str
    offset: int
    reason: str

    def __init__(
        self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], offset: int, reason: str
    ) -> None:
        self.path = os.fsdecode(path)
        self.offset = offset
        self.reason = reason
        super().__init__(self.path, offset, reason)

    def __str__(self) -> str:
        """Return path, offset and reason in one line."""
        return f"{self.path}, offset {self.offset}: {self.reason}"


class IncompatibleStoreError(StoreError):
    """The store is sound, but this configuration or version may not write to it."""


class StoreFailedError(StoreError):
    """A sync failed earlier: the store accepts no messages until it is opened again."""


class StoreClosedError(StoreError):
    """The store, or the part of it, is closed."""


class ReadOnlyStoreError(StoreError, io.UnsupportedOperation):
    """The store was opened with ``"r"``."""


class ForkedStoreError(StoreError):
    """The store was opened by the parent process; a forked child must open its own."""


class PutError(StoreError):
    """A message was not stored, or not stored as requested.

    Parameters
    ----------
    message : str
        The failure.
    status : PutStatus, optional
        RocketMQ's status.
    result : PutResult or PutManyResult, optional
        Set if the bytes reached the log nevertheless.
    stored : int, default 0
        Rows of a ``put_many`` in the log.
    errno : int, optional
        The operating system's error number, if it was the cause.
    """

    status: PutStatus | None
    result: Any
    stored: int
    errno: int | None

    def __init__(
        self,
        message: str,
        *,
        status: PutStatus | None = None,
        result: Any = None,
        stored: int = 0,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.result = result
        self.stored = stored
        self.errno = errno


class MessageIllegalError(PutError, ValueError):
    """The message itself cannot be stored: topic, properties or size."""


class FilterError(StoreError, ValueError):
    """A filter expression does not parse.

    Parameters
    ----------
    message : str
        What was found and what was expected.
    position : int
        Character in the expression, from 0.
    """

    message: str
    position: int

    def __init__(self, message: str, position: int) -> None:
        self.message = message
        self.position = position
        super().__init__(message, position)

    def __str__(self) -> str:
        """Return the message with the position."""
        return f"{self.message} (at character {self.position})"


class TopicNotFoundError(StoreError, KeyError):
    """The store has no such topic."""

    def __str__(self) -> str:
        """Return the message itself; ``KeyError`` would give its repr."""
        return Exception.__str__(self)


class GroupNotFoundError(StoreError, KeyError):
    """The store has no such consumer group."""

    def __str__(self) -> str:
        """Return the message itself; ``KeyError`` would give its repr."""
        return Exception.__str__(self)


class ConsumeDisabledError(StoreError):
    """The consumer group may not consume: ``consumeEnable`` is false in its entry."""


class MessageNotFoundError(StoreError, LookupError):
    """No message has this id, key or offset."""


class MessagesRemovedError(StoreError):
    """Retention deleted messages before they were read.

    Parameters
    ----------
    topic : str
        Topic of the queue; empty if the commit log itself was read.
    queue_id : int
        The queue; -1 for the commit log.
    offset : int
        Queue offset to be read next; for the commit log, the physical offset.
    min_offset : int
        First offset that still exists.
    """

    topic: str
    queue_id: int
    offset: int
    min_offset: int

    def __init__(self, topic: str, queue_id: int, offset: int, min_offset: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.min_offset = min_offset
        super().__init__(topic, queue_id, offset, min_offset)

    def __str__(self) -> str:
        """Return the removed offset, and where the queue or the log begins now."""
        if self.queue_id < 0:
            return (
                f"commit log: offset {self.offset} has been removed, "
                f"the log begins at {self.min_offset} now; go on from there"
            )
        return (
            f"{self.topic}/{self.queue_id}: offset {self.offset} has been removed, "
            f"the queue begins at {self.min_offset} now; go on from there"
        )
