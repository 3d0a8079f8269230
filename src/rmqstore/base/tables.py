"""Mappings and lists that print as tables, as text and in a notebook."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["TableList", "TableMapping", "html_table", "html_text"]

_K = TypeVar("_K")
_V = TypeVar("_V")
_Entry = TypeVar("_Entry", bound="DataclassInstance")

_ROWS = 30  # shown; the rest is counted
_WIDTH = 60  # characters of a cell


class TableMapping(Mapping[_K, _V]):
    """A read-only mapping whose ``repr`` is a table, of the rows that ``rows`` makes of it."""

    __slots__ = ("_entries", "_heads", "_rows")

    def __init__(
        self,
        entries: dict[_K, _V],
        heads: tuple[str, ...],
        rows: Callable[[dict[_K, _V]], Iterable[tuple[object, ...]]],
    ) -> None:
        self._entries = entries
        self._heads = heads
        self._rows = rows

    def __getitem__(self, key: _K) -> _V:
        return self._entries[key]

    def __iter__(self) -> Iterator[_K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return _text_table(self._heads, self._rows(self._entries)) if self._entries else "{}"

    def _repr_html_(self) -> str:
        return html_table(self._heads, self._rows(self._entries))


class TableList(list[_Entry]):
    """A list of dataclass entries that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>none</p>"
        heads = [field.name for field in dataclasses.fields(self[0])]
        return html_table(heads, ([getattr(one, name) for name in heads] for one in self))


def html_text(text: str) -> str:
    """Return a text escaped for HTML."""
    import html  # only in notebooks

    return html.escape(text)


def html_table(heads: Iterable[str], rows: Iterable[Iterable[object]], caption: str = "") -> str:
    """Return an HTML table of the first rows, with the number of those left out."""
    shown, more = _cut(rows)
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption>{html_text(caption)}</caption>")
    parts.append("<tr>" + "".join(f"<th>{html_text(head)}</th>" for head in heads) + "</tr>")
    for row in shown:
        cells = "".join(f"<td>{html_text(cell)}</td>" for cell in row)
        parts.append(f"<tr>{cells}</tr>")
    parts.append("</table>")
    if more:
        parts.append(f"<p>{more:,} more</p>")
    return "\n".join(parts)


def _text_table(heads: tuple[str, ...], rows: Iterable[Iterable[object]]) -> str:
    shown, more = _cut(rows)
    lines = [list(heads), *shown]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*text, f"... {more:,} more"] if more else text)


def _cut(rows: Iterable[Iterable[object]]) -> tuple[list[list[str]], int]:
    """Return the first rows as text, and how many more there are."""
    left = iter(rows)
    shown = [[_cell(value) for value in row] for row in itertools.islice(left, _ROWS)]
    return shown, sum(1 for _ in left)


def _cell(value: object) -> str:
    """Return a value in one line of bounded width; of unprintable characters their escapes."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    elif isinstance(value, int):
        value = f"{value:,}"
    elif isinstance(value, tuple):
        value = " ".join(map(str, value))
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
