"""Messages as columns: a scan of the store, and its exports to dataframe libraries.

The column names are ``common/message/MessageExt.java``'s.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from rmqstore import _core
from rmqstore.base.arguments import one_of
from rmqstore.base.layout import INT32_MAX, INT64_MAX, INT64_MIN
from rmqstore.base.tables import html_table
from rmqstore.base.times import to_millis
from rmqstore.columns.arguments import bounded, known_columns, texts
from rmqstore.columns.selection import ScanExtent, ScannedStore
from rmqstore.columns.side_by_side import batches
from rmqstore.config.store_config import RmqStoreWarning

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from rmqstore.base.times import TimeLike
    from rmqstore.columns.dataset import StoreDataset

__all__ = ["COLUMNS", "Scan", "ScanExtent", "log_end", "messages_with", "scan"]

COLUMNS: tuple[str, ...] = tuple(name for name in _core.COLUMN_NAMES if name != "raw_body")

_ON_CORRUPTION = ("raise", "skip", "stop")
_ON_REMOVED = ("raise", "skip")
_ALWAYS = (INT64_MIN, INT64_MAX)
_ROWS_MOST = 1 << 24
_BYTES_MOST = 1 << 30
_MESSAGES, _MESSAGES_BYTES = 256, 4 << 20  # per fetch of an iteration over messages


class Scan:
    """Messages of a store, as columns or one by one; made by :meth:`MessageStore.scan`.

    Nothing is read before it is needed; each use is a separate pass, up to the head at its
    beginning. Anything that reads the Arrow C stream interface takes a scan directly:
    ``pyarrow.table(scan)``, ``polars.DataFrame(scan)``, ``duckdb.from_arrow(scan)``.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns, in order.
    schema : pyarrow.Schema
        Their types.
    store : MessageStore
        The scanned store.
    topics, keys : tuple of str
        As requested; empty for any.
    queue_id, start, stop : int or None
        As requested; None if unset.
    since, until : int or None
        Store times in ms since the epoch, likewise.
    tags, sql : str or None
        Likewise.
    batch_rows : int
        Maximum number of rows in a batch.
    is_along_queue : bool
        One queue of one topic was requested: ``start`` and ``stop`` are then queue offsets, and
        physical offsets otherwise.
    is_empty : bool
        An empty list of topics or keys was requested: there are no messages.

    Notes
    -----
    A stream's reader raises a store error as its own type of error, with our text; the methods
    below raise the error itself.
    """

    columns: tuple[str, ...]

    def __init__(self, engine: ScannedStore, arguments: dict[str, Any]) -> None:
        self._engine = engine
        # One-shot iterables become tuples.
        self._arguments = taken = dict(arguments)
        for name in ("columns", "topic", "keys"):
            taken[name] = texts(name, taken[name])
        topic, keys, since, until = (taken[name] for name in ("topic", "keys", "since", "until"))
        self.columns = COLUMNS if taken["columns"] is None else known_columns(taken["columns"])
        self._topics: tuple[str, ...] = topic or ()
        self._keys: tuple[str, ...] = keys or ()
        self._nothing: bool = topic == () or keys == ()
        self._queue_id = bounded("queue_id", taken["queue_id"], 0, INT32_MAX, -1)
        self._start = bounded("start", taken["start"], 0, INT64_MAX, -1)
        self._stop = bounded("stop", taken["stop"], 0, INT64_MAX, -1)
        self._since = INT64_MIN if since is None else to_millis(since, name="since")
        self._until = INT64_MAX if until is None else to_millis(until, name="until")
        self._tags: str | None = taken["tags"]
        self._sql: str | None = taken["sql"]
        self._batch_rows = bounded("batch_rows", taken["batch_rows"], 1, _ROWS_MOST)
        self._batch_bytes = bounded("batch_bytes", taken["batch_bytes"], 1, _BYTES_MOST)
        self._on_corruption = one_of("on_corruption", taken["on_corruption"], _ON_CORRUPTION)
        self._on_removed = one_of("on_removed", taken["on_removed"], _ON_REMOVED)
        self._threads = bounded("threads", taken["threads"], 1, INT32_MAX)
        self._pass(())  # raises now what the core refuses

    def __repr__(self) -> str:
        topics = " ".join(self._topics[:3]) + (" ..." if len(self._topics) > 3 else "")
        where = f" of {topics}" if topics else ""
        return f"<rmqstore.Scan {self._engine.path!r}{where} {len(self.columns)} columns>"

    def _repr_html_(self) -> str:
        try:
            types = [str(field.type) for field in self.schema]
        except ImportError:
            types = [""] * len(self.columns)
        extent = self.extent(queued=False)
        caption = f"{repr(self)[1:-1]}, of a log from {extent.start:,} to {extent.stop:,}"
        return html_table(("column", "type"), zip(self.columns, types, strict=True), caption)

    @property
    def store(self) -> Any:
        """The scanned store."""
        return self._engine

    @property
    def topics(self) -> tuple[str, ...]:
        """The requested topics; empty for any."""
        return self._topics

    @property
    def keys(self) -> tuple[str, ...]:
        """The requested keys; empty for any."""
        return self._keys

    @property
    def queue_id(self) -> int | None:
        """The requested queue; None for any."""
        return None if self._queue_id < 0 else self._queue_id

    @property
    def start(self) -> int | None:
        """First offset requested: in the queue if there is one, else in the log."""
        return None if self._start < 0 else self._start

    @property
    def stop(self) -> int | None:
        """End of the requested offsets: in the queue if there is one, else in the log."""
        return None if self._stop < 0 else self._stop

    @property
    def is_along_queue(self) -> bool:
        """Whether one queue of one topic was requested: start and stop are then queue offsets."""
        return len(self._topics) == 1 and self._queue_id >= 0

    @property
    def since(self) -> int | None:
        """First store time requested, in ms since the epoch."""
        return None if self._since == INT64_MIN else self._since

    @property
    def until(self) -> int | None:
        """End of the requested store times, in ms since the epoch."""
        return None if self._until == INT64_MAX else self._until

    @property
    def tags(self) -> str | None:
        """The requested tag expression."""
        return self._tags

    @property
    def sql(self) -> str | None:
        """The requested SQL92 filter."""
        return self._sql

    @property
    def batch_rows(self) -> int:
        """Maximum number of rows in a batch."""
        return self._batch_rows

    @property
    def is_empty(self) -> bool:
        """Whether an empty list of topics or keys was requested: there are no messages."""
        return self._nothing

    def extent(self, *, queued: bool = True) -> ScanExtent:
        """Return the current extent of the log, whatever was requested.

        Parameters
        ----------
        queued : bool, optional
            Find ``queued``, which reads the queues; otherwise it equals ``start``.

        Returns
        -------
        ScanExtent

        Raises
        ------
        OSError
            A file cannot be read.
        StoreClosedError, ForkedStoreError
            The store is not open here.
        """
        start, upto, stop = self._pass(()).extent(queued)
        return ScanExtent(start, upto if queued else start, stop)

    def narrowed(self, start: int, stop: int) -> tuple[int, int]:
        """Return the part of a log range that ``since`` and ``until`` leave to be read.

        Parameters
        ----------
        start, stop : int
            Physical offsets in bytes.

        Returns
        -------
        (int, int)
            Start and stop, without files at both ends that have nothing stored in that time;
            in a log of up to 1 GiB, also without such parts of a file.

        Raises
        ------
        StoreClosedError, ForkedStoreError
            The store is not open here.
        """
        return self._pass(()).narrowed(start, stop)

    def replace(self, **changes: Any) -> Scan:
        """Return the scan with other arguments of :meth:`MessageStore.scan`.

        Parameters
        ----------
        **changes
            ``columns``, ``since`` and so on.

        Returns
        -------
        Scan
        """
        return Scan(self._engine, {**self._arguments, **changes})

    def _pass(
        self,
        columns: tuple[str, ...] | None = None,
        *,
        batch_rows: int | None = None,
        batch_bytes: int | None = None,
        messages: bool = False,
    ) -> _core.ScanPass:
        names = self.columns if columns is None else columns
        return _core.ScanPass(
            self._engine.core,
            tuple(_core.COLUMN_NAMES.index(name) for name in names),
            self._topics,
            self._queue_id,
            self._start,
            0 if self._nothing else self._stop,
            self._since,
            self._until,
            self._tags,
            self._sql,
            self._keys,
            batch_rows or self._batch_rows,
            batch_bytes or self._batch_bytes,
            self._on_corruption,
            self._on_removed,
            messages,
        )

    def __arrow_c_schema__(self) -> Any:
        """Return the types by the Arrow PyCapsule interface."""
        return self._pass().schema()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a new pass by the Arrow PyCapsule interface, with its own types."""
        running = self._pass()
        if self._threads == 1:
            return running.stream()
        return _core.BatchStream(running, batches(self._pass, self._threads)).stream()

    @property
    def schema(self) -> pa.Schema:
        """Types of the columns."""
        return _needed("pyarrow").schema(self)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the messages in batches of columns.

        Yields
        ------
        pyarrow.RecordBatch
            At most ``batch_rows`` rows, and after the first at most ``batch_bytes`` bytes.

        Raises
        ------
        StoreCorruptError
            A record is invalid, and ``on_corruption`` is ``"raise"``.
        MessagesRemovedError
            Retention removed messages before they were read, and ``on_removed`` is ``"raise"``.
        OSError
            A file cannot be read.
        StoreClosedError, ForkedStoreError
            The store is not open here.
        """
        record_batch = _needed("pyarrow").record_batch
        with closing(batches(self._pass, self._threads)) as found:
            for batch in found:
                yield record_batch(batch)

    def to_table(self) -> pa.Table:
        """Return all messages as a ``pyarrow.Table``; errors as :meth:`to_batches`."""
        return _needed("pyarrow").Table.from_batches(list(self.to_batches()), schema=self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return all messages as a ``pandas.DataFrame``; errors as :meth:`to_batches`.

        Parameters
        ----------
        **options
            For ``pyarrow.Table.to_pandas``.
        """
        _needed("pandas")
        frame: pd.DataFrame = self.to_table().to_pandas(**options)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return all messages as a ``polars.DataFrame``; errors as :meth:`to_batches`."""
        frame: pl.DataFrame = _needed("polars").from_arrow(self.to_table())
        return frame

    def dataset(self) -> StoreDataset:
        """Return the messages as a ``pyarrow.dataset.Dataset`` that reads only what is needed.

        Returns
        -------
        StoreDataset
            DuckDB and Polars pass the columns and the filters of a query to it.
        """
        _needed("pyarrow")
        from rmqstore.columns.dataset import StoreDataset

        return StoreDataset(self)

    def count(self) -> int:
        """Return the number of messages, along queues from their units: see ``columns``.

        Errors as :meth:`to_batches`.
        """
        if self._threads == 1:
            return self._pass(()).count()
        rows = partial(self._pass, (), batch_rows=_ROWS_MOST)
        return sum(map(len, batches(rows, self._threads)))

    def __iter__(self) -> Iterator[_core.Message]:
        """Iterate over the messages, whatever the columns; errors as `to_batches`."""
        return messages_with(self, b"")


def messages_with(
    scan: Scan, text: bytes, *, ignore_case: bool = False, properties: bool = False
) -> Iterator[_core.Message]:
    """Iterate over a scan's messages; skip most of those that lack a text.

    The text is searched for in bodies as stored, and with ``properties`` in these as well; messages
    with a compressed body are all returned. ``ignore_case`` is of ASCII letters alone.
    """
    running = scan._pass((), batch_rows=_MESSAGES, batch_bytes=_MESSAGES_BYTES, messages=True)
    running.seek(text, ignore_case, properties)
    while (found := running.next_messages()) is not None:
        yield from found


def log_end(core: _core.Core) -> int:
    """Return the current end of the log, as a reader finds it."""
    whole = _core.ScanPass(
        core, (), (), -1, -1, -1, *_ALWAYS, None, None, (), 1, 1, "raise", "raise", False
    )
    return whole.extent(False)[2]


def scan(
    self: ScannedStore,
    topic: str | Iterable[str] | None = None,
    queue_id: SupportsIndex | None = None,
    *,
    columns: Iterable[str] | None = None,
    start: SupportsIndex | None = None,
    stop: SupportsIndex | None = None,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    tags: str | None = None,
    keys: str | Iterable[str] | None = None,
    sql: str | None = None,
    batch_rows: SupportsIndex = 16384,
    batch_bytes: SupportsIndex = 8 << 20,
    threads: SupportsIndex = 1,
    on_corruption: Literal["raise", "skip", "stop"] = "raise",
    on_removed: Literal["raise", "skip"] = "raise",
) -> Scan:
    """Read messages as columns, along the log, or along queues if that reads less.

    Parameters
    ----------
    topic : str or iterable of str, optional
        The record's own topic is one of these; any by default. A missing topic is no error: the
        log may have records of a deleted topic. If the name is near that of another topic, an
        :class:`RmqStoreWarning` says so.
    queue_id : int, optional
        The record's own queue.
    columns : iterable of str, optional
        Names from ``topic queue_id queue_offset physical_offset store_size msg_id uniq_key
        tags keys properties body flag sys_flag born_timestamp store_timestamp born_host
        store_host reconsume_times prepared_transaction_offset body_crc``, in any order; all
        of them by default. ``raw_body``, the body as stored, only if it is named. Along
        queues, counts and ``queue_id queue_offset physical_offset store_size`` alone, without
        a filter, are read from units: they show nothing that the log has lost, but no damage
        inside a record. Where units are in doubt, records are read, and so they are to skip
        damage or to stop at it.
    start, stop : int, optional
        Physical offsets in bytes: records that begin in ``[start, stop)``. With one topic and
        a queue, queue offsets.
    since, until : int, datetime or str, optional
        Store times: ``since`` inclusive, ``until`` exclusive. Files at both ends of the log
        with nothing in that range are not read. In a log of up to 1 GiB that is known from the
        heads of all records, read once while the store is open, and holds for each MiB of a
        file. In a longer one, a file is bounded by its first record and those of its
        neighbours, with a margin of an hour; if one begins earlier than the file before it, a
        clock leapt and all files are read: records with a time wrong by more than an hour, in
        a file that does not show it, are missed.
    tags : str, optional
        ``"TagA || TagB"``; compared exactly. ``"*"`` matches all.
    keys : str or iterable of str, optional
        Messages with one of them as KEYS or UNIQ_KEY, as ``query`` finds them. A str is keys
        separated by spaces. With a topic the index is used.
    sql : str, optional
        RocketMQ's SQL92 filter over the properties, as ``"amount > 5 AND region IN ('eu')"``.
    batch_rows, batch_bytes : int, optional
        A batch ends at so many rows, or so many bytes of columns; that bounds the memory of a
        scan.
    threads : int, optional
        Ranges of the log, or of a single queue, are read by this number of threads side by
        side, at most the machine's processors or 8. Rows, order and errors are as with one;
        batches end at the ends of the ranges as well. For each thread, and one more, up to
        16 MiB of columns and a batch are kept ahead of the consumer, which reads the first two
        batches itself. Iterations over messages, several queues merged and records found by the
        index are read by one thread.
    on_corruption : {"raise", "skip", "stop"}, optional
        At an invalid record: raise an error, skip to the next valid one, or end. A compressed
        body that cannot be inflated counts if ``body`` is requested.
    on_removed : {"raise", "skip"}, optional
        If retention removed messages before they were read, or ``start`` is before the first:
        raise an error, or skip to the first.

    Returns
    -------
    Scan
        In log order, or along one queue in its order. Records prepared or rolled back are
        included, except in a scan of a single queue: they are in no queue.

    Raises
    ------
    TypeError, ValueError, FilterError
        An argument has a wrong type or value.
    StoreClosedError, ForkedStoreError
        The store is not open here.
    """
    arguments = {name: value for name, value in locals().items() if name != "self"}
    found = Scan(self, arguments)
    for name in found.topics:
        if hint := self.catalog.spelling_hint(name):
            warnings.warn(f"{self.path}: no topic {name!r}; {hint}", RmqStoreWarning, stacklevel=2)
    return found


def _needed(package: str) -> Any:
    """Import a package, or raise an error with the remedy."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"this needs {package}: pip install {package}") from error
