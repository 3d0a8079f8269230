"""``metrics``: figures of a store for Prometheus."""

from __future__ import annotations

import click

from rmqstore.base.warn import log_nothing
from rmqstore.cli.common import open_store, store_command
from rmqstore.cli.completion import complete_file
from rmqstore.cli.failures import USAGE, CliError
from rmqstore.cli.output import write_bytes

__all__ = ["metrics"]


@store_command(
    examples=(
        "metrics STORE",
        "metrics STORE --textfile /var/lib/node_exporter/rmqstore.prom",
    )
)
@click.option(
    "--textfile",
    metavar="FILE",
    shell_complete=complete_file,
    help="Replace this file, at once, instead of writing to standard output.",
)
def metrics(*, store: str, config: str | None, textfile: str | None) -> None:
    """Write a store's figures in Prometheus' text format.

    Offsets, lag, sizes and ages, under rocketmq-exporter's names where they mean the same.  With -c
    the broker.conf names cluster and broker.  Made for node_exporter's textfile collector, by cron.
    """
    from rmqstore.toolbox.prometheus import inside_store, metrics_text_of, write_textfile

    log_nothing()
    with open_store(store, "r", config) as opened:
        if textfile is not None and inside_store(opened, textfile):
            raise CliError(f"--textfile {textfile} is inside the store: name one outside", USAGE)
        text = metrics_text_of(opened, config)
    if textfile is None:
        write_bytes(text.encode())
    else:
        try:
            write_textfile(text, textfile)
        except FileExistsError as error:
            raise CliError(f"--textfile {textfile} {error.strerror}", USAGE) from None
