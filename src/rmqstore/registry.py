"""The topics of an open store from its files: ``topics.json``, and those deleted.

Source: ``broker/topic/TopicConfigManager.java``.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Never

from rmqstore import paths
from rmqstore.brokerfiles.configfile import ConfigFile, ReplacedError
from rmqstore.brokerfiles.topics import TopicConfig, TopicTable
from rmqstore.errors import PutError, StoreCorruptError
from rmqstore.syncing import SyncError
from rmqstore.types import PutStatus
from rmqstore.warn import log_warning

__all__ = ["TopicRegistry"]


class TopicRegistry:
    """``topics.json`` and our ``rmqstore-deleted.json``, each saved at once when it changes.

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
    lock : threading.Lock
        Held while an entry of either file is changed.
    watcher : callable or None
        Called with a topic's name and its entry after a change, ``None`` for one that is gone.
    """

    def __init__(
        self, root: str, *, lenient: bool, sync_failed: Callable[[SyncError], Never] | None = None
    ) -> None:
        self._root = root
        self._sync_failed = sync_failed
        self._lenient = lenient
        self._deleted_file = ConfigFile(Path(root, paths.DELETED_TOPICS))
        self.lock = threading.Lock()
        self.watcher: Callable[[str, TopicConfig | None], object] | None = None
        self.deleted = self._read(lambda: self._deleted_file.load(_deleted_topics)) or {}
        self._table = self._read(lambda: TopicTable.load(root)) or TopicTable(root)

    def _read(self, load: Any) -> Any:
        try:
            return load()
        except StoreCorruptError as error:
            if not self._lenient:
                raise
            log_warning("%s", error)
            return None

    def reload(self) -> None:
        """Read ``topics.json`` again, as its owner may have changed it."""
        with self.lock:
            if not self._table.file.is_current():
                self._read(self._table.reload)

    def __iter__(self) -> Iterator[TopicConfig]:
        """Iterate over the entries whose names are valid for topics."""
        for entry in self._table:
            if paths.is_stored_topic_name(entry.topic_name):
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
        return self._table.get(name)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of ``topics.json``."""
        with self.lock:
            return self._table.to_json()

    def put(self, entry: TopicConfig) -> None:
        """Enter a topic and save; if that fails, the entry is removed again."""
        before = self._table.get(entry.topic_name)
        self._table.put(entry)
        self._changed(entry.topic_name)
        try:
            self._save(self._table.save, lambda: self._restore(entry.topic_name, before))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise PutError(
                f"{self._table.file.path}: the topic {entry.topic_name!r} cannot be entered: "
                f"{error.strerror}",
                status=PutStatus.DISK_FULL if full else PutStatus.UNKNOWN_ERROR,
                errno=error.errno,
            ) from error

    def enter(self, entry: TopicConfig) -> None:
        """Enter a topic that is not there; :meth:`save` is called later."""
        if self._table.get(entry.topic_name) is None:
            self._table.put(entry)

    def save(self) -> None:
        """Write ``topics.json`` without the lock; if that fails, the entries stay."""
        self._save(self._table.save, lambda: None)

    def remove(self, name: str) -> None:
        """Remove a topic's entry and save; if that fails, the entry is restored."""
        before = self._table.get(name)
        if self._table.remove(name):
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

    def _restore(self, name: str, before: TopicConfig | None) -> None:
        if before is None:
            self._table.remove(name)
        else:
            self._table.put(before)
        self._changed(name)

    def _changed(self, name: str) -> None:
        if self.watcher is not None:
            self.watcher(name, self._table.get(name))

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


def _deleted_topics(data: Any) -> dict[str, int]:
    topics = data.get("topics") if isinstance(data, dict) else None
    if not isinstance(topics, dict) or not all(
        isinstance(name, str) and isinstance(offset, int) for name, offset in topics.items()
    ):
        raise ValueError("'topics' is no map of str to int")
    return dict(topics)
