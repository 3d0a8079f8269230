"""Rows for people and for programs: aligned tables, JSON lines, CSV.

A table cell never carries a control character to the terminal, whatever a message holds.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from rmqstore.times import format_millis

__all__ = [
    "Column",
    "Writer",
    "human_bytes",
    "human_count",
    "pad",
    "print_fields",
    "printable",
    "resolve",
    "rich_print",
    "rich_table",
    "stdout_is_terminal",
    "width_of",
    "write_bytes",
    "writer_for",
]

_CHUNK_ROWS = 256  # a table's widths are told from so many rows
_KIBI = 1024
_WIDEST = 4096  # columns of a table


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    name : str
        Name in JSON and CSV, and heading of the table.
    kind : str
        ``text``, ``count``, ``bytes``, ``time`` (ms) or ``number`` (no separators).
    width : int
        Characters in a table, at most; 0 for as many as there are.
    heading : str
        Heading of the table, where it is not the name.
    """

    name: str
    kind: str = "text"
    width: int = 0
    heading: str = ""

    @property
    def right(self) -> bool:
        """Whether cells stand at the right edge."""
        return self.kind in ("count", "bytes", "number")

    def cell(self, value: Any) -> str:
        """Return a value as people read it."""
        if value is None:
            return ""
        if self.kind == "count":
            return human_count(value)
        if self.kind == "bytes":
            return human_bytes(value)
        if self.kind == "time":
            return format_millis(value)
        text = printable(" ".join(value) if isinstance(value, tuple | list) else str(value))
        return text if not self.width else shorten(text, self.width)

    def datum(self, value: Any) -> Any:
        """Return a value as JSON takes it."""
        return format_millis(value) if self.kind == "time" and value is not None else value


class Writer(Protocol):
    """Takes rows; ``with`` ends the output."""

    def row(self, values: Mapping[str, Any]) -> None:
        """Write one row."""

    def flush(self) -> None:
        """Show what was written so far."""

    def __enter__(self) -> Writer:
        """Return itself."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flush."""


def stdout_is_terminal() -> bool:
    """Tell whether somebody is looking."""
    return sys.stdout.isatty()


def resolve(output: str | None) -> str:
    """Return the form of output: what was asked for, else by whether somebody is looking."""
    return output or ("table" if stdout_is_terminal() else "jsonl")


def writer_for(output: str | None, columns: Sequence[Column]) -> Writer:
    """Return what writes rows of ``columns`` in the form asked for."""
    form = resolve(output)
    if form == "csv":
        return _CsvWriter(columns)
    return _TableWriter(columns) if form == "table" else _JsonWriter(columns)


def write_bytes(data: bytes) -> None:
    """Write to standard output as it is."""
    sys.stdout.buffer.write(data)


def print_fields(title: str, fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other: with rich on a terminal, else aligned."""
    if stdout_is_terminal() and (rich := rich_table()) is not None:
        table = rich(title=printable(title) or None, title_justify="left", show_header=False)
        table.add_column(style="bold cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in fields:
            table.add_row(name, _plain(value))
        rich_print(table)
        return
    if title:
        print(printable(title))
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        print(f"{name:<{width}}  {value}".rstrip())


class _BaseWriter:
    """Columns, and ``with``."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns

    def row(self, values: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        sys.stdout.flush()

    def __enter__(self) -> _BaseWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not BrokenPipeError:
            self.flush()


class _JsonWriter(_BaseWriter):
    """One object a line.  A row may have fewer columns; what is no column goes out as it is."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        self._times = [one for one in columns if one.kind == "time"]

    def row(self, values: Mapping[str, Any]) -> None:
        data = dict(values)
        for one in self._times:
            data[one.name] = one.datum(data.get(one.name))
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        write_bytes(text.encode("utf-8", "surrogatepass") + b"\n")


class _CsvWriter(_BaseWriter):
    """A heading, then a line a row; lists are joined by blanks, maps are JSON."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        self._line([one.name for one in columns])

    def row(self, values: Mapping[str, Any]) -> None:
        cells = []
        for one in self.columns:
            value = one.datum(values.get(one.name))
            if isinstance(value, Mapping):
                value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            elif isinstance(value, list | tuple):
                value = " ".join(value)
            elif isinstance(value, bool):
                value = str(value).lower()
            cells.append("" if value is None else value)
        self._line(cells)

    def _line(self, cells: Sequence[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))


class _TableWriter(_BaseWriter):
    """An aligned table; widths are told from the first rows."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        self._rows: list[list[str]] = []
        self._widths: list[int] = []
        self._rich = rich_table() if stdout_is_terminal() else None

    def row(self, values: Mapping[str, Any]) -> None:
        self._rows.append([one.cell(values.get(one.name)) for one in self.columns])
        if len(self._rows) >= _CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        first = not self._widths
        if self._rows or first:
            headings = [one.heading or one.name for one in self.columns]
            if first:
                self._widths = [
                    max(map(width_of, column)) for column in zip(headings, *self._rows, strict=True)
                ]
            if self._rich is not None:
                self._flush_rich(headings, first)
            else:
                self._flush_plain(headings, first)
            self._rows = []
        super().flush()

    def _flush_plain(self, headings: list[str], first: bool) -> None:
        lines = [headings, *self._rows] if first else self._rows
        for cells in lines:
            parts = [
                pad(cell, width, one.right)
                for cell, width, one in zip(cells, self._widths, self.columns, strict=True)
            ]
            line = "  ".join(parts).rstrip()
            write_bytes(line.encode("utf-8", "replace") + b"\n")

    def _flush_rich(self, headings: list[str], first: bool) -> None:
        assert self._rich is not None
        table = self._rich(show_header=first, pad_edge=False, header_style="bold")
        for heading, width, one in zip(headings, self._widths, self.columns, strict=True):
            table.add_column(
                heading,
                justify="right" if one.right else "left",
                min_width=min(width, 60),
                no_wrap=True,
                style="cyan" if one.kind == "time" else None,
            )
        for cells in self._rows:
            table.add_row(*map(_plain, cells))
        rich_print(table)


def rich_table() -> Any:
    """Return a maker of rich tables without lines, ``None`` where rich is not installed."""
    try:
        from rich.table import Table
    except ImportError:
        return None

    def make(**options: Any) -> Any:
        return Table(box=None, **options)

    return make


def rich_print(thing: Any) -> None:
    """Print something of rich's, as wide as it is: what is cut off cannot be copied."""
    from rich.console import Console

    sys.stdout.flush()
    console = Console(file=sys.stdout, highlight=False)
    wide = console.options.update(max_width=_WIDEST)
    console.width = max(console.width, console.measure(thing, options=wide).maximum)
    console.print(thing)


def _plain(text: str) -> Any:
    """Return a text in which rich sees no markup."""
    from rich.text import Text

    return Text(text)


def printable(text: str) -> str:
    """Return the text with everything that a terminal would obey made visible."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _visible(one) for one in text)


def _visible(char: str) -> str:
    """Return an escape for a character that cannot be shown."""
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(char)
    if char in known:
        return known[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) != 0 for one in text)


def pad(text: str, width: int, right: bool) -> str:
    """Return the text with blanks up to ``width``."""
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


def shorten(text: str, width: int) -> str:
    """Return the text cut to ``width`` characters, with a mark where it was cut."""
    return text if len(text) <= width else text[: width - 3] + "..."


def human_count(value: int) -> str:
    """Return a count with separators."""
    return f"{value:,}"


def human_bytes(value: int) -> str:
    """Return a size with a unit: three digits are enough for a table."""
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < _KIBI or unit == "PiB":
            return f"{value} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIBI
    raise AssertionError(value)
