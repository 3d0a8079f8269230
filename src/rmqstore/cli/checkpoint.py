"""Progress of a Spark stream, from Spark's own checkpoint; needs no PySpark.

``offsets/N``: where batch N ends; ``commits/N``: batch N is done.

Source: Spark, ``OffsetSeqLog``, ``CommitLog``; the offsets are those of
:mod:`rmqstore.spark.stream.offsets`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqstore.spark.common.options import OptionError, absolute_path
from rmqstore.spark.stream.offsets import LogStart, QueueName, flat, log_starts, record_at

__all__ = ["CheckpointError", "CheckpointProgress", "read_checkpoint"]

_METADATA = 1  # line of offsets/N; the sources follow


class CheckpointError(ValueError):
    """Directory that is not a checkpoint of a stream of this store; the message names it."""


@dataclass(frozen=True)
class CheckpointProgress:
    """Progress of a stream in one store."""

    query: str  # its id
    batch: int  # number of the last committed batch
    committed_millis: int  # when it was done, in ms since the epoch
    is_behind: bool  # a later batch has begun and is not done
    offsets: dict[str, dict[int, int]]  # next queue offset by topic and queue


def read_checkpoint(directory: str, store: str) -> CheckpointProgress:
    """Return the progress in a store from a query's ``checkpointLocation``.

    ``CheckpointError``: it is not a checkpoint, has no batch that is done, or is of a stream that
    does not read the store.
    """
    try:
        root = Path(absolute_path("--checkpoint", directory))
    except OptionError as error:
        raise CheckpointError(str(error)) from None
    planned, done = _batches(root / "offsets"), _batches(root / "commits")
    if not (root / "offsets").is_dir():
        raise CheckpointError(f"{root}: no checkpoint of a Spark stream: no offsets/ in it")
    batch = max(set(planned) & set(done), default=None)
    if batch is None:
        raise CheckpointError(f"{root}: no batch is done yet")
    path = root / "offsets" / str(batch)
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    if not lines[0].startswith("v"):
        raise CheckpointError(f"{path}: begins with {lines[0][:20]!r}, not with a version")
    offsets: dict[str, dict[int, int]] = {}
    found = False
    for positions, starts in _positions(lines[_METADATA + 1 :], path):
        for name, offset in positions.items():
            if name.store != "." and os.path.realpath(name.store) != os.path.realpath(store):
                continue
            if name.store in starts and not _begins_with(store, *starts.pop(name.store)):
                raise CheckpointError(
                    f"{root}: of a stream of another store: the log of {store} began with another "
                    "record"
                )
            found = True
            queues = offsets.setdefault(name.topic, {})
            queues[name.queue_id] = min(offset, queues.get(name.queue_id, offset))
    if not found:
        raise CheckpointError(f"{root}: of a stream that reads no queue of {store}")
    committed = (root / "commits" / str(batch)).stat().st_mtime_ns // 1_000_000
    return CheckpointProgress(_query(root), batch, committed, max(planned) > batch, offsets)


def _batches(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return [int(file.name) for file in directory.iterdir() if file.name.isdecimal()]


def _begins_with(store: str, offset: int, record: str) -> bool:
    """Whether a store's log had this record there; true if it was removed."""
    try:
        return record_at(store, offset) == record
    except FileNotFoundError:
        return True


def _positions(
    lines: list[str], path: Path
) -> Iterator[tuple[dict[QueueName, int], dict[str, LogStart]]]:
    """Iterate over the offsets of sources that are stores, with the starts of their logs.

    A newer Spark names each source.
    """
    for line in lines:
        try:
            read: Any = json.loads(line) if line.startswith("{") else None
            each = [read, *read.values()] if isinstance(read, dict) else []
            for one in each:
                if isinstance(one, dict) and "v" in one and "q" in one:
                    yield flat(one["q"]), log_starts(one.get("logs", {}))
        except (ValueError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{path}: an offset is not as it was written: {error}") from None


def _query(root: Path) -> str:
    try:
        return str(json.loads((root / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return root.name
