"""``MessageStore``: assembly of a store's parts, and its public methods.

Writing, ``get``, ``at`` and ``query`` are the core's own, inherited.

Source: ``store/DefaultMessageStore.java``, ``store/MessageStore.java``.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, ItemsView, Iterator, KeysView, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self, SupportsIndex

from rmqstore import _core
from rmqstore.aio.put import aput
from rmqstore.base.attached import method_of
from rmqstore.base.tables import TableMapping, html_text
from rmqstore.columns.scan import log_end, scan
from rmqstore.config.file_sizes import (
    SIZE_FIELDS,
    inferred_bits,
    size_notes,
    sizes_left_open,
    with_found_sizes,
)
from rmqstore.config.store_config import StoreConfig
from rmqstore.consume.consuming import Consumers
from rmqstore.consume.groups import Group, GroupRegistry, Groups
from rmqstore.consume.progress import GroupProgress
from rmqstore.consume.state import ConsumerState
from rmqstore.directory.layout import LogPath, log_directories
from rmqstore.directory.recovery import describe_recovery, describe_verification
from rmqstore.directory.registry import TopicRegistry
from rmqstore.errors import IncompatibleStoreError, StoreCorruptError
from rmqstore.files import paths
from rmqstore.files.links import broken_below, broken_links
from rmqstore.files.logfiles import damaged_log_files
from rmqstore.files.newer import find_newer, refuse_newer
from rmqstore.finding import Lookups
from rmqstore.services.base import Ownership, Services
from rmqstore.services.clock import Clock
from rmqstore.services.figures import Figures
from rmqstore.services.housekeeping import Housekeeper
from rmqstore.services.retention import Retention
from rmqstore.services.schedule import Schedule
from rmqstore.services.snapshot import Snapshots
from rmqstore.services.topics import TopicCatalog
from rmqstore.services.transaction_checks import TransactionChecks
from rmqstore.services.transactions import TransactionService
from rmqstore.topic import Topic, topics_of
from rmqstore.types import Recovery

__all__ = ["MessageStore", "Mode"]

Mode = Literal["r", "r+", "a"]


class MessageStore(_core.Engine):
    """An open store; made by :func:`rmqstore.open`, closed by ``with`` or :meth:`close`.

    ``store["orders"]`` is a :class:`Topic`, ``store["orders"][2]`` a :class:`Queue`, ``"orders"
    in store`` is true if the topic exists, and iteration yields the names. Every method may be
    called from many threads.

    Attributes
    ----------
    path : str
        Absolute path of its directory.
    mode : str
        ``"r"``, ``"r+"`` or ``"a"``.
    closed : bool
        Whether :meth:`close` was called.
    config : StoreConfig
        The configuration in force, with the actual file sizes.
    recovery : Recovery
        Findings and repairs of opening.
    topics : mapping of str to Topic
        Topics in ``topics.json``, and topics with a queue directory.

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
        left_open = SIZE_FIELDS if infer_sizes else sizes_left_open(chosen)
        try:
            self.core.open(
                path,
                mode,
                chosen,
                timeout,
                self._read_files,
                infer_sizes=inferred_bits(left_open),
                fill=on_corruption == "fill",
                full=verify == "full",
                places=places,
            )
            self._finish_opening(chosen, left_open)
            if mode == "r" and verify == "full":
                self.recovery = describe_verification(path, self.recovery, self.core.verify())
            if services:
                if mode != "r" and not self.recovery.clean:
                    self.progress.settle()  # before anything relies on an offset ahead of its queue
                self.services.start()
        except BaseException:
            if self.core.services is not None:  # else the core has not been opened
                self.services.abandon()
            raise

    def _read_files(self) -> tuple[dict[str, int], list[str] | None]:
        """Make the parts and, in writing modes, read their files: locked, before any change.

        Refuses a torn file. Returns the deleted topics and the names in ``topics.json``; ``None``
        for the names if RocketMQ 5.x keeps topics elsewhere.
        """
        core = self.core
        self._newer = find_newer(core.path)
        self.ownership = Ownership(core)
        if core.mode != "r":
            self.ownership.note_names()
            refuse_newer(core.path, self._newer)
        self.registry = TopicRegistry(
            core.path,
            lenient=core.mode == "r",
            sync_failed=self.ownership.sync_failed,
            check_owned=self.ownership.check,
        )
        self._make_parts()
        if core.mode != "r" and self._serviced:
            self.progress.read_files()
            self.group_entries.read_files()
            self.schedule.read_files()
        elsewhere = any(newer.has_topics for newer in self._newer)
        return self.registry.deleted, None if elsewhere else self.registry.listed()

    def _make_parts(self) -> None:
        """Make the parts, each with the parts that it uses; ``services`` gives their order."""
        core, registry, ownership = self.core, self.registry, self.ownership
        self.housekeeper = Housekeeper(core.now)
        weakref.finalize(core, self.housekeeper.stop)
        self.progress = GroupProgress(
            core,
            ownership,
            self.housekeeper,
            light_queues=core.config.enable_lmq if self._configured else None,
        )
        self.retention = Retention(core, self.housekeeper)
        self.schedule = Schedule(core, ownership)
        core.begin_schedule = self.schedule.begin
        self.transactions = TransactionService(core, self.progress, self.housekeeper)
        self.transaction_checks = TransactionChecks(
            core, self.transactions, self.progress, self.housekeeper
        )
        self.services = core.services = Services(
            core,
            ownership,
            self.progress,  # last to stop: writes the offsets that others commit as they stop
            ownership,  # before the services that check which process owns the store
            self.housekeeper,  # its tasks end before the progress is last written
            self.retention,  # runs in the housekeeper's thread
            self.schedule,  # before transactions: a committed message may be delayed
            self.transactions,  # stops after the checks: notes the transactions they end
            self.transaction_checks,  # first to stop: asks no more producers
        )
        self.group_entries = GroupRegistry(core, ownership)
        self.consumer_state = ConsumerState(
            core, ownership, registry, self.progress, self.group_entries
        )
        self.catalog = TopicCatalog(core, registry, self.progress, self.consumer_state.forget_topic)
        self.consumers = Consumers(self.consumer_state, self.catalog)
        self.consumer_groups = Groups(
            core, self.group_entries, self.progress, registry, self.consumer_state.sharing.has_group
        )
        self.lookups = Lookups(core, self.catalog.queue_ids)
        self.figures = Figures(core, log_end)
        self.snapshots = Snapshots(core, ownership, self.services, registry, _settle_copy)

    def _finish_opening(self, chosen: StoreConfig, left_open: Collection[str]) -> None:
        """Set up the Python side of the store: topics, sizes, results of recovery."""
        core = self.core
        if core.mode != "r":
            self.registry.settle(core.recovery()["log_end"], core.gone_topics())
        self.catalog.enter()
        core.config = with_found_sizes(chosen, core.sizes())
        found = core.recovery()
        places = log_directories(core.path, chosen) if core.mode == "r" else []  # else refused
        damaged = damaged_log_files(
            places, core.config.mapped_file_size_commit_log, found["log_end"]
        )
        self.recovery = describe_recovery(
            core.path,
            core.mode,
            found,
            was_closed=self._was_closed,
            newer=self._newer,
            damaged_files=damaged,
            broken_links=[*self._broken_links, *broken_below(core.path, found["broken_links"])],
            sizes=size_notes(chosen, core.config, found, left_open),
        )

    def close(self) -> None:
        """Flush everything, close the store, and release the lock.

        Messages read from it stay valid. Closing again does nothing.

        Raises
        ------
        StoreFailedError, OSError
            Acknowledged messages could not be flushed; ``abort`` stays, and the next opening
            recovers.
        ForkedStoreError
            The store belongs to the parent process.
        RuntimeError
            Called by a handler, a finalizer or an argument within another call of the same thread;
            the store stays open.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java shutdown``.
        """
        self.services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"mode={self.mode!r}"
        return f"<rmqstore.MessageStore {self.path!r} {state}>"

    def _repr_html_(self) -> str:
        return html_text(repr(self)) + ("" if self.closed else self.topics._repr_html_())

    @property
    def clock(self) -> Clock:
        """Clock of the store and its services."""
        return Clock(self.core, self.schedule, self.retention, self.housekeeper)

    # Topics

    @property
    def topics(self) -> TableMapping[str, Topic]:
        """The current topics by name, in the order of their names."""
        return topics_of(self, self.registry, self.catalog.queue_ids())

    def __getitem__(self, topic: str) -> Topic:
        """Return a topic.

        Raises
        ------
        TopicNotFoundError
            No topic has that name; also a ``KeyError``.
        """
        try:
            return self.topics[topic]
        except KeyError:
            raise self.catalog.not_found(topic) from None

    def __contains__(self, topic: object) -> bool:
        """Whether the topic exists."""
        return isinstance(topic, str) and self.catalog.has(topic)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the topics, in order."""
        return iter(self.topics)

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self.topics)

    def __bool__(self) -> bool:
        return True  # without topics as well

    def keys(self) -> KeysView[str]:
        """Return the names of the topics, in order."""
        return self.topics.keys()

    def items(self) -> ItemsView[str, Topic]:
        """Return the topics with their names, in order."""
        return self.topics.items()

    def queue_ids(self) -> dict[str, list[int]]:
        """Return the queues that have files, by topic.

        Unlike ``topics``, without queues that only ``topics.json`` names.

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
        """Return the current bounds of a queue: its first offset, and the one after its last.

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

        Their records below that end are in no queue, even if the topic was created again.
        """
        return MappingProxyType(self.registry.current_deleted())

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
            The broker's flag of an ordered topic.
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
            ``queue_nums`` or ``perm`` is not an integer, or is out of range.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``broker/topic/TopicConfigManager.java``.
        """
        name = self.catalog.create(name, queue_nums, order=order, perm=perm)
        existing = tuple(self.core.queue_files().get(name, ()))
        return Topic(self, name, self.registry.get(name), existing)

    delete_topic = method_of("catalog", TopicCatalog.delete_topic)

    # Messages

    aput = aput
    begin = method_of("transactions", TransactionService.begin)
    in_doubt = method_of("transactions", TransactionService.in_doubt)
    delayed = method_of("schedule", Schedule.delayed)
    scan = scan
    message = method_of("lookups", Lookups.message)
    query_many = method_of("lookups", Lookups.query_many)
    locate_many = method_of("lookups", Lookups.locate_many)

    @property
    def passed_over(self) -> tuple[StoreCorruptError, ...]:
        """Damage that queries skipped in parts of the log that no index covers.

        Keys of damaged records are not found. Each place counts once until the store is reopened.
        """
        return tuple(self.core.passed_over.values())

    # Groups

    consumer = method_of("consumers", Consumers.consumer)

    @property
    def groups(self) -> Mapping[str, Group]:
        """The current groups in the order of their names: with an entry, with offsets, or both.

        Raises
        ------
        StoreCorruptError
            One of the files and its ``.bak`` are torn, and have been since opening.
        OSError
            A file cannot be read.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        In mode ``"r"`` both files are read again when the owner has changed them.
        Source: ``broker/subscription/SubscriptionGroupManager.java``.
        """
        return self.consumer_groups.all()

    @property
    def offsets(self) -> Mapping[tuple[str, str], dict[int, int]]:
        """Offsets of the groups: ``(topic, group)`` to ``{queue id: next queue offset}``.

        Raises
        ------
        StoreCorruptError
            ``consumerOffset.json`` and its ``.bak`` are torn, and have been since opening.
        OSError
            The file cannot be read.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        A copy. In mode ``"r"`` it has the offsets that the owner wrote last.
        Source: ``broker/offset/ConsumerOffsetManager.java``.
        """
        return self.consumer_groups.offsets()

    create_group = method_of("consumer_groups", Groups.create_group)
    delete_group = method_of("consumer_groups", Groups.delete_group)
    lag = method_of("consumer_groups", Groups.lag)

    # The store itself

    stats = method_of("figures", Figures.stats)
    snapshot = method_of("snapshots", Snapshots.snapshot)
    delete_expired = method_of("retention", Retention.delete_expired)
    clean_unused_topics = method_of("retention", Retention.clean_unused_topics)


def _settle_copy(directory: str, config: StoreConfig, log: LogPath, on_corruption: str) -> None:
    """Open and close a copy of a store: recovery removes units and entries ahead of the log."""
    with MessageStore(
        directory,
        "r+",
        config=config,
        on_corruption=on_corruption,
        verify="tail",
        timeout=0.0,
        infer_sizes=True,
        places=[log],
        services=False,
    ):
        pass
