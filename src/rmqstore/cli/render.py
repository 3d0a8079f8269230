"""One message as a table's row or field by field; formats such as ``%t %q %o %s``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from rmqstore.base.foreign import printable
from rmqstore.base.times import format_millis
from rmqstore.bodies import BODY_MARK
from rmqstore.cli.message_lines import Bodies
from rmqstore.cli.output import Column
from rmqstore.cli.table import print_fields, room
from rmqstore.cli.text import plural
from rmqstore.cli.trace_text import trace_lines
from rmqstore.lines import FIELDS, body_field
from rmqstore.traces import is_trace_topic

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = [
    "FOUND_COLUMNS",
    "TABLE_COLUMNS",
    "as_row",
    "format_help",
    "parse_format",
    "print_message",
]

_TRACE_BYTES = 1024  # of a trace message, shown in a table's cell
_TIMES = frozenset(("born_timestamp", "store_timestamp"))

TABLE_COLUMNS = (
    Column("store_timestamp", "time", heading="stored", rank=1),
    Column("topic", "name", width=40, least=8),
    Column("queue_id", "number", heading="queue"),
    Column("queue_offset", "number", heading="offset"),
    Column("tags", width=20, rank=2, least=6),
    Column("keys", width=40, rank=3, least=10),
    Column("body", width=60, least=16, asked=True),
)
# For messages found by key, where keys matter more than tags.
FOUND_COLUMNS = (
    *TABLE_COLUMNS[:4],
    Column("tags", width=20, rank=3, least=6),
    Column("keys", width=40, rank=2, least=10),
    Column("msg_id", heading="id", rank=4),
    Column("body", width=60, least=12, asked=True),
)


def body_text(body: bytes, mode: str) -> str:
    """Return the body as one text."""
    return "" if mode == "none" else body_field(body, mode)[1]


def as_row(message: Message, body: str, bodies: Bodies) -> dict[str, Any]:
    """Return a message's values for ``FOUND_COLUMNS``."""
    row: dict[str, Any] = {}
    for one in FOUND_COLUMNS:
        if one.name != "body":
            row[one.name] = getattr(message, one.name)
            continue
        if body == "none":  # and do not inflate it
            row["body"] = ""
            continue
        content, error = bodies.of(message)
        if body == "auto" and is_trace_topic(message.topic) and not error:
            row["body"] = "; ".join(trace_lines(content[:_TRACE_BYTES]))
            continue
        # Bytes beyond a cell need not be decoded.
        content = content[: 4 * max(one.width, room() or 0)]
        row["body"] = body_text(content, "utf8" if body in ("auto", "json") else body)
        if error:
            row["body"] = BODY_MARK + row["body"]
    return row


def print_message(message: Message, body: str, local: bool, bodies: Bodies) -> None:
    """Print one whole message for people: a field a line, the body last."""
    fields: list[tuple[str, str]] = []
    for name in FIELDS:
        value = getattr(message, name) if name != "body" else None
        if name in ("body", "properties") or value in (None, ()):
            continue
        if name in _TIMES:
            value = format_millis(value, local=local)
        elif name == "keys":
            value = " ".join(value)
        fields.append((name, str(value)))
    fields += [(f"properties.{name}", value) for name, value in dict(message.properties).items()]
    content, error = bodies.of(message) if body != "none" else (b"", "")
    size = len(message.raw_body if body == "none" else content)  # with none: the stored size
    fields.append(("body", plural(size, "byte")))
    if error:
        fields.append(("body_error", error))
    print_fields("", fields)
    if content:
        text = body_text(content, body)
        if body == "auto" and is_trace_topic(message.topic) and not error:
            text = "\n".join(map(printable, trace_lines(content, local=local)))
        print()
        print("\n".join(printable(line) for line in text.split("\n")))


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "a": b"\a", "\\": b"\\", "%": b"%"}
_PIECE = re.compile(r"%(?P<field>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))", re.DOTALL)

_LETTERS = {
    "t": "topic",
    "q": "queue id",
    "o": "queue offset",
    "p": "physical offset",
    "k": "keys",
    "g": "tags",
    "s": "body",
    "S": "size of the body",
    "R": "size of the record",
    "T": "store time",
    "M": "store time in ms",
    "B": "born time",
    "i": "message id",
    "u": "unique key",
    "h": "properties as JSON",
    "J": "all of it as JSON",
}


def format_help() -> str:
    """Return the meanings of the letters of a format, for ``--help``."""
    return ", ".join(f"%{letter} {meaning}" for letter, meaning in _LETTERS.items())


def parse_format(text: str) -> list[bytes | str]:
    r"""Return the pieces of a format: bytes, and letters of fields, which follow ``%``.

    ``%%`` is a percent sign; ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\xHH`` are bytes. Raises
    ``click.UsageError`` for an unknown letter or escape.
    """
    pieces: list[bytes | str] = []
    at = 0
    for piece in _PIECE.finditer(text):
        pieces.append(text[at : piece.start()].encode("utf-8", "surrogateescape"))
        at = piece.end()
        pieces.append(_piece(piece))
    pieces.append(text[at:].encode("utf-8", "surrogateescape"))  # no line break is added
    return pieces


def _piece(piece: re.Match[str]) -> bytes | str:
    """Return the bytes, or the field's letter, of one escape."""
    if piece["hex"]:
        return bytes.fromhex(piece["hex"])
    escape, letter = piece["escape"], piece["field"]
    if letter == "%":
        return b"%"
    if letter is None and escape in _ESCAPES:
        return _ESCAPES[escape]
    if letter is None or letter not in _LETTERS:
        known = " ".join(f"%{one}" for one in _LETTERS)
        raise click.UsageError(
            f"{piece[0]!r} in the format means nothing; fields are {known}, escapes \\n \\t \\xHH"
        )
    return letter
