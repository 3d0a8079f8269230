"""Selection of messages: a scan as its dataset and filter push-down use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore._core import Core

__all__ = ["ScanExtent", "ScanSelection", "ScannedStore"]


class ScanExtent(NamedTuple):
    """Extent of the log, as a pass beginning now finds it; physical offsets.

    Attributes
    ----------
    start : int
        The first byte.
    queued : int
        Up to here each record has a unit in a queue.
    stop : int
        The end of the last record.
    """

    start: int
    queued: int
    stop: int


class ScanSelection(Protocol):
    """A scan, see ``Scan``."""

    @property
    def store(self) -> Any: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def topics(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def queue_id(self) -> int | None: ...
    @property
    def start(self) -> int | None: ...
    @property
    def stop(self) -> int | None: ...
    @property
    def since(self) -> int | None: ...
    @property
    def until(self) -> int | None: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def batch_rows(self) -> int: ...
    @property
    def is_along_queue(self) -> bool: ...
    @property
    def is_empty(self) -> bool: ...
    def extent(self) -> ScanExtent: ...
    def replace(self, **changes: Any) -> Self: ...
    def to_batches(self) -> Iterator[pa.RecordBatch]: ...
    def count(self) -> int: ...


class TopicHints(Protocol):
    """Names of a store's topics."""

    def spelling_hint(self, topic: str) -> str: ...


class ScannedStore(Protocol):
    """Parts of a store that a scan needs."""

    @property
    def core(self) -> Core: ...
    @property
    def path(self) -> str: ...
    @property
    def catalog(self) -> TopicHints: ...
