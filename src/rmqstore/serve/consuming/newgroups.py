"""Groups created by their consumers: at once in memory, soon in the files.

A thousand consumers may come at a time, and each group is an entry in two files that are written
whole. Another thread writes them, for all groups that have come meanwhile.

Source: ``broker/subscription/SubscriptionGroupManager.java findSubscriptionGroupConfig``,
``broker/topic/TopicConfigManager.java createTopicInSendMessageBackMethod``.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rmqstore import paths
from rmqstore.brokerfiles.groups import GroupConfig
from rmqstore.brokerfiles.topics import TopicConfig
from rmqstore.errors import StoreError
from rmqstore.serve.shares import Shares
from rmqstore.serve.wire.codes import ResponseCode
from rmqstore.serve.wire.frames import Refusal

if TYPE_CHECKING:
    from rmqstore.serve.gateway import Gateway

__all__ = ["NewGroups"]

_UNIT_SUB = 2  # TopicSysFlag: hasUnitSub
_SAVE_SECONDS = 0.05  # between two saves
_REST = 10  # times the duration of the last save, at least
_FAILED_SECONDS = 5.0  # after a failed save
_LOOK_SECONDS = 1.0  # between sweeps for unused groups, each over all of them


class NewGroups:
    """Creates groups for consumers, and their retry topics."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._unsaved = False
        self._saving: asyncio.Task[None] | None = None
        self._shares = Shares(gateway.settings.limits.topics)
        self._makers: dict[str, str] = {}
        self._look_from = 0.0
        gateway.closing.append(self.close)
        self._recount()

    def config(self, name: str, owner: str) -> GroupConfig | None:
        """Return a group's entry, made if consumers may create groups; else ``None``.

        ``None`` where they are not, and there is none of this name.
        """
        groups = self._gateway.store._groups
        entry = groups.get(name)
        if entry is None and self._gateway.settings.auto_create_groups:
            self.take(name, owner)
            entry = groups.enter(GroupConfig(name))
            self._save_soon()
        return entry

    def take(self, name: str, owner: str) -> None:
        """Count a group that is about to be made; ``Refusal`` if there are too many."""
        if not self._has_room(owner):
            self._take_back()
            if not self._has_room(owner):
                count = len(self._gateway.store._groups)
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group {name} is not made: there are {count} already, "
                    f"{self._shares.of(owner)} of {owner}",
                )
        self._makers[name] = owner
        self._shares.take((owner,))

    def _has_room(self, owner: str) -> bool:
        return len(self._gateway.store._groups) < self._shares.most and self._shares.has_room(
            (owner,)
        )

    def _take_back(self) -> None:
        """Remove unused groups, and recount the rest."""
        groups = self._gateway.store._groups
        began = time.monotonic()
        if began >= self._look_from:
            self._remove_unused()
        elif len(groups) == self._shares.taken:
            return
        self._recount()
        ended = time.monotonic()
        self._look_from = ended + max(_LOOK_SECONDS, _REST * (ended - began))

    def _recount(self) -> None:
        names = [entry.group_name for entry in self._gateway.store._groups]
        self._makers = {name: self._makers[name] for name in names if name in self._makers}
        self._shares.recount(
            ((self._makers[name],) if name in self._makers else (), 1) for name in names
        )

    def _remove_unused(self) -> None:
        """Remove groups without member, offset, message or changed setting."""
        gateway = self._gateway
        store = gateway.store
        read = {group for _, group in store._progress.counts()}

        def is_unused(entry: GroupConfig) -> bool:
            name = entry.group_name
            return (
                name not in read
                and gateway.clients.group(name) is None
                and not store._has_consumers(name)
                and store._bounds(paths.retry_topic(name), 0) in (None, (0, 0))
                and entry.to_json() == GroupConfig(name).to_json()
            )

        unused = [entry.group_name for entry in store._groups if is_unused(entry)]
        if unused:
            store._groups.leave(unused)
            store._registry.leave(map(paths.retry_topic, unused))
            self._save_soon()

    def make_retry_topic(self, group: GroupConfig, *, unit_mode: bool) -> None:
        """Make the retry topic of a group if it is missing."""
        topic = paths.retry_topic(group.group_name)
        store = self._gateway.store
        if group.retry_queue_nums <= 0 or store._registry.get(topic) is not None:
            return
        queues = min(group.retry_queue_nums, self._gateway.settings.most_queues)
        flag = _UNIT_SUB if unit_mode else 0
        with store._registry.lock:
            store._registry.enter(TopicConfig(topic, queues, queues, topic_sys_flag=flag))
        self._save_soon()

    def _save_soon(self) -> None:
        self._unsaved = True
        if self._saving is None:
            self._saving = self._gateway.spawn(self._save())

    async def _save(self) -> None:
        """Save in intervals as long as there are changes."""
        loop = self._gateway.loop
        rest = _SAVE_SECONDS
        try:
            while self._unsaved:
                await asyncio.sleep(rest)
                self._unsaved = False
                rest = _SAVE_SECONDS
                began = time.monotonic()
                try:
                    await loop.run_in_executor(None, self._save_files)
                except (OSError, StoreError) as error:
                    self._unsaved = True
                    rest = _FAILED_SECONDS
                    self._gateway.log.warning("groups cannot be saved: %s", error)
                rest = max(rest, _REST * (time.monotonic() - began))
        finally:
            self._saving = None

    def _save_files(self) -> None:
        store = self._gateway.store
        store._groups.save()
        store._registry.save()

    def close(self) -> None:
        """Save pending changes."""
        if self._unsaved or self._saving is not None:
            self._unsaved = False
            try:
                self._save_files()
            except (OSError, StoreError) as error:
                self._gateway.log.warning("groups cannot be saved: %s", error)
