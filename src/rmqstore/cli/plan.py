"""``plan``: what a broker would do on a store, now and later."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from warnings import catch_warnings, simplefilter

import click

from rmqstore.base.times import format_millis
from rmqstore.cli.common import (
    TIME_FORMS,
    open_store,
    output_option,
    store_command,
    time_of,
    zone_option,
)
from rmqstore.cli.output import Column, json_bytes, resolve, write_bytes
from rmqstore.cli.progress import Progress
from rmqstore.cli.table import print_fields
from rmqstore.cli.text import human_bytes, human_count, plural
from rmqstore.cli.writers import writer_for

if TYPE_CHECKING:
    from rmqstore.toolbox import Plan, PlanEvent

__all__ = ["plan"]

_SHOWN = 4  # files and groups of an event; JSON has them all
_COLUMNS = (
    Column("event"),
    Column("at", "time"),
    Column("why"),
    Column("files"),
    Column("bytes"),
    Column("messages"),
    Column("oldest_kept", "time"),
    Column("delayed"),
    Column("in_doubt"),
)


@store_command(
    examples=(
        "plan STORE -c broker.conf",
        "plan STORE --at 2026-12-01T04:00 -o jsonl",
    )
)
@click.option(
    "--at", metavar="TIME", callback=time_of, help=f"Time of the start: {TIME_FORMS}.  [now]"
)
@zone_option
@output_option
def plan(
    *, store: str, config: str | None, at: int | None, output: str | None, local: bool
) -> None:
    """Forecast a 4.9.3 broker: its start, its next deletions, and a full disk.

    What it would recover and cut if it started now; which files go at the next deleteWhen, and if
    the disk is 75, 85 and 90 % full; which groups lose messages that they have not consumed.  A
    broker deletes by the times of the files, which a copy may not have kept.
    """
    from rmqstore.toolbox.forecast import broker_config, plan_of

    with open_store(store, "r", config, warn=False) as opened, Progress("reading"):
        with catch_warnings():
            simplefilter("ignore")  # opening has shown them
            settings = broker_config(config)
        found = plan_of(opened, settings, at)
    form = resolve(output)
    if form == "table":
        _show(store, found, local=local)
        return
    if form == "jsonl":
        for one in found.events:
            facts = dataclasses.asdict(one)
            facts["at"], facts["oldest_kept"] = _time(one.at, local), _time(one.oldest_kept, local)
            write_bytes(json_bytes(facts))
        disk = {"event": "disk", "used": found.used, "full_at": _time(found.full_at, local)}
        write_bytes(json_bytes(disk))
        return
    with writer_for(form, _COLUMNS, local=local) as writer:
        for one in found.events:
            writer.row(dataclasses.asdict(one))


def _time(millis: int | None, local: bool) -> str | None:
    return None if millis is None else format_millis(millis, local=local)


def _show(store: str, found: Plan, *, local: bool) -> None:
    """Show a plan to people."""
    full_at = _time(found.full_at, local) or "not in sight: nothing was stored in the last day"
    print_fields(
        f"{store}: the disk is {found.used:.0%} full",
        [("full", full_at)],
    )
    for one in found.events:
        print_fields(
            f"{one.event} {_time(one.at, local) or '(not in sight)'}", _fields(one, local=local)
        )


def _fields(one: PlanEvent, *, local: bool) -> list[tuple[str, str]]:
    """Return an event's facts for people."""
    fields = [("why", one.why)]
    if one.files:
        more = f", and {len(one.files) - _SHOWN:,} more" if len(one.files) > _SHOWN else ""
        fields.append(("files", ", ".join(one.files[:_SHOWN]) + more))
    if one.bytes or one.messages:
        gone = f"{human_bytes(one.bytes)}, {plural(one.messages, 'message')}"
        waiting = [f"{one.delayed:,} delayed"] * bool(one.delayed)
        waiting += [f"{one.in_doubt:,} in doubt"] * bool(one.in_doubt)
        fields.append(("gone", f"{gone}{', of which ' if waiting else ''}{', '.join(waiting)}"))
        fields.append(("kept from", _time(one.oldest_kept, local) or "-"))
    fields += [
        ("unconsumed", f"{each.group} has not read {human_count(each.unconsumed)} of {each.topic}")
        for each in one.groups[:_SHOWN]
    ]
    if len(one.groups) > _SHOWN:
        fields.append(("unconsumed", f"and {len(one.groups) - _SHOWN:,} more groups and topics"))
    return [("  " + name, text) for name, text in fields]
