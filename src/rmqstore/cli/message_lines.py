"""Messages as lines of JSON or CSV, for programs: some at a time through the core."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqstore import _core
from rmqstore.cli.output import FlushedAtEnd, write_bytes

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = ["MessageLines", "formatted", "json_lines"]

_TOGETHER = 256  # messages, at most,
_TOGETHER_BYTES = 1 << 20  # and bytes of their records
_COMPRESSED = 1  # of sys_flag


class MessageLines(FlushedAtEnd):
    """Writes messages to standard output; ``with`` writes what is left.

    Parameters
    ----------
    lines : callable
        Returns the bytes of a list of messages.
    """

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
        """Show what was written so far."""
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


def json_lines(messages: list[Message], body: str, *, local: bool) -> bytes:
    """Return messages as objects of JSON, a line each.

    Parameters
    ----------
    messages : list of Message
    body : str
        One of ``BODY_MODES``.
    local : bool
        Times are in this machine's zone, and not in UTC.
    """
    return _core.json_lines(messages, body, local=local, values=_json_values(messages, body))


def formatted(
    messages: list[Message], pieces: list[bytes | str], body: str, *, local: bool
) -> bytes:
    """Return messages by the pieces of a format; otherwise as :func:`json_lines`."""
    whole = any(one == "J" for one in pieces if isinstance(one, str))
    values = _json_values(messages, body) if whole else None
    return _core.format_lines(messages, pieces, body, local=local, values=values)


def _json_values(messages: list[Message], body: str) -> list[bytes | None] | None:
    """Return the bodies that are JSON as they go into a line, where they are asked for."""
    return [_json_value(message.body) for message in messages] if body == "json" else None


def _json_value(body: bytes) -> bytes | None:
    """Return a body that is JSON as it goes into a line, ``None`` for any other."""
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
