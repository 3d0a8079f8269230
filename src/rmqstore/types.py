"""Statuses and results of calls.

Source: ``store/GetMessageStatus.java``, ``GetMessageResult.java``, ``PutMessageStatus.java``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = [
    "Delayed",
    "Deleted",
    "GetResult",
    "GetStatus",
    "PutStatus",
    "RecoveredRange",
    "Recovery",
    "Snapshot",
]


class GetStatus(IntEnum):
    """Outcome of a ``get``; names and order are Java's."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class PutStatus(IntEnum):
    """Outcome of a put; names and order are Java's, the last is ours."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPEDFILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGECACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 10
    DISK_FULL = 11


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message that waits for its delivery.

    Attributes
    ----------
    message : Message or None
        With the topic and the queue of its delivery; ``physical_offset`` and ``queue_offset``
        are those of the waiting record. None if it is damaged.
    level : int
        Its delay level, from 1.
    due : int
        Time of delivery, milliseconds since the epoch; 0 for a damaged one whose time is lost.
    error : str or None
        Why it is unreadable, or why its delivery failed and is retried; None for all others.
    queue_offset, physical_offset : int
        Where it waits, damaged or not; ``physical_offset`` is -1 if its unit names none.
    """

    message: Message | None
    level: int
    due: int
    error: str | None = None
    queue_offset: int = -1
    physical_offset: int = -1


@dataclass(frozen=True, slots=True)
class GetResult:
    """The result of a ``get``.

    Attributes
    ----------
    status : GetStatus
        Why it ended.
    messages : sequence of Message
        In queue order; empty unless ``FOUND``.
    next_offset : int
        Queue offset at which to continue.
    min_offset, max_offset : int
        First existing queue offset, and the one after the last.
    """

    status: GetStatus
    messages: Sequence[Message]
    next_offset: int
    min_offset: int
    max_offset: int

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages."""
        return iter(self.messages)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.messages)

    def __getitem__(self, index: int) -> Message:
        """Return the message at ``index``, by position in this result."""
        return self.messages[index]


@dataclass(frozen=True, slots=True)
class Deleted:
    """Result of ``delete_expired``: deleted, or to be deleted.

    Attributes
    ----------
    files : int
        Files of the log.
    bytes : int
        Their size.
    messages : int
        Records in them, including records in no queue.
    until : int
        Physical offset of the log's new beginning.
    queues : int
        Queues that lost their last message; their offsets continue.
    """

    files: int = 0
    bytes: int = 0
    messages: int = 0
    until: int = 0
    queues: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a store.

    Attributes
    ----------
    path : str
        Its directory, absolute.
    bytes : int
        Bytes copied, or shared with the store.
    until : int
        Physical offset after its last record.
    """

    path: str
    bytes: int
    until: int


@dataclass(frozen=True, slots=True)
class RecoveredRange:
    """Bytes of the commit log that are no valid record, all in one file.

    Attributes
    ----------
    kind : str
        ``"cut"``: no valid record followed, and the log now ends at ``start``. ``"filled"``: a
        filler record now replaces it, and the records after it stayed. With mode ``"r"``, which
        changes nothing: ``"torn"`` if no valid record follows, else ``"damaged"``; the latter
        also for the missing end of a closed store's log, as far as anything names it. In a
        writing mode ``"damaged"``: a lost index was rebuilt, without the keys of these records.
    start, stop : int
        Physical offsets of the first byte and of the one after the last.
    records : int or None
        Records lost; ``None`` if unknown.
    reason : str
        The check that failed.
    saved_to : str or None
        File with the saved bytes; ``None`` if they were all zeros, or with mode ``"r"``.
    named : bool
        Whether queues have units for all of its records, so that reading them reports the damage.
        Otherwise reading queues and searching for keys may pass it over.
    """

    kind: str
    start: int
    stop: int
    records: int | None
    reason: str
    saved_to: str | None
    named: bool = True

    def __str__(self) -> str:
        """Return the range's kind, offsets and reason, and the file with the saved bytes."""
        count = "an unknown number of" if self.records is None else f"{self.records}"
        noun = "record" if self.records == 1 else "records"
        if self.kind in ("damaged", "torn"):
            return (
                f"commit log {self.kind} from {self.start} to {self.stop} ({count} {noun}): "
                f"{self.reason}"
            )
        saved = f"saved to {self.saved_to}" if self.saved_to else "all zeros"
        return (
            f"commit log {self.kind} from {self.start} to {self.stop} ({count} {noun}): "
            f"{self.reason}; {saved}"
        )


@dataclass(frozen=True)
class Recovery:
    """Result of opening a store: findings and repairs.

    Attributes
    ----------
    clean : bool
        The last owner closed the store: no ``abort``.
    mode : str
        ``"r"``, ``"r+"`` or ``"a"``.
    records_checked : int
        Records of the log read and checked.
    bytes_cut : int
        Bytes of a torn tail, saved and then erased.
    saved_to : tuple of str
        Files with the bytes cut or filled.
    ranges : tuple of RecoveredRange
        Ranges cut or filled, in log order; with mode ``"r"``, those found by opening.
    damaged_files : tuple of str
        With mode ``"r"``, faults of files of the log: ``"missing NAME"``,
        ``"short NAME: 5 of 9 bytes"``, ``"NAME is a FIFO, not a regular file: ..."``.
    queues_rebuilt, index_files_rebuilt : int
        Consume queues and index files rebuilt or completed from the log.
    units_written : int
        Consume queue units completed from the log.
    seconds : float
        Duration of opening.
    log_start, log_end : int
        Physical offsets of the log's first byte and after its last record.
    notes : tuple of str
        Other findings, oldest first.
    """

    clean: bool
    mode: str
    records_checked: int = 0
    bytes_cut: int = 0
    saved_to: tuple[str, ...] = ()
    queues_rebuilt: int = 0
    index_files_rebuilt: int = 0
    units_written: int = 0
    seconds: float = 0.0
    log_start: int = 0
    log_end: int = 0
    notes: tuple[str, ...] = ()
    ranges: tuple[RecoveredRange, ...] = ()
    damaged_files: tuple[str, ...] = ()
