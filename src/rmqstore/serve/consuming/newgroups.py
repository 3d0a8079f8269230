"""Groups created by their consumers: at once in memory, soon in the files.

A thousand consumers may connect at once, and each group is an entry in two files that are written
whole. Another thread writes them, for all groups created meanwhile.

Source: ``broker/subscription/SubscriptionGroupManager.java findSubscriptionGroupConfig``,
``broker/topic/TopicConfigManager.java createTopicInSendMessageBackMethod``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.errors import StoreError
from rmqstore.files import paths
from rmqstore.serve.sharedtable import SharedTable
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqstore.serve.network.turns import Steps
    from rmqstore.serve.network.work import Work
    from rmqstore.serve.settings import Settings
    from rmqstore.store import MessageStore

__all__ = ["NewGroups"]

_UNIT_SUB = 2  # TopicSysFlag: hasUnitSub
_SAVE_SECONDS = 0.05  # between two saves
_REST = 10  # times the duration of the last save, at least
_FAILED_SECONDS = 5.0  # after a failed save


class NewGroups(SharedTable[str]):
    """Groups and retry topics created for consumers, and changed for administrators.

    The loop waits for no lock that another thread holds while it writes files.
    """

    def __init__(self, store: MessageStore, settings: Settings, work: Work) -> None:
        self.in_use: list[Callable[[str], object]] = []  # whether a group, by name, is in use
        self._store = store
        self._settings = settings
        self._work = work
        self._groups = store.group_entries
        self._registry = store.registry
        self._changing = threading.Lock()
        self._unsaved = False
        self._saving: asyncio.Task[None] | None = None
        self._late: dict[str, TopicConfig | None] = {}  # retry topics to enter, or to remove
        super().__init__(work.turns, settings.limits.topics)
        work.closing.append(self.close)

    def get(self, name: str) -> GroupConfig | None:
        """Return a group's entry."""
        return self._groups.get(name)

    def config(self, name: str, owner: str) -> GroupConfig | None:
        """Return a group's entry, created if consumers may create groups; else ``None``."""
        entry = self._groups.get(name)
        if entry is None and self._settings.auto_create_groups:
            self.check_room(name, owner)
            entry = self._groups.enter(GroupConfig(name))
            self._save_soon()
        return entry

    def check_room(self, name: str, owner: str) -> None:
        """Charge a group about to be created; ``Refusal`` if there are too many."""
        if not self.take(name, owner):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the group {name} is not made: there are {self._size()} already, "
                f"{self.of(owner)} of {owner}",
            )

    def _keys(self) -> Iterator[str]:
        return (entry.group_name for entry in self._groups)

    def _has(self, key: str) -> int:
        return int(self._groups.get(key) is not None)

    def _size(self) -> int:
        return len(self._groups)

    def _remove_unused(self) -> Steps:
        """Remove groups without members, offsets, retries and settings of their own."""
        read = set()
        for _, group in self._store.progress.names():
            read.add(group)
            yield
        for entry in self._groups:
            name = entry.group_name
            if name not in read and self._is_unused(entry):
                self._groups.leave([name])
                self._set_topic(paths.retry_topic(name), None)
            yield

    def _is_unused(self, entry: GroupConfig) -> bool:
        name = entry.group_name
        return (
            not any(needs(name) for needs in self.in_use)
            and not self._store.consumer_state.sharing.has_group(name)
            and self._store.core.bounds(paths.retry_topic(name), 0) in (None, (0, 0))
            and entry.to_json() == GroupConfig(name).to_json()
        )

    def make_retry_topic(self, group: GroupConfig, *, unit_mode: bool) -> None:
        """Create the retry topic of a group if it is missing."""
        topic = paths.retry_topic(group.group_name)
        there = self._late.get(topic, self._registry.get(topic))
        if group.retry_queue_nums <= 0 or there is not None:
            return
        queues = min(group.retry_queue_nums, self._settings.most_queues)
        flag = _UNIT_SUB if unit_mode else 0
        self._set_topic(topic, TopicConfig(topic, queues, queues, topic_sys_flag=flag))

    def _set_topic(self, name: str, entry: TopicConfig | None) -> None:
        """Enter or remove a topic now, or with the next save if the registry is locked."""
        self._late[name] = entry
        lock = self._registry.lock
        if lock.acquire(blocking=False):
            try:
                self._set_late_topics()
            finally:
                lock.release()
        self._save_soon()

    def _set_late_topics(self) -> None:
        """Enter or remove the late topics; called with the registry's lock held."""
        while self._late:
            name, entry = self._late.popitem()
            if entry is not None:
                self._registry.enter(entry)
            else:
                self._registry.withdraw(name)

    def change(self, name: str, new: Callable[[GroupConfig | None], GroupConfig | None]) -> None:
        """Change a group's entry and write the file, in another thread; on an error restore it.

        ``new``, called under the groups' lock, takes and returns an entry or ``None``; that lock is
        not held for the write. One thread at a time: an entry left unchanged is on the disk.
        """
        groups = self._groups
        with self._changing:
            with groups.lock:
                before = groups.get(name)
                after = new(before)
                if before is after:
                    return
                groups.set(name, after)
            try:
                groups.save()
            except BaseException:
                with groups.lock:
                    if groups.get(name) is after:
                        groups.set(name, before)
                raise

    def _save_soon(self) -> None:
        self._unsaved = True
        if self._saving is None:
            self._saving = self._work.spawn(self._save())

    async def _save(self) -> None:
        """Save in intervals as long as there are changes."""
        rest = _SAVE_SECONDS
        try:
            while self._unsaved:
                await asyncio.sleep(rest)
                self._unsaved = False
                rest = _SAVE_SECONDS
                began = time.monotonic()
                try:
                    await self._work.loop.run_in_executor(None, self._save_files)
                except (OSError, StoreError) as error:
                    self._unsaved = True
                    rest = _FAILED_SECONDS
                    self._work.log.warning("groups cannot be saved: %s", error)
                rest = max(rest, _REST * (time.monotonic() - began))
        finally:
            self._saving = None

    def _save_files(self) -> None:
        if self._late:
            with self._registry.lock:
                self._set_late_topics()
        self._groups.save()
        self._registry.save()

    def close(self) -> None:
        """Save pending changes."""
        if self._unsaved or self._saving is not None:
            self._unsaved = False
            try:
                self._save_files()
            except (OSError, StoreError) as error:
                self._work.log.warning("groups cannot be saved: %s", error)
