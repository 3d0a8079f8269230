"""Aligned tables, and lists of names with values, fitted to the terminal.

A cell never carries a control character to the terminal, whatever a message holds.  Output to a
file has its full width; on a terminal columns that are equal in all rows are left out and named
once, texts shortened, and further columns left out, until a row fits a line; a column that wraps
goes below the others.  Colours need rich.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from rmqstore.base.foreign import printable
from rmqstore.cli.output import Column, Writer, stdout_is_terminal, write_bytes
from rmqstore.cli.text import CUT, pad, shorten, width_of

__all__ = ["TableWriter", "fit", "print_fields", "print_table", "room"]

_CHUNK_ROWS = 256  # rows from which a table's widths are computed at a time
_GAP = "  "  # between columns
_APART_MOST = 32  # most characters of a name for it to differ from others
_LEAST_VALUE = 16  # characters beside a name; with fewer a value has its own lines

Painter = Callable[[str, Sequence[tuple[int, int, str]]], None]


def room() -> int | None:
    """Return the terminal's columns; ``None`` if output goes elsewhere."""
    if not stdout_is_terminal():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def fit(columns: Sequence[Column], widths: Sequence[int], available: int) -> dict[int, int]:
    """Return position and width of the columns that fit in ``available`` characters, in order."""
    least = [min(width, one.least or width) for one, width in zip(columns, widths, strict=True)]
    kept = [number for number, one in enumerate(columns) if one.rank == 0]
    left = available - sum(least[number] for number in kept) - len(_GAP) * (len(kept) - 1)
    for number in sorted(range(len(columns)), key=lambda number: columns[number].rank):
        if columns[number].rank == 0:
            continue
        if least[number] + len(_GAP) > left:
            break
        kept.append(number)
        left -= least[number] + len(_GAP)
    chosen = {number: least[number] for number in sorted(kept)}
    if left < 0:  # the remaining columns are too wide: cut their texts further
        for number in sorted(chosen, key=lambda number: -chosen[number]):
            if columns[number].least:
                cut = min(-left, max(0, chosen[number] - 1))
                chosen[number] -= cut
                left += cut
    while left > 0:  # the rest goes to the narrowest shortened column
        shortened = [number for number in chosen if chosen[number] < widths[number]]
        if not shortened:
            break
        chosen[min(shortened, key=lambda number: chosen[number])] += 1
        left -= 1
    return chosen


class TableWriter(Writer):
    """Writer of an aligned table, whose columns and widths fit its first rows."""

    def __init__(
        self,
        columns: Sequence[Column],
        local: bool = False,
        indent: str = "",
        typed: Mapping[str, str | None] | None = None,  # values that the user gave, by column
        empty: str = "",  # a line instead of the headings if there is no row
    ) -> None:
        super().__init__(columns, local)
        self._indent = indent
        self._room = room()
        self._typed = typed or {}
        self._empty = empty
        self._is_whole = False  # no rows follow those that are held
        self._paint = _painter() if self._room is not None else _write_line
        self._rows: list[list[str]] = []
        self._headings: list[str] = [one.heading or one.name for one in columns]
        self._natural: list[int] = []  # full widths of all rows so far
        self._least = [one.least for one in columns]
        self._below: list[int] = []  # columns that are folded below their row

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the rest."""
        self._is_whole = not self._natural
        if self._empty and kind is None and self._is_whole and not self._rows:
            self._paint(self._indent + self._empty, [])
            sys.stdout.flush()
            return
        super().__exit__(kind, error, trace)

    def row(self, values: Mapping[str, Any]) -> None:
        """Take one row; it is shown together with following ones."""
        cells = [one.cell(values.get(one.name), self.local) for one in self.columns]
        if self._room is None:
            cells = [
                shorten(cell, one.width) if one.width and one.kind in ("text", "name") else cell
                for cell, one in zip(cells, self.columns, strict=True)
            ]
        self._rows.append(cells)
        if len(self._rows) >= _CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Show the rows so far."""
        first = not self._natural
        if self._rows or first:
            lines = [self._headings, *self._rows]
            widths = [max(map(width_of, cells)) for cells in zip(*lines, strict=True)]
            for number, one in enumerate(self.columns):
                if one.kind == "name" and one.least and self._room is not None:
                    apart = _apart({cells[number] for cells in self._rows})
                    self._least[number] = max(self._least[number], apart)
            if first:
                self._natural = widths
                self._choose(self._left_out(widths))
            elif self._room is not None:
                self._natural = list(map(max, self._natural, widths))
                self._choose()
            for number, cells in enumerate(lines):
                if number > 0 or first:
                    self._line(cells, "bold" if number == 0 else "")
            self._rows = []
        super().flush()

    def _left_out(self, widths: Sequence[int]) -> set[int]:
        """Return the columns that are equal in all rows and give way, and name them once."""
        if self._room is None or not self._rows:
            return set()
        equal = {
            number: cells[0]
            for number, cells in enumerate(zip(*self._rows, strict=True))
            if len(set(cells)) == 1
        }
        out = {
            number
            for number, cell in equal.items()
            if self._typed.get(self.columns[number].name) == cell
        }
        available = self._room - len(self._indent)
        named = []
        # What was asked for, and counts, which are findings, stay; of the rest the least important
        # goes first.
        free = [number for number in equal if number not in out and not self.columns[number].asked]
        free.sort(key=lambda number: (-self.columns[number].rank, -number))
        free = [number for number in free if not self.columns[number].wrap]
        if len(self._rows) < 2 or not self._is_whole:
            free = []
        for number in free:
            used = [width for at, width in enumerate(widths) if at not in out]
            if sum(used) + len(_GAP) * (len(used) - 1) <= available:
                break
            if self.columns[number].rank or self.columns[number].kind not in ("count", "bytes"):
                out.add(number)
                named += [number] if equal[number] else []
        if len(out) == len(widths):
            return set()
        if named:
            self._name_once({number: equal[number] for number in named})
        return out

    def _name_once(self, cells: Mapping[int, str]) -> None:
        """Write cells that are equal in all rows, as far as they fit; the last ones matter most."""
        line = ""
        texts: dict[int, str] = {}
        for number in reversed(list(cells)):
            texts[number] = f"{self._headings[number]} {cells[number]}"
            named = _GAP.join(texts[one] for one in sorted(texts))
            wider = f"{self._indent}in all rows: {named}"
            if width_of(wider) > (self._room or 0):
                del texts[number]
            else:
                line = wider
        if line:
            self._paint(line, [])

    def _choose(self, out: Collection[int] = ()) -> None:
        """Choose the shown columns and their widths, without those that were left out."""
        if self._room is None:
            self._shown = dict(enumerate(self._natural))
            return
        columns = [
            replace(one, least=least) for one, least in zip(self.columns, self._least, strict=True)
        ]
        available = self._room - len(self._indent)
        is_first = not hasattr(self, "_shown")
        kept = list(range(len(columns)) if is_first else self._shown)
        kept = [number for number in kept if number not in out]
        if sum(self._natural[number] + len(_GAP) for number in kept) - len(_GAP) > available:
            self._below += [number for number in kept if columns[number].wrap]
            kept = [number for number in kept if not columns[number].wrap]
        if is_first:
            fitted = fit(
                [columns[number] for number in kept],
                [self._natural[number] for number in kept],
                available,
            )
            self._shown = {kept[number]: width for number, width in fitted.items()}
        else:  # the heading is written: the columns stay the same
            again = fit(
                [replace(columns[number], rank=0) for number in kept],
                [self._natural[number] for number in kept],
                available,
            )
            self._shown = {kept[number]: width for number, width in again.items()}

    def _line(self, cells: Sequence[str], style: str) -> None:
        """Write one line, each cell cut and padded to its column."""
        line = self._indent
        spans = []
        for number, width in self._shown.items():
            one = self.columns[number]
            cell = cells[number]
            if self._room is not None and (one.least or style):
                cell = shorten(cell, width, keep_end=one.kind == "path" and not style)
            begin = len(line)
            line += pad(cell, width, one.right) + _GAP
            if paint := style or ("cyan" if one.kind == "time" else ""):
                spans.append((begin, len(line), paint))
        self._paint(line.rstrip(), spans)
        for number in self._below if not style else ():
            indent = self._indent + 2 * _GAP
            space = max(_LEAST_VALUE, (self._room or 0) - len(indent))
            for part in _wrapped(cells[number], space):
                self._paint(indent + part, [])


def _apart(names: Collection[str]) -> int:
    """Return the width at which shortened names still differ, up to a limit."""
    most = 0
    for one, other in itertools.pairwise(sorted(names)):
        pairs = enumerate(zip(one, other, strict=False))
        most = max(most, next((at for at, (a, b) in pairs if a != b), len(one)))
    return min(most + len(CUT) + 1, _APART_MOST) if most else 0


def print_table(
    title: str, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, local: bool
) -> None:
    """Print a small table under a title."""
    (_painter() if stdout_is_terminal() else _write_line)(title, [(0, len(title), "bold")])
    with TableWriter(columns, local, indent=_GAP) as writer:
        for row in rows:
            writer.row(row)


def print_fields(
    title: str,
    fields: Sequence[tuple[str, str]],
    *,
    bad: str = "",
    red: Collection[str] = (),
    whole: Collection[str] = (),
) -> None:
    """Print names and values, folded at blanks on a terminal.

    ``bad`` ends the title, in red, as are the names in ``red``. Values of the names in ``whole``,
    which people copy, are not folded.
    """
    available = room()
    paint = _write_line if available is None else _painter()
    fields = [(printable(name), printable(value)) for name, value in fields]
    if title:
        spans = [
            (0, len(title) - len(bad), "bold"),
            (len(title) - len(bad), len(title), "bold red"),
        ]
        paint(printable(title), [one for one in spans if one[0] < one[1]])
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        style = "bold red" if name in red else "bold cyan"
        beside = _folded(value, None if name in whole else available, width + len(_GAP))
        if beside is None:
            below = _wrapped(value, max(1, (available or 1) - len(_GAP)))
            lines = [name, *(_GAP + line for line in below)]
        else:
            lines = [f"{name:<{width}}{_GAP}{beside[0]}"]
            lines += [" " * (width + len(_GAP)) + line for line in beside[1:]]
        for number, line in enumerate(lines):
            paint(line.rstrip(), [(0, len(name), style)] if number == 0 else [])
    sys.stdout.flush()


def _folded(value: str, available: int | None, taken: int) -> list[str] | None:
    """Return a value as lines beside its name, ``None`` if words would be broken."""
    if available is None or taken + width_of(value) <= available:
        return [value]
    space = available - taken
    longest = max(map(len, value.split()), default=0)
    if space < _LEAST_VALUE or space < longest <= available - len(_GAP):
        return None
    return _wrapped(value, space)


def _wrapped(text: str, space: int) -> list[str]:
    """Return a text as lines of at most ``space`` characters, folded at blanks."""
    import textwrap

    return textwrap.wrap(text, space, break_on_hyphens=False)


def _write_line(line: str, spans: Sequence[tuple[int, int, str]]) -> None:
    """Write a line without styles."""
    write_bytes(line.encode("utf-8", "replace") + b"\n")


def _painter() -> Painter:
    """Return a writer of styled lines; of plain ones without rich."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return _write_line
    sys.stdout.flush()
    console = Console(file=sys.stdout, highlight=False)

    def paint(line: str, spans: Sequence[tuple[int, int, str]]) -> None:
        text = Text(line)  # rich finds no markup in it
        for start, stop, style in spans:
            text.stylize(style, start, min(stop, len(line)))
        console.print(text, soft_wrap=True)

    return paint
