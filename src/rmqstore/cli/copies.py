"""``extract``, ``snapshot``, ``backup`` and ``diff``: copies of stores, and their differences."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import click

from rmqstore.base.layout import INT64_MAX, INT64_MIN
from rmqstore.cli.common import (
    TIME_FORMS,
    corruption_option,
    known_topic,
    open_store,
    output_option,
    refuse_file,
    store_command,
    time_of,
    topic_option,
    unknown_name,
    zone_option,
)
from rmqstore.cli.failures import NOT_FOUND, UNREADABLE, USAGE, CliError, say
from rmqstore.cli.output import Column
from rmqstore.cli.progress import Progress
from rmqstore.cli.writers import SUMMARY, writer_for
from rmqstore.errors import StoreCorruptError, StoreNotFoundError
from rmqstore.files import paths
from rmqstore.toolbox.copies.backups import backup_of, verify_backup
from rmqstore.toolbox.copies.differences import difference_of
from rmqstore.toolbox.copies.extracts import extract_of

__all__ = ["backup", "diff", "extract", "snapshot"]

_COPY = (Column("path", "path", least=24), Column("bytes", "bytes"), Column("until", "number"))
_DIFFERENCES = (
    Column("where"),
    Column("topic", "name", width=80, least=16),
    Column("queue_id", "number", heading="queue"),
    Column("queue_offset", "number", heading="offset"),
    Column("what", width=80, wrap=True),
)
_FILES = (
    Column("file", "path", least=24),
    Column("bytes", "bytes"),
    Column("xxh3", rank=1),
    Column("copied"),
)


@store_command(
    "DIRECTORY",
    examples=(
        "extract STORE orders-only -t orders",
        "extract STORE today -t orders -t payments --since 2026-11-20",
    ),
)
@click.option(
    "-t", "--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="A topic."
)
@click.option(
    "--since",
    metavar="TIME",
    callback=time_of,
    help=f"Stored at or after: {TIME_FORMS}.",
)
@click.option("--until", metavar="TIME", callback=time_of, help="Stored before.")
@corruption_option
@zone_option
@output_option
def extract(
    *,
    store: str,
    config: str | None,
    directory: str,
    topics: tuple[str, ...],
    since: int | None,
    until: int | None,
    on_corruption: Literal["raise", "skip"],
    output: str | None,
    local: bool,
) -> None:
    """Make a store in DIRECTORY with the messages of some topics of STORE.

    A broker can start on it.  Queue offsets begin at 0, and groups' offsets are translated;
    message ids change.  Retry topics, dead letters and delayed messages come along only if they
    are named.  Until the new store is complete its name is DIRECTORY.unfinished.
    """
    times = (INT64_MIN if since is None else since, INT64_MAX if until is None else until)
    with open_store(store, "r", config) as opened, Progress("reading", "bytes") as progress:
        for name in topics:
            known_topic(opened, name)
        with _refusals(directory):
            made = extract_of(
                opened,
                directory,
                topics,
                times,
                on_corruption,
                progressed=_shown_by(progress),
            )
    with writer_for(output, SUMMARY, local=local) as writer:
        writer.row({**dataclasses.asdict(made), "seconds": round(made.seconds, 3)})
    if made.skipped:
        places = "1 damaged place" if made.skipped == 1 else f"{made.skipped:,} damaged places"
        say(f"{places} passed over")


@store_command(
    "B",
    store_name="A",
    examples=(
        "diff master slave",
        "diff STORE COPY -t orders --full -o table",
    ),
)
@topic_option("Only this topic.")
@click.option("--full", is_flag=True, help="Compare the contents of messages as well.")
@output_option
@click.pass_context
def diff(
    ctx: click.Context,
    *,
    store: str,
    config: str | None,
    b: str,
    topic: str | None,
    full: bool,
    output: str | None,
) -> None:
    """Show how the stores A and B differ, by topic and queue.

    Messages at the same queue offset are compared by size and tag, with --full by all they have;
    neighbours that differ alike are one line.  Settings of topics and offsets of groups are
    compared as well.  Exit code 1 if anything differs.
    """
    found = sized = False
    with (
        open_store(store, "r", config, copy=True) as one,
        open_store(b, "r", config, copy=True) as other,
    ):
        known = {*one.topics, *other.topics}
        if topic is not None and topic not in known:
            raise unknown_name("topic", topic, known)
        with (
            writer_for(output, _DIFFERENCES) as writer,
            Progress("comparing", "bytes" if full else "", among_rows=True) as progress,
        ):
            for row in difference_of(one, other, topic, full, _shown_by(progress)):
                found = True
                sized = sized or row.what.endswith(": size")
                writer.row(dataclasses.asdict(row))
    if sized and not full:
        say("a size may differ by the compression of a body; --full compares bodies inflated")
    if found:
        ctx.exit(NOT_FOUND)
    if not full:
        say("no difference in positions, sizes and tags; --full compares what the messages hold")


@store_command(
    "DIRECTORY",
    examples=(
        "snapshot STORE /backup/store",
        "snapshot STORE /backup/store -c broker.conf",
    ),
)
@corruption_option
@output_option
def snapshot(
    *,
    store: str,
    config: str | None,
    directory: str,
    on_corruption: Literal["raise", "skip"],
    output: str | None,
) -> None:
    """Copy a store into DIRECTORY, which is made; the copy opens clean, here and in a broker.

    The store may be in use meanwhile, by a broker or a program: the copy has what had come into
    the log when it began. UNTIL is the physical offset behind the last record. Until the copy is
    complete its name is DIRECTORY.unfinished.  With --on-corruption skip the copy of a damaged log
    has fillers in place of its damage, whose bytes are in the copy's rmqstore-quarantine.
    """
    with open_store(store, "r", config) as opened, Progress("copying", "bytes") as progress:
        try:
            with _refusals(directory):
                made = opened.snapshots.make(
                    directory, _shown_by(progress), fill=on_corruption == "skip"
                )
        except StoreCorruptError as error:
            fills = on_corruption != "skip" and paths.CONFIG not in Path(error.path).parts
            hint = "; --on-corruption skip fills the damage" if fills else ""
            raise CliError(f"{error}{hint}", UNREADABLE) from None
    with writer_for(output, _COPY) as writer:
        writer.row({"path": made.path, "bytes": made.bytes, "until": made.until})


@contextmanager
def _refusals(directory: str) -> Iterator[None]:
    """Turn the errors of a DIRECTORY in which nothing can be made into one line."""
    refuse_file(Path(directory))
    try:
        yield
    except FileExistsError as error:
        raise CliError(f"{os.fsdecode(error.filename)}: {error.strerror}", USAGE) from None
    except ValueError as error:
        text = re.sub("^(out|directory) must", "DIRECTORY must", str(error))
        raise CliError(text, USAGE) from None


def _backup(*, store: str, config: str | None, directory: str, output: str | None) -> None:
    """Copy STORE into DIRECTORY, or bring the copy there up to date; it opens clean.

    STORE may be in use.  Log files that are full and unchanged are not copied again, and what is
    gone from STORE goes from the backup.  A manifest has the files' sums; --verify compares the
    files with it: exit code 1 if any differs, is missing or was added.
    """
    with (
        open_store(store, "r", config) as opened,
        Progress("copying", "bytes") as progress,
        _refusals(directory),
    ):
        rows = backup_of(opened, directory, _shown_by(progress))
    with writer_for(output, _FILES) as writer:
        for row in rows:
            writer.row(dataclasses.asdict(row))


def _verify(directory: str, output: str | None) -> bool:
    """Show the files of a backup; return whether all are as its manifest has them."""
    with Progress("reading", "bytes") as progress:
        try:
            rows = verify_backup(directory, _shown_by(progress))
        except StoreNotFoundError as error:
            raise CliError(str(error), UNREADABLE) from None
    with writer_for(output, (*_FILES[:-1], Column("problem"))) as writer:
        for row in rows:
            writer.row({**dataclasses.asdict(row), "copied": False})
    wrong = [row for row in rows if row.problem]
    for row in wrong[:_NAMED]:
        say(f"{row.file}: {_PROBLEMS[row.problem or '']}")
    if len(wrong) > _NAMED:
        say(f"and {len(wrong) - _NAMED:,} more files")
    return not wrong


_NAMED = 10
_PROBLEMS = {
    "differs": "differs from the manifest; remove it, and back up again to have it copied",
    "missing": "is missing; back up again to have it copied",
    "extra": "is not in the manifest; the next backup leaves it out",
}


def _shown_by(progress: Progress) -> Any:
    def progressed(done: int, total: int) -> None:
        progress.done, progress.total = done, total

    return progressed


def _backup_command() -> click.Command:
    """Return the verb: of STORE and DIRECTORY, or with ``--verify`` of DIRECTORY alone."""
    command = store_command(
        "DIRECTORY",
        examples=("backup STORE backups/broker-a", "backup --verify backups/broker-a"),
    )(output_option(_backup))
    copy = command.callback
    assert copy is not None

    def run(*, verify: bool, words: tuple[str, ...], **options: Any) -> None:
        if not verify:
            copy(words=words, **options)
            return
        if len(words) != 1 or options["store"] is not None or options["config"] is not None:
            raise click.UsageError("--verify takes DIRECTORY alone")
        if not _verify(words[0], options["output"]):
            click.get_current_context().exit(NOT_FOUND)

    command.callback = run
    command.name = "backup"
    help_text = "Compare the files of DIRECTORY, a backup, with its manifest."
    command.params.append(click.Option(["--verify"], is_flag=True, help=help_text))
    return command


backup = _backup_command()
