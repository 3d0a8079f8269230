"""``export`` and ``import``: messages to and from files of other programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import click

from rmqstore.base.warn import log_nothing
from rmqstore.cli.common import (
    TIME_FORMS,
    corruption_option,
    known_topic,
    load_config,
    once,
    open_store,
    refuse_foreign,
    reported_damage,
    store_command,
    time_of,
    zone_option,
)
from rmqstore.cli.failures import NOT_FOUND, UNREADABLE, USAGE, CliError, say, say_data
from rmqstore.cli.output import json_bytes, stdout_is_terminal
from rmqstore.cli.progress import Progress
from rmqstore.cli.writers import SUMMARY, writer_for
from rmqstore.errors import TopicNotFoundError
from rmqstore.filters import check_filter
from rmqstore.toolbox.exchange.export import export_of
from rmqstore.toolbox.exchange.formats import FORMATS, Format, format_of
from rmqstore.toolbox.exchange.message_files import PIECE_ROWS
from rmqstore.toolbox.exchange.redaction import redactions_of

__all__ = ["export", "import_"]

_STANDARD = "-"


def _names_of(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of ``--redact``, with commas or repeated."""
    names = [name for value in values for name in value.split(",")]
    try:
        return redactions_of(name.strip() for name in names)
    except ValueError as error:
        raise click.UsageError(str(error).replace("redact", "--redact", 1), ctx) from None


def _format_of(file: str, chosen: str | None, stream: str) -> Format:
    """Return the format of a file, or raise a usage error."""
    try:
        return format_of(file, chosen)
    except ValueError as error:
        if file == _STANDARD:
            where = f"standard {stream}: give --format jsonl"
            raise click.UsageError(where) from None
        raise click.UsageError(
            str(error).partition(": format")[0] + f": give --format {'|'.join(FORMATS)}"
        ) from None


_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of the file.  [default: by its ending: .parquet, .arrow, .feather, .csv, .jsonl, "
    ".ndjson]",
)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the error of an unsuitable file or argument into one line."""
    try:
        yield
    except FileExistsError as error:
        raise CliError(f"{os.fsdecode(error.filename)}: {error.strerror}", USAGE) from None
    except TopicNotFoundError as error:  # of the file, not of the store
        raise CliError(str(error), NOT_FOUND) from None
    except ValueError as error:
        raise CliError(str(error).replace("keep_time", "--keep-time"), USAGE) from None


def _show(done: object, to_standard: bool) -> None:
    """Write the summary, to standard error if the messages go to standard output."""
    values = {one.name: getattr(done, one.name) for one in SUMMARY}
    if to_standard:
        say_data(json_bytes(values))
        return
    if stdout_is_terminal():
        values["seconds"] = round(values["seconds"], 3)
    with writer_for(None, SUMMARY) as writer:
        writer.row(values)


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise CliError("standard input is closed", USAGE)
    return sys.stdin.buffer


@store_command(
    "FILE",
    examples=(
        "export STORE orders.parquet -t orders --since -2d",
        "export STORE ticket.jsonl --redact body,keys,hosts --sample 0.01",
    ),
)
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option(
    "--since", metavar="TIME", callback=time_of, help=f"Stored at or after: {TIME_FORMS}."
)
@click.option("--until", metavar="TIME", callback=time_of, help="Stored before.")
@once("--tags", text="Only these: 'TagA || TagB'.")
@once("--sql", text="Only what passes: \"amount > 5 AND region IN ('eu', 'us')\".")
@click.option(
    "--redact",
    multiple=True,
    metavar="body,keys,hosts",
    callback=_names_of,
    help="Replace these by pseudonyms, equal ones for equal values.",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="R",
    help="About this part of the messages, above 0 to 1; the same ones each time.",
)
@corruption_option
@_format_option
@zone_option
def export(
    *,
    store: str,
    config: str | None,
    file: str,
    topics: tuple[str, ...],
    since: int | None,
    until: int | None,
    tags: str | None,
    sql: str | None,
    redact: tuple[str, ...],
    sample: float | None,
    on_corruption: Literal["raise", "skip"],
    form: str | None,
    local: bool,
) -> None:
    """Write messages to FILE, for other programs and for "rmqstore import".

    FILE, which must not exist, has the name FILE.unfinished until it is complete.  "-" is standard
    output.  Records of all kinds are in it, with the columns of a scan; lines are those of cat.
    """
    chosen = _format_of(file, form, "output")
    check_filter(tags=tags, sql=sql)
    to_standard = file == _STANDARD
    with open_store(store, "r", config) as opened:
        for topic in topics:
            known_topic(opened, topic)
        if on_corruption == "raise" and reported_damage(opened):
            raise CliError(
                "what lay in the damaged part of the log is not known: --on-corruption skip "
                "exports the rest",
                UNREADABLE,
            )
        scan = opened.scan(
            topics or None, since=since, until=until, tags=tags, sql=sql, on_removed="skip"
        )
        progress = Progress("exporting", "messages")

        def progressed(count: int) -> None:
            progress.done = count

        with _refusals(), progress:
            done = export_of(
                opened,
                sys.stdout.buffer if to_standard else file,
                chosen,
                scan,
                redact=redact,
                sample=sample,
                on_corruption=on_corruption,
                progressed=progressed,
            )
    if done.skipped:
        places = "place was" if done.skipped == 1 else "places were"
        say(f"{done.skipped} damaged {places} passed over")
    _show(done, to_standard)


@contextmanager
def _interrupts(progress: Progress, store: str | None) -> Iterator[None]:
    """Say at an interrupt how many messages of an import are in a store that was there."""
    try:
        yield
    except KeyboardInterrupt:
        if store is not None and progress.done:
            say(
                f"interrupted: {progress.done:,} messages of the file, and perhaps up to "
                f"{PIECE_ROWS:,} more, are in {store}; look at its last one with 'cat', and import "
                "the rest of the file"
            )
        raise


@store_command(
    "FILE",
    store_last=True,
    examples=(
        "import orders.parquet data/new --keep-time --keep-queues",
        "import orders.jsonl STORE -t orders",
    ),
)
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--keep-time", is_flag=True, help="Keep the store times too, in a new store.")
@click.option("--keep-queues", is_flag=True, help="Keep the queue ids; else queues take turns.")
@_format_option
def import_(
    *,
    store: str,
    config: str | None,
    file: str,
    topics: tuple[str, ...],
    keep_time: bool,
    keep_queues: bool,
    form: str | None,
) -> None:
    """Put the messages of FILE into a store, which is made if it is missing.

    FILE is one of "rmqstore export", of "cat -o jsonl", or has columns of the same names; "-" is
    standard input.  Nothing is put unless all of it can be.  Delayed messages that wait, half
    messages and rolled back ones are left out: -t SCHEDULE_TOPIC_XXXX imports the former, -t
    RMQ_SYS_TRANS_HALF_TOPIC half messages.  A store that is there is opened for writing: its own
    delayed messages that are due are delivered meanwhile.
    """
    from rmqstore.toolbox.exchange.importing import import_messages

    chosen = _format_of(file, form, "input")
    log_nothing()
    refuse_foreign(Path(store))
    settings = load_config(config, strict=True)
    progress = Progress("importing", "messages")
    adds = Path(store).exists()  # else an interrupt leaves nothing

    def progressed(count: int) -> None:
        progress.done = count

    with _refusals(), _interrupts(progress, store if adds else None), progress:
        done = import_messages(
            _standard_input() if file == _STANDARD else file,
            store,
            topics=topics or None,
            keep_time=keep_time,
            keep_queues=keep_queues,
            format=chosen,
            config=settings,
            progressed=progressed,
        )
    if done.skipped:
        rows = "row was" if done.skipped == 1 else "rows were"
        say(f"{done.skipped:,} {rows} left out: of other topics, delayed, half or rolled back")
    _show(done, False)
