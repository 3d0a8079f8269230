"""Lag of a stream behind its stores, from Spark's progress reports.

Source: Spark's Kafka source, ``minOffsetsBehindLatest`` and its kin, for the meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from rmqstore.base.warn import Log
from rmqstore.spark.stream.offsets import OffsetError, QueueName, flat

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["Lag", "LagListener", "QueueLag", "lag"]

_log = Log("rmqstore")


@dataclass(frozen=True)
class QueueLag:
    """Lag of a stream behind one queue.

    Attributes
    ----------
    store : str
        Directory of the store if the stream reads several, else ``"."``.
    topic : str
    queue_id : int
    messages : int
        Existing messages not yet in a batch.
    bytes : int
        Bytes of their records; estimated for very many.
    """

    store: str
    topic: str
    queue_id: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class Lag:
    """Lag of a stream, as of the planning of the reported batch.

    Attributes
    ----------
    messages : int
        Existing messages not yet in a batch.
    bytes : int
        Bytes of their records; estimated for very many.
    queues : tuple of QueueLag
        Each queue with a message, even without a lag.
    as_of : datetime, or None
        Time of the report; None if it has none.
    """

    messages: int
    bytes: int
    queues: tuple[QueueLag, ...]
    as_of: datetime | None = None

    @classmethod
    def of(cls, queues: Iterable[QueueLag], as_of: datetime | None = None) -> Lag:
        """Return the total lag of queues."""
        each = tuple(queues)
        return cls(sum(one.messages for one in each), sum(one.bytes for one in each), each, as_of)

    @property
    def age(self) -> timedelta | None:
        """Time since :attr:`as_of`; later messages are not counted here."""
        return None if self.as_of is None else max(datetime.now(UTC) - self.as_of, timedelta(0))

    @property
    def by_topic(self) -> dict[str, Lag]:
        """Lag of each topic, sorted by name."""
        topics: dict[str, list[QueueLag]] = {}
        for one in self.queues:
            topics.setdefault(one.topic, []).append(one)
        return {topic: Lag.of(topics[topic], self.as_of) for topic in sorted(topics)}

    @property
    def min_messages(self) -> int:
        """Messages of the queue with the smallest lag; 0 if there is no queue."""
        return min((one.messages for one in self.queues), default=0)

    @property
    def max_messages(self) -> int:
        """Messages of the queue with the largest lag; 0 if there is no queue."""
        return max((one.messages for one in self.queues), default=0)

    @property
    def avg_messages(self) -> float:
        """Messages per queue."""
        return self.messages / max(len(self.queues), 1)

    @property
    def min_bytes(self) -> int:
        """Bytes of the queue with the smallest lag; 0 if there is no queue."""
        return min((one.bytes for one in self.queues), default=0)

    @property
    def max_bytes(self) -> int:
        """Bytes of the queue with the largest lag; 0 if there is no queue."""
        return max((one.bytes for one in self.queues), default=0)

    @property
    def avg_bytes(self) -> float:
        """Bytes per queue."""
        return self.bytes / max(len(self.queues), 1)


def lag(query: Any) -> Lag | None:
    """Return the lag of a stream behind its stores.

    Parameters
    ----------
    query : StreamingQuery, StreamingQueryProgress or mapping
        A query, also of Spark Connect, or its report: ``query.lastProgress``.

    Returns
    -------
    Lag, or None
        None before the first batch, and if the query reads no store.

    Notes
    -----
    As of the planning of the last batch, :attr:`Lag.age` ago: a stalled query reports nothing
    new. ``rmqstore lag STORE --checkpoint DIR`` compares with the store's present state.
    """
    progress = getattr(query, "lastProgress", query)
    if progress is None:
        return None
    queues = [each for source in _get(progress, "sources") or () for each in _of_source(source)]
    found = {(one.store, one.topic, one.queue_id): one for one in queues}
    as_of = _time(_get(progress, "timestamp"))
    return Lag.of((found[key] for key in sorted(found)), as_of) if queues else None


def _of_source(source: Any) -> list[QueueLag]:
    """Return the queues of a query's source; none if it is not ours."""
    latest, end = _offset(_get(source, "latestOffset")), _offset(_get(source, "endOffset"))
    if latest is None or end is None or "bytes" not in latest:
        return []
    try:
        heads, ends = flat(latest["q"]), flat(end["q"])
        behind, sizes = flat(latest["at"]), flat(latest["bytes"])
    except (KeyError, OffsetError):
        return []
    return [
        _of_queue(name, head, ends.get(name, behind.get(name, head)), behind, sizes)
        for name, head in heads.items()
    ]


def _of_queue(
    name: QueueName,
    head: int,
    at: int,
    behind: Mapping[QueueName, int],
    sizes: Mapping[QueueName, int],
) -> QueueLag:
    messages = max(head - at, 0)
    measured = head - behind.get(name, head)  # messages counted in the bytes
    size = sizes.get(name, 0)
    if messages != measured:
        size = size * messages // measured if measured > 0 else 0
    return QueueLag(name.store, name.topic, name.queue_id, messages, size)


def _offset(text: Any) -> dict[str, Any] | None:
    """Return an offset, reported by Spark as JSON."""
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except ValueError:
            return None
    return text if isinstance(text, dict) and "q" in text else None


def _time(text: Any) -> datetime | None:
    """Return a report's time, written by Spark as ISO-8601 in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _get(of: Any, name: str) -> Any:
    """Return a field of a report, which is an object or a mapping."""
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


class LagListener(StreamingQueryListener):
    """Listener that reports a stream's lag with each batch.

    Parameters
    ----------
    tell : callable, optional
        Called with the query's name, or its id if it has none, and the :class:`Lag`. By default
        the lag is logged, by the logger ``rmqstore``.

    Notes
    -----
    ``spark.streams.addListener(LagListener(print))``.
    Source: pyspark, ``sql/streaming/listener.py``.
    """

    def __init__(self, tell: Callable[[str, Lag], object] | None = None) -> None:
        self._tell = tell if tell is not None else _logged

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a new query has no batch yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the lag of the query."""
        found = lag(event.progress)
        if found is not None:
            self._tell(str(event.progress.name or event.progress.id), found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: nothing was added since the last batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last report stands."""


def _logged(query: str, found: Lag) -> None:
    when = "" if found.as_of is None else f", as of {found.as_of:%Y-%m-%dT%H:%M:%SZ}"
    _log.info("%s: %d messages behind, %d bytes%s", query, found.messages, found.bytes, when)
