"""``put``: one message a line from standard input."""

from __future__ import annotations

import itertools
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from rmqstore.base.layout import INT32_MAX
from rmqstore.cli.common import open_store, refuse_foreign, store_command
from rmqstore.cli.failures import UNREADABLE, USAGE, CliError, say
from rmqstore.cli.progress import Progress
from rmqstore.cli.text import plural
from rmqstore.errors import MessageIllegalError, PutError
from rmqstore.files.paths import is_topic_name

__all__ = ["put"]

_CHUNK = 1 << 20  # bytes of one read
_LINE_MAX = 256 << 20  # bytes; no record can be longer than a file anyway


@store_command(
    "TOPIC",
    examples=(
        "put STORE orders --tags paid --keys ORDER-123 < lines.txt",
        "put STORE orders -q 0 -p region=eu < lines.txt",
    ),
)
@click.option("--tags", help="The tag of each message.")
@click.option("--keys", help="Keys of each message, separated by blanks.")
@click.option(
    "-q",
    "--queue",
    "queue_id",
    type=click.IntRange(0, INT32_MAX),
    help="The queue to put into.",
)
@click.option(
    "-p", "--property", "pairs", multiple=True, metavar="K=V", help="A property; may be repeated."
)
def put(
    *,
    store: str,
    config: str | None,
    topic: str,
    tags: str | None,
    keys: str | None,
    queue_id: int | None,
    pairs: tuple[str, ...],
) -> None:
    """Write one message a line from standard input; the store is made if it is missing.

    Without --queue messages go round over the topic's queues.
    """
    properties: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--property is {pair!r}, must be NAME=VALUE")
        properties[name] = value
    if not is_topic_name(topic):
        raise click.UsageError(f"topic {topic!r} must be 1 to 127 of [%|a-zA-Z0-9_-]")
    refuse_foreign(Path(store))
    groups = _line_groups()
    first = next(groups, None)
    if first is None:  # no message: the store stays as it is
        say("no messages on standard input")
        return
    stored = 0
    with (
        open_store(store, "a", config) as opened,
        Progress("storing", "bytes", total=_input_size()) as progress,
    ):
        for lines in itertools.chain([first], groups):
            progress.done += sum(map(len, lines)) + len(lines)
            try:
                stored += opened.put_many(
                    topic,
                    lines,
                    tags=tags,
                    keys=keys,
                    queue_id=queue_id,
                    properties=properties or None,
                ).count
            except (PutError, TypeError, ValueError) as error:
                text = _by_line(error, stored)
                stored += getattr(error, "stored", 0)
                usage = isinstance(error, MessageIllegalError) or not isinstance(error, PutError)
                raise CliError(
                    f"{text}; {plural(stored, 'message')} "
                    f"{'was' if stored == 1 else 'were'} stored before",
                    USAGE if usage else UNREADABLE,
                ) from error
    say(f"{plural(stored, 'message')} stored in {topic}")


def _by_line(error: Exception, before: int) -> str:
    """Return the text of an error, with the number of the input line instead of the row."""
    return re.sub(r"^bodies, row (\d+)", lambda row: f"line {before + int(row[1]) + 1}", str(error))


def _input_size() -> int | None:
    """Return the size of standard input, ``None`` if it is not a file."""
    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):  # closed, or replaced
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _read_input(read: Callable[[int], bytes]) -> bytes:
    """Return the bytes available on standard input."""
    try:
        return read(_CHUNK)
    except OSError as error:
        raise CliError(f"standard input: {error.strerror}", UNREADABLE) from error


def _line_groups() -> Iterator[list[bytes]]:
    """Iterate over standard input as it arrives, in groups of whole lines.

    A slow pipe gives small groups at once, a file large ones.
    """
    if sys.stdin is None:
        raise CliError("standard input is closed", USAGE)
    stream = sys.stdin.buffer
    read = getattr(stream, "read1", stream.read)
    parts: list[bytes] = []  # of an unfinished line
    held = 0
    while chunk := _read_input(read):
        *lines, rest = chunk.split(b"\n")
        if lines:
            parts.append(lines[0])
            lines[0] = b"".join(parts)
            parts, held = [], 0
            yield lines
        if rest:
            parts.append(rest)
            held += len(rest)
            if held > _LINE_MAX:
                raise CliError(f"a line is longer than {_LINE_MAX:,} bytes", USAGE)
    if parts:
        yield [b"".join(parts)]
