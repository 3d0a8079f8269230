"""``delays`` and ``txn``: messages that wait for their time, or for the end of a transaction."""

from __future__ import annotations

import click

from rmqstore.cli.common import open_store, output_option, store_command, zone_option
from rmqstore.cli.output import Column, writer_for
from rmqstore.services.half_queue import checks_of
from rmqstore.services.stored import real_message, real_place

__all__ = ["delays", "txn"]


@store_command()
@zone_option
@output_option
def delays(*, store: str, config: str | None, output: str | None, local: bool) -> None:
    """List delayed messages that wait, and when they are due.

    Topic and queue are those that a message will be delivered to.
    """
    columns = (
        Column("due", "time"),
        Column("level", "number", rank=1),
        Column("topic", width=80, least=24),
        Column("queue_id", "number", heading="queue"),
        Column("uniq_key", heading="unique key", width=32, least=12, rank=2),
        Column("tags", rank=3),
        Column("keys", rank=4),
        Column("store_timestamp", "time", heading="stored", rank=5),
        Column("msg_id", heading="message id", rank=6),
        Column("physical_offset", "number", heading="offset", rank=7),
    )
    with (
        open_store(store, "r", config) as opened,
        writer_for(output, columns, local=local) as writer,
    ):
        for one in opened.delayed():
            message = one.message
            writer.row(
                {
                    "due": one.due,
                    "level": one.level,
                    "topic": message.topic,
                    "queue_id": message.queue_id,
                    "uniq_key": message.uniq_key,
                    "tags": message.tags,
                    "keys": list(message.keys),
                    "store_timestamp": message.store_timestamp,
                    "msg_id": message.msg_id,
                    "physical_offset": message.physical_offset,
                }
            )


@store_command()
@click.option("--in-doubt", is_flag=True, help="Only those without an end.")
@zone_option
@output_option
def txn(*, store: str, config: str | None, in_doubt: bool, output: str | None, local: bool) -> None:
    """List half messages: what became of each, or with --in-doubt those without an end.

    Topic and queue are those that a message is meant for.
    """
    columns = (
        Column("born_timestamp", "time", heading="born"),
        Column("state", width=12),
        Column("topic", width=80, least=24),
        Column("queue_id", "number", heading="queue"),
        Column("producer_group", heading="producers", least=12, rank=1),
        Column("checks", "count", rank=2),
        Column("uniq_key", heading="unique key", width=32, least=12, rank=3),
        Column("keys", rank=4),
        Column("half_offset", "number", heading="half", rank=5),
        Column("msg_id", heading="message id", rank=6),
        Column("physical_offset", "number", heading="offset", rank=7),
    )
    with (
        open_store(store, "r", config) as opened,
        writer_for(output, columns, local=local) as writer,
    ):
        for half, state in opened._halves_with_state(in_doubt=in_doubt):
            properties = half.properties
            real = real_message(half, real_place(properties))
            writer.row(
                {
                    "born_timestamp": real.born_timestamp,
                    "state": state,
                    "topic": real.topic,
                    "queue_id": real.queue_id,
                    "producer_group": properties.get("PGROUP"),
                    "checks": checks_of(properties),
                    "uniq_key": real.uniq_key,
                    "keys": list(real.keys),
                    "half_offset": real.queue_offset,
                    "msg_id": real.msg_id,
                    "physical_offset": real.physical_offset,
                }
            )
