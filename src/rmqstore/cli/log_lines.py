"""Log of the library on the standard error of a verb."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

__all__ = ["json_line", "write_log"]

_Words = Callable[[str], str]


class _JsonLines(logging.Formatter):
    """Formatter of log records as JSON objects, one a line."""

    def __init__(self, words: _Words) -> None:
        super().__init__()
        self._words = words

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return json_line(
            record.levelname.lower(),
            self._words(record.getMessage()),
            when=record.created,
            error=record.exc_text,
        )


class _LogLines(logging.Formatter):
    """Formatter of log records like other lines of the command."""

    def __init__(self, words: _Words) -> None:
        super().__init__()
        self._words = words

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback of a defect of ours."""
        return "rmqstore: " + self._words(super().format(record))


def json_line(level: str, message: str, *, when: float, **fields: object) -> str:
    """Return a line of the log as an object, with the fields that are not None."""
    shown = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) + f".{int(when * 1000) % 1000:03}Z"
    )
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({"time": shown, "level": level, "message": message, **given})


def write_log(words: _Words) -> None:
    """Write the log to standard error: lines for people in a terminal, objects elsewhere.

    ``words`` returns a line in the words of the command.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_LogLines(words) if sys.stderr.isatty() else _JsonLines(words))
    log = logging.getLogger("rmqstore")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
