"""Foreign text, made printable for logs, errors and terminals.

Names, ids, remarks and paths come from clients, messages and users. A line stays one line of
bounded length, without control sequences for a terminal.
"""

from __future__ import annotations

__all__ = ["MOST", "cut", "foreign", "printable"]

MOST = 1000  # characters of a text: room for a long path, or an error with its remedy
_MARKS = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def foreign(text: str, most: int = MOST) -> str:
    """Return the text printable, and cut in the middle if long."""
    return printable(cut(text, most))


def cut(text: str, most: int = MOST) -> str:
    """Return the text, or if it is long its start, its length and its end."""
    if len(text) <= most:
        return text
    head = most - most // 3
    return f"{text[:head]}... ({len(text)} characters) ...{text[head - most :]}"


def printable(text: str) -> str:
    """Return the text with controls, direction marks and lone surrogates escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def _escape(char: str) -> str:
    if char in _MARKS:
        return _MARKS[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
