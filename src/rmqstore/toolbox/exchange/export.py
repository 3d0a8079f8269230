"""Export: messages of a store as a file of Parquet, Arrow IPC, CSV or JSON lines."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from rmqstore import opening
from rmqstore.base.arguments import one_of, wrong_type, wrong_value
from rmqstore.base.syncing import sync_file, sync_path
from rmqstore.columns.side_by_side import cores
from rmqstore.directory.layout import log_directories
from rmqstore.errors import StoreCorruptError
from rmqstore.files.regular import require_parent
from rmqstore.toolbox.exchange.formats import (
    ColumnFileWriter,
    CountedFile,
    LineFileWriter,
    format_of,
    needed_arrow,
)
from rmqstore.toolbox.exchange.redaction import Redaction

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore._core import Message
    from rmqstore.base.times import TimeLike
    from rmqstore.columns.scan import Scan
    from rmqstore.config.store_config import StoreConfig
    from rmqstore.store import MessageStore

__all__ = ["Exported", "export", "export_of"]

_UNFINISHED = ".unfinished"
_TOGETHER = 256  # messages of one call of a formatter, at most,
_TOGETHER_BYTES = 1 << 20  # and bytes of their records
_COMPRESSED = 1  # of sys_flag
_WORD = (1 << 64) - 1

File = str | os.PathLike[str] | IO[bytes]
Progressed = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export.

    Attributes
    ----------
    messages : int
        Messages in the file.
    bytes : int
        Its size.
    seconds : float
    skipped : int
        Damaged places passed over; adjacent damaged records are one.
    """

    messages: int
    bytes: int
    seconds: float
    skipped: int


def export(
    path: str | os.PathLike[str],
    file: File,
    *,
    topics: Iterable[str] | None = None,
    since: TimeLike | None = None,
    until: TimeLike | None = None,
    tags: str | None = None,
    sql: str | None = None,
    redact: Iterable[str] = (),
    sample: float | None = None,
    on_corruption: Literal["raise", "skip"] = "raise",
    format: Literal["parquet", "arrow", "csv", "jsonl"] | None = None,
    config: StoreConfig | str | os.PathLike[str] | None = None,
) -> Exported:
    """Write messages to a file, in the order of the log, with the columns of a scan.

    Records of all kinds are among them: delayed messages that wait, half messages and their ends.
    The file has a temporary name, ``FILE.unfinished``, until it is complete and on the disk; an
    error removes it.

    Parameters
    ----------
    path : path-like
        Directory of the store; it may be in use.
    file : path-like or binary file
        The file to make, which does not exist; or an open one to write to.
    topics : iterable of str, optional
        Only these topics' messages.
    since, until : int, datetime or str, optional
        Store times; ``until`` is exclusive.
    tags, sql : str, optional
        As for :meth:`MessageStore.scan`.
    redact : iterable of {"body", "keys", "hosts"}, optional
        Replace by pseudonyms, equal ones for equal values of this file: bodies, with their
        lengths; keys, unique keys, and both in the values of other properties; IP addresses of
        hosts, in ids, and in the values of properties. Bodies are not searched for keys and hosts.
    sample : float, optional
        About this part of the messages, above 0 to 1; by their physical offsets: the same ones
        every time.
    on_corruption : {"raise", "skip"}, optional
        At an invalid record, or a body that cannot be inflated: raise an error, or go on behind
        it.
    format : {"parquet", "arrow", "csv", "jsonl"}, optional
        By default that of the file's ending: ``.parquet``, ``.arrow``, ``.feather``, ``.csv``,
        ``.jsonl`` or ``.ndjson``. Lines are those of ``rmqstore cat``.
    config : StoreConfig or path of a broker.conf, optional
        As for :func:`rmqstore.open`.

    Returns
    -------
    Exported

    Raises
    ------
    FileExistsError
        The file exists, or ``FILE.unfinished`` does.
    ImportError
        pyarrow is missing; lines do not need it.
    TypeError, ValueError, FilterError
        An argument has a wrong type or value; the file lies in the store.
    StoreCorruptError
        A record is invalid, and ``on_corruption`` is ``"raise"``.
    StoreNotFoundError, IncompatibleStoreError, OSError
        As for :func:`rmqstore.open`; or the file cannot be written.
    """
    form = format_of(file, format)
    with opening.open(path, config=config) as store:
        return export_of(
            store,
            file,
            form,
            store.scan(topics, since=since, until=until, tags=tags, sql=sql, on_removed="skip"),
            redact=redact,
            sample=sample,
            on_corruption=on_corruption,
        )


def export_of(
    store: MessageStore,
    file: File,
    form: str,
    scan: Scan,
    *,
    redact: Iterable[str] = (),
    sample: float | None = None,
    on_corruption: Literal["raise", "skip"] = "raise",
    progressed: Progressed | None = None,
) -> Exported:
    """Return :func:`export` of a scan of an open store; ``progressed`` gets counts of messages."""
    begin = time.monotonic()
    one_of("on_corruption", on_corruption, ("raise", "skip"))
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int | float)):
        raise wrong_type("sample", "a number above 0, up to 1", sample)
    if sample is not None and not 0 < sample <= 1:
        raise wrong_value("sample", "above 0, up to 1", sample)
    redaction = Redaction(redact)
    most = _WORD if sample is None else int(sample * _WORD)
    if form in ("parquet", "arrow"):
        needed_arrow("parquet" if form == "parquet" else "ipc")
        reading: _Reading = _BatchReading(scan, most, redaction, form)
    else:
        reading = _MessageReading(scan, most, redaction, form)
    with _made(store, file) as into:
        writer = reading.writer(into)
        messages = 0
        for chunk in reading.chunks(skip=on_corruption == "skip"):
            writer.write(chunk)
            messages += len(chunk)
            if progressed is not None:
                progressed(messages)
        writer.close()
    return Exported(messages, into.count, time.monotonic() - begin, reading.skipped)


class _Reading:
    """Messages of a scan in pieces, of a sample of them, redacted.

    Damage is found by a pass that raises; the next one begins with the first message behind it.
    """

    def __init__(self, scan: Scan, most: int, redaction: Redaction, form: str) -> None:
        self.scan = scan
        self.most = most  # of the hash of a message's offset
        self.redaction = redaction
        self.form = form
        self.skipped = 0

    def writer(self, into: CountedFile) -> Any:
        """Return the writer of the pieces."""
        raise NotImplementedError

    def read(self, scan: Scan) -> Iterator[tuple[int, Any]]:
        """Iterate over pieces, each with the end of its last record."""
        raise NotImplementedError

    def first(self, scan: Scan) -> int | None:
        """Return the offset of a scan's first message."""
        raise NotImplementedError

    def prepared(self, piece: Any) -> Any:
        """Return a piece's sample, redacted."""
        raise NotImplementedError

    def chunks(self, *, skip: bool) -> Iterator[Any]:
        """Iterate over the pieces to write."""
        start = self.scan.start
        while True:
            try:
                for end, piece in self.read(self.scan.replace(start=start)):
                    yield self.prepared(piece)
                    start = end
            except StoreCorruptError:
                if not skip:
                    raise
            else:
                return
            self.skipped += 1
            start = self.first(self.scan.replace(start=start, on_corruption="skip"))
            if start is None:
                return


class _BatchReading(_Reading):
    """Record batches, read by threads."""

    def writer(self, into: CountedFile) -> ColumnFileWriter:
        return ColumnFileWriter(self.form, into, self.scan.schema)

    def read(self, scan: Scan) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in scan.replace(threads=cores()).to_batches():
            if batch.num_rows:
                last = batch.num_rows - 1
                size = batch.column("store_size")[last].as_py()
                yield batch.column("physical_offset")[last].as_py() + size, batch

    def first(self, scan: Scan) -> int | None:
        for batch in scan.replace(batch_rows=1).to_batches():
            for offset in batch.column("physical_offset").to_pylist():
                return int(offset)
        return None

    def prepared(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        if self.most < _WORD:
            piece = piece.filter(_chosen_rows(piece, self.most))
        return self.redaction.batch(piece) if self.redaction.columns else piece


class _MessageReading(_Reading):
    """Lists of messages."""

    def writer(self, into: CountedFile) -> LineFileWriter:
        return LineFileWriter(self.form, into)

    def read(self, scan: Scan) -> Iterator[tuple[int, list[Message]]]:
        held: list[Message] = []
        size = end = 0
        try:
            for message in _inflated(scan):
                held.append(message)
                size += message.store_size
                end = message.physical_offset + message.store_size
                # A compressed body may inflate to far more than its record: one at a time.
                compressed = message.sys_flag & _COMPRESSED
                if compressed or size >= _TOGETHER_BYTES or len(held) >= _TOGETHER:
                    yield end, held
                    held, size = [], 0
        except StoreCorruptError:
            if held:
                yield end, held
            raise
        if held:
            yield end, held

    def first(self, scan: Scan) -> int | None:
        for message in scan:
            try:
                message.body  # noqa: B018 - it raises
            except StoreCorruptError:
                continue
            return message.physical_offset
        return None

    def prepared(self, piece: list[Message]) -> list[Any]:
        found = [one for one in piece if _mixed(one.physical_offset) <= self.most]
        return list(map(self.redaction.message, found)) if self.redaction.columns else found


def _inflated(scan: Scan) -> Iterator[Message]:
    """Iterate over messages; raise at the first that cannot be inflated, as columns do."""
    for message in scan:
        if message.sys_flag & _COMPRESSED:
            message.body  # noqa: B018 - it raises
        yield message


def _mixed(offset: int) -> int:
    """Return a hash of an offset: 64 bits, each of which depends on all bits of it."""
    word = (offset + 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _chosen_rows(batch: pa.RecordBatch, most: int) -> Any:
    """Return which rows of a batch have a hash of at most ``most``, as :func:`_mixed`."""
    import numpy as np
    import pyarrow as pa

    word = batch.column("physical_offset").to_numpy(zero_copy_only=False).astype(np.uint64)
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return pa.array((word ^ (word >> np.uint64(31))) <= np.uint64(most))


@contextlib.contextmanager
def _made(store: MessageStore, file: File) -> Iterator[CountedFile]:
    """Open the file to write, or a new one, which gets its name when it is complete."""
    if not isinstance(file, str | os.PathLike):
        with _dropped_on_error(CountedFile(file)) as into:
            yield into
            into.flush()
        return
    path = Path(file)
    _check_file(store, path)
    require_parent(path)
    making = path.with_name(path.name + _UNFINISHED)
    try:
        opened = making.open("xb")
    except FileExistsError as error:
        why = "an export that was not finished, or is under way"
        raise FileExistsError(errno.EEXIST, why, str(making)) from error
    try:
        with opened, _dropped_on_error(CountedFile(opened)) as into:
            yield into
            opened.flush()
            sync_file(opened.fileno(), opened.name)
        _name(making, path)
    except OSError as error:
        making.unlink(missing_ok=True)
        if error.filename is None and error.errno is not None:
            why = f"{os.strerror(error.errno)}: nothing of the export is left"
            raise OSError(error.errno, why, str(path)) from error
        raise
    except BaseException:
        making.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


@contextlib.contextmanager
def _dropped_on_error(into: CountedFile) -> Iterator[CountedFile]:
    try:
        yield into
    except BaseException:
        into.drop()
        raise


def _check_file(store: MessageStore, path: Path) -> None:
    """Raise unless a file can be made at a path."""
    places = [Path(store.path), *log_directories(store.path, store.config)]
    made = os.path.realpath(path)
    if any(made.startswith(os.path.realpath(place) + os.sep) for place in places):
        raise wrong_value("file", "outside the store", str(path))
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "exists, and is not replaced", str(path))


def _name(making: Path, path: Path) -> None:
    """Give a complete file its name, unless there is one by now."""
    try:
        os.link(making, path)
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, "exists, and is not replaced", str(path)) from error
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "exists, and is not replaced", str(path)) from None
        making.rename(path)
    else:
        making.unlink()
