"""Errors as the command line shows them: one line that says what to do, and an exit code."""

from __future__ import annotations

import click

__all__ = [
    "INTERRUPTED",
    "LOCKED",
    "NOT_FOUND",
    "OK",
    "UNREADABLE",
    "USAGE",
    "CliError",
    "report",
]

OK = 0
NOT_FOUND = 1
USAGE = 2
LOCKED = 3
UNREADABLE = 4
INTERRUPTED = 130


class CliError(click.ClickException):
    """An error with its own exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def report(error: Exception) -> int:
    """Write one line about ``error`` to standard error and return the exit code.

    Whatever is not known to be the input's or the machine's fault is raised again.
    """
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    message, code = _explain(error)
    click.echo(f"rmqstore: {' '.join(message.split())}", err=True)
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """Return the line and the exit code for ``error``; raise it if it is a defect of ours."""
    from rmqstore import errors

    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx is not None else "rmqstore"
        return f"{error.format_message().rstrip('.')} (see '{where} --help')", USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), error.code if isinstance(error, CliError) else UNREADABLE
    known: list[tuple[type[Exception], str, int]] = [
        (
            errors.StoreNotFoundError,
            "give the directory that holds 'commitlog'",
            UNREADABLE,
        ),
        (
            errors.StoreLockedError,
            "stop the other process first; verbs that only read work beside it",
            LOCKED,
        ),
        (
            errors.IncompatibleStoreError,
            "give the broker's configuration with --config",
            UNREADABLE,
        ),
        (errors.FilterError, "", USAGE),
        (errors.MessageIllegalError, "nothing of it was stored", USAGE),
        (errors.TopicNotFoundError, "'rmqstore topics STORE' lists them", NOT_FOUND),
        (errors.MessageNotFoundError, "", NOT_FOUND),
        (errors.StoreError, "", UNREADABLE),
        (OSError, "", UNREADABLE),
    ]
    for kind, advice, code in known:
        if isinstance(error, kind):
            message = str(error) or type(error).__name__
            return f"{message}; {advice}" if advice else message, code
    raise error
