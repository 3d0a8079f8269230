"""``cat``, ``get`` and ``find``: messages."""

from __future__ import annotations

import re
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from rmqstore.base.layout import INT64_MAX
from rmqstore.base.times import parse_time
from rmqstore.cli import render
from rmqstore.cli.common import (
    TIME_FORMS,
    damage_option,
    known_queue,
    known_topic,
    once,
    open_store,
    store_command,
    time_of,
    topic_option,
)
from rmqstore.cli.failures import NOT_FOUND, CliError
from rmqstore.cli.message_lines import Bodies
from rmqstore.cli.output import resolve
from rmqstore.cli.place import message_of, refuse_place
from rmqstore.cli.progress import Progress
from rmqstore.cli.shown import Shown, shape_options
from rmqstore.cli.walk import Bound, Damaged, MessageSelection, follow, walk
from rmqstore.errors import StoreCorruptError
from rmqstore.filters import check_filter

if TYPE_CHECKING:
    from rmqstore._core import Message

__all__ = ["cat", "find", "get"]

_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_LAST = re.compile(r"-(\d{1,18})", re.ASCII)


def _bound_of(ctx: click.Context, param: click.Parameter, value: str | None) -> Bound | None:
    """Parse ``--from`` or ``--until``; the unit of a bare number is decided later."""
    if value is None:
        return None
    if _NUMBER.fullmatch(value):
        return Bound("offset", int(value))
    if (last := _LAST.fullmatch(value)) is not None:
        return Bound("last", int(last[1]))
    try:
        return Bound("time", parse_time(value, name=param.opts[0], local=ctx.params["local"]))
    except ValueError as error:
        raise click.UsageError(f"{error}; or an offset", ctx) from None


def _settle(bound: Bound | None, of_queue: bool) -> Bound | None:
    """Return the bound, a bare number as an offset in the queue or in the log."""
    if bound is None or bound.kind != "offset":
        return bound
    return Bound("queue" if of_queue else "log", bound.value)


@store_command(
    examples=(
        "cat STORE -t orders --from -1h -f '%T %k %s\\n'",
        'cat STORE -t orders -q 0 --from -10 --sql "amount > 5"',
    )
)
@topic_option("Only this topic.")
@click.option("-q", "--queue", "queue_id", type=click.IntRange(0), help="Only this queue.")
@click.option(
    "--from",
    "--since",
    "start",
    callback=_bound_of,
    metavar="N|TIME",
    help="First: a queue offset (with -t and -q; else a physical one), -N for the last N, or a "
    f"time: {TIME_FORMS}.",
)
@click.option(
    "--until",
    "stop",
    callback=_bound_of,
    metavar="N|TIME",
    help="End, itself not included: an offset or a time, as with --from.",
)
@once("--tags", text="Only these: 'TagA || TagB'.")
@once("--sql", text="Only what passes: \"amount > 5 AND region IN ('eu', 'us')\".")
@click.option("-n", "--number", type=click.IntRange(0, INT64_MAX), help="So many at most.")
@click.option("--follow", "following", is_flag=True, help="Wait for more at the end.")
@damage_option
@shape_options
def cat(
    *,
    store: str,
    config: str | None,
    topic: str | None,
    queue_id: int | None,
    start: Bound | None,
    stop: Bound | None,
    tags: str | None,
    sql: str | None,
    number: int | None,
    following: bool,
    on_corruption: str | None,
    body: str,
    form: str | None,
    output: str | None,
    local: bool,
) -> None:
    """Show messages in log order, oldest first."""
    if stop is not None and stop.kind == "last":
        raise click.UsageError("--until takes an offset or a time, not '-N'")
    if stop is not None and following:
        raise click.UsageError("--until and --follow do not go together")
    of_queue = topic is not None and queue_id is not None
    check_filter(tags=tags, sql=sql)  # even if nothing is read
    chosen = MessageSelection(
        topic, queue_id, _settle(start, of_queue), _settle(stop, of_queue), tags, sql
    )
    show = Shown(output, form, body, local, topic=topic)
    progress = Progress("reading", "messages", among_rows=True)
    with (
        open_store(store, "r", config) as opened,
        show.writer,
        nullcontext() if following else progress,
    ):
        if topic is not None:
            refuse_place(opened, topic)
            found_topic = known_topic(opened, topic)
            if queue_id is not None:
                known_queue(found_topic, queue_id)
        damaged = Damaged(opened, on_corruption)
        if following:
            found = follow(opened, chosen, damaged, show.writer.flush)
        else:
            found = walk(opened, chosen, damaged, progress)
        try:
            show.all(found if number is None else damaged.first(found, number))
        except KeyboardInterrupt:
            if not following:
                raise
    damaged.check()
    show.bodies.check()


@store_command(
    "ID",
    examples=(
        "get STORE 7F00000100002A9F0000000000000000",
        "get STORE orders/0@5 -f '%s\\n'",
    ),
)
@shape_options
def get(
    *,
    store: str,
    config: str | None,
    id: str,
    body: str,
    form: str | None,
    output: str | None,
    local: bool,
) -> None:
    """Show one message.

    ID is its message id (%i in a format), its unique key (%u), or its place: TOPIC/QUEUE@OFFSET.
    By any other key, "rmqstore find" finds it.
    """
    with open_store(store, "r", config) as opened:
        message = message_of(opened, id)
        if form is None and resolve(output) == "table":
            bodies = Bodies()
            render.print_message(message, body, local, bodies)
            bodies.check()
            return
        show = Shown(output, form, body, local)
        with show.writer:
            show.all([message])
    show.bodies.check()


@store_command(
    "KEY",
    instead="key",
    examples=(
        "find STORE --key ORDER-123",
        "find STORE ORDER-123 -t orders --since -1d -n 5",
    ),
)
@click.option("-k", "--key", metavar="KEY", help="One of its keys, or its unique key.")
@topic_option("Only this topic; all by default.")
@click.option(
    "--from",
    "--since",
    "begin",
    metavar="TIME",
    callback=time_of,
    help=f"Stored at or after: {TIME_FORMS}.",
)
@click.option(
    "--until", "end", metavar="TIME", callback=time_of, help="Stored before: as with --from."
)
@click.option("-n", "--number", type=click.IntRange(1, INT64_MAX), help="So many at most.")
@click.option(
    "--index-only",
    is_flag=True,
    help="Search index files alone, not the parts of the log they miss.",
)
@damage_option
@shape_options
def find(
    *,
    store: str,
    config: str | None,
    key: str,
    topic: str | None,
    begin: int | None,
    end: int | None,
    number: int | None,
    index_only: bool,
    on_corruption: str | None,
    body: str,
    form: str | None,
    output: str | None,
    local: bool,
) -> None:
    """Find messages by key, newest first, with or without the index.

    KEY is given with --key or without.
    """
    last = None if end is None else end - 1
    with open_store(store, "r", config) as opened:
        names = [topic] if topic is not None else list(opened.topics)
        if topic is not None:
            known_topic(opened, topic)  # an unknown topic is not an unknown key
        damaged = Damaged(opened, on_corruption)
        hits: dict[int, Message] = {}
        with Progress("searching", "topics", total=len(names)) as progress:
            for name in names:
                try:
                    found = opened.query(
                        name, key, max_num=number, begin=begin, end=last, index_only=index_only
                    )
                except StoreCorruptError as error:  # a record that may have the key
                    if index_only:
                        raise
                    damaged.add(name, error)
                    good = opened.scan(
                        name, keys=[key], since=begin, until=end, on_corruption="skip"
                    )
                    found = list(deque(good, maxlen=number))
                hits.update((message.physical_offset, message) for message in found)
                progress.done += 1
        damaged.add_passed_over(opened)
        if not hits:
            damaged.check()
            where = f"topic {topic!r}" if topic is not None else "any topic"
            when = " and was stored in that time" if (begin, end) != (None, None) else ""
            raise CliError(f"no message in {where} has the key {key!r}{when}", NOT_FOUND)
        newest_first = [hits[offset] for offset in sorted(hits, reverse=True)]
        show = Shown(output, form, body, local, render.FOUND_COLUMNS, topic=topic)
        with show.writer:
            show.all(
                newest_first
                if number is None
                else damaged.first(newest_first, number, newest_first=True)
            )
    damaged.check()
    show.bodies.check()
