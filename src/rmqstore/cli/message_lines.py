"""Messages as lines on standard output, and the count of bodies shown as stored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqstore.cli.failures import UNREADABLE, CliError, say
from rmqstore.cli.output import FlushedAtEnd, write_bytes
from rmqstore.errors import StoreError

if TYPE_CHECKING:
    from rmqstore._core import Message
    from rmqstore.lines import Failed

__all__ = ["Bodies", "MessageLines"]

_TOGETHER = 256  # messages, at most,
_TOGETHER_BYTES = 1 << 20  # and bytes of their records
_COMPRESSED = 1  # of sys_flag
_REPORTED = 10  # bodies reported, each on a line


class Bodies:
    """Bodies to show, and the count of bodies that cannot be inflated."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, message: Message) -> tuple[bytes, str]:
        """Return a message's body and "", or the stored body and the error of inflating it."""
        try:
            return message.body, ""
        except StoreError as error:
            self.note([(message, error)])
            return bytes(message.raw_body), getattr(error, "reason", str(error))

    def noted(
        self, lines: Callable[[list[Message], Failed], bytes]
    ) -> Callable[[list[Message]], bytes]:
        """Return a formatter of message lines that notes bodies written as stored."""

        def make(messages: list[Message]) -> bytes:
            failed: Failed = []
            data = lines(messages, failed)
            self.note(failed)
            return data

        return make

    def note(self, failed: Failed) -> None:
        """Count bodies shown as stored, and report the first ones."""
        for message, error in failed:
            self.count += 1
            if self.count <= _REPORTED:
                place = f"{message.topic}/{message.queue_id} at {message.queue_offset}"
                say(f"{place}: {error}")

    def check(self) -> None:
        """Raise if any body could not be inflated."""
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
        """Write messages; the last ones may be kept until there are more."""
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
            # One cannot be written, or not all together: write the messages before it.
            for message in waiting:
                write_bytes(self._lines([message]))
        else:
            write_bytes(data)
