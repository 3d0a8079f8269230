"""``du`` and ``stats``: bytes, messages, rates, sizes, tags and keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rmqstore.base.times import format_millis
from rmqstore.cli.common import (
    known_topic,
    once,
    open_store,
    output_option,
    store_command,
    zone_option,
)
from rmqstore.cli.failures import USAGE, CliError, say
from rmqstore.cli.output import Column, resolve
from rmqstore.cli.progress import Progress
from rmqstore.cli.table import print_fields
from rmqstore.cli.text import human_bytes, human_count, plural, width_of
from rmqstore.cli.writers import writer_for
from rmqstore.toolbox.sizes import DISK_USE_KEYS, disk_use_keys, disk_use_of, statistics_of

if TYPE_CHECKING:
    from rmqstore.errors import StoreCorruptError
    from rmqstore.store import MessageStore

__all__ = ["du", "stats"]

_BAR = 20  # characters
_KEY_COLUMNS = {
    "topic": Column("topic", "name", width=80, least=20),
    "queue": Column("queue", "number"),
    "day": Column("day"),
    "hour": Column("hour"),
    "tag": Column("tag", least=8),
    "group": Column("group", "name", width=80, least=20),
}
_TAGS_SHOWN = 8


def _reached(opened: MessageStore, progress: Progress) -> Callable[[int], None]:
    """Return what takes the physical offset that was reached."""
    start, end = opened.recovery.log_start, opened.recovery.log_end

    def reached(offset: int) -> None:
        progress.done, progress.total = offset - start, end - start

    return reached


@store_command(
    examples=(
        "du STORE --top 20",
        "du STORE --by topic,day",
    )
)
@once(
    "--by",
    metavar="KEYS",
    text=f"Some of {','.join(DISK_USE_KEYS)}, separated by commas.  [default: topic]",
)
@click.option("--top", type=click.IntRange(1), help="Maximum number of rows.")
@zone_option
@output_option
def du(
    *,
    store: str,
    config: str | None,
    by: str | None,
    top: int | None,
    output: str | None,
    local: bool,
) -> None:
    """Show the bytes that messages take in the log, most first.

    By topic, queue and group only the queues are read; by tag, day and hour (of the store time, in
    UTC) the whole log is.
    """
    try:
        keys = disk_use_keys((by or "topic").split(","))
    except ValueError as error:
        raise CliError(f"--{error}", USAGE) from None
    found: list[StoreCorruptError] = []
    with open_store(store, "r", config) as opened, Progress("reading", "bytes") as progress:
        rows = disk_use_of(opened, keys, damaged=found.append, reached=_reached(opened, progress))
    if found:
        say(f"{plural(len(found), 'damaged place')} of the log left out, the first: {found[0]}")
    # Times give way before a name that was asked for is shortened.
    widest = {
        key: max((width_of(str(row.keys[key])) for row in rows[:top]), default=0) for key in keys
    }
    columns = [
        *(
            dataclasses.replace(one, asked=True, least=one.least and max(one.least, widest[key]))
            for key, one in ((key, _KEY_COLUMNS[key]) for key in keys)
        ),
        Column("messages", "count"),
        Column("bytes", "bytes"),
        Column("first", "time", rank=3),
        Column("last", "time", rank=2),
    ]
    total = max(1, sum(row.bytes for row in rows))
    barred = resolve(output) == "table"
    if barred:
        columns.insert(len(keys) + 2, Column("share", rank=1))
    with writer_for(output, columns, local=local) as writer:
        for row in rows[:top]:
            facts = dataclasses.asdict(row)
            values = {**facts.pop("keys"), **facts}
            if barred:
                share = row.bytes / total
                values["share"] = f"{share:4.0%} {'#' * round(share * _BAR)}"
            writer.row(values)


@store_command(
    "TOPIC",
    examples=(
        "stats STORE orders",
        "stats STORE orders -o jsonl",
    ),
)
@zone_option
@output_option
def stats(*, store: str, config: str | None, topic: str, output: str | None, local: bool) -> None:
    """Show the rate, sizes, tags and keys of a topic's messages."""
    with open_store(store, "r", config) as opened:
        known_topic(opened, topic)
        with Progress("reading", "bytes") as progress:
            found = statistics_of(opened, topic, reached=_reached(opened, progress))
    times = [
        None if time is None else format_millis(time, local=local)
        for time in (found.first, found.last)
    ]
    if resolve(output) != "table":
        columns = [Column(field.name) for field in dataclasses.fields(found)]
        with writer_for(output, columns, local=local) as writer:
            facts = dataclasses.asdict(found)
            writer.row({**facts, "first": times[0], "last": times[1]})
        return
    tags = [f"{tag or '(none)'} {human_count(count)}" for tag, count in found.tags.items()]
    more = f", and {len(tags) - _TAGS_SHOWN:,} more" if len(tags) > _TAGS_SHOWN else ""
    print_fields(
        f"{topic}: {human_count(found.messages)} messages, {human_bytes(found.bytes)}",
        [
            ("first stored", times[0] or "-"),
            ("last stored", times[1] or "-"),
            ("rate", f"{found.rate:,.1f} messages a second"),
            ("size", f"half up to {found.size_p50:,} B, 99 % up to {found.size_p99:,} B"),
            ("tags", ", ".join(tags[:_TAGS_SHOWN]) + more or "-"),
            ("keys", f"{found.keys_distinct_estimate:,} different"),
        ],
    )
