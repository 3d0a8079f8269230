"""Messages as lines of JSON or CSV, for programs: some at a time through the core."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqstore import _core
from rmqstore.cli.failures import UNREADABLE, CliError, say
from rmqstore.cli.output import FlushedAtEnd, write_bytes
from rmqstore.errors import StoreError

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = ["Bodies", "Failed", "MessageLines", "formatted", "json_lines"]

Failed = list[tuple["Message", StoreError]]
"""Messages whose bodies cannot be inflated, and why."""

_TOGETHER = 256  # messages, at most,
_TOGETHER_BYTES = 1 << 20  # and bytes of their records
_COMPRESSED = 1  # of sys_flag
_REPORTED = 10  # bodies, each on a line


class Bodies:
    """Bodies as shown; counts those that cannot be inflated, and reports the first."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, message: Message) -> tuple[bytes, str]:
        """Return a message's body and nothing, or the stored one and why it cannot be inflated."""
        try:
            return message.body, ""
        except StoreError as error:
            self.note([(message, error)])
            return bytes(message.raw_body), getattr(error, "reason", str(error))

    def noted(
        self, lines: Callable[[list[Message], Failed], bytes]
    ) -> Callable[[list[Message]], bytes]:
        """Return a maker of message lines that notes which bodies went out as stored."""

        def make(messages: list[Message]) -> bytes:
            failed: Failed = []
            data = lines(messages, failed)
            self.note(failed)
            return data

        return make

    def note(self, failed: Failed) -> None:
        """Count bodies that are shown as stored."""
        for message, error in failed:
            self.count += 1
            if self.count <= _REPORTED:
                place = f"{message.topic}/{message.queue_id} at {message.queue_offset}"
                say(f"{place}: {error}")

    def check(self) -> None:
        """Raise if there were any."""
        if self.count:
            text = "body" if self.count == 1 else "bodies"
            verb = "is" if self.count == 1 else "are"
            raise CliError(
                f"{self.count} compressed {text} cannot be inflated and {verb} shown as stored; "
                "leave bodies out with --body none",
                UNREADABLE,
            )


class MessageLines(FlushedAtEnd):
    """Writer of messages to standard output; ``with`` writes the rest."""

    def __init__(self, lines: Callable[[list[Message]], bytes]) -> None:
        self._lines = lines
        self._waiting: list[Message] = []
        self._bytes = 0

    def all(self, messages: Iterable[Message]) -> None:
        """Write messages, or keep the last of them until there are more."""
        for message in messages:
            self._waiting.append(message)
            self._bytes += message.store_size
            # A compressed body may inflate to far more than its record: one at a time.
            compressed = message.sys_flag & _COMPRESSED
            if compressed or self._bytes >= _TOGETHER_BYTES or len(self._waiting) >= _TOGETHER:
                self._write()

    def flush(self) -> None:
        """Show the messages so far."""
        self._write()
        sys.stdout.flush()

    def _write(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        try:
            data = self._lines(waiting)
        except Exception:
            # One of them cannot be written, or not all together: those before it are.
            for message in waiting:
                write_bytes(self._lines([message]))
        else:
            write_bytes(data)


def json_lines(
    messages: list[Message], body: str, *, local: bool, failed: Failed | None = None
) -> bytes:
    """Return messages as objects of JSON, a line each; times are in UTC without ``local``.

    ``body`` is one of ``BODY_MODES``. ``failed`` gets the messages whose bodies cannot be inflated,
    which are written as stored; without it that is raised.
    """
    values = _json_values(messages, body, failed)
    return _core.json_lines(messages, body, local=local, values=values, failed=failed)


def formatted(
    messages: list[Message],
    pieces: list[bytes | str],
    body: str,
    *,
    local: bool,
    failed: Failed | None = None,
) -> bytes:
    """Return messages by the pieces of a format; otherwise as :func:`json_lines`."""
    whole = any(one == "J" for one in pieces if isinstance(one, str))
    values = _json_values(messages, body, failed) if whole else None
    return _core.format_lines(messages, pieces, body, local=local, values=values, failed=failed)


def _json_values(
    messages: list[Message], body: str, failed: Failed | None
) -> list[bytes | None] | None:
    """Return the JSON bodies as parts of a line, where they are asked for."""
    if body != "json":
        return None
    return [_json_value(message, lenient=failed is not None) for message in messages]


def _json_value(message: Message, *, lenient: bool) -> bytes | None:
    """Return a JSON body as part of a line, ``None`` for any other."""
    try:
        body = message.body
    except StoreError:
        if lenient:
            return None
        raise
    try:
        value = json.loads(body, parse_constant=_refuse)
        # 1e999 was read as infinity, which would not be JSON either.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-8", "surrogatepass")


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which no JSON reader need take."""
    raise ValueError(constant)
