"""Lines of the logs ``rmqstore`` and ``rmqstore.serve``; nothing else writes any.

Each argument of a line may be from a client: it is made printable and cut here
(``foreign.py``), so that no caller has to. ``scripts/check_sources.py`` refuses logging
that goes round this module, and lines whose text is not a constant.

Few programs ever have one, and importing ``logging`` takes as long as opening a store.
"""

from __future__ import annotations

from rmqstore.base.foreign import cut, foreign, printable

__all__ = ["Log", "log_info", "log_warning", "traceback_text"]

_INFO, _WARNING, _ERROR, _CRITICAL = 20, 30, 40, 50  # of logging
_MOST_PIECE = 4000  # characters of a traceback's piece: a frame, or the text of an error
_CALLER = 3  # frames up from where the line is made


class Log:
    """Writer of log lines; ``name`` is the logger's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, text: str, *arguments: object) -> None:
        """Log an event as the caller's; ``text`` has a ``%s`` for each argument."""
        self._write(_INFO, text, arguments, None)

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning as the caller's, as :meth:`info` does."""
        self._write(_WARNING, text, arguments, None)

    def exception(self, text: str, *arguments: object, error: BaseException) -> None:
        """Log an error of ours as the caller's, with its traceback."""
        self._write(_ERROR, text, arguments, error)

    def critical(self, text: str, *arguments: object, error: BaseException | None = None) -> None:
        """Log the end of the service as the caller's, with a traceback if there is an error."""
        self._write(_CRITICAL, text, arguments, error)

    def _write(
        self, level: int, text: str, arguments: tuple[object, ...], error: BaseException | None
    ) -> None:
        import logging

        logger = logging.getLogger(self._name)
        if not logger.isEnabledFor(level):
            return
        path, line, function, _ = logger.findCaller(stacklevel=_CALLER)
        shown = tuple(one if isinstance(one, (int, float)) else _Shown(one) for one in arguments)
        failed = None if error is None else (type(error), error, error.__traceback__)
        record = logger.makeRecord(self._name, level, path, line, text, shown, failed, function)
        if error is not None:
            record.exc_text = traceback_text(error)  # which formatters take
        logger.handle(record)


class _Shown:
    """An argument, whose text is made when the line is."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return foreign(str(self._value))

    def __repr__(self) -> str:
        return foreign(repr(self._value))


def traceback_text(error: BaseException) -> str:
    """Return a traceback, indented from its second line on: none looks like one of the log."""
    import traceback

    pieces = (piece.rstrip("\n") for piece in traceback.format_exception(error))
    lines = (line for piece in pieces for line in cut(piece, _MOST_PIECE).split("\n"))
    return "\n  ".join(map(printable, lines))


_LOG = Log("rmqstore")
log_info = _LOG.info
log_warning = _LOG.warning
