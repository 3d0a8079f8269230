"""Remains of RocketMQ 5 in a store, unknown to 4.9.3: recognized, and named.

None is read. A reader reports them, as messages or queues may be missing from its view; a writer
refuses the store, as it would leave these files out of date.

Harmless ones are not reported: ``abort.bak``, an empty ``timerwheel``,
``compaction/position-checkpoint``.

Source: RocketMQ 5.3.3's ``store/config/StorePathConfigHelper.java``,
``store/queue/BatchConsumeQueue.java``, ``store/queue/RocksDBConsumeQueueStore.java``,
``store/rocksdb/ConsumeQueueRocksDBStorage.java``, ``store/timer/TimerLog.java``,
``store/kv/CompactionStore.java``;
``tieredstore/metadata/DefaultMetadataStore.java``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rmqstore.errors import IncompatibleStoreError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular

__all__ = ["Newer", "find_newer", "refuse_newer"]

_ROCKSDB_CURRENT = "CURRENT"  # every RocksDB directory has this file
_ROCKSDB_QUEUES = (paths.CONSUME_QUEUE, "consumequeue_r")
_BATCH_QUEUES = "batchconsumequeue"
_TIMER_LOG = "timerlog"
_TIMER_UNIT_BYTES = 52
_COMPACTION = ("compaction/compactionLog", "compaction/compactionCq")
_TIERED = ("config/tieredStoreMetadata.json", "tiered_index_file", "tieredstore")
_CONFIG = "config"
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Newer:
    """A file or directory of RocketMQ 5."""

    place: str  # below the store's root
    what: str  # its purpose
    reading: str  # consequence for a reader; empty if it lacks nothing
    # Topics and queues are kept there: topics missing from ``topics.json`` and ``consumequeue`` are
    # not deleted ones.
    has_topics: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" + (f": {self.reading}" if self.reading else "")


def find_newer(root: str) -> list[Newer]:
    """Return the remains of RocketMQ 5 in a store, in a fixed order.

    Unreadable ones count as missing: their users fail to read them.
    """
    try:
        names = set(os.listdir(root))  # noqa: PTH208 - names alone
    except OSError:
        return []
    found = []
    for name in _ROCKSDB_QUEUES:
        if name in names and _is_rocksdb(Path(root, name)):
            reading = "queues are made from the log, without what the log no longer has"
            found.append(Newer(name, "consume queues of RocksDB", reading, has_topics=True))
    if paths.CONSUME_QUEUE in names:
        found += _long_topics(root)
    if _BATCH_QUEUES in names:
        topics = [path.name for path in _children(Path(root, _BATCH_QUEUES)) if _children(path)]
        if topics:
            reading = (
                "a record of several messages is one, with all of them in its body; place, key "
                "and scan find each, the queue has those up to its first gap"
            )
            what = f"batch consume queues of {_shown(topics)}"
            found.append(Newer(_BATCH_QUEUES, what, reading))
    if _TIMER_LOG in names and any(map(_has_timer_unit, _children(Path(root, _TIMER_LOG)))):
        reading = "messages that wait for their time are in the topic rmq_sys_wheel_timer"
        found.append(Newer(_TIMER_LOG, "messages of the timer wheel", reading))
    for place in _COMPACTION:
        if place.partition("/")[0] in names and _children(Path(root, place)):
            reading = "queues have what the log has, compacted or not"
            found.append(Newer(place, "logs of compacted topics", reading))
    for place in _TIERED:
        if place.partition("/")[0] in names and os.path.lexists(Path(root, place)):
            reading = "messages that only the tiered storage has are missing"
            found.append(Newer(place, "tiered storage", reading))
    if _CONFIG in names:
        found += [
            Newer(f"{_CONFIG}/{path.name}", "configuration in RocksDB", "it is not read", True)
            for path in _children(Path(root, _CONFIG))
            if _is_rocksdb(path)
        ]
    return found


def refuse_newer(root: str, found: list[Newer]) -> None:
    """Raise ``IncompatibleStoreError`` for a store with any remains of RocketMQ 5."""
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise IncompatibleStoreError(
            f"{Path(root, found[0].place)}: {found[0].what}, of RocketMQ 5{more}: "
            "open with mode 'r'"
        )


def _children(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _is_rocksdb(path: Path) -> bool:
    return os.path.lexists(Path(path, _ROCKSDB_CURRENT))


def _long_topics(root: str) -> list[Newer]:
    """Return the topics whose names exceed what a record of 4.9.3 can hold."""
    topics = [
        path.name
        for path in _children(Path(root, paths.CONSUME_QUEUE))
        if paths.is_stored_topic_name(path.name)
        and len(path.name.encode()) > paths.TOPIC_MAX_LENGTH
    ]
    if not topics:
        return []
    what = f"a topic longer than {paths.TOPIC_MAX_LENGTH}, {_shown(topics)}"
    return [Newer(paths.CONSUME_QUEUE, what, "")]


def _shown(topics: list[str]) -> str:
    shown = [name if len(name) <= 60 else f"{name[:57]}..." for name in topics[:_NAMES_SHOWN]]
    more = f" and {len(topics) - _NAMES_SHOWN} more" if len(topics) > _NAMES_SHOWN else ""
    return ", ".join(shown) + more


def _has_timer_unit(path: Path) -> bool:
    """Whether a file of the timer's log has ever had a message."""
    try:
        with open_regular(path) as file:
            return any(file.read(_TIMER_UNIT_BYTES))
    except OSError:
        return False
