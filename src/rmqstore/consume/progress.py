"""Progress of the consumer groups in each queue: one table a store, and its file.

The file is the broker's own ``consumerOffset.json``, or ``lmqConsumerOffset.json`` with light
queues enabled.  An offset is never on the disk before the messages below it: the log is synced
first, as its end may be lost in a power failure, and new messages would take the lost ones'
offsets.

Source: ``broker/offset/ConsumerOffsetManager.java``, ``LmqConsumerOffsetManager.java``,
``broker/BrokerController.java``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rmqstore._core import CallLock, Core
from rmqstore.base.syncing import SyncError
from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.configfile import ReplacedError
from rmqstore.brokerfiles.offsets import Offsets, OffsetTable, check_names
from rmqstore.errors import StoreCorruptError, StoreFailedError
from rmqstore.files import paths
from rmqstore.services.base import Ownership, Service
from rmqstore.services.housekeeping import Housekeeper

__all__ = ["SAVE_SECONDS", "GroupProgress", "offset_file_name"]

SAVE_SECONDS = 5.0  # flushConsumerOffsetInterval

_NO_OFFSETS: Mapping[int, int] = MappingProxyType({})


def offset_file_name(root: str | os.PathLike[str], light_queues: bool | None) -> str:
    """Return the name of the file in force: with light queues, without, or the one written last."""
    light = light_queues
    if light is None:
        light = _written(root, paths.LMQ_CONSUMER_OFFSET_JSON) > _written(
            root, paths.CONSUMER_OFFSET_JSON
        )
    return paths.LMQ_CONSUMER_OFFSET_JSON if light else paths.CONSUMER_OFFSET_JSON


def _written(root: str | os.PathLike[str], name: str) -> int:
    """Return when a file was last written, -1 if it is missing."""
    latest = -1
    for file in (name, name + ".bak"):  # a broker, as it writes, has only the second
        try:
            latest = max(latest, Path(root, paths.CONFIG, file).stat().st_mtime_ns)
        except OSError:
            continue
    return latest


class GroupProgress(Service):
    """Offsets of all groups of an open store; every method may be called from many threads.

    If neither the file nor its ``.bak`` can be used, ``StoreCorruptError`` names both, and they
    stay as they are.
    """

    def __init__(
        self,
        core: Core,
        ownership: Ownership,
        housekeeper: Housekeeper,
        *,
        light_queues: bool | None,  # which of two files; None: the one written last
    ) -> None:
        self._core = core
        self._ownership = ownership
        self._housekeeper = housekeeper
        self._root = core.path
        # If set, another process owns the file: read when it changes; a torn one is no error.
        self._reading = core.mode == "r"
        self._light_queues = light_queues
        self._lock = CallLock()
        self._saving = CallLock()  # taken before ``_lock``
        self._changes = 0  # made, and how many of these are saved
        self._saved = 0
        self._at_once = False
        self._is_kept = False  # the file is written every few seconds
        self._unsaved: OSError | None = None
        self._was_read = False
        self._name = ""
        self._table = OffsetTable(self._root, paths.CONSUMER_OFFSET_JSON)
        self._count = 0  # 0 in a reader

    def read_files(self) -> None:
        """Read the file of a store open for writing."""
        self._name = self._file_name()
        self._table = self._load()
        self._table.file.check_owned = self._ownership.check  # called before it is replaced
        self._count = sum(map(len, self._table.offsets.values()))

    def stop(self) -> None:
        """Write the file a last time, with the offsets that others committed as they stopped."""
        if self._reading:
            return
        self._at_once = True  # no later save
        try:
            self.save()
        except StoreFailedError:
            pass  # the close itself reports it
        except OSError as error:
            self._unsaved = error

    def closed(self) -> None:
        """Raise if the offsets could not be written."""
        error, self._unsaved = self._unsaved, None
        if error is not None:
            raise error

    def _file_name(self) -> str:
        return offset_file_name(self._root, self._light_queues)

    def _load(self) -> OffsetTable:
        """Read the file, or the other of the two if only that exists."""
        table = OffsetTable.load(self._root, self._name)
        if table.file.loaded_from is None:
            light = self._name == paths.LMQ_CONSUMER_OFFSET_JSON
            other = paths.CONSUMER_OFFSET_JSON if light else paths.LMQ_CONSUMER_OFFSET_JSON
            if _written(self._root, other) >= 0:
                table.take_over(OffsetTable.load(self._root, other))
        return table

    def _reload(self) -> None:
        """Read another process's file; a torn one leaves the previous contents."""
        name = self._file_name()
        if name == self._name and self._table.file.is_current():
            return
        try:
            if name != self._name:
                self._table, self._name = OffsetTable.load(self._root, name), name
            else:
                self._table.reload()
            self._was_read = True
        except StoreCorruptError as error:
            if not self._was_read:
                raise  # an unreadable file must not count as empty
            log_warning("%s", error)

    def _offsets(self) -> Offsets:
        """Return the table, current; the lock is held."""
        if self._reading:
            self._reload()
        return self._table.offsets

    def get(self, topic: str, group: str) -> dict[int, int]:
        """Return a copy of a group's offsets in a topic: queue id to the next queue offset."""
        with self._lock:
            return dict(self._offsets().get((topic, group), _NO_OFFSETS))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets for a topic, in order."""
        with self._lock:
            return sorted(group for name, group in self._offsets() if name == topic)

    def names(self) -> list[tuple[str, str]]:
        """Return the pairs of topic and group with offsets, in no order."""
        with self._lock:
            return list(self._offsets())

    def all(self) -> Offsets:
        """Return ``(topic, group)`` to ``{queue id: offset}``, of all groups; a copy."""
        with self._lock:
            return {names: dict(queues) for names, queues in self._offsets().items()}

    @property
    def table(self) -> Offsets:
        """The writer's current offsets: read-only, for any thread."""
        return self._table.offsets

    @property
    def count(self) -> int:
        """Number of offsets of all groups in all queues; 0 in a reader."""
        return self._count

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set a group's next offset in a queue; it is in the file within 5 s.

        Raises ``ValueError`` if a name contains ``@``: the file could not be written.
        """
        with self._lock:
            queues = self._table.offsets.get((topic, group))
            if queues is None:
                check_names(topic, group)
                queues = self._table.offsets[topic, group] = {}
            if queues.get(queue_id) != offset:
                self._changes += 1  # first: a signal handler may raise in between
                self._count += queue_id not in queues
                queues[queue_id] = offset
        if not self._is_kept:
            self._is_kept = True
            self._housekeeper.every(SAVE_SECONDS, self.save, "writing offsets of groups")
        if self._at_once:
            self.save()

    def forget(self, *, topic: str | None = None, group: str | None = None) -> bool:
        """Remove the offsets of a topic, of a group, or of both; return whether there were any."""
        with self._lock:
            gone = [
                names
                for names in self._table.offsets
                if topic in (None, names[0]) and group in (None, names[1])
            ]
            self._changes += bool(gone)
            for names in gone:
                self._count -= len(self._table.offsets.pop(names))
        return bool(gone)

    def forget_queue(self, topic: str, group: str, queue_id: int) -> None:
        """Remove the offset of a group in a queue, if there is one."""
        with self._lock:
            queues = self._table.offsets.get((topic, group), {})
            if queue_id in queues:
                self._changes += 1
                self._count -= 1
                del queues[queue_id]
                if not queues:
                    del self._table.offsets[topic, group]

    def settle(self) -> None:
        """Lower offsets beyond their queue's end: new messages will take the lost offsets."""
        with self._lock:
            for (topic, group), queues in self._table.offsets.items():
                if not paths.is_stored_topic_name(topic):
                    continue
                for queue_id, offset in queues.items():
                    _, end = self._core.bounds(topic, queue_id) or (0, 0)
                    if offset > end:
                        queues[queue_id] = end
                        self._changes += 1
                        log_warning(
                            "group %s is taken back from %s to %s in %s/%s: the queue ends there",
                            group, offset, end, topic, queue_id,
                        )  # fmt: skip

    def save(self) -> bool:
        """Write the file if offsets have changed since; return whether it was written.

        ``StoreFailedError``: a sync failed, now or before. ``OSError``: the file cannot be written,
        and is unchanged; the next call tries again.
        """
        if self._reading:
            return False
        with self._saving:
            with self._lock:
                made = self._changes
                if self._saved == made:
                    return False
                offsets = self._table.offsets.copy()  # commits wait only for this copy
            written = self._table.to_json(offsets)
            try:
                self._core.flush_log()
                self._table.file.save(written)
            except SyncError as error:
                if isinstance(error, ReplacedError):
                    self._saved = made
                self._ownership.sync_failed(error)
            self._saved = made
            return True
