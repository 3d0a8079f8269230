"""The topics of an open store from its files: ``topics.json``, and those deleted.

Source: ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Never

from rmqstore import paths
from rmqstore._core import CallLock
from rmqstore.brokerfiles.configfile import ConfigFile, ReplacedError
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.errors import PutError, StoreCorruptError
from rmqstore.syncing import SyncError
from rmqstore.types import PutStatus
from rmqstore.warn import log_warning

__all__ = ["TopicRegistry", "check_deleted_topics"]


Change = Callable[[TopicConfig | None], TopicConfig | None]


class _Batch:
    """Entries that one write of ``topics.json`` makes durable together."""

    def __init__(self) -> None:
        self.entries: dict[str, TopicConfig] = {}
        self.settled = False
        self.error: Exception | None = None


class TopicRegistry:
    """``topics.json`` and our ``rmqstore-deleted.json``, each on the disk once it has changed.

    Parameters
    ----------
    root : str
        Directory of the store.
    lenient : bool
        Ignore a torn file: for read-only stores.
    sync_failed : callable, optional
        Called with the error of a failed sync; raises the caller's exception.  Without it, as for
        read-only stores, the error itself is raised.

    Attributes
    ----------
    deleted : dict of str to int
        Deleted topics, and the log's end at that time. Records below it do not bring the queues
        back when a recovery completes them from the log.
    lock : CallLock
        Held while an entry of either file is changed.
    watchers : list of callable
        Called under the lock with a topic's name and its entry once it is there or has changed,
        ``None`` for one that is gone.
    """

    def __init__(
        self, root: str, *, lenient: bool, sync_failed: Callable[[SyncError], Never] | None = None
    ) -> None:
        self._root = root
        self._sync_failed = sync_failed
        self._lenient = lenient
        self._deleted_file = ConfigFile(Path(root, paths.DELETED_TOPICS))
        self.lock = CallLock()
        self.watchers: list[Callable[[str, TopicConfig | None], object]] = []
        self._writing = CallLock()  # held while a batch is written; the lock comes after it
        self._next = _Batch()
        # Entries of the table that are not on the disk yet: what is visible until then, and who
        # writes them.
        self._pending: dict[str, tuple[TopicConfig | None, _Batch]] = {}
        self.deleted: dict[str, int] = {}
        self._read(self._load_deleted)
        self._table = self._read(lambda: TopicTable.load(root)) or TopicTable(root)

    def _read(self, load: Any) -> Any:
        try:
            return load()
        except StoreCorruptError as error:
            if not self._lenient:
                raise
            log_warning("%s", error)
            return None

    def _load_deleted(self) -> None:
        self.deleted = self._deleted_file.load(_deleted_topics) or {}

    def reload(self) -> None:
        """Read both files again, as their owner may have changed them."""
        with self.lock:
            if not self._table.file.is_current():
                self._read(self._table.reload)
            if not self._deleted_file.is_current():
                self._read(self._load_deleted)

    def __iter__(self) -> Iterator[TopicConfig]:
        """Iterate over the entries whose names are valid for topics."""
        for written in self._table:
            pending = self._pending.get(written.topic_name)
            entry = written if pending is None else pending[0]
            if entry is not None and paths.is_stored_topic_name(entry.topic_name):
                yield entry

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._table)

    def listed(self) -> list[str] | None:
        """Return the names in ``topics.json``; ``None`` if it is missing or was torn."""
        if self._table.file.loaded_from != self._table.file.path:
            return None
        return [entry.topic_name for entry in self]

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic's entry."""
        entry = self._table.get(name)
        pending = self._pending.get(name)
        return entry if pending is None else pending[0]

    def json_of(self, table: object) -> dict[str, Any]:
        """Return the JSON of ``topics.json`` around the entries in whichever form."""
        with self.lock:
            return self._table.json_of(table)

    def put(self, entry: TopicConfig) -> None:
        """Enter a topic, or change its entry, at once; called with the lock held.

        Raises
        ------
        PutError
            The file cannot be written: nothing has changed.
        """
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
        """Enter the topics that are not there; all are on the disk when this returns."""
        self.change({entry.topic_name: partial(_unless_there, entry) for entry in entries})

    def change(self, changes: Mapping[str, Change]) -> None:
        """Enter topics or change their entries, and wait until all are on the disk.

        One thread writes at a time, and the entries that come meanwhile are one write together.
        Until it is written an entry is not visible; if that fails it never is. Called without
        the lock.

        Parameters
        ----------
        changes : dict of str to callable
            By name of the topic: called under the lock with the entry that is there, or ``None``;
            returns the new one, or ``None`` where nothing changes.

        Raises
        ------
        PutError
            The file cannot be written: nothing has changed.
        """
        batches: list[_Batch] = []
        with self.lock:
            for name, change in changes.items():
                there = self._table.get(name)
                entry = change(there)
                if entry is not None:
                    visible = self._pending[name][0] if name in self._pending else there
                    self._pending[name] = (visible, self._next)
                    self._next.entries[name] = entry
                    self._table.put(entry)
                pending = self._pending.get(name)
                if pending is None:
                    self._changed(name)
                elif pending[1] not in batches:
                    batches.append(pending[1])
        for batch in batches:
            self._write(batch)
            if batch.error is not None:
                self._refuse(next(iter(changes)), batch.error)

    def _write(self, batch: _Batch) -> None:
        """Write the file with a batch's entries, unless another thread did meanwhile."""
        with self._writing:
            if batch.settled:
                return
            with self.lock:
                if self._next is batch:
                    self._next = _Batch()
            try:
                self._table.save()
            except Exception as error:
                self._settle(batch, error)
            else:
                self._settle(batch, None)

    def _settle(self, batch: _Batch, error: Exception | None) -> None:
        """Make a batch's entries visible; if they could not be written, restore those before."""
        written = error is None or isinstance(error, ReplacedError)
        with self.lock:
            batch.settled, batch.error = True, error
            for name, entry in batch.entries.items():
                if name not in self._pending:
                    continue  # it changed in another way
                visible, last = self._pending[name]
                if last is not batch:  # changed once more since
                    self._pending[name] = (entry if written else visible, last)
                    continue
                del self._pending[name]
                if written:
                    pass
                elif visible is None:
                    self._table.remove(name)
                else:
                    self._table.put(visible)
            for name in batch.entries:
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
        """Enter a topic that is not there; :meth:`save` is called later."""
        if self._table.get(entry.topic_name) is None:
            self._table.put(entry)
            self._changed(entry.topic_name)

    def leave(self, names: Iterable[str]) -> None:
        """Take topics without messages out that may not be there; :meth:`save` is called later."""
        with self.lock:
            for name in names:
                if self._table.remove(name):
                    self._forget_pending(name)
                    self._changed(name)

    def save(self) -> None:
        """Write ``topics.json`` without the lock; if that fails, the entries stay."""
        self._save(self._table.save, lambda: None)

    def remove(self, name: str) -> None:
        """Remove a topic's entry and save; if that fails, the entry is restored."""
        before = self.get(name)
        if self._table.remove(name):
            self._forget_pending(name)
            self._changed(name)
            self._save(self._table.save, lambda: self._restore(name, before))

    def note_deleted(self, name: str, log_end: int) -> None:
        """Note that a topic's records below a log offset are no longer in its queues."""
        before = dict(self.deleted)
        self.deleted[name] = log_end

        def restore() -> None:
            self.deleted.clear()
            self.deleted.update(before)

        self._save(lambda: self._deleted_file.save({"topics": self.deleted}), restore)

    def settle(self, log_end: int, gone: list[str]) -> None:
        """Lower notes beyond the log's end, where records are put next, and add others.

        ``gone``: topics that a broker deleted, which leaves no note.
        """
        settled = {name: min(offset, log_end) for name, offset in self.deleted.items()}
        settled.update(dict.fromkeys(gone, log_end))
        if settled != self.deleted:
            self._deleted_file.save({"topics": settled})
            self.deleted.update(settled)

    def _forget_pending(self, name: str) -> None:
        """Leave a topic out of the batch that would enter it: it changes in another way."""
        pending = self._pending.pop(name, None)
        if pending is not None:
            del pending[1].entries[name]

    def _restore(self, name: str, before: TopicConfig | None) -> None:
        if before is None:
            self._table.remove(name)
        else:
            self._table.put(before)
        self._changed(name)

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


def _unless_there(entry: TopicConfig, there: TopicConfig | None) -> TopicConfig | None:
    """Return the entry for a topic that there is not."""
    return entry if there is None else None


def check_deleted_topics(root: str) -> None:
    """Raise if the file of a store's deleted topics cannot be read.

    Raises
    ------
    StoreCorruptError
        What is wrong with it, and the way on.
    """
    ConfigFile(Path(root, paths.DELETED_TOPICS)).load(_deleted_topics)


def _deleted_topics(data: Any) -> dict[str, int]:
    topics = data.get("topics") if isinstance(data, dict) else None
    if not isinstance(topics, dict) or not all(
        isinstance(name, str) and isinstance(offset, int) for name, offset in topics.items()
    ):
        raise ValueError("'topics' is no map of str to int")
    return dict(topics)
