"""``trace``: the way of a message through a store."""

from __future__ import annotations

import dataclasses

import click

from rmqstore.cli.common import (
    known_topic,
    open_store,
    output_option,
    store_command,
    topic_option,
    zone_option,
)
from rmqstore.cli.failures import NOT_FOUND, CliError
from rmqstore.cli.output import Column
from rmqstore.cli.progress import Progress
from rmqstore.cli.walk import Damaged
from rmqstore.cli.writers import writer_for
from rmqstore.errors import MessageNotFoundError
from rmqstore.toolbox.journey import trace_of

__all__ = ["trace"]

_COLUMNS = (
    Column("time", "time"),
    Column("step"),
    Column("topic", "name", width=80, least=12),
    Column("queue_id", "number", heading="queue"),
    Column("queue_offset", "number", heading="offset"),
    Column("group", "name", width=80, least=8),
    Column("detail", wrap=True),
    Column("physical_offset", "number", heading="in the log", rank=3),
)


@store_command(
    "KEY",
    instead="key",
    examples=(
        "trace STORE ORDER-123",
        "trace STORE --key ORDER-123 -t orders -o jsonl",
    ),
)
@click.option("-k", "--key", metavar="KEY", help="The key or id, instead of KEY.")
@topic_option("Only messages meant for this topic.")
@zone_option
@output_option
def trace(
    *,
    store: str,
    config: str | None,
    key: str,
    topic: str | None,
    output: str | None,
    local: bool,
) -> None:
    """Show the way of a message, oldest step first.

    KEY is one of its keys, its unique key, or its message id.  Steps: half, commit, rollback,
    stored, delayed, delivered, retry, dead, and passed by a group, with a time where a client with
    tracing on has reported it.
    """
    with open_store(store, "r", config) as opened:
        if topic is not None:
            known_topic(opened, topic)
        damaged = Damaged(opened)
        try:
            with Progress("searching"):
                steps = trace_of(opened, key, topic, lambda error: damaged.add("trace", error))
        except MessageNotFoundError as error:
            damaged.check()
            raise CliError(str(error), NOT_FOUND) from None
    with writer_for(output, _COLUMNS, local=local) as writer:
        for step in steps:
            writer.row(dataclasses.asdict(step))
    damaged.check()
