"""Formats of files of messages: by a file's ending, and their writers."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Literal

from rmqstore.base.arguments import one_of
from rmqstore.lines import csv_heading, csv_lines, json_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore._core import Message

__all__ = [
    "FORMATS",
    "ColumnFileWriter",
    "CountedFile",
    "Format",
    "LineFileWriter",
    "format_of",
    "needed_arrow",
]

Format = Literal["parquet", "arrow", "csv", "jsonl"]
FORMATS: tuple[Format, ...] = ("parquet", "arrow", "csv", "jsonl")

_ENDINGS: dict[str, Format] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
# Columns whose values repeat; a dictionary of the others costs time and saves nothing.
REPEATED = [
    "topic", "queue_id", "store_size", "tags", "properties.key_value.key", "flag", "sys_flag",
    "born_timestamp", "store_timestamp", "born_host", "store_host", "reconsume_times",
    "prepared_transaction_offset",
]  # fmt: skip
GROUP_BYTES = 16 << 20  # of a Parquet file's row group, in memory until it is complete


def format_of(file: object, chosen: str | None) -> Format:
    """Return the chosen format, or the one of a file's ending; ``ValueError`` if there is none."""
    if chosen is not None:
        one_of("format", chosen, FORMATS)
        return next(form for form in FORMATS if form == chosen)
    name = os.fsdecode(file) if isinstance(file, str | bytes | os.PathLike) else ""
    ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 - any path, "-" too
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    raise ValueError(
        f"the ending of {name or file!r} is none of {' '.join(_ENDINGS)}: format must be one of "
        + ", ".join(map(repr, FORMATS))
    )


def needed_arrow(*modules: str) -> Any:
    """Return pyarrow with its modules, or raise an error with the remedy."""
    try:
        for name in modules:
            importlib.import_module(f"pyarrow.{name}")
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError("this needs pyarrow: pip install 'rmqstore[arrow]'") from error


class CountedFile:
    """A file to write to, with the number of bytes; it need not seek."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._dropped = False
        self.count = 0

    def write(self, data: Any) -> int:
        """Write bytes."""
        size = memoryview(data).nbytes
        if not self._dropped:
            self._file.write(data)
        self.count += size
        return size

    def drop(self) -> None:
        """Write nothing more: a writer that was given up ends its file all the same."""
        self._dropped = True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.count

    def flush(self) -> None:
        """Write what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """Leave the file open: who opened it closes it."""

    def writable(self) -> bool:
        """Return whether the file is written to: for pyarrow."""
        return True

    def readable(self) -> bool:
        """Return whether the file is read: for pyarrow."""
        return False

    def seekable(self) -> bool:
        """Return whether the file seeks: for pyarrow."""
        return False


class ColumnFileWriter:
    """Writer of record batches as a file of Parquet or Arrow IPC."""

    def __init__(self, form: str, file: CountedFile, schema: pa.Schema) -> None:
        self._arrow = needed_arrow("parquet" if form == "parquet" else "ipc")
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._parquet: Any = None
        self._ipc: Any = None
        if form == "parquet":
            self._parquet = self._arrow.parquet.ParquetWriter(
                file, schema, use_dictionary=[c for c in REPEATED if _has(schema, c)]
            )
        else:
            self._ipc = self._arrow.ipc.new_file(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; the last ones may be kept until there are more."""
        if self._ipc is not None:
            self._ipc.write_batch(batch)
            return
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES:
            self._write_held()

    def close(self) -> None:
        """Write the rest and the end of the file."""
        if self._ipc is not None:
            self._ipc.close()
            return
        if self._held:
            self._write_held()
        self._parquet.close()

    def _write_held(self) -> None:
        table = self._arrow.Table.from_batches(self._held, schema=self._schema)
        self._held, self._bytes = [], 0
        self._parquet.write_table(table, row_group_size=max(1, table.num_rows))


class LineFileWriter:
    """Writer of messages as lines of JSON or CSV, as ``cat`` shows them."""

    def __init__(self, form: str, file: CountedFile) -> None:
        lines: Callable[[list[Message], str], bytes] = csv_lines if form == "csv" else json_lines
        self._lines = lines
        self._file = file
        if form == "csv":
            file.write(csv_heading("auto"))

    def write(self, messages: list[Message]) -> None:
        """Write messages."""
        self._file.write(self._lines(messages, "auto"))

    def close(self) -> None:
        """Do nothing: lines have no end of the file."""


def _has(schema: pa.Schema, column: str) -> bool:
    return bool(schema.get_field_index(column.partition(".")[0]) >= 0)
