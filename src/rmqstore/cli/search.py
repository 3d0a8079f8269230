"""``grep`` and ``unconsumed``: messages by text, and messages behind a group's offsets."""

from __future__ import annotations

import os
import warnings
from contextlib import closing
from itertools import islice
from typing import Literal

import click

from rmqstore.base.layout import INT64_MAX
from rmqstore.cli.common import (
    TIME_FORMS,
    corruption_option,
    group_option,
    jobs_option,
    known_topic,
    open_store,
    store_command,
    time_of,
    topic_option,
    unknown_name,
)
from rmqstore.cli.failures import NOT_FOUND, USAGE, CliError
from rmqstore.cli.progress import Progress
from rmqstore.cli.shown import Shown, shape_options
from rmqstore.cli.walk import Damaged
from rmqstore.toolbox.backlog import unconsumed_of
from rmqstore.toolbox.search import Search, grep_of

__all__ = ["grep", "unconsumed"]


@store_command(
    examples=(
        "unconsumed STORE -g billing",
        "unconsumed STORE -g billing -t orders -f '%t/%q@%o %k\\n'",
    )
)
@group_option("The consumer group.", required=True)
@topic_option("Only this topic.")
@click.option(
    "-n", "--number", type=click.IntRange(0, INT64_MAX), help="Maximum number of messages."
)
@corruption_option
@shape_options
def unconsumed(
    *,
    store: str,
    config: str | None,
    group: str,
    topic: str | None,
    number: int | None,
    on_corruption: Literal["raise", "skip"],
    body: str,
    form: str | None,
    output: str | None,
    local: bool,
) -> None:
    """Show the messages that a group has not consumed, oldest first."""
    with open_store(store, "r", config) as opened:
        if topic is not None:
            known_topic(opened, topic)
        groups = {of_group for _, of_group in opened.offsets}
        if group not in groups:
            raise unknown_name("group", group, groups)
        found = unconsumed_of(opened, group, topic, on_corruption)
        show = Shown(output, form, body, local, topic=topic)
        with show.writer, Progress("reading", among_rows=True):
            show.all(islice(found, number))
    show.bodies.check()


@store_command(
    "PATTERN",
    examples=(
        "grep STORE '\"uid\": ?42\\b' -t orders --since -2d",
        "grep STORE -F error --properties -o jsonl",
    ),
)
@click.option("-F", "--fixed", is_flag=True, help="PATTERN is a text, no regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--properties", is_flag=True, help="Search NAME=VALUE of properties as well.")
@topic_option("Only this topic.")
@click.option(
    "--since",
    metavar="TIME",
    callback=time_of,
    help=f"Stored at or after: {TIME_FORMS}.",
)
@click.option("--until", metavar="TIME", callback=time_of, help="Stored before.")
@click.option(
    "-n", "--number", type=click.IntRange(0, INT64_MAX), help="Maximum number of messages."
)
@jobs_option("Processes")
@shape_options
def grep(
    *,
    store: str,
    config: str | None,
    pattern: str,
    fixed: bool,
    ignore_case: bool,
    properties: bool,
    topic: str | None,
    since: int | None,
    until: int | None,
    number: int | None,
    jobs: int | None,
    body: str,
    form: str | None,
    output: str | None,
    local: bool,
) -> None:
    """Show the messages whose bodies have a text, oldest first.

    PATTERN is a regular expression; bodies are inflated before they are searched, without queues or
    index.  Exit code 1 if there is none.  Damage is reported, and left out: exit code 4.
    """
    search = Search(pattern, fixed, ignore_case, properties, topic, since, until, "raise")
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # as for "[[a]"
            search.matcher()
    except ValueError as error:
        raise CliError(str(error), USAGE) from None
    found = 0
    with open_store(store, "r", config) as opened:
        if topic is not None:
            known_topic(opened, topic)
        damaged = Damaged(opened)
        show = Shown(output, form, body, local, topic=topic)
        workers = jobs or len(os.sched_getaffinity(0))
        progress = Progress("searching", among_rows=True)
        seen = grep_of(opened, search, workers, lambda error: damaged.add("the log", error))
        with show.writer, progress, closing(seen) as messages:
            for message in islice(messages, number):
                found += 1
                show.all([message])
    damaged.check()
    show.bodies.check()
    if not found and number != 0:
        where = "" if properties else " in its body; --properties searches keys, too"
        raise CliError(f"no message has {pattern!r}{where}", NOT_FOUND)
