"""Rows for people and for programs: aligned tables, JSON lines, CSV."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rmqstore.cli.output import Column, Writer, json_bytes, json_text, resolve, write_bytes
from rmqstore.cli.table import TableWriter

__all__ = ["SUMMARY", "writer_for"]

SUMMARY = (  # of messages that were copied
    Column("messages", "count"),
    Column("bytes", "bytes"),
    Column("seconds", "number"),
    Column("skipped", "count"),
)


def writer_for(
    output: str | None,
    columns: Sequence[Column],
    *,
    local: bool = False,
    typed: Mapping[str, str | None] | None = None,
    empty: str = "",
) -> Writer:
    """Return the writer of ``columns`` in the requested form.

    A table on a terminal leaves out a column that only repeats its value in ``typed``.
    ``empty`` is the line of a table without rows.
    """
    form = resolve(output)
    if form == "csv":
        return _CsvWriter(columns, local)
    if form == "table":
        return TableWriter(columns, local, typed=typed, empty=empty)
    return _JsonWriter(columns, local)


class _JsonWriter(Writer):
    """One object a line.  A row may lack columns; values without a column are written as is."""

    def __init__(self, columns: Sequence[Column], local: bool) -> None:
        super().__init__(columns, local)
        self._times = [one for one in columns if one.kind == "time"]

    def row(self, values: Mapping[str, Any]) -> None:
        """Write one row."""
        data = dict(values)
        for one in self._times:
            data[one.name] = one.datum(data.get(one.name), self.local)
        write_bytes(json_bytes(data))


class _CsvWriter(Writer):
    """A heading, then a line for each row; lists are joined by blanks, maps are JSON."""

    def __init__(self, columns: Sequence[Column], local: bool) -> None:
        super().__init__(columns, local)
        self._line([one.name for one in columns])

    def row(self, values: Mapping[str, Any]) -> None:
        """Write one row."""
        cells = []
        for one in self.columns:
            value = one.datum(values.get(one.name), self.local)
            if isinstance(value, Mapping):
                value = json_text(value)
            elif isinstance(value, list | tuple):
                value = " ".join(value)
            elif isinstance(value, bool):
                value = str(value).lower()
            cells.append("" if value is None else value)
        self._line(cells)

    def _line(self, cells: Sequence[Any]) -> None:
        import csv

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
