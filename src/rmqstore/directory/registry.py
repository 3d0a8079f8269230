"""Topics of an open store, from ``topics.json`` and the file of deleted topics.

Source: ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Never

from rmqstore._core import CallLock
from rmqstore.base.syncing import SyncError
from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.configfile import ConfigFile, ReplacedError
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.errors import PutError, StoreCorruptError
from rmqstore.files import paths
from rmqstore.types import PutStatus

__all__ = ["TopicRegistry", "check_deleted_topics", "deleted_topics"]


Change = Callable[[TopicConfig | None], TopicConfig | None]


class _Batch:
    """Entries made durable by one write of ``topics.json``."""

    def __init__(self) -> None:
        self.entries: dict[str, TopicConfig] = {}
        self.before: dict[str, TopicConfig | None] = {}  # visible while it is written
        self.settled = False
        self.error: Exception | None = None


class TopicRegistry:
    """``topics.json`` and our ``rmqstore-deleted.json``, each written when it changes.

    ``lenient``, for read-only stores: ignore a torn file. ``sync_failed`` raises the caller's
    exception for a failed sync, which is raised itself by default; ``check_owned`` is called
    before a file is replaced.
    """

    def __init__(
        self,
        root: str,
        *,
        lenient: bool,
        sync_failed: Callable[[SyncError], Never] | None = None,
        check_owned: Callable[[], object] = lambda: None,
    ) -> None:
        self._root = root
        self._sync_failed = sync_failed
        self.lenient = lenient
        self._deleted_file = ConfigFile(Path(root, paths.DELETED_TOPICS), check_owned)
        self.lock = CallLock()  # held while an entry of either file is changed
        # Called under the lock with a topic's name and its new entry, ``None`` for a removed one.
        self.watchers: list[Callable[[str, TopicConfig | None], object]] = []
        self._writing = CallLock()  # held while a batch is written; the lock comes after it
        self._next = _Batch()  # entered in the table only when its own write begins
        self._written = _Batch()  # entries in the table, not visible yet
        # Deleted topics, and the log's end at that time. Records below it do not restore the queues
        # when a recovery completes them from the log.
        self.deleted: dict[str, int] = {}
        self._read(self._load_deleted)
        self._table = self._read(lambda: TopicTable.load(root)) or TopicTable(root)
        self._table.file.check_owned = check_owned

    def _read(self, load: Any) -> Any:
        try:
            return load()
        except StoreCorruptError as error:
            if not self.lenient:
                raise
            log_warning("%s", error)
            return None

    def _load_deleted(self) -> None:
        self.deleted = self._deleted_file.load(_deleted_topics) or {}

    def reload(self) -> None:
        """Reread both files, as their owner may have changed them."""
        with self.lock:
            if not self._table.file.is_current():
                self._read(self._table.reload)
            if not self._deleted_file.is_current():
                self._read(self._load_deleted)

    def refresh(self) -> None:
        """Reread both files if another process owns them."""
        if self.lenient:
            self.reload()

    def current_deleted(self) -> dict[str, int]:
        """Return the deleted topics, up to date, each with the log's end at its deletion."""
        self.refresh()
        return self.deleted

    def __iter__(self) -> Iterator[TopicConfig]:
        """Iterate over the entries whose names are valid for topics."""
        before = self._written.before
        for there in self._table:
            entry = before.get(there.topic_name, there)
            if entry is not None and paths.is_stored_topic_name(entry.topic_name):
                yield entry

    def __len__(self) -> int:
        """Return the number of entries, including those about to be written."""
        return len(self._table) + sum(name not in self._table for name in list(self._next.entries))

    def listed(self) -> list[str] | None:
        """Return the names in ``topics.json``, without which a topic was deleted.

        ``None`` if the file is missing or was torn, or no queue has a file: a broker then
        dispatches the whole log, whatever topics it knows.
        """
        if self._table.file.loaded_from != self._table.file.path:
            return None
        if not _has_file(Path(self._root, paths.CONSUME_QUEUE), 2):
            return None
        return [entry.topic_name for entry in self]

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic's entry."""
        there = self._table.get(name)
        return self._written.before.get(name, there)

    def json_of(self, table: object) -> dict[str, Any]:
        """Return the JSON of ``topics.json`` around a table in any form.

        Takes no lock: a deletion holds it until the files are gone.
        """
        return self._table.json_of(table)

    def put(self, entry: TopicConfig) -> None:
        """Enter or change a topic at once; the lock is held. A ``PutError`` changes nothing."""
        name = entry.topic_name
        before = self.get(name)
        self._forget_pending(name)
        self._table.put(entry)
        try:
            self._save(self._table.save, lambda: self._restore(name, before))
        except OSError as error:
            self._refuse(name, error)
        self._changed(name)

    def make(self, *entries: TopicConfig) -> None:
        """Enter missing topics; all are on the disk when this returns."""
        self.change({entry.topic_name: partial(_unless_there, entry) for entry in entries})

    def change(self, changes: Mapping[str, Change]) -> None:
        """Enter or change topics, and wait until all are on the disk, where they become visible.

        One thread writes at a time, and changes made meanwhile go into its next write. The lock
        must not be held: ``changes`` run under it, take the entry or ``None``, and return the new
        one, or ``None`` for no change. A ``PutError`` has changed nothing.
        """
        with self.lock:
            entries = {}
            for name, change in changes.items():  # one that raises has changed nothing
                entry = change(self._next.entries.get(name) or self._table.get(name))
                if entry is not None:
                    entries[name] = entry
            self._next.entries.update(entries)
            waited = {name: self._batch_of(name) for name in changes}
            for name, batch in waited.items():
                if batch is None:
                    self._changed(name)
        for name, batch in waited.items():
            if batch is not None:
                self._write(batch)
                if batch.error is not None:
                    self._refuse(name, batch.error)

    def _batch_of(self, name: str) -> _Batch | None:
        """Return the batch that makes a topic's newest entry durable; the lock is held."""
        if name in self._next.entries:
            return self._next
        return self._written if name in self._written.before else None

    def _write(self, batch: _Batch) -> None:
        """Write the file with a batch's entries, unless another thread did meanwhile."""
        with self._writing:
            if batch.settled:
                return
            with self.lock:
                self._next, self._written = _Batch(), batch
                for name, entry in batch.entries.items():
                    batch.before[name] = self._table.get(name)
                    self._table.put(entry)
            error: Exception | None = InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
            try:
                self._table.save()
                error = None
            except Exception as failed:
                error = failed
            finally:
                self._settle(batch, error)

    def _settle(self, batch: _Batch, error: Exception | None) -> None:
        """Make a batch's entries visible; if writing failed, restore the previous ones."""
        written = error is None or isinstance(error, ReplacedError)
        with self.lock:
            batch.settled, batch.error = True, error
            before, batch.before = batch.before, {}
            for name, entry in before.items():
                if not written:
                    self._enter(name, entry)
                self._changed(name)

    def _refuse(self, name: str, error: Exception) -> Never:
        """Raise the error of a write; a failed sync is final for the store."""
        if isinstance(error, SyncError) and self._sync_failed is not None:
            self._sync_failed(error)
        if not isinstance(error, OSError):
            raise error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise PutError(
            f"{self._table.file.path}: the topic {name!r} cannot be entered: {error.strerror}",
            status=PutStatus.DISK_FULL if full else PutStatus.UNKNOWN_ERROR,
            errno=error.errno,
        ) from error

    def enter(self, entry: TopicConfig) -> None:
        """Enter a missing topic; :meth:`save` is called later."""
        if self._table.get(entry.topic_name) is None:
            self._table.put(entry)
            self._changed(entry.topic_name)

    def withdraw(self, name: str) -> None:
        """Remove an entered topic; the lock is held, and :meth:`save` is called later."""
        if self._table.remove(name):
            self._changed(name)

    def leave(self, names: Iterable[str]) -> None:
        """Remove topics without messages, if present; :meth:`save` is called later."""
        with self.lock:
            for name in names:
                self._forget_pending(name)
                self.withdraw(name)

    def save(self) -> None:
        """Write ``topics.json`` without the lock; if that fails, the entries stay."""
        self._save(self._table.save, lambda: None)

    def remove(self, name: str, log_end: int) -> None:
        """Remove a topic's entry and note its deletion; if either fails, restore the entry."""
        before = self.get(name)
        self._forget_pending(name)
        if self._table.remove(name):
            self._changed(name)
            self._save(self._table.save, lambda: self._restore(name, before))
        try:
            self.note_deleted(name, log_end)
        except BaseException:
            self._restore(name, before)
            with contextlib.suppress(OSError):
                self._table.save()
            raise

    def note_deleted(self, name: str, log_end: int) -> None:
        """Note that a topic's records below a log offset no longer have units in its queues."""
        before = dict(self.deleted)
        self.deleted[name] = log_end

        def restore() -> None:
            self.deleted.clear()
            self.deleted.update(before)

        self._save(lambda: self._deleted_file.save({"topics": self.deleted}), restore)

    def settle(self, log_end: int, gone: list[str]) -> None:
        """Lower notes beyond the log's end, where the next records go, and add others.

        ``gone``: topics that a broker deleted, which leaves no note.
        """
        settled = {name: min(offset, log_end) for name, offset in self.deleted.items()}
        settled.update(dict.fromkeys(gone, log_end))
        if settled != self.deleted:
            self._deleted_file.save({"topics": settled})
            self.deleted.update(settled)

    def _forget_pending(self, name: str) -> None:
        """Drop a topic from the batches: another change supersedes it at once."""
        self._next.entries.pop(name, None)
        self._written.before.pop(name, None)

    def _restore(self, name: str, before: TopicConfig | None) -> None:
        self._enter(name, before)
        self._changed(name)

    def _enter(self, name: str, entry: TopicConfig | None) -> None:
        if entry is None:
            self._table.remove(name)
        else:
            self._table.put(entry)

    def _changed(self, name: str) -> None:
        entry = self.get(name)
        for watcher in self.watchers:
            watcher(name, entry)

    def _save(self, save: Callable[[], None], restore: Callable[[], None]) -> None:
        """Save, keeping memory equal to the file; a failed sync is final for the store."""
        try:
            save()
        except BaseException as error:
            if not isinstance(error, ReplacedError):
                restore()
            if isinstance(error, SyncError) and self._sync_failed is not None:
                self._sync_failed(error)
            raise


def _has_file(directory: str | Path, depth: int) -> bool:
    """Whether any directory ``depth`` levels down has an entry."""
    try:
        with os.scandir(directory) as entries:
            return any(depth == 0 or _has_file(one.path, depth - 1) for one in entries)
    except OSError:
        return False


def _unless_there(entry: TopicConfig, there: TopicConfig | None) -> TopicConfig | None:
    """Return the entry if the topic is missing, else ``None``."""
    return entry if there is None else None


def check_deleted_topics(root: str) -> None:
    """Raise ``StoreCorruptError`` if the file of deleted topics is invalid."""
    deleted_topics(root)


def deleted_topics(root: str) -> dict[str, int]:
    """Return the deleted topics, each with the log's end at its deletion; as the check above."""
    return ConfigFile(Path(root, paths.DELETED_TOPICS)).load(_deleted_topics) or {}


def _deleted_topics(data: Any) -> dict[str, int]:
    topics = data.get("topics") if isinstance(data, dict) else None
    if not isinstance(topics, dict) or not all(
        isinstance(name, str) and isinstance(offset, int) for name, offset in topics.items()
    ):
        raise ValueError("'topics' is no map of str to int")
    return dict(topics)
