"""Files of messages, read: Parquet, Arrow IPC, CSV and JSON lines, as record batches.

Rows have the columns that ``put_table`` takes, and ``store_timestamp``. Errors name file and line.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from rmqstore.base.arguments import did_you_mean, shown
from rmqstore.lines import FIELDS
from rmqstore.toolbox.exchange.formats import needed_arrow
from rmqstore.toolbox.exchange.parsed_lines import (
    BODY_FIELDS,
    LINE_MOST,
    LineError,
    fields_of_cells,
    fields_of_line,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PIECE_ROWS", "MessageFile"]

PIECE_ROWS = 4096
_BYTES = 4 << 20  # of lines, or of a batch of columns on average
# Set by the store that has the messages: read, and not put.
_IGNORED = ("queue_offset", "physical_offset", "store_size", "msg_id", "store_host", "body_crc")
_INDEX_OF_PANDAS = "__index_level_"
_COLUMNS = tuple(name for name in (*FIELDS, "raw_body") if name not in _IGNORED)
_NUMBERS = (
    "queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset",
    "born_timestamp", "store_timestamp",
)  # fmt: skip

Piece = tuple["pa.RecordBatch", Sequence[int]]
"""Rows, and the number of each in its file, from 1."""


class MessageFile:
    """A file of messages, which may be read several times."""

    def __init__(self, file: IO[bytes], name: str, form: str) -> None:
        self.name = name
        self._file = file
        self._form = form
        self._arrow = needed_arrow("parquet" if form == "parquet" else "ipc")
        self.kind = "line" if form in ("csv", "jsonl") else "row"

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def refuse(self, number: int, why: object) -> ValueError:
        """Return the error for a row."""
        return ValueError(f"{self.name}, {self.kind} {number:,}: {why}")

    def pieces(self) -> Iterator[Piece]:
        """Iterate over the rows from the beginning; ``ValueError`` at one that is no message."""
        self._file.seek(0)
        read = {"parquet": self._parquet, "arrow": self._ipc, "csv": self._csv}
        pieces = read.get(self._form, self._json_lines)()
        while True:
            try:
                piece = next(pieces, None)
            except (self._arrow.ArrowException, OSError, UnicodeError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                text = " ".join(str(error).split())
                raise ValueError(f"{self.name}: is no {self._form} file: {text}") from error
            if piece is None:
                return
            yield piece

    def _known(self, names: Sequence[str], bodies: Sequence[str]) -> list[str]:
        """Return the columns to read of those there; raise if they are not those of messages."""
        known = (*FIELDS, *bodies)
        for name in names:
            if name not in known and not name.startswith(_INDEX_OF_PANDAS):
                hint = did_you_mean(name, known) or "it must be left out"
                raise ValueError(f"{self.name}: messages have no column {name!r}; {hint}")
            if names.count(name) > 1:
                raise ValueError(f"{self.name}: it has the column {name!r} twice")
        for wanted in (("topic",), ("body", *bodies)):
            if not set(wanted).intersection(names):
                raise ValueError(
                    f"{self.name}: it has no column {wanted[0]!r}; the columns must be named as "
                    "rmqstore export names them"
                )
        return [name for name in names if name in known and name not in _IGNORED]

    def _parquet(self) -> Iterator[Piece]:
        opened = self._arrow.parquet.ParquetFile(self._file, pre_buffer=False)
        columns = self._known(opened.schema_arrow.names, ("raw_body",))
        groups = [opened.metadata.row_group(at) for at in range(opened.num_row_groups)]
        first = 1
        for at, group in enumerate(groups):
            row = max(1, group.total_byte_size // max(1, group.num_rows))
            rows = max(1, min(PIECE_ROWS, _BYTES // row))
            for batch in opened.iter_batches(rows, [at], columns, use_threads=False):
                yield batch, range(first, first + batch.num_rows)
                first += batch.num_rows

    def _ipc(self) -> Iterator[Piece]:
        try:
            opened = self._arrow.ipc.open_file(self._file)
            batches: Iterable[Any] = map(opened.get_batch, range(opened.num_record_batches))
        except self._arrow.ArrowInvalid:  # it may be a stream
            self._file.seek(0)
            opened = self._arrow.ipc.open_stream(self._file)
            batches = opened
        columns = self._known(opened.schema.names, ("raw_body",))
        first = 1
        for whole in batches:
            whole.validate(full=True)
            chosen = whole.select(columns)
            for start in range(0, whole.num_rows, PIECE_ROWS):
                batch = chosen.slice(start, PIECE_ROWS)
                yield batch, range(first, first + batch.num_rows)
                first += batch.num_rows

    def _json_lines(self) -> Iterator[Piece]:
        def rows() -> Iterator[tuple[int, dict[str, Any], int]]:
            for number, line in self._lines():
                if not line.strip():
                    continue
                try:
                    yield number, fields_of_line(line), len(line)
                except LineError as error:
                    raise self.refuse(number, error) from None

        return self._batches(rows())

    def _csv(self) -> Iterator[Piece]:
        def texts() -> Iterator[str]:
            for number, line in self._lines():
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise self.refuse(number, error) from None

        reader = csv.reader(texts(), strict=True)
        with _long_fields():
            names = next(reader, [])
        self._known(names, BODY_FIELDS)

        def rows() -> Iterator[tuple[int, dict[str, Any], int]]:
            while True:
                number = reader.line_num + 1
                try:
                    with _long_fields():
                        cells = next(reader, None)
                    if cells is None:
                        return
                    if cells:
                        yield number, fields_of_cells(names, cells), sum(map(len, cells))
                except (csv.Error, LineError) as error:
                    raise self.refuse(number, error) from None

        return self._batches(rows())

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        while line := self._file.readline(LINE_MOST + 1):
            number += 1
            if len(line) > LINE_MOST:
                raise self.refuse(number, f"is longer than {LINE_MOST:,} bytes")
            yield number, line

    def _batches(self, rows: Iterator[tuple[int, dict[str, Any], int]]) -> Iterator[Piece]:
        """Gather rows of fields."""
        held: list[dict[str, Any]] = []
        numbers: list[int] = []
        size = 0
        for number, fields, length in rows:
            held.append(fields)
            numbers.append(number)
            size += length
            if len(held) >= PIECE_ROWS or size >= _BYTES:
                yield self._batch(held, numbers), numbers
                held, numbers, size = [], [], 0
        if held:
            yield self._batch(held, numbers), numbers

    def _batch(self, rows: list[dict[str, Any]], numbers: list[int]) -> pa.RecordBatch:
        types = _types(self._arrow)
        there = {name for row in rows for name in row}
        arrays = {}
        for name in _COLUMNS:
            if name in there:
                values = [row.get(name) for row in rows]
                arrays[name] = self._array(name, values, types[name], numbers)
        return self._arrow.RecordBatch.from_pydict(arrays)

    def _array(self, name: str, values: list[Any], of: Any, numbers: list[int]) -> Any:
        """Return a column; raise for the first value that it cannot have."""
        make: Callable[..., Any] = self._arrow.array
        errors = (self._arrow.ArrowException, ValueError, TypeError, OverflowError)
        try:
            return make(values, of)
        except errors:
            for number, value in zip(numbers, values, strict=True):
                try:
                    make([value], of)
                except errors:
                    raise self.refuse(number, f"{name} cannot be {shown(value)}") from None
            raise


def _types(arrow: Any) -> dict[str, Any]:
    text = arrow.string()
    return {
        **dict.fromkeys(_NUMBERS, arrow.int64()),
        **dict.fromkeys(("topic", "uniq_key", "tags", "born_host"), text),
        "keys": arrow.list_(text),
        "properties": arrow.map_(text, text),
        **dict.fromkeys(("body", "raw_body"), arrow.binary()),
    }


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Let csv read a long field; the limit is the process's."""
    before = csv.field_size_limit(LINE_MOST)
    try:
        yield
    finally:
        csv.field_size_limit(before)
