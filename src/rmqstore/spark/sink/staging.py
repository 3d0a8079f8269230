"""Staging: a task checks its batches and leaves them in a file for the commit.

A staged file is an Arrow file with the columns of ``put_table``; each row has its unique key of the
log, which shows the rows of a file that are already there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.base.layout import INT32_MAX
from rmqstore.base.syncing import sync_path
from rmqstore.errors import StoreError
from rmqstore.files.regular import open_regular
from rmqstore.offline import check_table
from rmqstore.spark.common.errors import RowError
from rmqstore.spark.common.side_files import TEMPORARY
from rmqstore.spark.common.zones import SESSION_ZONE, in_zone, zone_of
from rmqstore.spark.sink.options import SinkLimits

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Rules",
    "StagedFile",
    "StagedFileError",
    "check_staged",
    "prepare",
    "row_of_key",
    "stage",
    "staged_batches",
    "sum_of",
    "unique_keys",
]

PREFIX_DIGITS = 16
_PART_DIGITS = 8
_MAX_ROWS = 1 << 32
# Set in each key, so that its last 16 digits are no physical offset: it is no store message id.
_NO_OFFSET = INT32_MAX + 1


class StagedFileError(StoreError):
    """A file of a pending write is missing, or not as its task left it."""


@dataclass(frozen=True)
class Rules:
    """Requirements for rows."""

    columns: tuple[str, ...]  # from :func:`rmqstore.spark.sink.options.sink_columns`
    topic: str | None  # for all rows, in place of the column
    limits: SinkLimits  # of the store


@dataclass(frozen=True)
class StagedFile:
    """Staged file of one task."""

    name: str  # in the job's directory; empty without rows, and then without a file
    partition: int  # of the task
    rows: int
    bytes: int
    xxh3: str  # of the file's bytes, 64 bits, in hexadecimal
    topics: tuple[str, ...]  # of its rows, sorted


def prepare(
    batch: pa.RecordBatch,
    columns: Iterable[str],
    topic: str | None = None,
    zone: str | None = None,
) -> pa.RecordBatch:
    """Return a batch of Spark in the form of ``put_table``, with ``topic``, if given, in all rows.

    Removes ``UNIQ_KEY`` from properties. Raises ``ValueError``, naming the row, for a missing topic
    or body, and for local times without a session's ``zone``.
    """
    import pyarrow as pa

    names = [name for name in columns if name != "topic" or topic is None]
    arrays = [batch.column(name) for name in names]
    for i, name in enumerate(names):
        if name in ("topic", "body") and arrays[i].null_count:
            row = arrays[i].is_null().index(True).as_py()
            raise ValueError(f"column {name!r}, row {row}: no value (null); each row has a {name}")
        if name == "body":
            arrays[i] = _as_binary(arrays[i])
        elif name == "properties":
            arrays[i] = _without_unique_keys(arrays[i])
        elif pa.types.is_timestamp(arrays[i].type) and arrays[i].type.tz is None:
            arrays[i] = in_zone(arrays[i], _zone(name, zone))
    if topic is not None:
        names.insert(0, "topic")
        arrays.insert(0, pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, names)


def _zone(column: str, zone: str | None) -> tzinfo:
    if zone is None:
        raise ValueError(
            f"column {column!r} is timestamp_ntz, and the session names no zone that its times are "
            f"in: set {SESSION_ZONE}, or cast the column to timestamp"
        )
    return zone_of(zone)


def _as_binary(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column


def _without_unique_keys(column: pa.MapArray) -> pa.MapArray:
    """Return maps without UNIQ_KEY: a message that was read keeps its key to itself."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    names = column.keys
    unwanted = pc.equal(names, "UNIQ_KEY").fill_null(False)
    if not pc.any(unwanted).as_py():
        return column
    kept = pc.invert(unwanted)
    removed = np.zeros(len(names) + 1, np.int32)
    np.cumsum(unwanted.to_numpy(zero_copy_only=False), out=removed[1:])
    bounds = column.offsets.to_numpy()
    return pa.MapArray.from_arrays(
        pa.array(bounds - removed[bounds], pa.int32()),
        names.filter(kept),
        column.items.filter(kept),
        mask=column.is_null() if column.null_count else None,
    )


def unique_keys(prefix: str, partition: int, first: int, count: int) -> pa.Array:
    """Return unique keys of rows, in 32 hexadecimal digits: prefix, partition and row.

    ``prefix`` has 16 digits. Raises ``RowError`` if a partition has more than 2^32 rows. Source:
    ``common/message/MessageClientIDSetter.java`` for the form of a key.
    """
    import numpy as np
    import pyarrow as pa

    if first + count > _MAX_ROWS:
        raise RowError(f"partition {partition} must have 2^32 rows at most, got {first + count}")
    width = PREFIX_DIGITS + 2 * _PART_DIGITS
    digits = np.empty((count, width), np.uint8)
    head = f"{prefix}{partition | _NO_OFFSET:0{_PART_DIGITS}X}".encode("ascii")
    digits[:, : len(head)] = np.frombuffer(head, np.uint8)
    rows = np.arange(first, first + count, dtype=np.uint32).astype(">u4")
    halves = rows.view(np.uint8).reshape(count, 4)
    table = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    digits[:, len(head) :: 2] = table[halves >> 4]
    digits[:, len(head) + 1 :: 2] = table[halves & 15]
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def row_of_key(key: str) -> tuple[int, int]:
    """Return partition and row of a key of :func:`unique_keys`."""
    middle = PREFIX_DIGITS + _PART_DIGITS
    return int(key[PREFIX_DIGITS:middle], 16) & (_NO_OFFSET - 1), int(key[middle:], 16)


def stage(
    batches: Iterable[pa.RecordBatch],
    directory: Path,
    rules: Rules,
    *,
    prefix: str,
    partition: int,
    sync: bool,
    zone: str | None = None,
) -> StagedFile:
    """Write a task's batches to a file of its own, each checked as by the store.

    Raises ``RowError``, naming partition, column and row; an error leaves no file. The name is new
    in each attempt: an earlier attempt's file may still be needed.
    """
    name = f"part-{partition:05d}-{secrets.token_hex(8)}.arrow"
    temporary = directory / f"{name}{TEMPORARY}"
    checked = _checked(batches, rules, prefix, partition, zone)
    try:
        first = next(checked, None)
        if first is None:
            return StagedFile("", partition, 0, 0, "", ())
        directory.mkdir(parents=True, exist_ok=True)  # inside one seen or made by the planner
        rows, topics = _write(temporary, first, checked)
        if sync:
            sync_path(temporary)
        found = sum_of(temporary)
        size = temporary.stat().st_size
        temporary.replace(directory / name)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_path(directory)
    return StagedFile(name, partition, rows, size, found, tuple(sorted(topics)))


def _write(
    path: Path, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]
) -> tuple[int, set[str]]:
    """Write batches to an Arrow file; return rows and topics."""
    import pyarrow as pa

    rows = 0
    topics: set[str] = set()
    batch: pa.RecordBatch | None = first
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
        while batch is not None:
            writer.write_batch(batch)
            rows += batch.num_rows
            topics.update(batch.column("topic").unique().to_pylist())
            batch = next(rest, None)
    return rows, topics


def _checked(
    batches: Iterable[pa.RecordBatch],
    rules: Rules,
    prefix: str,
    partition: int,
    zone: str | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the non-empty batches in staged form."""
    first = 0
    for batch in batches:
        count = batch.num_rows
        if count == 0:
            continue
        keys = unique_keys(prefix, partition, first, count)
        try:
            ready = prepare(batch, rules.columns, rules.topic, zone)
            ready = ready.append_column("uniq_key", keys)
            check_table(ready, **vars(rules.limits))
        except (ValueError, TypeError) as error:
            raise RowError(
                f"partition {partition}, in its {count} rows from {first} on: {error}"
            ) from error
        first += count
        yield ready


def staged_batches(path: Path, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a memory-mapped staged file, without the first ``skip`` rows.

    No batch is empty. Raises ``StagedFileError`` if the file is missing or is no Arrow file.
    """
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise StagedFileError(f"{path}: a staged file cannot be read: {error}") from error


def check_staged(directory: Path, staged: StagedFile) -> None:
    """Raise ``StagedFileError`` unless a file is as its task left it."""
    path = directory / staged.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise StagedFileError(
            f"{path}: a staged file with {staged.rows} rows of the write is missing"
        ) from None
    if size != staged.bytes:
        raise StagedFileError(f"{path}: has {size} bytes, was staged with {staged.bytes}")
    if (found := sum_of(path)) != staged.xxh3:
        raise StagedFileError(f"{path}: has the sum {found}, was staged with {staged.xxh3}")


def sum_of(path: Path) -> str:
    """Return the XXH3 of a file's bytes, 64 bits, in hexadecimal."""
    import xxhash

    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size == 0:
            return str(xxhash.xxh3_64_hexdigest(b""))
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            return str(xxhash.xxh3_64_hexdigest(mapped))
