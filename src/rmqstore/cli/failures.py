"""Errors of the command line: one line with the remedy, and an exit code."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import click

from rmqstore.base.foreign import foreign

__all__ = [
    "INTERRUPTED",
    "LOCKED",
    "NOT_FOUND",
    "OK",
    "UNREADABLE",
    "USAGE",
    "CliError",
    "drop_standard_output",
    "guard_standard_streams",
    "in_options",
    "report",
    "say",
    "say_data",
    "show_defect",
]

OK = 0
NOT_FOUND = 1
USAGE = 2
LOCKED = 3
UNREADABLE = 4
INTERRUPTED = 130

# Arguments of Python, each with the option, its value, and more options for ``serve``, which would
# delete the older messages of a dead broker: it keeps them for 72 hours, as a broker does.
_ARGUMENTS = (
    ("on_corruption='fill'", "--on-corruption", " fill", " --keep forever"),
    ("verify='full'", "--verify", " full", ""),
    ("config=,", "--config", ",", ""),
    ("tls=(certificate, key, 'only')", "--tls-only", "", ""),
)
_READING = (
    ("in config=", "in the file of --config"),
    ("mode 'r' shows", "verbs that only read show"),
    ("open with mode 'r'", "verbs that only read show what is in it"),
)
_STANDARD_OUTPUT = "standard output"
_BUFFER = 1 << 16  # bytes


class _StandardOutput(io.FileIO):
    """Standard output, named in the errors of writing to it."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _STANDARD_OUTPUT
            raise


class _StandardError(io.FileIO):
    """Standard error that never fails: lines that cannot be written are lost."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def guard_standard_streams() -> None:
    """Name standard output in its errors, and ignore errors of standard error.

    A verb continues if the reader of standard error is gone, or its disk is full. Characters
    missing in the terminal's encoding are escaped.
    """
    sys.stdout = _through(_StandardOutput, sys.stdout, sys.__stdout__)
    sys.stderr = _through(_StandardError, sys.stderr, sys.__stderr__)


def _through(kind: type[io.FileIO], given: Any, own: object) -> Any:
    """Wrap the process's own stream in a file of this kind; return any other unchanged."""
    if given is not own or not isinstance(given, io.TextIOWrapper):
        return given
    given.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(kind(given.fileno(), "wb", closefd=False), _BUFFER),
        encoding=given.encoding,
        errors="backslashreplace",
        line_buffering=given.line_buffering,
        write_through=given.write_through,
    )


def drop_standard_output() -> None:
    """Drop buffered output, which would fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: object) -> None:
    """Write a line to standard error, made printable: parts of it may be foreign text."""
    click.echo(f"rmqstore: {foreign(str(text))}", err=True)


def say_data(line: bytes) -> None:
    """Write a line for programs to standard error, as it is."""
    click.echo(line, err=True, nl=False)


def show_defect(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """Write the traceback of a defect of ours, made printable: it may repeat foreign text."""
    from rmqstore.base.warn import traceback_text

    click.echo(traceback_text(error), err=True)


class CliError(click.ClickException):
    """An error with its own exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def in_options(text: str, verb: click.Command | None) -> str:
    """Return an error or a warning of the library in terms of the command line.

    An option that the verb lacks is shown as one of ``serve``.
    """
    for argument, words in _READING:
        text = text.replace(argument, words)
    if verb is not None and verb.name == "config":
        text = text.replace("config=,", "FILE,")
    for argument, option, value, beside in _ARGUMENTS:
        words = option + value
        served = f"'rmqstore serve {words}{beside}'"
        text = text.replace(argument, words if _takes(verb, option, value.strip()) else served)
    return text


def _takes(verb: click.Command | None, option: str, value: str) -> bool:
    """Return whether a verb has an option that may have this value."""
    for one in verb.params if verb is not None else ():
        if option in one.opts:
            return not isinstance(one.type, click.Choice) or value in one.type.choices
    return False


def report(error: Exception, verb: click.Command | None = None) -> int:
    """Write one line about ``error`` to standard error and return the exit code.

    Errors that neither the input nor the machine has caused are raised again. ``verb`` is the
    command that was run, if known.
    """
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, OSError) and error.filename == _STANDARD_OUTPUT:
        drop_standard_output()
    message, code = _explain(error)
    say(in_options(" ".join(message.split()), verb))
    return code


def _advice(message: str) -> str:
    """Return the remedy for an incompatible store, unless the error names it."""
    if "mode 'r'" in message:
        return ""
    if "RocketMQ 5" in message:
        return "verbs that only read show what is in it"
    if "; " in message or "DLedger" in message:
        return ""
    return "give the broker's configuration with --config"


def _place(error: click.UsageError) -> str:
    """Return where a verb without ``-o`` takes the file that it writes."""
    if not isinstance(error, click.NoSuchOption) or error.option_name != "-o" or error.ctx is None:
        return ""
    for one in error.ctx.command.params:
        if isinstance(one, click.Argument) and "FILE" in (one.metavar or "").split():
            return f"; FILE is an argument: '{error.ctx.command_path} {one.metavar}'"
    return ""


def _explain(error: Exception) -> tuple[str, int]:
    """Return the line and the exit code for an error; raise it if it is a defect of ours."""
    from rmqstore import errors
    from rmqstore.config.file_sizes import java_keys
    from rmqstore.directory.layout import LogPathsError

    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx is not None else "rmqstore"
        text = error.format_message().rstrip(".") + _place(error)
        return f"{text} (see '{where} --help')", USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), error.code if isinstance(error, CliError) else UNREADABLE
    if isinstance(error, ImportError) and isinstance(error.__cause__, ImportError):
        return str(error), UNREADABLE  # an extra is missing; the text has the remedy
    known: list[tuple[type[Exception], str, int]] = [
        (
            errors.StoreNotFoundError,
            ""
            if "there is no log file" in str(error)
            else "give the directory that holds 'commitlog'",
            UNREADABLE,
        ),
        (
            errors.StoreLockedError,
            "stop the other process first; verbs that only read work beside it",
            LOCKED,
        ),
        (
            errors.IncompatibleStoreError,
            _advice(str(error)),
            UNREADABLE,
        ),
        (LogPathsError, "", USAGE),
        (errors.FilterError, "", USAGE),
        (errors.MessageIllegalError, "nothing of it was stored", USAGE),
        (errors.TopicNotFoundError, "'rmqstore topics STORE' lists them", NOT_FOUND),
        (errors.MessageNotFoundError, "", NOT_FOUND),
        (errors.GroupNotFoundError, "'rmqstore groups STORE' lists them", NOT_FOUND),
        (
            errors.StoreError,
            "or leave bodies out with --body none"
            if isinstance(error.__cause__, ImportError)
            else "",
            UNREADABLE,
        ),
        (
            PermissionError,
            "" if "chmod" in str(error) else "run as the owner, or change the mode (chmod)",
            UNREADABLE,
        ),
        (OSError, "", UNREADABLE),
    ]
    for kind, advice, code in known:
        if isinstance(error, kind):
            message = str(error) or type(error).__name__
            if isinstance(error, (errors.IncompatibleStoreError, LogPathsError)):
                message = java_keys(message)
            if isinstance(error, OSError) and error.filename is not None:
                message = f"{os.fsdecode(error.filename)}: {error.strerror}"
            if advice and not message.endswith("?"):  # else it asks a question
                message = f"{message}; {advice}"
            return message, code
    raise error
