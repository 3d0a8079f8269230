"""Offsets of a stream, and shares of a batch: plain values, no open store.

An offset holds, by store, topic and queue, the queue offset after the last message of the batch
that ends there, and the batch's beginning: Spark does not keep the start of a query's first batch,
so that replaying it has to be planned from its end alone. The first record of each store's log
shows, after a restart of the query, whether another store is at the path.

Source: pyspark, ``sql/datasource.py`` DataSourceStreamReader; shares as Spark's Kafka source has
them for ``maxOffsetsPerTrigger``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqstore.base.layout import INT32_MAX, INT64_MAX
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular

__all__ = [
    "HEAD_BYTES",
    "DataLossError",
    "Deletions",
    "LogStart",
    "LogStarts",
    "OffsetError",
    "QueueName",
    "QueueOffsets",
    "StreamOffset",
    "flat",
    "log_starts",
    "nested",
    "record_at",
    "share",
]

HEAD_BYTES = 8
"""Bytes at the start of a record, some of them not zero."""

_VERSION = 1
_RECORD_BYTES = 80  # of a record, including its times; none is shorter
_DIGEST_BYTES = 8


class OffsetError(StoreError, ValueError):
    """An offset in the checkpoint is not of this source."""


class DataLossError(StoreError):
    """The next messages of the stream are missing, and may be lost."""


class QueueName(NamedTuple):
    """A queue of a stream; the store is ``"."`` in a stream of a single one."""

    store: str
    topic: str
    queue_id: int


class LogStart(NamedTuple):
    """First record of a store's log: its offset, and a digest of its first bytes."""

    offset: int
    record: str


QueueOffsets = dict[QueueName, int]
Deletions = dict[str, dict[str, int]]
LogStarts = dict[str, LogStart]


@dataclass(frozen=True)
class StreamOffset:
    """End of a batch."""

    positions: QueueOffsets  # the next queue offset
    # the first offset, for queues with messages in the batch
    begins: QueueOffsets = field(default_factory=dict)
    # by store and topic, the end of the log at the topic's last deletion
    deletions: Deletions = field(default_factory=dict)
    # first record of the log by store, without stores that had no messages yet
    logs: LogStarts = field(default_factory=dict)

    def ranges(self) -> Iterator[tuple[QueueName, int, int]]:
        """Yield the ranges of the batch: queue, first offset, and the one after the last."""
        for name in sorted(self.begins):
            start, stop = self.begins[name], self.positions[name]
            if start < stop:
                yield name, start, stop

    def to_json(self) -> dict[str, Any]:
        """Return the offset as stored in the checkpoint."""
        found: dict[str, Any] = {
            "v": _VERSION,
            "q": nested(self.positions),
            "from": nested(self.begins),
        }
        if self.deletions:
            found["deleted"] = self.deletions
        if self.logs:
            found["logs"] = {store: list(start) for store, start in self.logs.items()}
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StreamOffset:
        """Parse the result of :meth:`to_json`; ``OffsetError`` if it is invalid, or newer."""
        version = data.get("v") if isinstance(data, Mapping) else None
        if version != _VERSION:
            raise OffsetError(
                f"the checkpoint has an offset of version {version!r}; this source knows {_VERSION}"
            )
        positions = flat(data.get("q"))
        begins = flat(data.get("from", {}))
        deletions = data.get("deleted", {})
        if not isinstance(deletions, dict) or not all(
            isinstance(topics, dict) and all(type(end) is int for end in topics.values())
            for topics in deletions.values()
        ):
            raise OffsetError(f"the checkpoint has {deletions!r} where deleted topics should be")
        for name, start in begins.items():
            if start > positions.get(name, -1):
                raise OffsetError(
                    f"the checkpoint has a batch of {name.topic}/{name.queue_id} that begins at "
                    f"{start} and ends at {positions.get(name)}"
                )
        return cls(positions, begins, deletions, log_starts(data.get("logs", {})))


def log_starts(data: Any) -> LogStarts:
    """Parse the first records of an offset's logs; ``OffsetError`` if invalid."""
    try:
        found = {store: LogStart(*start) for store, start in data.items()}
    except (AttributeError, TypeError):
        raise OffsetError(f"the checkpoint has {data!r} where logs should be") from None
    for offset, record in found.values():
        if type(offset) is not int or not 0 <= offset <= INT64_MAX or type(record) is not str:
            raise OffsetError(f"the checkpoint has {data!r} where logs should be")
    return found


def record_at(path: str, offset: int) -> str:
    """Return a digest of the record at the start of an offset's log file; empty if there is none.

    A copied or moved store keeps it. Raises ``FileNotFoundError`` if there is no such file.
    """
    with open_regular(Path(path, paths.COMMIT_LOG, paths.offset_file_name(offset))) as file:
        head = file.read(_RECORD_BYTES)
    if not any(head[:HEAD_BYTES]):
        return ""
    return hashlib.blake2b(head, digest_size=_DIGEST_BYTES).hexdigest()


def nested(values: Mapping[QueueName, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return values nested as in JSON: store, topic, queue."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for (store, topic, queue_id), value in sorted(values.items()):
        found.setdefault(store, {}).setdefault(topic, {})[str(queue_id)] = value
    return found


def flat(data: Any) -> QueueOffsets:
    """Invert :func:`nested`; ``OffsetError`` if invalid."""
    try:
        found = {
            QueueName(store, topic, int(queue_id)): value
            for store, topics in data.items()
            for topic, queues in topics.items()
            for queue_id, value in queues.items()
        }
    except (AttributeError, ValueError):
        raise OffsetError(f"the checkpoint has {data!r} where queues should be") from None
    for name, value in found.items():
        if type(value) is not int or not 0 <= value <= INT64_MAX:
            raise OffsetError(f"the checkpoint has {value!r} for {name.topic}/{name.queue_id}")
        if not 0 <= name.queue_id <= INT32_MAX:
            raise OffsetError(f"the checkpoint has a queue {name.queue_id} of {name.topic!r}")
    return found


def share(wanted: Sequence[int], limit: int, turn: int = 0) -> list[int]:
    """Divide a limit in proportion to the wanted parts, exceeding none.

    The rest from rounding goes first to empty parts, from ``turn`` on, so that within as many calls
    as there are queues each has had one.
    """
    total = sum(wanted)
    if total <= limit:
        return list(wanted)
    parts = [limit * each // total for each in wanted]
    left = limit - sum(parts)
    count = len(wanted)
    order = [(turn + i) % count for i in range(count)]
    for none_yet in (True, False):
        for i in order:
            if left and parts[i] < wanted[i] and (parts[i] == 0) == none_yet:
                parts[i] += 1
                left -= 1
    return parts
