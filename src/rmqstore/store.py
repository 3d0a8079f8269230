"""``MessageStore``: opening, topics and queues as mappings, lookups.

The writing methods, ``get``, ``at`` and ``query`` are the core's own, inherited.

Source: ``store/DefaultMessageStore.java``, ``store/MessageStore.java``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Never, SupportsIndex

from rmqstore.aio.put import AsyncEngine
from rmqstore.base.arguments import did_you_mean, integer_within, shown, wrong_type, wrong_value
from rmqstore.base.closing import Closing
from rmqstore.base.syncing import SyncError
from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.columns.scan import ScanningEngine
from rmqstore.config.file_sizes import size_notes, sizes_left_open
from rmqstore.config.store_config import StoreConfig
from rmqstore.consume.consuming import ConsumingEngine
from rmqstore.directory.layout import LogPath, log_directories
from rmqstore.directory.recovery import describe_recovery, describe_verification
from rmqstore.directory.registry import TopicRegistry
from rmqstore.errors import IncompatibleStoreError, MessageIllegalError, TopicNotFoundError
from rmqstore.files import paths
from rmqstore.files.links import broken_files, broken_link, broken_links
from rmqstore.files.logfiles import damaged_log_files
from rmqstore.files.newer import find_newer, refuse_newer
from rmqstore.finding import FindingEngine
from rmqstore.services.figures import FigureEngine
from rmqstore.services.retention import RetainingStore
from rmqstore.services.schedule import ScheduleEngine
from rmqstore.services.snapshot import SnapshotEngine
from rmqstore.services.stored import is_system_topic, made_queue_nums
from rmqstore.services.transaction_checks import CheckingEngine
from rmqstore.topic import Topic
from rmqstore.types import PutStatus, Recovery

__all__ = ["MessageStore", "Mode", "topic_entry"]

Mode = Literal["r", "r+", "a"]

# A size field of each kind of file, and the core's bit for inferring it.
_SIZES = {
    "mapped_file_size_commit_log": 1,
    "mapped_file_size_consume_queue": 2,
    "max_hash_slot_num": 4,
    "mapped_file_size_consume_queue_ext": 64,
}


class MessageStore(
    FindingEngine,
    ScanningEngine,
    FigureEngine,
    AsyncEngine,
    CheckingEngine,
    ScheduleEngine,
    ConsumingEngine,
    RetainingStore,
    SnapshotEngine,
    Closing,
):
    """An open store; made by :func:`rmqstore.open`, closed by ``with`` or :meth:`close`.

    ``store["orders"]`` is a :class:`Topic`, ``store["orders"][2]`` a :class:`Queue`, ``"orders"
    in store`` tells whether the topic exists, and iteration yields the names. Every method may be
    called from many threads.

    Attributes
    ----------
    path : str
        Its directory, absolute.
    mode : str
        ``"r"``, ``"r+"`` or ``"a"``.
    closed : bool
        Whether :meth:`close` was called.
    config : StoreConfig
        The configuration in force, with the actual file sizes.
    recovery : Recovery
        What opening found and did.
    topics : mapping of str to Topic
        Of ``topics.json``, and of queue directories.

    Notes
    -----
    Source: ``store/DefaultMessageStore.java``.
    """

    recovery: Recovery

    def __init__(
        self,
        path: str,
        mode: Mode,
        *,
        config: StoreConfig | None,
        on_corruption: str,
        verify: str,
        timeout: float,
        infer_sizes: bool,
        places: list[LogPath] | None = None,
        services: bool = True,
    ) -> None:
        super().__init__()
        self.core.make_topic = self._make_topic
        self.core.remake_topic = self._remake_topic
        self.core.begin_schedule = self._begin_schedule
        log = (
            [Path(path, paths.COMMIT_LOG)] if places is None else [Path(one.path) for one in places]
        )
        self._broken_links = broken_links(path, log)
        if mode != "r" and self._broken_links:
            raise IncompatibleStoreError(f"{self._broken_links[0]}: is its disk mounted?")
        self._was_closed = not os.path.lexists(Path(path, paths.ABORT))
        chosen = config if config is not None else StoreConfig()
        self._configured = not infer_sizes
        self._serviced = services
        left_open = _SIZES.keys() if infer_sizes else sizes_left_open(chosen)
        self.core.open(
            path,
            mode,
            chosen,
            timeout,
            self._read_topics,
            infer_sizes=sum(bit for name, bit in _SIZES.items() if name in left_open),
            fill=on_corruption == "fill",
            full=verify == "full",
            places=places,
        )
        try:
            self._finish_opening(chosen, left_open)
            if mode == "r" and verify == "full":
                self.recovery = describe_verification(self.path, self.recovery, self.core.verify())
            if services:
                self._start_services()
        except BaseException:
            self._undo_start()
            raise

    def _read_topics(self) -> tuple[dict[str, int], list[str] | None]:
        """Read the files of topics, in writing modes all: under the lock, before any change."""
        self._newer = find_newer(self.path)
        if self.mode != "r":
            self._note_names()
            refuse_newer(self.path, self._newer)
        self._registry = TopicRegistry(
            self.path,
            lenient=self.mode == "r",
            sync_failed=self._sync_failed,
            check_owned=self._check_owned,
        )
        if self.mode != "r" and self._serviced:
            self._read_files()
        elsewhere = any(newer.has_topics for newer in self._newer)
        return self._registry.deleted, None if elsewhere else self._registry.listed()

    def _sync_failed(self, error: SyncError) -> Never:
        """Fail the store, and raise the reason."""
        path = os.path.relpath(error.filename, self.path)
        self.core.set_failed(error.errno or errno.EIO, path, "cannot be forced to the disk")
        self.core.check_writable()
        raise error  # not reached: _check_writable raises

    def _finish_opening(self, chosen: StoreConfig, left_open: Collection[str]) -> None:
        """Set up the Python side of the store: topics, sizes, results of recovery."""
        if self.mode != "r":
            self._registry.settle(self.core.recovery()["log_end"], self.core.gone_topics())
        for topic in self._registry:
            self._topic_changed(topic.topic_name, topic)
        self._registry.watchers.append(self._topic_changed)
        log_size, queue_size, slots, entries, ext_size = self.core.sizes()
        self._in_force = chosen.replace(
            mapped_file_size_commit_log=log_size,
            mapped_file_size_consume_queue=queue_size,
            mapped_file_size_consume_queue_ext=ext_size,
            max_hash_slot_num=slots or chosen.max_hash_slot_num,
            max_index_num=entries or chosen.max_index_num,
        )
        found = self.core.recovery()
        self.recovery = describe_recovery(
            self.path,
            self.mode,
            found,
            was_closed=self._was_closed,
            newer=self._newer,
            damaged_files=self._damaged_files(chosen, found["log_end"]),
            broken_links=[*self._broken_links, *self._broken_queues(found["broken_links"])],
            sizes=size_notes(chosen, self._in_force, found, left_open),
        )

    def _broken_queues(self, found: list[str]) -> Iterator[str]:
        """Iterate over the broken links in place of a topic, a queue or its files."""
        for one in found:
            path = Path(self.path, one)
            if path.is_dir():
                yield from broken_files(path)
            else:
                yield broken_link(path) or f"{one} was a link that led nowhere"

    def _damaged_files(self, chosen: StoreConfig, end: int) -> list[str]:
        """Return the faults of log files; a writing mode refuses or mends them."""
        if self.mode != "r":
            return []
        size = self._in_force.mapped_file_size_commit_log
        return damaged_log_files(log_directories(self.path, chosen), size, end)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"mode={self.mode!r}"
        return f"<rmqstore.MessageStore {self.path!r} {state}>"

    @property
    def config(self) -> StoreConfig:
        """The configuration in force, with the actual file sizes."""
        return self._in_force

    # Topics

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The current topics by name, in the order of their names."""
        return {
            name: Topic(self, name, self._registry.get(name), tuple(queue_ids))
            for name, queue_ids in self._queues_of_topics().items()
        }

    def _queues_of_topics(self) -> dict[str, list[int]]:
        """Return the ids of the queues that have files by topic, in the order of the names."""
        if self.mode == "r":
            self._registry.reload()
        found = self.core.queue_files()
        names = found.keys() | {entry.topic_name for entry in self._registry}
        return {name: found.get(name, []) for name in sorted(names)}

    def __getitem__(self, topic: str) -> Topic:
        """Return a topic.

        Raises
        ------
        TopicNotFoundError
            There is none of that name; also a ``KeyError``.
        """
        topics = self.topics
        try:
            return topics[topic]
        except KeyError:
            raise self._no_topic(topic, topics) from None

    def _no_topic(self, name: str, topics: Iterable[str]) -> TopicNotFoundError:
        """Return the error for a missing topic; it names the nearest."""
        near = did_you_mean(name, topics) if isinstance(name, str) else ""
        hint = f"; {near}" if near else ""
        return TopicNotFoundError(f"{self.path}: no topic {name!r}{hint}")

    def __contains__(self, topic: object) -> bool:
        """Whether the topic exists."""
        return topic in self.topics

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the topics, in order."""
        return iter(self.topics)

    def queue_ids(self) -> dict[str, list[int]]:
        """Return the queues that now have files, by topic.

        Unlike ``topics``, without those that only ``topics.json`` names.

        Returns
        -------
        dict of str to list of int
            Ids in order.

        Raises
        ------
        StoreClosedError, ForkedStoreError
            The store is not open here.
        """
        return self.core.queue_files()

    def queue_bounds(self, topic: str, queue_id: SupportsIndex) -> tuple[int, int]:
        """Return the first queue offset of a queue and the one after its last, at present.

        Parameters
        ----------
        topic : str
        queue_id : int

        Returns
        -------
        (int, int)
            ``(0, 0)`` if there is no such queue.

        Raises
        ------
        OSError
            A file cannot be read.
        StoreClosedError, ForkedStoreError
            The store is not open here.
        """
        return self.core.bounds(topic, queue_id) or (0, 0)

    @property
    def deleted_topics(self) -> Mapping[str, int]:
        """Deleted topics by name, each with the end of the log at that time.

        Their records below that are in no queue, even if the topic was created again.
        """
        if self.mode == "r":
            self._registry.reload()
        return MappingProxyType(self._registry.deleted)

    def create_topic(
        self, name: str, queue_nums: int = 4, *, order: bool = False, perm: int = 6
    ) -> Topic:
        """Create a topic, or change its entry in ``topics.json``.

        Parameters
        ----------
        name : str
            1 to 127 of ``[%|a-zA-Z0-9_-]``.
        queue_nums : int, optional
            Queues to read and to write, 1 to 65,536.
        order : bool, optional
            Whether the topic is an ordered one, as the broker's flag.
        perm : int, optional
            2 write, 4 read, 6 both.

        Returns
        -------
        Topic

        Raises
        ------
        MessageIllegalError
            The name is invalid.
        TypeError, ValueError
            ``queue_nums`` or ``perm`` is no integer, or out of range.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``broker/topic/TopicConfigManager.java``.
        """
        self.core.check_writable()
        entry = topic_entry(name, queue_nums, order=order, perm=perm)
        name = entry.topic_name
        self._registry.change({name: lambda _there: entry})
        return Topic(
            self, name, self._registry.get(name), tuple(self.core.queue_files().get(name, ()))
        )

    def _topic_changed(self, name: str, entry: TopicConfig | None) -> None:
        """Pass a topic's new or changed entry to the core.

        A put to a known topic does not check its name: one that no client may name gets no queues
        to write.
        """
        if entry is not None and not self.closed and paths.is_stored_topic_name(name):
            self.core.set_topic(name, entry.write_queue_nums if paths.is_topic_name(name) else 0)

    def _make_topic(self, topic: str) -> None:
        """Create a topic that a message was put to; called by the core."""
        queue_nums = made_queue_nums(topic, self._in_force.default_topic_queue_nums)
        self._registry.make(
            TopicConfig(topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums)
        )
        entry = self._registry.get(topic)
        if entry is not None and entry.write_queue_nums < 1:  # clients may not send to it; we may
            self.core.set_topic(topic, 1)

    def _remake_topic(self, topic: str, physical_offset: int) -> None:
        """Create a topic that was deleted before a message at a log offset; called by the core."""
        with self._registry.lock:  # a deletion that has begun is finished
            deleted = physical_offset < self._registry.deleted.get(topic, 0)
        if not deleted:
            self._make_topic(topic)

    def delete_topic(self, name: str) -> None:
        """Remove a topic's queues and its entry in ``topics.json``.

        Its records stay in the log until retention removes them, and can be found by key and
        offset until then. The groups' offsets in it are forgotten: its queues begin anew.

        Parameters
        ----------
        name : str

        Raises
        ------
        TopicNotFoundError
            There is no such topic.
        ValueError
            It is a topic of the broker itself, such as ``SCHEDULE_TOPIC_XXXX``: messages of other
            topics wait in some of them.
        OSError
            A file cannot be written, and the topic stays; or one of its queues' files cannot be
            removed.
        ReadOnlyStoreError, StoreClosedError, StoreFailedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java cleanUnusedTopic``,
        ``broker/processor/AdminBrokerProcessor.java deleteTopic``.
        """
        self.core.check_writable()
        if isinstance(name, str):
            name = str.__str__(name)
            if is_system_topic(name):
                raise wrong_value(
                    "name", "no topic of the broker itself, in which messages of others wait", name
                )
        topics = self.topics
        if name not in topics:
            raise self._no_topic(name, topics)
        with self._registry.lock:
            log_end = self.core.flush_log()
            # The note is on the disk before the first file goes: otherwise a recovery from the log
            # would bring the queues back. And never beyond the log's durable end: messages put
            # after a power cut would lie below the note.
            self._registry.remove(name, log_end)
            self.core.set_topic(name, 0)
            self._progress.forget(topic=name)
            try:
                self._progress.save()
            except SyncError:
                raise
            except OSError as error:  # an offset behind its queue's end is taken back by opening
                log_warning("%s: offsets of groups will be written later: %s", self.path, error)
            log_end = self.core.delete_queues(name)
            self._forget_topic(name)
            self.core.flush_log()
            self._registry.note_deleted(name, log_end)


def topic_entry(name: str, queue_nums: int, *, order: bool = False, perm: int = 6) -> TopicConfig:
    """Return the entry of a new topic; raise as :meth:`MessageStore.create_topic` does."""
    queue_nums = integer_within("queue_nums", queue_nums, 1, 65536)
    perm = integer_within("perm", perm, 0, 15)
    if not isinstance(name, str):
        raise wrong_type("name", "str", name)
    name = str.__str__(name)  # the kept name runs no code of a subclass
    if not paths.is_topic_name(name):
        raise MessageIllegalError(
            f"name must be 1 to 127 of [%|a-zA-Z0-9_-], got {shown(name)}",
            status=PutStatus.MESSAGE_ILLEGAL,
        )
    return TopicConfig(
        topic_name=name,
        order=bool(order),
        perm=perm,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
    )
