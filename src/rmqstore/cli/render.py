"""One message as JSON, as a table's row, or by a format such as ``%t %q %o %s``."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.output import Column, print_fields, printable
from rmqstore.times import format_millis

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = [
    "BODY_MODES",
    "TABLE_COLUMNS",
    "Formatter",
    "as_json",
    "as_row",
    "csv_columns",
    "format_help",
    "parse_format",
    "print_message",
]

BODY_MODES = ("auto", "utf8", "base64", "hex", "json", "none")

Formatter = Callable[["Message"], bytes]

# The columns of API and Arrow, in their order; times are ms in a Message.
_FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "msg_id", "uniq_key",
    "tags", "keys", "properties", "body", "flag", "sys_flag", "born_timestamp", "store_timestamp",
    "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc",
)  # fmt: skip
_TIMES = frozenset(("born_timestamp", "store_timestamp"))

TABLE_COLUMNS = (
    Column("store_timestamp", "time", heading="stored"),
    Column("topic", width=40),
    Column("queue_id", "number", heading="queue"),
    Column("queue_offset", "number", heading="offset"),
    Column("tags", width=20),
    Column("keys", width=40),
    Column("body", width=60),
)
_BODY_NAMES = {
    "auto": ("body", "body_base64"),
    "json": ("body", "body_base64"),
    "utf8": ("body",),
    "base64": ("body_base64",),
    "hex": ("body_hex",),
    "none": (),
}


def csv_columns(body: str) -> tuple[Column, ...]:
    """Return the columns of CSV for a body mode: those that JSON can have."""
    names: list[str] = []
    for name in _FIELDS:
        names += _BODY_NAMES[body] if name == "body" else [name]
    return tuple(map(Column, names))


def as_json(message: Message, body: str) -> dict[str, Any]:
    """Return a message as JSON has it; ``body`` is one of ``BODY_MODES``."""
    result: dict[str, Any] = {}
    for name in _FIELDS:
        if name == "body":
            _add_body(result, message.body, body)
            continue
        value = getattr(message, name)
        if name in _TIMES:
            value = format_millis(value)
        elif name == "keys":
            value = list(value)
        elif name == "properties":
            value = dict(value)
        result[name] = value
    return result


def _add_body(result: dict[str, Any], body: bytes, mode: str) -> None:
    """Put the body into ``result`` under the name that says how it is written."""
    if mode == "none":
        return
    if mode == "base64":
        result["body_base64"] = base64.b64encode(body).decode("ascii")
    elif mode == "hex":
        result["body_hex"] = body.hex()
    elif mode == "utf8":
        result["body"] = body.decode("utf-8", "replace")
    else:
        if mode == "json":
            try:
                result["body"] = json.loads(body, parse_constant=_refuse)
                return
            except (ValueError, RecursionError):
                pass
        try:
            result["body"] = body.decode("utf-8")
        except UnicodeDecodeError:
            result["body_base64"] = base64.b64encode(body).decode("ascii")


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which no JSON reader need take."""
    raise ValueError(constant)


def body_text(body: bytes, mode: str) -> str:
    """Return the body as one text."""
    if mode == "none":
        return ""
    if mode == "hex":
        return body.hex()
    if mode == "base64":
        return base64.b64encode(body).decode("ascii")
    if mode in ("auto", "json"):
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(body).decode("ascii")
    return body.decode("utf-8", "replace")


def as_row(message: Message, body: str) -> dict[str, Any]:
    """Return what ``TABLE_COLUMNS`` show of a message."""
    row: dict[str, Any] = {}
    for one in TABLE_COLUMNS:
        if one.name != "body":
            row[one.name] = getattr(message, one.name)
            continue
        # What cannot be seen in a cell need not be decoded.
        content = message.body[: 4 * one.width]
        row["body"] = body_text(content, "utf8" if body in ("auto", "json") else body)
    return row


def print_message(message: Message, body: str) -> None:
    """Print all of one message for people: a field a line, the body last."""
    fields: list[tuple[str, str]] = []
    for name in _FIELDS:
        value = getattr(message, name) if name != "body" else None
        if name in ("body", "properties") or value in (None, ()):
            continue
        if name in _TIMES:
            value = format_millis(value)
        elif name == "keys":
            value = " ".join(value)
        fields.append((name, printable(str(value))))
    fields += [
        (f"properties.{printable(name)}", printable(value))
        for name, value in dict(message.properties).items()
    ]
    content = message.body
    fields.append(("body", f"{len(content):,} bytes"))
    print_fields("", fields)
    if body != "none" and content:
        text = body_text(content, body)
        print()
        print("\n".join(printable(line) for line in text.split("\n")))


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "a": b"\a", "\\": b"\\", "%": b"%"}
_PIECE = re.compile(r"%(?P<field>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))", re.DOTALL)

_BY_LETTER: dict[str, tuple[str, Callable[[Any], str]]] = {
    "t": ("topic", lambda message: message.topic),
    "q": ("queue id", lambda message: str(message.queue_id)),
    "o": ("queue offset", lambda message: str(message.queue_offset)),
    "p": ("physical offset", lambda message: str(message.physical_offset)),
    "k": ("keys", lambda message: " ".join(message.keys)),
    "g": ("tags", lambda message: message.tags or ""),
    "s": ("body", lambda message: ""),
    "S": ("size of the body", lambda message: str(len(message.body))),
    "R": ("size of the record", lambda message: str(message.store_size)),
    "T": ("store time", lambda message: format_millis(message.store_timestamp)),
    "M": ("store time in ms", lambda message: str(message.store_timestamp)),
    "B": ("born time", lambda message: format_millis(message.born_timestamp)),
    "i": ("message id", lambda message: message.msg_id),
    "u": ("unique key", lambda message: message.uniq_key or ""),
    "h": ("properties as JSON", lambda message: _json_text(dict(message.properties))),
    "J": ("all of it as JSON", lambda message: ""),
}


def _json_text(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def format_help() -> str:
    """Return what the letters of a format mean, for ``--help``."""
    return ", ".join(f"%{letter} {meaning}" for letter, (meaning, _) in _BY_LETTER.items())


def parse_format(text: str, body: str) -> Formatter:
    r"""Return a function that writes a message by a format.

    Parameters
    ----------
    text : str
        Letters behind ``%`` are fields, ``%%`` is a percent sign; ``\n``, ``\t``, ``\r``,
        ``\0``, ``\\`` and ``\xHH`` are bytes.  Nothing is added at the end.
    body : str
        How ``%s`` is written; with ``auto`` the bytes as they are.

    Raises
    ------
    click.UsageError
        A letter or an escape is not known.
    """
    parts: list[bytes | Formatter] = []
    at = 0
    for piece in _PIECE.finditer(text):
        parts.append(text[at : piece.start()].encode("utf-8", "surrogateescape"))
        at = piece.end()
        parts.append(_piece(piece, body))
    parts.append(text[at:].encode("utf-8", "surrogateescape"))

    def write(message: Message) -> bytes:
        return b"".join([one if isinstance(one, bytes) else one(message) for one in parts])

    return write


def _piece(piece: re.Match[str], body: str) -> bytes | Formatter:
    """Return the bytes, or the function, that one escape means."""
    if piece["hex"]:
        return bytes.fromhex(piece["hex"])
    escape, letter = piece["escape"], piece["field"]
    if letter == "%":
        return b"%"
    if letter is None and escape in _ESCAPES:
        return _ESCAPES[escape]
    if letter == "s":
        return functools.partial(_body_bytes, mode=body)
    if letter == "J":
        return functools.partial(_json_bytes, mode=body)
    if letter is None or letter not in _BY_LETTER:
        known = " ".join(f"%{one}" for one in _BY_LETTER)
        raise click.UsageError(
            f"{piece[0]!r} in the format means nothing; fields are {known}, escapes \\n \\t \\xHH"
        )
    field = _BY_LETTER[letter][1]
    return lambda message: field(message).encode("utf-8", "surrogatepass")


def _body_bytes(message: Message, mode: str) -> bytes:
    """Return the body for ``%s``."""
    content = message.body
    return content if mode == "auto" else body_text(content, mode).encode("utf-8")


def _json_bytes(message: Message, mode: str) -> bytes:
    """Return the whole message for ``%J``."""
    return _json_text(as_json(message, mode)).encode("utf-8", "surrogatepass")
