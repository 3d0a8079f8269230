"""Text that others wrote, as lines of a log, errors and terminals may have it.

Names, ids, remarks and paths come from clients, messages and whoever types a command. Whatever is
in them, a line stays one line, a terminal obeys nothing, and it has an end.
"""

from __future__ import annotations

__all__ = ["MOST", "cut", "foreign", "printable"]

MOST = 1000  # characters of one text: a long path or an error with its remedy fits
_MARKS = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def foreign(text: str, most: int = MOST) -> str:
    """Return the text printable, a long one cut in the middle."""
    return printable(cut(text, most))


def cut(text: str, most: int = MOST) -> str:
    """Return the text; of a long one begin and end, with its length between them."""
    if len(text) <= most:
        return text
    head = most - most // 3
    return f"{text[:head]}... ({len(text)} characters) ...{text[head - most :]}"


def printable(text: str) -> str:
    """Return the text with escapes for controls, marks of direction, halves of surrogate pairs."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def _escape(char: str) -> str:
    """Return an escape for a character that cannot be shown."""
    if char in _MARKS:
        return _MARKS[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
