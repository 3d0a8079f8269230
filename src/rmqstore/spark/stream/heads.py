"""Present first offsets and ends of a stream's queues, at little cost.

An idle stream asks for them a hundred times a second. The stores are kept open for reading; times
of directories show new topics and queues, and recreated stores or topics; of very many queues a
few are checked each time, in turn, until one has something new. Once nothing more is put none
is checked: the position where the log's next record will begin shows a change by no longer being
empty.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import rmqstore
from rmqstore.errors import StoreNotFoundError
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.spark.read.options import Selection, selected_queues
from rmqstore.spark.stream.offsets import (
    HEAD_BYTES,
    Deletions,
    LogStart,
    LogStarts,
    QueueName,
    record_at,
)
from rmqstore.store import MessageStore

__all__ = ["Bounds", "Heads"]

Bounds = dict[QueueName, tuple[int, int]]

_LIGHT = "%LMQ%"  # queues of records that are in other queues as well
_LOOK_SECONDS = 0.002  # of a check, or a tenth of the time since the last one
_LOOK_PART = 0.1
_SETTLE_SECONDS = 1.0  # until records of the log are in their queues
_QUIET_SECONDS = 30.0  # until the queues are checked in any case
_YOUNG_NS = 50_000_000  # a directory's time is never older than its change by more than this
_TRIES = 3  # to find the start of the log while retention moves it
_ONE_STORE = "."


class Heads:
    """First offsets and ends of the selected queues, for one process; does not pickle.

    ``discovery`` is the interval in seconds of checks for new topics and queues.
    """

    def __init__(self, selection: Selection, discovery: float) -> None:
        # as last seen: the first offset, and the one after the last message
        self.bounds: Bounds = {}
        # queues of a store or topic replaced since the first check
        self.recreated: set[QueueName] = set()
        self.version = 0  # changes whenever ``bounds`` does
        self._selection = selection
        self._discovery = discovery
        one = len(selection.stores) == 1
        self._watched = [
            _WatchedStore(_ONE_STORE if one else path, path, selection) for path in selection.stores
        ]
        self._names: list[tuple[QueueName, _WatchedStore]] = []
        self._next = 0
        self._looked = self._discovered = self._last_seen = self._quiet = float("-inf")
        self._unchanged = 0  # queues checked since the last change
        self._settled = False  # the log has not grown for a while

    def close(self) -> None:
        """Close the stores; the next check reopens them."""
        for watched in self._watched:
            watched.close()
        self._discovered = float("-inf")

    def names(self) -> tuple[str, ...]:
        """Return the names of the stores in offsets."""
        return tuple(watched.name for watched in self._watched)

    def stores(self) -> Iterator[tuple[str, MessageStore]]:
        """Yield the stores with their names in offsets."""
        for watched in self._watched:
            yield watched.name, watched.opened()

    def store(self, name: str) -> MessageStore | None:
        """Return a store by its name in offsets."""
        return next((each.opened() for each in self._watched if each.name == name), None)

    def deletions(self) -> Deletions:
        """Return the end of the log at the last deletion of each topic, by store and topic."""
        found = {each.name: each.deletions for each in self._watched}
        return {store: topics for store, topics in found.items() if topics}

    def log_starts(self, known: LogStarts) -> tuple[LogStarts, set[str]]:
        """Return the first records of the logs, and the replaced stores.

        A known record stays while the log has it. Stores with empty queues have none: their first
        may be partly written. A log that begins after the known record counts as the same store's.
        """
        begun = {name.store for name, (_, high) in self.bounds.items() if high}
        found, replaced = dict(known), set()
        for watched in self._watched:
            before = found.pop(watched.name, None)
            if before is None and watched.name not in begun:
                continue
            start = watched.log_start(before)
            if start is not None:
                found[watched.name] = start
            if before is None or before == start:
                continue
            if start is None or start.offset <= before.offset:
                replaced.add(watched.name)
        return found, replaced

    def selects(self, name: QueueName) -> bool:
        """Whether the options select a queue, existing or not."""
        return any(each.name == name.store for each in self._watched) and _selects(
            self._selection, name.topic, name.queue_id
        )

    def look(self, *, everything: bool = False) -> None:
        """Update the bounds: all with ``everything``, else as many as time allows.

        All are checked once one has changed. Raises ``StoreNotFoundError`` if a store is
        gone.
        """
        now = time.monotonic()
        if everything or now - self._discovered >= self._discovery:
            everything = self._discover() or everything
            self._discovered = time.monotonic()
        if self._quiet > now - _QUIET_SECONDS and not everything:
            if all(watched.is_at_end() for watched in self._watched):
                self._looked = now
                return
            everything = True
            self._settled = False
            self._quiet = float("-inf")
        until = now + max(_LOOK_SECONDS, _LOOK_PART * (now - self._looked))
        for _ in range(len(self._names)):
            self._next = (self._next + 1) % len(self._names)
            name, watched = self._names[self._next]
            found = watched.opened().queue_bounds(name.topic, name.queue_id)
            self._unchanged += 1
            if self.bounds.get(name) != found:
                self.bounds[name] = found
                self.version += 1
                self._unchanged = 0
                self._settled = False
                everything = True
            if not everything and time.monotonic() > until:
                break
        self._looked = time.monotonic()
        if self._unchanged >= len(self._names):
            self._all_unchanged()

    def _all_unchanged(self) -> None:
        """Note that no queue has changed since the first of them was checked.

        The log's end has to be the same at two times, some time apart, and then the queues are
        checked once more: they have all of its records by that time.
        """
        now = time.monotonic()
        self._unchanged = 0
        if self._settled:
            self._quiet = now
        elif now - self._last_seen >= _SETTLE_SECONDS:
            self._last_seen = now
            ends = [watched.ends_as_before() for watched in self._watched]
            self._settled = all(ends)

    def _discover(self) -> bool:
        """Find new queues, and recreated stores and topics; return whether there was any."""
        changed = [watched for watched in self._watched if watched.look()]
        if not changed:
            return False
        for watched in changed:
            self.recreated |= watched.recreated
        self._names = [(name, watched) for watched in self._watched for name in watched.queues]
        known = {name for name, _ in self._names}
        for name in [name for name in self.bounds if name not in known]:
            del self.bounds[name]
        self._next = self._unchanged = 0
        self._settled = False
        self._quiet = float("-inf")
        self.version += 1
        return True


class _WatchedStore:
    """A store kept open, and the state of its directories when it was opened."""

    def __init__(self, name: str, path: str, selection: Selection) -> None:
        self.name = name
        self.queues: tuple[QueueName, ...] = ()
        self.recreated: set[QueueName] = set()
        self.deletions: dict[str, int] = {}
        self._path = path
        self._selection = selection
        self._store: MessageStore | None = None
        self._signature: dict[str, tuple[int, int]] | None = None
        self._inodes: dict[str, int] = {}
        self._end = -1
        self._outside = {
            key: Path(path, key) for key in ("", paths.COMMIT_LOG, paths.CONSUME_QUEUE)
        }
        self._directories = self._outside

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def opened(self) -> MessageStore:
        if self._store is None:
            self._store = rmqstore.open(self._path, "r")
        return self._store

    def ends_as_before(self) -> bool:
        """Update the end of the log; return whether it is unchanged."""
        before, self._end = self._end, self.opened().scan().extent(queued=False).stop
        return self._end == before and self.is_at_end()

    def is_at_end(self) -> bool:
        """Whether nothing has been written at the log's end."""
        size = self.opened().config.mapped_file_size_commit_log
        start = self._end - self._end % size
        try:
            file = open_regular(Path(self._path, paths.COMMIT_LOG, paths.offset_file_name(start)))
        except FileNotFoundError:
            return True
        with file:
            return not any(os.pread(file.fileno(), HEAD_BYTES, self._end - start))

    def log_start(self, known: LogStart | None) -> LogStart | None:
        """Return the log's first record: the known one, if the log still has it."""
        for _ in range(_TRIES):
            try:
                if known is not None and record_at(self._path, known.offset) == known.record:
                    return known
            except FileNotFoundError:
                pass
            try:
                files = [each.name for each in Path(self._path, paths.COMMIT_LOG).iterdir()]
            except FileNotFoundError:
                raise StoreNotFoundError(
                    f"{self._path}: no store: there is no {paths.COMMIT_LOG}/ in it any more; put "
                    "it back, or begin with another checkpointLocation"
                ) from None
            offsets = [paths.parse_offset_file_name(name) for name in files]
            first = min((offset for offset in offsets if offset is not None), default=-1)
            if first < 0:
                return None
            try:
                record = record_at(self._path, first)
            except FileNotFoundError:  # removed by retention
                continue
            return LogStart(first, record) if record else None
        return known  # found next time

    def look(self) -> bool:
        """Reopen the store if its directories have changed; return whether they have."""
        self.recreated = set()
        if self._signature is not None and self._signature == _signatures(self._directories):
            return False
        began = time.time_ns()
        before = self.queues
        # A store open for reading does not notice that a topic's files were replaced.
        self.close()
        outside = _signatures(self._outside)
        found = selected_queues(self.opened(), self._selection)
        self.queues = tuple(
            QueueName(self.name, topic, queue_id)
            for topic, queue_ids in found.items()
            for queue_id in queue_ids
            if _selects(self._selection, topic, queue_id)
        )
        self.deletions = {
            topic: end
            for topic, end in self.opened().deleted_topics.items()
            if _selects_topic(self._selection, topic)
        }
        self._directories = self._outside | {
            f"{paths.CONSUME_QUEUE}/{topic}": Path(self._path, paths.CONSUME_QUEUE, topic)
            for topic in dict.fromkeys(name.topic for name in self.queues)
        }
        signature = _signatures(self._directories) | outside
        self._note_recreated(before, signature)
        settled = all(at < began - _YOUNG_NS for _, at in signature.values())
        self._signature = signature if settled else None
        return True

    def _note_recreated(
        self, before: tuple[QueueName, ...], signature: dict[str, tuple[int, int]]
    ) -> None:
        inodes = {key: inode for key, (inode, _) in signature.items() if inode}
        replaced = any(
            key in self._inodes and self._inodes[key] != inodes.get(key)
            for key in ("", paths.COMMIT_LOG)
        )
        for name in before:
            key = f"{paths.CONSUME_QUEUE}/{name.topic}"
            known = self._inodes.get(key)
            if replaced or (known is not None and inodes.get(key, known) != known):
                self.recreated.add(name)
        self._inodes = inodes


def _signatures(directories: dict[str, Path]) -> dict[str, tuple[int, int]]:
    """Return inodes and times of directories; zeros if missing."""
    found: dict[str, tuple[int, int]] = {}
    for key, path in directories.items():
        try:
            status = path.stat()
        except OSError:
            found[key] = 0, 0
            continue
        # In the store itself and in its log other entries come and go too.
        changed = status.st_mtime_ns if key.startswith(paths.CONSUME_QUEUE) else 0
        found[key] = status.st_ino, changed
    return found


def _selects(selection: Selection, topic: str, queue_id: int) -> bool:
    if selection.queues is not None:
        return queue_id in selection.queues.get(topic, ())
    return _selects_topic(selection, topic)


def _selects_topic(selection: Selection, topic: str) -> bool:
    if selection.queues is not None:
        return topic in selection.queues
    if selection.topics is not None:
        return topic in selection.topics
    if topic.startswith(_LIGHT):
        return False
    return selection.topic_pattern is None or bool(re.fullmatch(selection.topic_pattern, topic))
