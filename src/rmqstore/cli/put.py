"""``put``: one message a line from standard input."""

from __future__ import annotations

import itertools
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
@click.option("--raw", is_flag=True, help="Store lines as they are, those of cat too.")
def put(
    *,
    store: str,
    config: str | None,
    topic: str,
    tags: str | None,
    keys: str | None,
    queue_id: int | None,
    pairs: tuple[str, ...],
    raw: bool,
) -> None:
    """Write one message a line from standard input; the store is made if it is missing.

    Without --queue messages go round over the topic's queues.  If the first line is a message as
    "cat -o jsonl" writes it, all must be: their bodies, keys, tags and properties are stored, in
    TOPIC.  "rmqstore import" keeps topics and the rest too.
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
    as_messages = not raw and _are_of_cat(first)
    if as_messages:
        if tags is not None or keys is not None or pairs:
            raise click.UsageError(
                "the lines are messages as cat writes them, with their own keys, tags and "
                "properties; --raw stores the lines themselves"
            )
        say("the lines are messages as cat writes them; --raw stores the lines themselves")
        try:
            _columns_of(first, range(1, len(first) + 1))  # before a store is made
        except ValueError as error:
            raise CliError(f"{error}; nothing was stored", USAGE) from None
    stored = read = 0
    with (
        open_store(store, "a", config) as opened,
        Progress("storing", "bytes", total=_input_size()) as progress,
    ):
        for lines in itertools.chain([first], groups):
            progress.done += sum(map(len, lines)) + len(lines)
            numbers = range(read + 1, read + 1 + len(lines))
            read += len(lines)
            columns: dict[str, Any] = {
                "bodies": lines,
                "tags": tags,
                "keys": keys,
                "properties": properties or None,
            }
            try:
                if as_messages:
                    columns = _columns_of(lines, numbers)
                stored += opened.put_many(topic, **columns, queue_id=queue_id).count
            except (PutError, TypeError, ValueError) as error:
                text = _by_line(error, numbers)
                stored += getattr(error, "stored", 0)
                usage = isinstance(error, MessageIllegalError) or not isinstance(error, PutError)
                raise CliError(
                    f"{text}; {plural(stored, 'message')} "
                    f"{'was' if stored == 1 else 'were'} stored before",
                    USAGE if usage else UNREADABLE,
                ) from error
    say(f"{plural(stored, 'message')} stored in {topic}")


def _are_of_cat(lines: list[bytes]) -> bool:
    """Return whether the first line is a message as ``cat`` writes it."""
    if not lines[0].startswith(b"{"):
        return False
    from rmqstore.toolbox.exchange.parsed_lines import is_line_of_cat

    return is_line_of_cat(lines[0])


def _columns_of(lines: list[bytes], numbers: range) -> dict[str, Any]:
    """Return what ``put_many`` takes for lines of ``cat``."""
    from rmqstore.toolbox.exchange.parsed_lines import LineError, fields_of_line, own_properties

    rows = []
    for number, line in zip(numbers, lines, strict=True):
        try:
            rows.append(fields_of_line(line))
        except LineError as error:
            raise ValueError(f"line {number}: {error}; --raw stores lines as they are") from None
    return {
        "bodies": [row["body"] for row in rows],
        "tags": [row.get("tags") for row in rows],
        "keys": [" ".join(row.get("keys") or ()) for row in rows],
        "uniq_key": [row.get("uniq_key") for row in rows],
        "properties": [own_properties(row) for row in rows],
    }


def _by_line(error: Exception, numbers: range) -> str:
    """Return the text of an error, with the number of the input line instead of the row."""

    def line(row: re.Match[str]) -> str:
        column = "" if row[1] == "bodies" else f", {row[1]}"
        return f"line {numbers[int(row[2])]}{column}"

    return re.sub(r"^(bodies|tags|keys|uniq_key|properties), row (\d+)", line, str(error))


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
