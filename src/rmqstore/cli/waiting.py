"""``delays`` and ``txn``: delayed messages, and half messages of transactions."""

from __future__ import annotations

from typing import Any

import click

from rmqstore.cli.common import open_store, output_option, store_command, zone_option
from rmqstore.cli.failures import UNREADABLE, CliError
from rmqstore.cli.output import Column
from rmqstore.cli.writers import writer_for
from rmqstore.services.half_queue import checks_of
from rmqstore.services.stored import real_message, real_place

__all__ = ["delays", "txn"]


@store_command(
    examples=(
        "delays STORE",
        "delays STORE --local -o csv",
    )
)
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
        Column("uniq_key", heading="unique key", rank=4),
        Column("tags", rank=3),
        Column("keys", rank=2),
        Column("store_timestamp", "time", heading="stored", rank=5),
        Column("msg_id", heading="message id", rank=6),
        Column("physical_offset", "number", heading="offset", rank=7),
    )
    with open_store(store, "r", config) as opened:
        listed = opened.delayed()
        damaged = [one.error for one in listed if one.error is not None]
        shown = _with_error(columns, damaged)
        with writer_for(output, shown, local=local, empty="no delayed messages") as writer:
            for one in listed:
                message = one.message
                row: dict[str, Any] = {"due": one.due or None, "level": one.level}
                if message is not None:
                    row |= {
                        "topic": message.topic,
                        "queue_id": message.queue_id,
                        "uniq_key": message.uniq_key,
                        "tags": message.tags,
                        "keys": list(message.keys),
                        "store_timestamp": message.store_timestamp,
                        "msg_id": message.msg_id,
                    }
                row["physical_offset"] = _place(one.physical_offset)
                writer.row(row if one.error is None else row | {"error": one.error})
    _check_damaged(damaged)


@store_command(
    examples=(
        "txn STORE",
        "txn STORE --in-doubt -o jsonl",
    )
)
@click.option("--in-doubt", is_flag=True, help="Only those without an end.")
@zone_option
@output_option
def txn(*, store: str, config: str | None, in_doubt: bool, output: str | None, local: bool) -> None:
    """List half messages: what became of each, or with --in-doubt those without an end.

    Each is listed once, by its newest copy if a check has put it back.
    Topic and queue are those that a message is meant for.
    """
    columns = (
        Column("born_timestamp", "time", heading="born"),
        Column("state", width=12),
        Column("topic", width=80, least=24),
        Column("queue_id", "number", heading="queue"),
        Column("producer_group", heading="producers", least=12, rank=1),
        Column("checks", "count", rank=2),
        Column("uniq_key", heading="unique key", rank=4),
        Column("keys", rank=3),
        Column("half_offset", "number", heading="half", rank=5),
        Column("msg_id", heading="message id", rank=6),
        Column("physical_offset", "number", heading="offset", rank=7),
    )
    with open_store(store, "r", config) as opened:
        # A half message that was put back for a check has a newer copy, which is listed.
        halves = opened.transactions.halves(in_doubt=in_doubt)
        listed = [one for one in halves if one[1] != "put back"]
        damaged = [str(half) for half, _ in listed if isinstance(half, Exception)]
        shown = _with_error(columns, damaged)
        with writer_for(output, shown, local=local, empty="no half messages") as writer:
            for half, state in listed:
                if isinstance(half, Exception):
                    assert not isinstance(state, str)
                    writer.row(
                        {
                            "state": "damaged",
                            "half_offset": state.queue_offset,
                            "physical_offset": _place(state.physical_offset),
                            "error": str(half),
                        }
                    )
                    continue
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
    _check_damaged(damaged)


def _place(physical_offset: int) -> int | None:
    """Return a physical offset, ``None`` if the unit names no record."""
    return physical_offset if physical_offset >= 0 else None


def _with_error(columns: tuple[Column, ...], damaged: list[str]) -> tuple[Column, ...]:
    """Return the columns, with one for errors if anything is damaged."""
    return (*columns, Column("error", least=24)) if damaged else columns


def _check_damaged(damaged: list[str]) -> None:
    """Raise if a listed message cannot be read."""
    if damaged:
        text = "message is" if len(damaged) == 1 else "messages are"
        raise CliError(f"{len(damaged)} {text} damaged: {damaged[0]}", UNREADABLE)
