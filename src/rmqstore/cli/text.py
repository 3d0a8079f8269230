"""Text for a terminal: its width, and figures for people."""

from __future__ import annotations

import unicodedata

__all__ = ["CUT", "human_bytes", "human_count", "pad", "plural", "shorten", "width_of"]

_KIBI = 1024
CUT = "..."  # mark of a shortened text


def width_of(text: str) -> int:
    """Return the width of a text in columns of a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) != 0 for one in text)


def pad(text: str, width: int, right: bool) -> str:
    """Return the text with blanks up to ``width``."""
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


def shorten(text: str, width: int, *, keep_end: bool = False) -> str:
    """Return the text cut to ``width`` columns, with a mark where it was cut."""
    if width_of(text) <= width:
        return text
    if keep_end:
        return shorten(text[::-1], width)[::-1]
    mark = CUT if width > len(CUT) else ""
    kept = text[: width - len(mark)]
    while width_of(kept) > width - len(mark):
        kept = kept[:-1]
    return kept + mark


def human_count(value: int) -> str:
    """Return a count with separators."""
    return f"{value:,}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 file``, ``2,000 files``."""
    return f"{human_count(count)} {noun}{'' if count == 1 else 's'}"


def human_bytes(value: int) -> str:
    """Return a size with a unit, and one digit after the point."""
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < _KIBI or unit == "PiB":
            return f"{value} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIBI
    raise AssertionError(value)
