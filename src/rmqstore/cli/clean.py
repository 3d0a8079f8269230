"""``clean``: expired messages, and their deletion."""

from __future__ import annotations

import dataclasses

import click

from rmqstore.cli.common import (
    TIME_FORMS,
    open_store,
    output_option,
    store_command,
    time_of,
    zone_option,
)
from rmqstore.cli.failures import NOT_FOUND, USAGE, CliError, say
from rmqstore.cli.output import Column
from rmqstore.cli.progress import Progress
from rmqstore.cli.writers import writer_for

__all__ = ["clean"]

_COLUMNS = (
    Column("files", "count"),
    Column("bytes", "bytes"),
    Column("messages", "count"),
    Column("until", "number", rank=1),
    Column("queues", "count", rank=2),
    Column("state"),
)


@store_command(
    examples=(
        "clean STORE --before -7d",
        "clean STORE -c broker.conf --apply",
    )
)
@click.option(
    "--before",
    metavar="TIME",
    callback=time_of,
    help="Delete files whose newest message was stored before, as "
    f"{TIME_FORMS}. Default: fileReservedTime of --config ago.",
)
@click.option("--apply", is_flag=True, help="Delete; the default is to show the plan.")
@zone_option
@output_option
@click.pass_context
def clean(
    ctx: click.Context,
    *,
    store: str,
    config: str | None,
    before: int | None,
    apply: bool,
    output: str | None,
    local: bool,
) -> None:
    """List the files that retention would delete, and with --apply delete them.

    Whole files of the log go, the oldest first, never the last; then queue and index files that
    pointed only into them.  FILES, BYTES and MESSAGES count the log's, UNTIL is its first offset
    afterwards, QUEUES are left without messages.  Exit code 1: there is something to apply.
    """
    if before is None and config is None:
        open_store(store, "r", config).close()  # a missing store is the first error
        raise CliError("--before is needed, or a --config whose fileReservedTime counts", USAGE)
    with (
        open_store(store, "r+" if apply else "r", config) as opened,
        Progress("deleting" if apply else "reading"),
    ):
        found = opened.delete_expired(before=before, dry_run=not apply)
    with writer_for(output, _COLUMNS, local=local) as writer:
        state = "deleted" if apply else "deletable"
        writer.row({**dataclasses.asdict(found), "state": state})
    if found.files and not apply:
        say("nothing was changed; --apply deletes this")
        ctx.exit(NOT_FOUND)
