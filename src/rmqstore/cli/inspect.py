"""``info``, ``topics`` and ``queues``: what is in a store."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.common import open_store, output_option, store_command
from rmqstore.cli.output import (
    Column,
    human_bytes,
    human_count,
    print_fields,
    resolve,
    write_bytes,
    writer_for,
)
from rmqstore.errors import StoreError
from rmqstore.paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX
from rmqstore.times import format_millis

if TYPE_CHECKING:
    from rmqstore.store import MessageStore
    from rmqstore.topic import Queue

__all__ = ["disk_use", "info", "queues", "topics"]

_BLOCK = 512  # bytes that st_blocks counts
_PERMISSIONS = ((4, "R"), (2, "W"), (1, "X"))


@store_command()
@output_option
def info(*, store: str, config: str | None, output: str | None) -> None:
    """Say what a store holds: offsets, times, sizes, clean or not, sizes in force."""
    with open_store(store, "r", config) as opened:
        facts = _facts(opened, Path(store))
    form = resolve(output)
    if form == "table":
        print_fields(str(store), _info_fields(facts))
    elif form == "jsonl":
        write_bytes(json.dumps(facts, ensure_ascii=False).encode() + b"\n")
    else:
        flat = dict(_flatten("", facts))
        with writer_for("csv", [Column(name) for name in flat]) as writer:
            writer.row(flat)


def _facts(opened: MessageStore, root: Path) -> dict[str, Any]:
    """Return everything that ``info`` knows, as JSON has it."""
    settings, recovery = opened.config, opened.recovery
    every = [(name, queue) for name, topic in opened.topics.items() for queue in topic.values()]
    first, last = _time_range(queue for _, queue in every)
    covered = sum(stop - start for start, stop in opened.index_coverage())
    return {
        "path": str(root),
        "clean": recovery.clean,
        "log_start": recovery.log_start,
        "log_end": recovery.log_end,
        "first_store_timestamp": None if first is None else format_millis(first),
        "last_store_timestamp": None if last is None else format_millis(last),
        "topics": len(opened.topics),
        "queues": len(every),
        "messages": sum(len(queue) for _, queue in every),
        "indexed_log_bytes": covered,
        "disk": disk_use(root),
        "sizes": {
            "mapped_file_size_commit_log": settings.mapped_file_size_commit_log,
            "mapped_file_size_consume_queue": settings.mapped_file_size_consume_queue,
            "max_hash_slot_num": settings.max_hash_slot_num,
            "max_index_num": settings.max_index_num,
        },
        "notes": list(recovery.notes),
    }


def _info_fields(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts for people."""
    log_bytes = facts["log_end"] - facts["log_start"]
    sizes = facts["sizes"]
    fields = [
        (
            "state",
            "closed cleanly" if facts["clean"] else "in use, or not closed ('abort' is there)",
        ),
        (
            "log",
            f"{human_bytes(log_bytes)}, offsets {facts['log_start']:,} to {facts['log_end']:,}",
        ),
        ("first stored", facts["first_store_timestamp"] or "-"),
        ("last stored", facts["last_store_timestamp"] or "-"),
        (
            "messages",
            f"{human_count(facts['messages'])} in {human_count(facts['queues'])} queues of "
            f"{human_count(facts['topics'])} topics",
        ),
        ("indexed", f"{human_bytes(facts['indexed_log_bytes'])} of the log"),
    ]
    fields += [
        (name, f"{one['files']} files, {human_bytes(one['bytes'])}, on disk "
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
    return fields + [("note", note) for note in facts["notes"]]


def _flatten(prefix: str, facts: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Go through nested facts as ``outer.inner`` and value."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


def disk_use(root: Path) -> dict[str, dict[str, int]]:
    """Return files, bytes and allocated bytes for each directory of a store."""
    result = {}
    for name in (COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG):
        files = total = allocated = 0
        for path in sorted((root / name).rglob("*")):
            try:
                status = path.lstat()
            except OSError:
                continue  # a live store has files that come and go
            if path.is_dir():
                continue
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


def _permissions(perm: int | None) -> str | None:
    """Return ``RW`` and the like."""
    if perm is None:
        return None
    return "".join(letter for bit, letter in _PERMISSIONS if perm & bit) or "-"


@store_command()
@output_option
def topics(*, store: str, config: str | None, output: str | None) -> None:
    """List topics with their queues, messages and times."""
    columns = (
        Column("topic", width=80),
        Column("perm"),
        Column("read_queue_nums", "number", heading="read"),
        Column("write_queue_nums", "number", heading="write"),
        Column("queues", "count"),
        Column("messages", "count"),
        Column("first_store_timestamp", "time", heading="first stored"),
        Column("last_store_timestamp", "time", heading="last stored"),
    )
    with open_store(store, "r", config) as opened, writer_for(output, columns) as writer:
        for name in sorted(opened.topics):
            topic = opened[name]
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
                    "first_store_timestamp": first,
                    "last_store_timestamp": last,
                }
            )


@store_command()
@click.option("-t", "--topic", help="Only this topic.")
@click.option("-a", "--all", "every", is_flag=True, help="Queues without a message too.")
@output_option
def queues(
    *, store: str, config: str | None, topic: str | None, every: bool, output: str | None
) -> None:
    """List queues with their offsets and times."""
    columns = (
        Column("topic", width=80),
        Column("queue_id", "number", heading="queue"),
        Column("min_offset", "count", heading="min"),
        Column("max_offset", "count", heading="max"),
        Column("messages", "count"),
        Column("first_store_timestamp", "time", heading="first stored"),
        Column("last_store_timestamp", "time", heading="last stored"),
    )
    with open_store(store, "r", config) as opened, writer_for(output, columns) as writer:
        for name in [topic] if topic is not None else sorted(opened.topics):
            for queue_id, queue in sorted(opened[name].items()):
                if not every and queue.max_offset == 0:
                    continue
                writer.row(
                    {
                        "topic": name,
                        "queue_id": queue_id,
                        "min_offset": queue.min_offset,
                        "max_offset": queue.max_offset,
                        "messages": len(queue),
                        "first_store_timestamp": _edge_time(queue, 0),
                        "last_store_timestamp": _edge_time(queue, -1),
                    }
                )
