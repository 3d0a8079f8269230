"""``groups``, ``lag`` and ``dlq``: consumer groups, their lag and their dead letters."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.base.layout import INT64_MAX
from rmqstore.cli.common import (
    group_option,
    open_store,
    output_option,
    store_command,
    topic_option,
    unknown_name,
    zone_option,
)
from rmqstore.cli.failures import UNREADABLE, CliError, say
from rmqstore.cli.inspect import say_hidden
from rmqstore.cli.output import Column
from rmqstore.cli.progress import Progress
from rmqstore.cli.shown import Shown, form_option
from rmqstore.cli.text import plural
from rmqstore.cli.writers import writer_for
from rmqstore.consume.groups import is_system_group
from rmqstore.files.paths import CONFIG, CONSUMER_OFFSET_JSON, dead_letter_topic

if TYPE_CHECKING:
    from rmqstore.consume.lag import Lag
    from rmqstore.store import MessageStore

__all__ = ["dlq", "groups", "lag"]

_RESERVED_HOURS = 72  # a broker's fileReservedTime, unless its broker.conf has another


def _known(kind: str, name: str | None, names: Collection[str]) -> None:
    """Raise, with the nearest names, unless a name is known."""
    if name is not None and name not in names:
        raise unknown_name(kind, name, names)


@store_command(
    examples=(
        "groups STORE",
        "groups STORE --lag -c broker.conf",
    )
)
@group_option("Only this group.")
@click.option(
    "--lag",
    "lagging",
    is_flag=True,
    help="Also what each has not consumed, and when retention may delete the first of it: "
    f"fileReservedTime of --config, or {_RESERVED_HOURS} h, after the end of its log file.",
)
@click.option("-a", "--all", "every", is_flag=True, help="Groups of the system as well.")
@zone_option
@output_option
def groups(
    *,
    store: str,
    config: str | None,
    group: str | None,
    lagging: bool,
    every: bool,
    output: str | None,
    local: bool,
) -> None:
    """List consumer groups and their topics.

    Those that a broker has for itself, CID_RMQ_SYS_TRANS and the like, are hidden.
    """
    entry = (
        Column("retry_max", "count", heading="retries", rank=5),
        Column("consume_enable", heading="consumes", rank=6),
        Column("consume_broadcast_enable", heading="broadcasts", rank=7),
    )
    columns: tuple[Column, ...] = (
        Column("group", "name", width=80, least=24),
        Column("topics", least=24, rank=4 if lagging else 0),
        *entry,
    )
    if lagging:
        columns += (
            Column("messages", "count"),
            Column("bytes", "bytes", rank=2),
            Column("behind", "number", heading="behind, s", rank=3),
            Column("expires", "time", rank=1),
        )
    with (
        open_store(store, "r", config) as opened,
        writer_for(
            output, columns, local=local, typed={"group": group}, empty="no groups"
        ) as writer,
    ):
        found = opened.groups
        _known("group", group, found)
        chosen = [
            name
            for name in found
            if name == group or (group is None and (every or not is_system_group(name)))
        ]
        late = _late_groups(opened, group) if lagging else {}
        for name in chosen:
            one = found[name]
            writer.row(
                {
                    "group": name,
                    "topics": list(one.topics),
                    "retry_max": one.retry_max,
                    "consume_enable": one.consume_enable,
                    "consume_broadcast_enable": one.consume_broadcast_enable,
                    **(late.get(name, _NOT_LATE) if lagging else {}),
                }
            )
    if group is None:
        say_hidden(output, len(found) - len(chosen), "group")


_NOT_LATE: dict[str, Any] = {"messages": 0, "bytes": 0, "behind": 0.0, "expires": None}


def _late_groups(opened: MessageStore, group: str | None) -> dict[str, dict[str, Any]]:
    """Return the lag of each group, over all of its queues."""
    from rmqstore.consume.lag import Expiry

    reserved = opened.config.file_reserved_time
    expiry = Expiry(opened.core, _RESERVED_HOURS if reserved is None else reserved)
    behind: dict[str, list[Lag]] = {}
    for one in opened.lag(group):
        behind.setdefault(one.group, []).append(one)
    late = {}
    for name, queues in behind.items():
        ends = [end for end in map(expiry.of, queues) if end is not None]
        late[name] = {
            "messages": sum(one.messages for one in queues),
            "bytes": sum(one.bytes for one in queues),
            "behind": max((one.behind for one in queues), default=timedelta(0)).total_seconds(),
            "expires": min(ends, default=None),
        }
    return late


@store_command(
    examples=(
        "lag STORE -g billing",
        "lag STORE -t orders -o csv",
    )
)
@group_option("Only this group.")
@topic_option("Only this topic.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="A Spark stream's checkpointLocation, to show that stream's lag.",
)
@output_option
def lag(
    *,
    store: str,
    config: str | None,
    group: str | None,
    topic: str | None,
    checkpoint: str | None,
    output: str | None,
) -> None:
    """Show the lag of groups in each queue: messages, bytes and seconds."""
    if checkpoint is not None and group is not None:
        raise click.UsageError("--checkpoint and --group exclude each other")
    columns = (
        Column("group", "name", width=80, least=16),
        Column("topic", "name", width=80, least=16),
        Column("queue_id", "number", heading="queue"),
        Column("committed", "count", rank=2),
        Column("min_offset", "count", heading="min", rank=5),
        Column("max_offset", "count", heading="max", rank=4),
        Column("messages", "count"),
        Column("bytes", "bytes", rank=3),
        Column("behind", "number", heading="behind, s", rank=1),
    )
    with (
        open_store(store, "r", config) as opened,
        writer_for(output, columns, typed={"group": group, "topic": topic}) as writer,
        Progress("reading", "queues", among_rows=True) as progress,
    ):
        if checkpoint is not None:
            found = _of_stream(opened, checkpoint, topic)
        else:
            found = _of_groups(opened, group, topic)
        beyond = 0
        for one in found:
            progress.done += 1
            beyond += checkpoint is None and one.committed > one.max_offset
            row: dict[str, Any] = {
                column.name: getattr(one, column.name)
                for column in columns
                if column.name != "behind"
            }
            writer.row({**row, "behind": one.behind.total_seconds()})
    if beyond:
        say(
            f"{plural(beyond, 'queue')} with a group beyond the end: a broker sets it back, to the "
            "first message if that has offset 0; 'rmqstore verify' names each"
        )


def _of_groups(opened: MessageStore, group: str | None, topic: str | None) -> list[Lag]:
    offsets = opened.offsets
    _known("group", group, opened.groups)
    _known("topic", topic, {name for name, _ in offsets} | set(opened.topics))
    if not offsets:
        missing = not Path(opened.path, CONFIG, CONSUMER_OFFSET_JSON).exists()
        why = f": {CONFIG}/{CONSUMER_OFFSET_JSON} is missing" if missing else ""
        say(f"no group has committed anything{why}")
    return opened.lag(group, topic)


def _of_stream(opened: MessageStore, checkpoint: str, topic: str | None) -> list[Lag]:
    """Return a stream's lag, its query's id as the group, and print the age of its progress."""
    from rmqstore.cli.checkpoint import CheckpointError, read_checkpoint
    from rmqstore.consume.lag import lag_of

    try:
        stream = read_checkpoint(checkpoint, opened.path)
    except CheckpointError as error:
        raise CliError(str(error), UNREADABLE) from None
    _known("topic", topic, {*stream.offsets, *opened.topics})
    age = max(0.0, time.time() - stream.committed_millis / 1000)
    more = "; a later batch is not done yet" if stream.is_behind else ""
    say(f"as of batch {stream.batch}, which was done {age:,.0f} s ago{more}")
    offsets = {(name, stream.query): queues for name, queues in stream.offsets.items()}
    return lag_of(opened.core, offsets, None, topic)


@store_command(
    examples=(
        "dlq STORE -g billing",
        "dlq STORE -n 10 -f '%T %k %s\\n'",
    )
)
@group_option("Only this group.")
@click.option("-n", "--number", type=click.IntRange(0, INT64_MAX), help="So many at most.")
@form_option
@zone_option
@output_option
def dlq(
    *,
    store: str,
    config: str | None,
    group: str | None,
    number: int | None,
    form: str | None,
    output: str | None,
    local: bool,
) -> None:
    """List dead letters: messages that a group has tried too often, oldest first.

    "rmqstore cat STORE -t %DLQ%GROUP" shows them whole.
    """
    columns = (
        Column("group", "name", width=80, least=16),
        Column("topic", "name", width=80, least=16),
        Column("queue_offset", "number", heading="offset", rank=3),
        Column("tags", rank=5, least=8),
        Column("keys", rank=1, least=12),
        Column("reconsume_times", "count", heading="tries", rank=2),
        Column("store_timestamp", "time", heading="given up"),
        Column("msg_id", heading="message id", rank=6),
        Column("origin_msg_id", heading="was", rank=7),
    )
    prefix = dead_letter_topic("")
    with (
        open_store(store, "r", config) as opened,
        Progress("reading", "messages", among_rows=True) as progress,
    ):
        given_up = {
            name.removeprefix(prefix): topic
            for name, topic in opened.topics.items()
            if name.startswith(prefix)
        }
        _known("group", group, given_up.keys() | opened.groups.keys())
        letters = (
            (name, message)
            for name, topic in given_up.items()
            if group in (None, name)
            for message in topic.messages()
        )
        chosen = progress.each(islice(letters, number))
        if form is not None:
            show = Shown(output, form, "auto", local)
            with show.writer:
                show.all(message for _, message in chosen)
            show.bodies.check()
            return
        named = {"group": group}
        empty = "no dead messages"
        with writer_for(output, columns, local=local, typed=named, empty=empty) as writer:
            for name, message in chosen:
                properties = message.properties
                writer.row(
                    {
                        "group": name,
                        "topic": properties.get("RETRY_TOPIC"),
                        "queue_offset": message.queue_offset,
                        "tags": message.tags,
                        "keys": list(message.keys),
                        "reconsume_times": message.reconsume_times,
                        "store_timestamp": message.store_timestamp,
                        "msg_id": message.msg_id,
                        "origin_msg_id": properties.get("ORIGIN_MESSAGE_ID"),
                    }
                )
