"""``offsets``: offsets of consumer groups, shown and changed."""

from __future__ import annotations

import re
from typing import Any

import click

from rmqstore.base.layout import INT32_MAX
from rmqstore.base.times import parse_time
from rmqstore.base.warn import log_nothing
from rmqstore.cli.common import (
    group_option,
    load_config,
    once,
    output_option,
    store_command,
    topic_option,
    zone_option,
)
from rmqstore.cli.failures import NOT_FOUND, USAGE, CliError, say
from rmqstore.cli.output import Column, resolve
from rmqstore.cli.writers import writer_for
from rmqstore.toolbox.offsets import (
    offsets_by_time,
    offsets_clone,
    offsets_get,
    offsets_set,
)

__all__ = ["offsets"]

_COLUMNS = (
    Column("group", "name", width=80, least=16, rank=1),
    Column("topic", "name", width=80, least=16),
    Column("queue_id", "number", heading="queue"),
    Column("was", "number", heading="now"),
    Column("is", "number", heading="then"),
)
_COMMITTED = (*_COLUMNS[:-2], Column("is", "number", heading="committed"))  # both are equal
_ACTIONS = ("get", "set", "by-time", "clone")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


@store_command(
    "ACTION",
    examples=(
        "offsets STORE get -g billing",
        "offsets STORE by-time -g billing -t orders --to -2h --apply",
    ),
)
@group_option("The consumer group.", required=True)
@topic_option("Only this topic; a group without offsets gets them there.")
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(0, INT32_MAX), help="Only queues with this id."
)
@once("--to", metavar="N|TIME|first|last", text="The new offset, or for by-time the time.")
@once("--from-group", metavar="GROUP", text="For clone: the group whose offsets are copied.")
@click.option("--apply", is_flag=True, help="Change them; the default is to show the change.")
@zone_option
@output_option
@click.pass_context
def offsets(
    ctx: click.Context,
    *,
    store: str,
    config: str | None,
    action: str,
    group: str,
    topic: str | None,
    queue_id: int | None,
    to: str | None,
    from_group: str | None,
    apply: bool,
    output: str | None,
    local: bool,
) -> None:
    """Show a group's committed offsets, or set them in a stopped store.

    ACTION is get, set (to an offset, the first or the last), by-time (to the first message stored
    at or after a time), or clone (of another group).  Changes are shown, and made with --apply;
    consumerOffset.json.bak then has the old ones.  Without -t, the group's retry topic stays as it
    is.  Exit code 1: there is a change to apply.
    """
    if action not in _ACTIONS:
        raise click.UsageError(f"ACTION is one of {', '.join(_ACTIONS)}, got {action!r}")
    needed = {"set": ("--to", to), "by-time": ("--to", to), "clone": ("--from-group", from_group)}
    for name, value in (("--to", to), ("--from-group", from_group)):
        wanted = needed.get(action, ("", None))[0] == name
        if wanted != (value is not None):
            raise click.UsageError(f"{action} {'needs' if wanted else 'takes no'} {name}")
    if apply and action == "get":
        raise click.UsageError("get takes no --apply")
    log_nothing()
    chosen: Any = {"topic": topic, "queue_id": queue_id, "config": load_config(config)}
    try:
        if action == "get":
            found = offsets_get(store, group, **chosen)
        elif action == "clone":
            found = offsets_clone(store, group, from_group or "", apply=apply, **chosen)
        elif action == "by-time":
            time = parse_time(to or "", name="--to", local=local)
            found = offsets_by_time(store, group, time, apply=apply, **chosen)
        else:
            found = offsets_set(store, group, _offset(to or ""), apply=apply, **chosen)
    except ValueError as error:
        raise CliError(re.sub("^to must", "--to must", str(error)), USAGE) from None
    typed = {"group": group, "topic": topic}
    columns = _COMMITTED if action == "get" and resolve(output) == "table" else _COLUMNS
    with writer_for(output, columns, local=local, typed=typed) as writer:
        for one in found:
            writer.row(
                {
                    "group": one.group,
                    "topic": one.topic,
                    "queue_id": one.queue_id,
                    "was": one.was,
                    "is": one.now,
                }
            )
    if not found:
        say("there is nothing to change")
    elif action != "get" and not apply:
        say("nothing was changed; --apply sets these")
        ctx.exit(NOT_FOUND)


def _offset(text: str) -> Any:
    """Return the value of ``--to`` for ``set``."""
    if text in ("first", "last"):
        return text
    if _NUMBER.fullmatch(text):
        return int(text)
    raise ValueError(f"--to must be an offset, first or last, got {text!r}; for a time: by-time")
