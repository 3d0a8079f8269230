"""Consumer groups: entries, offsets and lag.

Source: ``broker/subscription/SubscriptionGroupManager.java``,
``broker/offset/ConsumerOffsetManager.java``,
``tools/command/consumer/ConsumerProgressSubCommand.java``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqstore._core import CallLock, Core
from rmqstore.base.arguments import shown, wrong_type, wrong_value
from rmqstore.base.layout import INT32_MAX
from rmqstore.base.syncing import SyncError
from rmqstore.base.tables import TableList, TableMapping
from rmqstore.base.warn import log_warning
from rmqstore.brokerfiles.configfile import ReplacedError
from rmqstore.brokerfiles.groups import RETRY_MAX, GroupConfig, GroupTable
from rmqstore.consume.progress import GroupProgress
from rmqstore.errors import GroupNotFoundError, StoreCorruptError, StoreError
from rmqstore.files import paths
from rmqstore.services.base import Ownership

if TYPE_CHECKING:
    from rmqstore.consume.lag import Lag
    from rmqstore.directory.registry import TopicRegistry

__all__ = ["SYSTEM_GROUPS", "Group", "GroupRegistry", "Groups", "group_name", "is_system_group"]

# Built-in groups of any broker.
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
_SYSTEM_PREFIX = "CID_RMQ_SYS_"

_RETRIES_MOST = INT32_MAX
_GROUP_HEADS = ("group", "topics", "retries", "may consume")
_OFFSET_HEADS = ("topic", "group", "queue", "offset")


def _group_rows(groups: dict[str, Group]) -> Iterator[tuple[object, ...]]:
    return ((one.name, one.topics, one.retry_max, one.consume_enable) for one in groups.values())


def _offset_rows(offsets: dict[tuple[str, str], dict[int, int]]) -> Iterator[tuple[object, ...]]:
    for (topic, group), queues in offsets.items():
        for queue_id, offset in queues.items():
            yield topic, group, queue_id, offset


def group_name(name: object, argument: str = "group") -> str:
    """Return a valid group name; the ``TypeError`` or ``ValueError`` names the argument."""
    if not isinstance(name, str):
        raise wrong_type(argument, "str", name)
    name = str.__str__(name)  # the kept name runs no code of a subclass
    if not paths.is_group_name(name):
        raise wrong_value(argument, "1 to 120 of [%|a-zA-Z0-9_-]", name)
    return name


def is_system_group(name: str) -> bool:
    """Whether a group is a broker's own.

    Source: ``common/MixAll.java isSysConsumerGroup``.
    """
    return name in SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIX)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, as of when it was looked up.

    Attributes
    ----------
    name : str
    topics : tuple of str
        Topics for which it has offsets, in order; its retry topic too, once that was read.
    retry_max : int
        Retries of a message before it becomes a dead letter.
    consume_enable : bool
        Whether the group may consume.
    consume_broadcast_enable : bool
        Whether it may with every message going to each consumer; a broker's flag.

    Notes
    -----
    Source: ``common/subscription/SubscriptionGroupConfig.java``.
    """

    name: str
    topics: tuple[str, ...] = ()
    retry_max: int = RETRY_MAX
    consume_enable: bool = True
    consume_broadcast_enable: bool = True


class GroupRegistry:
    """``subscriptionGroup.json``, saved at once when it changes.

    If neither the file nor its ``.bak`` can be used, ``StoreCorruptError`` names both, and they
    stay as they are.
    """

    def __init__(self, core: Core, ownership: Ownership) -> None:
        # If set, another process owns the file: read when it changes; a torn one is no error.
        self._reading = core.mode == "r"
        self._ownership = ownership
        self.lock = CallLock(again=True)
        self._table = GroupTable(core.path)
        self._table.file.check_owned = ownership.check  # called before the file is replaced
        self._was_read = False

    def read_files(self) -> None:
        """Read the file of a store open for writing."""
        self._reload()

    def _reload(self) -> None:
        try:
            if not self._table.file.is_current():
                self._table.reload()
            self._was_read = True
        except StoreCorruptError as error:
            if not self._reading or not self._was_read:
                raise  # an unreadable file must not count as empty
            log_warning("%s", error)

    def _current(self) -> GroupTable:
        """Return the table; its owner reads it without the lock, which a save holds."""
        if self._reading:
            with self.lock:
                self._reload()
        return self._table

    def get(self, name: str) -> GroupConfig | None:
        """Return the entry of a group."""
        return self._current().get(name)

    def __iter__(self) -> Iterator[GroupConfig]:
        """Iterate over the entries as they are now."""
        return iter(self._current())

    def json_of(self, table: object) -> dict[str, Any]:
        """Return the JSON of the file with ``table`` in place of the entries."""
        return self._table.json_of(table)

    def __len__(self) -> int:
        """Return the number of entries, as last read."""
        return len(self._table)

    def enter(self, entry: GroupConfig) -> GroupConfig:
        """Enter a missing group, and return its entry; :meth:`save` is called later."""
        with self.lock:
            there = self._table.get(entry.group_name)
            if there is None:
                self._table.put(entry)
            return there or entry

    def set(self, name: str, entry: GroupConfig | None) -> None:
        """Enter, change or remove a group, with the lock held; :meth:`save` is called later."""
        if entry is None:
            self._table.remove(name)
        else:
            self._table.put(entry)

    def leave(self, names: Iterable[str]) -> None:
        """Remove groups, if present; :meth:`save` is called later."""
        with self.lock:
            for name in names:
                self._table.remove(name)

    def save(self) -> None:
        """Write the file, without the lock, so as to block nobody; on failure the entries stay."""
        try:
            self._table.save()
        except SyncError as error:
            self._ownership.sync_failed(error)

    def put(self, entry: GroupConfig) -> None:
        """Enter a group and save; if that fails, nothing has changed."""
        with self.lock:
            before = self._table.get(entry.group_name)
            self._table.put(entry)
            self._save(entry.group_name, before)

    def remove(self, name: str) -> bool:
        """Remove a group and save; return whether it was there."""
        with self.lock:
            before = self._table.get(name)
            if before is None:
                return False
            self._table.remove(name)
            self._save(name, before)
            return True

    def _save(self, name: str, before: GroupConfig | None) -> None:
        try:
            self._table.save()
        except BaseException as error:
            if not isinstance(error, ReplacedError):
                self.set(name, before)
            if isinstance(error, SyncError):
                self._ownership.sync_failed(error)
            raise


class Groups:
    """Groups of a store."""

    def __init__(
        self,
        core: Core,
        entries: GroupRegistry,
        progress: GroupProgress,
        topics: TopicRegistry,
        has_consumers: Callable[[str], bool],
    ) -> None:
        self._core = core
        self._entries = entries
        self._progress = progress
        self._topics = topics
        self._has_consumers = has_consumers  # whether a group has open consumers

    def all(self) -> Mapping[str, Group]:
        """Return the current groups by name; see ``MessageStore.groups``."""
        self._core.check_open()
        topics: dict[str, set[str]] = {entry.group_name: set() for entry in self._entries}
        for topic, group in self._progress.all():
            topics.setdefault(group, set()).add(topic)
        groups = {name: self._group(name, tuple(sorted(topics[name]))) for name in sorted(topics)}
        return TableMapping(groups, _GROUP_HEADS, _group_rows)

    def _group(self, name: str, topics: tuple[str, ...]) -> Group:
        entry = self._entries.get(name) or GroupConfig(name)
        return Group(
            name,
            topics,
            entry.retry_max_times,
            entry.consume_enable,
            entry.consume_broadcast_enable,
        )

    def offsets(self) -> Mapping[tuple[str, str], dict[int, int]]:
        """Return the offsets of the groups; see ``MessageStore.offsets``."""
        self._core.check_open()
        return TableMapping(self._progress.all(), _OFFSET_HEADS, _offset_rows)

    def create_group(self, name: str, *, retry_max: int = RETRY_MAX) -> Group:
        """Create a consumer group, or change its number of retries.

        The first consumer of a missing group creates it as well.

        Parameters
        ----------
        name : str
            1 to 120 of ``[%|a-zA-Z0-9_-]``.
        retry_max : int, optional
            Retries of a message, 0 or more; then it becomes a dead letter.

        Returns
        -------
        Group

        Raises
        ------
        TypeError, ValueError
            An argument has a wrong type or value.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.
        OSError
            ``subscriptionGroup.json`` cannot be written; nothing has changed.

        Notes
        -----
        Source: ``broker/subscription/SubscriptionGroupManager.java updateSubscriptionGroupConfig``.
        """
        self._core.check_writable()
        name = group_name(name, "name")
        if isinstance(retry_max, bool) or not isinstance(retry_max, int):
            raise wrong_type("retry_max", "int", retry_max)
        if not 0 <= retry_max <= _RETRIES_MOST:
            raise wrong_value("retry_max", f"0 to {_RETRIES_MOST}", retry_max)
        with self._entries.lock:
            entry = self._entries.get(name) or GroupConfig(name)
            self._entries.put(dataclasses.replace(entry, retry_max_times=retry_max))
        return self.all()[name]

    def delete_group(self, name: str, *, offsets: bool = False) -> None:
        """Remove a consumer group's entry, and its offsets if asked for.

        A group with offsets stays in ``groups``. Its retry topic and its dead letters stay.

        Parameters
        ----------
        name : str
        offsets : bool, optional
            Remove its offsets in all topics as well: the group would begin anew.

        Raises
        ------
        GroupNotFoundError
            There is no such group; also a ``KeyError``.
        TypeError
            ``name`` is not a str.
        StoreError
            A consumer of the group is open.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.
        OSError
            A file cannot be written.

        Notes
        -----
        Source: ``broker/subscription/SubscriptionGroupManager.java deleteSubscriptionGroupConfig``,
        ``broker/offset/ConsumerOffsetManager.java removeOffset``.
        """
        self._core.check_writable()
        if not isinstance(name, str):
            raise wrong_type("name", "str", name)
        if name not in self.all():
            raise GroupNotFoundError(f"{self._core.path}: no group {shown(name)}")
        if self._has_consumers(name):
            raise StoreError(
                f"{self._core.path}: the group {name!r} has consumers that are open: "
                "close them first"
            )
        self._entries.remove(name)
        if offsets and self._progress.forget(group=name):
            self._progress.save()

    def lag(self, group: str | None = None, topic: str | None = None) -> list[Lag]:
        """Return the lag of groups, in each queue of the topics that they consume.

        A group consumes the topics in which it has committed an offset; their other queues with
        messages count as not consumed yet.

        Parameters
        ----------
        group, topic : str, optional
            Only this group, only this topic; ``group`` may be one on the disk whose name is not
            valid for new groups.

        Returns
        -------
        list of Lag
            Sorted by group, topic and queue; empty where there are no such offsets.

        Raises
        ------
        TypeError, ValueError
            ``group`` is not a valid name, and no such group exists.
        StoreCorruptError
            ``consumerOffset.json`` and its ``.bak`` are torn, and have been since opening.
        OSError
            A file cannot be read.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        Reads units, 20 bytes a message, and two records a queue, in every mode, also beside a live
        owner.
        Source: ``tools/command/consumer/ConsumerProgressSubCommand.java``.
        """
        from rmqstore.consume.lag import lag_of, with_uncommitted

        self._core.check_open()
        if group is not None and not (isinstance(group, str) and group in self.all()):
            group_name(group)
        if topic is not None and not isinstance(topic, str):
            raise wrong_type("topic", "str", topic)
        offsets = {
            (of_topic, of_group): committed
            for (of_topic, of_group), committed in self._progress.all().items()
            if group in (None, of_group) and topic in (None, of_topic)
        }
        found = lag_of(
            self._core,
            with_uncommitted(offsets, self._core.queue_files(), self._topics),
            group,
            topic,
        )
        return TableList(found)
