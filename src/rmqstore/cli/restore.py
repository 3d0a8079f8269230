"""``restore``: what lies in the quarantine, and back into the log with it."""

from __future__ import annotations

import click

from rmqstore.cli.common import load_config, output_option, store_command
from rmqstore.cli.failures import NOT_FOUND
from rmqstore.cli.output import Column, writer_for

__all__ = ["restore"]

_COLUMNS = (
    Column("file"),
    Column("offset", "number"),
    Column("saved", "time"),
    Column("bytes", "bytes"),
    Column("records", "count"),
    Column("place"),
    Column("state"),
)


@store_command()
@click.option("--apply", is_flag=True, help="Put back what can go back; without it, only look.")
@output_option
@click.pass_context
def restore(
    ctx: click.Context, *, store: str, config: str | None, apply: bool, output: str | None
) -> None:
    """List what lies in rmqstore-quarantine/, and with --apply put it back into the log.

    PLACE is what lies in the log where it was: filler, empty, same, written, gone. Good records
    go back where there is a filler, or where the log ends and nothing was written since.
    """
    from rmqstore import quarantine

    settings = load_config(config)
    if apply:
        found = quarantine.restore(store, config=settings)
    else:
        found = quarantine.saved_ranges(store, config=settings)
    left = 0
    with writer_for(output, _COLUMNS) as writer:
        for each in found:
            if each.restorable:
                state = "restored" if apply else "restorable"
            elif each.place == "same":
                state = "in the log"
            elif each.records:
                state = "kept"
                left += 1
            else:
                state = "no good record"
            writer.row(
                {
                    "file": each.path,
                    "offset": each.offset,
                    "saved": each.saved_at,
                    "bytes": each.size,
                    "records": each.records,
                    "place": each.place,
                    "state": state,
                }
            )
    if not apply and any(each.restorable for each in found):
        click.echo("rmqstore: nothing was changed; --apply puts them back", err=True)
    if left:
        ctx.exit(NOT_FOUND)
