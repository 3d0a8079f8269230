"""Lines of the logs ``rmqstore`` and ``rmqstore.serve``, written only here.

Any argument may come from a client: it is made printable and cut here (``foreign.py``), not by
the callers. ``scripts/check_sources.py`` refuses logging outside this module, and lines whose
text is not a constant.

``logging`` is imported on first use: that takes as long as opening a store, and lines are rare.
"""

from __future__ import annotations

from rmqstore.base.foreign import cut, foreign, printable

__all__ = ["Log", "log_info", "log_nothing", "log_warning", "traceback_text"]

_INFO, _WARNING, _ERROR, _CRITICAL = 20, 30, 40, 50  # of logging
_MOST_PIECE = 4000  # characters of a traceback's frame, or of an error's text
_CALLER = 3  # frames up to the caller


class Log:
    """Writer of log lines; ``name`` is the logger's."""

    unseen = False  # without a handler: see log_nothing

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, text: str, *arguments: object) -> None:
        """Log an event under the caller's position; ``text`` has a ``%s`` for each argument."""
        self._write(_INFO, text, arguments, None)

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning, as :meth:`info`."""
        self._write(_WARNING, text, arguments, None)

    def exception(self, text: str, *arguments: object, error: BaseException) -> None:
        """Log an internal error with its traceback, as :meth:`info`."""
        self._write(_ERROR, text, arguments, error)

    def critical(self, text: str, *arguments: object, error: BaseException | None = None) -> None:
        """Log the end of the service, with a traceback if there is an error, as :meth:`info`."""
        self._write(_CRITICAL, text, arguments, error)

    def _write(
        self, level: int, text: str, arguments: tuple[object, ...], error: BaseException | None
    ) -> None:
        import logging

        library = logging.getLogger("rmqstore")
        if Log.unseen and not library.handlers:
            library.addHandler(logging.NullHandler())
        logger = logging.getLogger(self._name)
        if not logger.isEnabledFor(level):
            return
        path, line, function, _ = logger.findCaller(stacklevel=_CALLER)
        shown = tuple(one if isinstance(one, (int, float)) else _Shown(one) for one in arguments)
        failed = None if error is None else (type(error), error, error.__traceback__)
        record = logger.makeRecord(self._name, level, path, line, text, shown, failed, function)
        if error is not None:
            record.exc_text = traceback_text(error)  # used by formatters
        logger.handle(record)


class _Shown:
    """Argument of a line, formatted with it."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return foreign(str(self._value))

    def __repr__(self) -> str:
        return foreign(repr(self._value))


def traceback_text(error: BaseException) -> str:
    """Return a traceback indented from its second line, so that none resembles a log line."""
    import traceback

    pieces = (piece.rstrip("\n") for piece in traceback.format_exception(error))
    lines = (line for piece in pieces for line in cut(piece, _MOST_PIECE).split("\n"))
    return "\n  ".join(map(printable, lines))


def log_nothing() -> None:
    """Show no line of the library without a handler, for a process whose parent shows them."""
    Log.unseen = True


_LOG = Log("rmqstore")
log_info = _LOG.info
log_warning = _LOG.warning
