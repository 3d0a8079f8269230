"""``config/subscriptionGroup.json``: consumer groups and their permissions.

Source: ``broker/subscription/SubscriptionGroupManager.java``,
``common/subscription/SubscriptionGroupConfig.java``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.base.arguments import shown
from rmqstore.brokerfiles.entrytable import EntryTable
from rmqstore.brokerfiles.fields import object_of, take_bool, take_int
from rmqstore.files.paths import SUBSCRIPTION_GROUP_JSON

__all__ = ["RETRY_MAX", "GroupConfig", "GroupTable"]

RETRY_MAX = 16


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Entry of a group."""

    group_name: str  # as in the file, not checked: see ``paths.is_group_name``
    consume_enable: bool = True
    consume_broadcast_enable: bool = True  # each consumer may get every message
    retry_queue_nums: int = 1  # of its retry topic
    retry_max_times: int = RETRY_MAX  # then a message is a dead letter
    other: Mapping[str, Any] = field(default_factory=dict)  # written back

    @classmethod
    def from_json(cls, name: str, entry: Any) -> GroupConfig:
        """Return the group of an entry; ``ValueError`` if it is invalid."""
        rest = object_of(f"group {shown(name)}", entry)
        rest.pop("groupName", None)
        return cls(
            group_name=name,
            consume_enable=take_bool(rest, name, "consumeEnable", True),
            consume_broadcast_enable=take_bool(rest, name, "consumeBroadcastEnable", True),
            retry_queue_nums=take_int(rest, name, "retryQueueNums", 1, least=None),
            retry_max_times=take_int(rest, name, "retryMaxTimes", RETRY_MAX, least=None),
            other=rest,
        )

    @property
    def name(self) -> str:
        """Key of the entry."""
        return self.group_name

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the broker writes it: names in alphabetical order."""
        entry: dict[str, Any] = {
            "brokerId": 0,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": True,
            "groupName": self.group_name,
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        return dict(sorted((entry | dict(self.other)).items()))


class GroupTable(EntryTable[GroupConfig]):
    """Consumer groups of a store, and their file, ``config/subscriptionGroup.json``."""

    _FILE = SUBSCRIPTION_GROUP_JSON
    _TABLE = "subscriptionGroupTable"
    _ENTRY = GroupConfig
