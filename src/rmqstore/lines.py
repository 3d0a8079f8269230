"""Messages as lines of JSON or CSV, or by a format, for programs."""

from __future__ import annotations

import contextlib
import csv
import json
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rmqstore.base.arguments import one_of
from rmqstore.base.times import format_millis
from rmqstore.bodies import BODY_MARK
from rmqstore.errors import StoreError

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = [
    "BODY_MODES",
    "FIELDS",
    "Failed",
    "body_field",
    "csv_heading",
    "csv_lines",
    "formatted",
    "json_lines",
]

# The columns of API and Arrow, in their order; times are ms in a Message.
FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "msg_id", "uniq_key",
    "tags", "keys", "properties", "body", "flag", "sys_flag", "born_timestamp", "store_timestamp",
    "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc",
)  # fmt: skip
BODY_MODES = ("auto", "utf8", "base64", "hex", "json", "none")
# Cells for a body; separate ones where it may be text or base64.
_CELLS = {
    "auto": ["body", "body_base64"],
    "utf8": ["body"],
    "base64": ["body_base64"],
    "hex": ["body_hex"],
    "none": [],
}

Failed = list[tuple["Message", StoreError]]
"""Messages whose bodies cannot be inflated, and why."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _stdlib_dumps(value: object) -> bytes:
    return _encode(value).encode()


_dumps: Callable[[Any], bytes] = _stdlib_dumps
with contextlib.suppress(ImportError):
    from orjson import dumps

    _dumps = dumps  # twice as fast


class _Times(dict[int, tuple[str, str]]):
    """Times as text; the part shared by times of one second is formatted once."""

    def __init__(self, *, local: bool) -> None:
        self._local = local

    def __missing__(self, second: int) -> tuple[str, str]:
        before, _, zone = format_millis(1000 * second, local=self._local).rpartition("000")
        self[second] = before, zone
        return before, zone

    def of(self, millis: int) -> str:
        """Return a time as ``format_millis`` does."""
        before, zone = self[millis // 1000]
        return f"{before}{millis % 1000:03d}{zone}"


class _Lines:
    """Formatter of messages, with one form of bodies and one zone."""

    def __init__(self, body: str, forms: Iterable[str], failed: Failed | None, local: bool) -> None:
        one_of("body", body, tuple(forms))
        self._form = body
        self._failed = failed
        self._times = _Times(local=local)

    def json_line(self, message: Message) -> bytes:
        """Return a message as a line of JSON."""
        body, error = self._body(message) if self._form != "none" else (b"", "")
        return self._object(message, body, error) + b"\n"

    def cells(self, message: Message) -> list[object]:
        """Return the cells of a message's line of CSV."""
        return [
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.store_size,
            message.msg_id,
            message.uniq_key,
            message.tags,
            " ".join(message.keys),
            _dumps(message.properties).decode(),
            *self._body_cells(message),
            message.flag,
            message.sys_flag,
            self._times.of(message.born_timestamp),
            self._times.of(message.store_timestamp),
            message.born_host,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body_crc,
        ]

    def formatted(self, message: Message, pieces: list[bytes | str], wants_body: bool) -> bytes:
        """Return a message by the pieces of a format."""
        body, error = self._body(message) if wants_body else (b"", "")
        return b"".join(
            [
                piece if isinstance(piece, bytes) else self._field(message, piece, body, error)
                for piece in pieces
            ]
        )

    def _body(self, message: Message) -> tuple[bytes, str]:
        """Return a message's body and "", or the stored body and the error of inflating it."""
        try:
            return message.body, ""
        except StoreError as error:
            if self._failed is None:
                raise
            self._failed.append((message, error))
            return bytes(message.raw_body), getattr(error, "reason", str(error))

    def _object(self, message: Message, body: bytes, error: str) -> bytes:
        """Return a message as an object of JSON."""
        row: dict[str, object] = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "physical_offset": message.physical_offset,
            "store_size": message.store_size,
            "msg_id": message.msg_id,
            "uniq_key": message.uniq_key,
            "tags": message.tags,
            "keys": message.keys,
            "properties": message.properties,
        }
        before = b"{"
        value = _json_value(body) if self._form == "json" and not error else None
        if value is not None:  # JSON is inserted as it is
            before = b'%b,"body":%b,' % (_dumps(row)[:-1], value)
            row = {}
        elif self._form != "none":
            name, text = body_field(body, self._form)
            row[name] = text
            if error:
                row["body_error"] = error
        row["flag"] = message.flag
        row["sys_flag"] = message.sys_flag
        row["born_timestamp"] = self._times.of(message.born_timestamp)
        row["store_timestamp"] = self._times.of(message.store_timestamp)
        row["born_host"] = message.born_host
        row["store_host"] = message.store_host
        row["reconsume_times"] = message.reconsume_times
        row["prepared_transaction_offset"] = message.prepared_transaction_offset
        row["body_crc"] = message.body_crc
        return before + _dumps(row)[1:]

    def _body_cells(self, message: Message) -> list[str]:
        if self._form == "none":  # and do not inflate it
            return []
        body, error = self._body(message)
        name, text = body_field(body, self._form)
        shown = {name: BODY_MARK + text if error else text}
        return [shown.get(cell, "") for cell in _CELLS[self._form]]

    def _field(self, message: Message, letter: str, body: bytes, error: str) -> bytes:
        if letter == "J":
            return self._object(message, body, error)
        if letter == "s":
            if self._form == "none":
                return b""
            text = body if self._form == "auto" else body_field(body, self._form)[1].encode()
            return BODY_MARK.encode() + text if error else text
        if letter == "S":
            return b"%d" % len(body)
        if letter in "TB":
            millis = message.store_timestamp if letter == "T" else message.born_timestamp
            return self._times.of(millis).encode()
        return _LETTERS[letter](message).encode()


_LETTERS: dict[str, Callable[[Message], str]] = {
    "t": lambda message: message.topic,
    "q": lambda message: str(message.queue_id),
    "o": lambda message: str(message.queue_offset),
    "p": lambda message: str(message.physical_offset),
    "k": lambda message: " ".join(message.keys),
    "g": lambda message: message.tags or "",
    "R": lambda message: str(message.store_size),
    "M": lambda message: str(message.store_timestamp),
    "i": lambda message: message.msg_id,
    "u": lambda message: message.uniq_key or "",
    "h": lambda message: _dumps(message.properties).decode(),
}


def body_field(body: bytes, form: str) -> tuple[str, str]:
    """Return a body's field and its text: encoded if the form, or invalid UTF-8, requires it."""
    if form == "hex":
        return "body_hex", body.hex()
    if form == "utf8":
        return "body", body.decode("utf-8", "replace")
    if form != "base64":
        try:
            return "body", body.decode()
        except UnicodeDecodeError:
            pass
    return "body_base64", b2a_base64(body, newline=False).decode()


def _csv(rows: Iterable[Iterable[object]]) -> bytes:
    """Return lines of CSV; a cell with a comma, a quote or either line break is quoted."""
    lines: list[str] = []
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n").writerows(rows)
    return "".join([line.removesuffix("\r\n") + "\n" for line in lines]).encode()


def json_lines(
    messages: list[Message], body: str, *, local: bool = False, failed: Failed | None = None
) -> bytes:
    """Return messages as objects of JSON, a line each; times are in UTC without ``local``.

    ``body`` is one of ``BODY_MODES``. ``failed`` gets the messages whose bodies cannot be inflated,
    which are written as stored; without it the error is raised.
    """
    lines = _Lines(body, BODY_MODES, failed, local)
    return b"".join([lines.json_line(message) for message in messages])


def csv_lines(
    messages: list[Message], body: str, *, local: bool = False, failed: Failed | None = None
) -> bytes:
    """Return messages as lines of CSV, with any form of bodies but JSON; as :func:`json_lines`."""
    lines = _Lines(body, _CELLS, failed, local)
    return _csv(map(lines.cells, messages))


def csv_heading(body: str) -> bytes:
    """Return the line that names the columns of :func:`csv_lines`."""
    at = FIELDS.index("body")
    return _csv([(*FIELDS[:at], *_CELLS[body], *FIELDS[at + 1 :])])


def formatted(
    messages: list[Message],
    pieces: list[bytes | str],
    body: str,
    *,
    local: bool = False,
    failed: Failed | None = None,
) -> bytes:
    """Return messages by the pieces of a format; otherwise as :func:`json_lines`."""
    letters = {piece for piece in pieces if isinstance(piece, str)}
    wants_body = "S" in letters or (body != "none" and not letters.isdisjoint("sJ"))
    lines = _Lines(body, BODY_MODES, failed, local)
    return b"".join([lines.formatted(message, pieces, wants_body) for message in messages])


def _json_value(body: bytes) -> bytes | None:
    """Return a JSON body as part of a line, ``None`` for any other."""
    try:
        value = json.loads(body, parse_constant=_refuse)
        # Fails for 1e999, read as infinity, which is not JSON either.
        text = _encode(value)
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-8", "surrogatepass")


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(constant)
