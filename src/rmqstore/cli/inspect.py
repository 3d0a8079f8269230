"""``info``, ``topics`` and ``queues``: contents of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.base.times import format_millis
from rmqstore.cli.common import (
    known_topic,
    open_store,
    output_option,
    store_command,
    topic_option,
    zone_option,
)
from rmqstore.cli.damage import compare_counts, known_damage, waiting_messages, zeroed_units
from rmqstore.cli.failures import UNREADABLE, CliError, in_options, say
from rmqstore.cli.output import Column, json_bytes, resolve, write_bytes
from rmqstore.cli.progress import Progress
from rmqstore.cli.state import State, state_of
from rmqstore.cli.table import print_fields
from rmqstore.cli.text import human_bytes, plural
from rmqstore.cli.verdict import verdict_facts, verdict_fields, verdict_of, verdict_reason
from rmqstore.cli.writers import writer_for
from rmqstore.consume.lag import queue_bytes
from rmqstore.directory.layout import log_directories
from rmqstore.errors import StoreError
from rmqstore.files.links import files_below
from rmqstore.files.paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX
from rmqstore.services.stored import is_system_topic

if TYPE_CHECKING:
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue, Topic

__all__ = ["disk_use", "info", "queues", "say_hidden", "topics"]

_BLOCK = 512  # unit of st_blocks, in bytes
_COUNTED_BYTES = 128 << 20  # largest log that is read to count its messages
_WAITING = (("delayed", "delayed"), ("in_doubt", "in doubt"))
_PERMISSIONS = ((4, "R"), (2, "W"), (1, "X"))
_INHERIT = 1


@store_command(
    examples=(
        "info STORE",
        "info STORE -c broker.conf -o jsonl",
    )
)
@click.option(
    "--count",
    is_flag=True,
    help="Count the messages of a log of any size; otherwise, above "
    f"{human_bytes(_COUNTED_BYTES)}, their number is estimated from the queues.",
)
@zone_option
@output_option
def info(*, store: str, config: str | None, count: bool, output: str | None, local: bool) -> None:
    """Summarize a store: state, owner, offsets, times, file sizes.

    The first line is whether a 4.9.3 broker would start on it; if not, or if that would lose
    messages, the exit code is 4.  For a store that was not closed, the end of the valid records is
    shown, and how many bytes after it opening it to write would save and cut.  Damage is listed:
    exit code 4.
    """
    with open_store(store, "r", config, warn=False) as opened, Progress("counting"):
        state = state_of(opened)
        verdict = verdict_of(opened, config)
        facts = verdict_facts(verdict)
        facts |= _facts(opened, Path(store), state, count=count, local=local)
    form = resolve(output)
    if form == "table":
        print_fields(
            f"{store}: {verdict.text}",
            [*verdict_fields(verdict), *_info_fields(facts, state)],
            bad=verdict.text if verdict.broker != "starts" else "",
        )
    elif form == "jsonl":
        write_bytes(json_bytes(facts))
    else:
        flat = dict(_flatten("", facts))
        flat["findings"] = [one["message"] for one in facts["findings"]]
        with writer_for("csv", [Column(name) for name in flat]) as writer:
            writer.row(flat)
    wrong = f" is damaged: {'; '.join(facts['damage'])}" if facts["damage"] else ""
    if verdict.broker != "starts":
        wrong += f"{'; ' if wrong else ': '}{verdict_reason(verdict)}"
    if wrong:
        raise CliError(f"{store}{wrong}", UNREADABLE)


def _facts(
    opened: MessageStore, root: Path, state: State, *, count: bool, local: bool
) -> dict[str, Any]:
    """Return all facts about a store, for JSON."""
    settings, recovery = opened.config, opened.recovery
    topics = opened.topics
    every = [queue for topic in topics.values() for queue in topic.values()]
    filled = [queue for queue in every if queue.max_offset > 0]
    first, last = _time_range(filled)
    covered = sum(stop - start for start, stop in opened.index_coverage())
    queued = sum(map(len, filled))
    counted = count or recovery.log_end - recovery.log_start <= _COUNTED_BYTES
    every_message = opened.scan(on_corruption="skip", on_removed="skip")
    messages = every_message.count() if counted else queued
    damage, notes = known_damage(opened), list(recovery.notes)
    if counted and state.name != "in use":
        damage += zeroed_units(opened)
    if counted and messages != queued and state.name != "in use":
        lost, unqueued = compare_counts(opened)
        damage += lost
        notes += unqueued
    waiting: dict[str, int | None] = dict.fromkeys(name for name, _ in _WAITING)
    if counted:
        waiting, bad = waiting_messages(opened)
        damage += bad
    return {
        "path": str(root),
        "clean": recovery.clean,
        **state.facts(),
        "log_start": recovery.log_start,
        "log_end": recovery.log_end,
        "first_store_timestamp": _shown(first, local),
        "last_store_timestamp": _shown(last, local),
        "topics": len(topics),
        "topics_without_files": len(topics) - len({queue.topic for queue in filled}),
        "queues": len(filled),
        "queues_without_files": len(every) - len(filled),
        "messages": messages,
        "messages_counted": counted,
        "queue_entries": queued,
        **waiting,
        "indexed_log_bytes": covered,
        "disk": disk_use(root, log_directories(opened.path, opened.config)),
        "sizes": {
            "mapped_file_size_commit_log": settings.mapped_file_size_commit_log,
            "mapped_file_size_consume_queue": settings.mapped_file_size_consume_queue,
            "max_hash_slot_num": settings.max_hash_slot_num,
            "max_index_num": settings.max_index_num,
        },
        "damage": [in_options(one, None) for one in damage],
        "notes": [in_options(one, None) for one in notes],
    }


def _shown(millis: int | None, local: bool) -> str | None:
    """Return a time for display, if there is one."""
    return None if millis is None else format_millis(millis, local=local)


def _info_fields(facts: dict[str, Any], state: State) -> list[tuple[str, str]]:
    """Return the facts as fields for people."""
    log_bytes = facts["log_end"] - facts["log_start"]
    sizes = facts["sizes"]
    fields = [
        *state.fields(),
        *(("damage", one) for one in facts["damage"]),
        (
            "log",
            f"{human_bytes(log_bytes)}, offsets {facts['log_start']:,} to {facts['log_end']:,}",
        ),
        ("first stored", facts["first_store_timestamp"] or "-"),
        ("last stored", facts["last_store_timestamp"] or "-"),
        ("messages", _messages_text(facts)),
        *((name, f"{facts[key]:,}") for key, name in _WAITING if facts[key]),
        ("indexed", f"{human_bytes(facts['indexed_log_bytes'])} of the log"),
    ]
    fields += [
        (name, f"{plural(one['files'], 'file')}, {human_bytes(one['bytes'])}, on disk "
               f"{human_bytes(one['allocated'])}")
        for name, one in facts["disk"].items()
    ]  # fmt: skip
    fields += [
        (
            "sizes in force",
            f"log {sizes['mapped_file_size_commit_log']:,}, queue "
            f"{sizes['mapped_file_size_consume_queue']:,}, index "
            f"{sizes['max_hash_slot_num']:,} slots and {sizes['max_index_num']:,} entries",
        )
    ]
    if facts["queues_without_files"]:
        more = plural(facts["queues_without_files"], "more queue")
        if facts["topics_without_files"]:
            more += f", {plural(facts['topics_without_files'], 'more topic')}"
        fields.append(("without files", more))
    return fields + [("note", note) for note in facts["notes"]]


def _messages_text(facts: dict[str, Any]) -> str:
    """Return the numbers of messages and of their queues as text."""
    count = f"{facts['messages']:,}"
    if not facts["messages_counted"]:
        count = f"about {count}"
    elif facts["messages"] != facts["queue_entries"]:
        count += f"; {facts['queue_entries']:,} entries"
    topics = facts["topics"] - facts["topics_without_files"]
    return f"{count} in {plural(facts['queues'], 'queue')} of {plural(topics, 'topic')}"


def _flatten(prefix: str, facts: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Iterate over nested facts as ``outer.inner`` and value."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


def disk_use(root: Path, log: Sequence[Path] = ()) -> dict[str, dict[str, int]]:
    """Return files, bytes and allocated bytes for each directory of a store.

    ``log`` has the directories of its log, if these are not the store's own.
    """
    result = {}
    for name in (COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG):
        files = total = allocated = 0
        within = log if log and name == COMMIT_LOG else [root / name]
        for path in (found for one in within for found in files_below(one)):
            try:
                status = path.stat()
            except OSError:
                continue  # removed from a live store
            files += 1
            total += status.st_size
            allocated += status.st_blocks * _BLOCK
        result[name] = {"files": files, "bytes": total, "allocated": allocated}
    return result


def _time_range(queues: Iterable[Queue]) -> tuple[int | None, int | None]:
    """Return the first and the last store time in some queues, in ms."""
    first: int | None = None
    last: int | None = None
    for queue in queues:
        begin, end = _edge_time(queue, 0), _edge_time(queue, -1)
        if begin is not None:
            first = begin if first is None else min(first, begin)
        if end is not None:
            last = end if last is None else max(last, end)
    return first, last


def _edge_time(queue: Queue, which: int) -> int | None:
    """Return the store time of the first (0) or last (-1) message, ``None`` if unreadable."""
    if not len(queue):
        return None
    try:
        message = queue[queue.min_offset] if which == 0 else queue[-1]
    except (StoreError, IndexError):
        return None
    return message.store_timestamp


def _bytes_of(opened: MessageStore, queues: Iterable[Queue]) -> int | None:
    """Return the bytes of some queues' records; None for light queues, or unreadable units."""
    total = 0
    for queue in queues:
        try:
            size = queue_bytes(opened.core, queue.topic, queue.queue_id)
        except StoreError:  # reading the queue reports that
            return None
        if size is None:
            return None
        total += size
    return total


def _permissions(perm: int | None) -> str | None:
    """Return ``RW`` and the like."""
    if perm is None:
        return None
    return "".join(letter for bit, letter in _PERMISSIONS if perm & bit) or "-"


@store_command(
    examples=(
        "topics STORE",
        "topics STORE --all -o csv",
    )
)
@click.option("-a", "--all", "every", is_flag=True, help="Topics of the system as well.")
@zone_option
@output_option
def topics(*, store: str, config: str | None, every: bool, output: str | None, local: bool) -> None:
    """List topics with their queues, messages, bytes in the log, and times.

    Those that a broker has for itself, such as SCHEDULE_TOPIC_XXXX, are hidden.
    """
    columns = (
        Column("topic", "name", width=80, least=32),
        Column("perm", rank=5),
        Column("read_queue_nums", "number", heading="read", rank=6),
        Column("write_queue_nums", "number", heading="write", rank=7),
        Column("queues", "count", rank=3),
        Column("messages", "count"),
        Column("bytes", "bytes", rank=1),
        Column("first_store_timestamp", "time", heading="first stored", rank=4),
        Column("last_store_timestamp", "time", heading="last stored", rank=2),
    )
    with (
        open_store(store, "r", config) as opened,
        writer_for(output, columns, local=local) as writer,
        Progress("reading", "topics", among_rows=True) as progress,
    ):
        found = opened.topics
        hidden = set() if every else _system_topics(found)
        chosen = [name for name in found if name not in hidden]
        progress.total = len(chosen)
        for name in chosen:
            topic = found[name]
            progress.done += 1
            present = [queue for queue in topic.values() if queue.max_offset > 0]
            first, last = _time_range(present)
            writer.row(
                {
                    "topic": name,
                    "perm": _permissions(topic.perm),
                    "read_queue_nums": topic.read_queue_nums,
                    "write_queue_nums": topic.write_queue_nums,
                    "queues": len(present),
                    "messages": sum(map(len, present)),
                    "bytes": _bytes_of(opened, present),
                    "first_store_timestamp": first,
                    "last_store_timestamp": last,
                }
            )
    say_hidden(output, len(found) - len(chosen), "topic")


def _system_topics(topics: Mapping[str, Topic]) -> set[str]:
    """Return the topics that a broker has for itself.

    Those of its own name and its cluster's are told by their permission to inherit, and are empty.

    Source: ``broker/topic/TopicConfigManager.java``, ``common/topic/TopicValidator.java``.
    """
    named = {
        name
        for name, topic in topics.items()
        if (topic.perm or 0) & _INHERIT and not any(queue.max_offset for queue in topic.values())
    }
    replies = {f"{name}_REPLY_TOPIC" for name in named}
    return {name for name in topics if is_system_topic(name) or name in named | replies}


def say_hidden(output: str | None, count: int, noun: str) -> None:
    """Tell a reader of a table how many names of the system it lacks."""
    if count and resolve(output) == "table":
        verb = "is" if count == 1 else "are"
        say(f"{plural(count, noun)} of the system {verb} hidden; --all shows them")


@store_command(
    examples=(
        "queues STORE -t orders",
        "queues STORE --all -o csv",
    )
)
@topic_option("Only this topic.")
@click.option("-a", "--all", "every", is_flag=True, help="Queues without messages as well.")
@zone_option
@output_option
def queues(
    *,
    store: str,
    config: str | None,
    topic: str | None,
    every: bool,
    output: str | None,
    local: bool,
) -> None:
    """List queues with their offsets, bytes in the log, and times."""
    columns = (
        Column("topic", "name", width=80, least=28),
        Column("queue_id", "number", heading="queue"),
        Column("min_offset", "count", heading="min", rank=3),
        Column("max_offset", "count", heading="max", rank=1),
        Column("messages", "count", rank=5),
        Column("bytes", "bytes", rank=2),
        Column("first_store_timestamp", "time", heading="first stored", rank=6),
        Column("last_store_timestamp", "time", heading="last stored", rank=4),
    )
    with (
        open_store(store, "r", config) as opened,
        writer_for(output, columns, local=local, typed={"topic": topic}) as writer,
        Progress("reading", "topics", among_rows=True) as progress,
    ):
        chosen = opened.topics if topic is None else {topic: known_topic(opened, topic)}
        progress.total = len(chosen)
        for name, one in chosen.items():
            progress.done += 1
            for queue_id, queue in one.items():
                if not every and queue.max_offset == 0:
                    continue
                writer.row(
                    {
                        "topic": name,
                        "queue_id": queue_id,
                        "min_offset": queue.min_offset,
                        "max_offset": queue.max_offset,
                        "messages": len(queue),
                        "bytes": _bytes_of(opened, [queue]),
                        "first_store_timestamp": _edge_time(queue, 0),
                        "last_store_timestamp": _edge_time(queue, -1),
                    }
                )
