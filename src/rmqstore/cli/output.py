"""Columns of rows, and bytes for standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rmqstore.base.foreign import printable
from rmqstore.base.times import format_millis
from rmqstore.cli.text import human_bytes, human_count

__all__ = [
    "Column",
    "FlushedAtEnd",
    "Writer",
    "json_bytes",
    "json_text",
    "resolve",
    "stdout_is_terminal",
    "write_bytes",
]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, or of JSON and CSV."""

    name: str  # in JSON and CSV, and the table's heading unless ``heading`` is set
    # "text", "name" (shortened so that two still differ), "path" (shortened at its beginning),
    # "count", "bytes", "time" (ms) or "number" (no separators).
    kind: str = "text"
    width: int = 0  # most characters in a table written to a file; 0: no limit
    heading: str = ""
    # A narrow terminal leaves out columns from the highest rank down; rank 0 stays.
    rank: int = 0
    # Fewest characters to which a text is shortened before another column is left out; 0: it is not
    # shortened.
    least: int = 0
    wrap: bool = False  # folded on lines below its row where rows do not fit a line: never cut
    asked: bool = False  # named on the command line: it stays even if it is equal in all rows

    @property
    def right(self) -> bool:
        """Whether cells are right-aligned."""
        return self.kind in ("count", "bytes", "number")

    def cell(self, value: Any, local: bool) -> str:
        """Return a value for people; times in this machine's zone if ``local``."""
        if value is None:
            return ""
        if self.kind == "count":
            return human_count(value)
        if self.kind == "bytes":
            return human_bytes(value)
        if self.kind == "time":
            return format_millis(value, local=local)
        return printable(" ".join(value) if isinstance(value, tuple | list) else str(value))

    def datum(self, value: Any, local: bool) -> Any:
        """Return a value for JSON."""
        if self.kind == "time" and value is not None:
            return format_millis(value, local=local)
        return value


def stdout_is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def resolve(output: str | None) -> str:
    """Return the requested form; by default a table on a terminal, JSON lines elsewhere."""
    return output or ("table" if stdout_is_terminal() else "jsonl")


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output."""
    sys.stdout.buffer.write(data)


def json_text(value: Any) -> str:
    """Return a value as JSON in one line."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_bytes(value: Any) -> bytes:
    """Return a line of JSON in UTF-8; other bytes of a path become escaped surrogates."""
    return json_text(value).encode("utf-8", "backslashreplace") + b"\n"


class FlushedAtEnd:
    """Base of writers: the end of ``with`` flushes."""

    def flush(self) -> None:
        """Show the rows so far."""
        sys.stdout.flush()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flush, unless the reader has gone."""
        if kind is not BrokenPipeError:
            self.flush()


class Writer(FlushedAtEnd):
    """Base of writers of rows, with their columns and the zone of times."""

    def __init__(self, columns: Sequence[Column], local: bool) -> None:
        self.columns = columns
        self.local = local

    def row(self, values: Mapping[str, Any]) -> None:
        """Write one row."""
        raise NotImplementedError
