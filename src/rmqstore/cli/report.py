"""``report``: one HTML file on a store, for a ticket."""

from __future__ import annotations

import click

from rmqstore.base.warn import log_nothing
from rmqstore.cli.common import store_command
from rmqstore.cli.failures import USAGE, CliError
from rmqstore.cli.progress import Progress

__all__ = ["report"]


@store_command(
    "OUT.html",
    examples=(
        "report STORE report.html",
        "report STORE report.html -c broker.conf --no-redact",
    ),
)
@click.option(
    "--no-redact", is_flag=True, help="With directories, and all values of the configuration."
)
def report(*, store: str, config: str | None, no_redact: bool, **places: str) -> None:
    """Write one HTML file for a ticket: verdict, sizes, lag, retention, configuration.

    OUT.html is made, and may not exist.  It has no bodies, keys or hosts of messages, and loads
    nothing from elsewhere.  Nothing is written in the store, which may be in use or damaged.
    """
    from rmqstore.toolbox.reports import report as write_report

    log_nothing()
    out = places["out.html"]
    try:
        with Progress("reading"):
            write_report(store, out, config=config, redact=not no_redact)
    except FileExistsError as error:
        raise CliError(f"{error.filename}: exists; name a new file", USAGE) from None
    except ValueError as error:
        raise CliError(str(error), USAGE) from None
