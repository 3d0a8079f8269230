"""``config/topics.json``: topics and their queue counts.

Source: ``broker/topic/TopicConfigManager.java``, ``common/TopicConfig.java``,
``common/DataVersion.java``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.base.arguments import shown
from rmqstore.brokerfiles.entrytable import EntryTable
from rmqstore.brokerfiles.fields import DataVersion, object_of, take_bool, take_int, take_str
from rmqstore.files.paths import TOPICS_JSON

__all__ = ["DataVersion", "TopicConfig", "TopicTable"]

PERM_READ_WRITE = 6


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Entry of a topic."""

    topic_name: str  # as in the file: check ``paths.is_topic_name`` before use in a path
    read_queue_nums: int = 16  # seen by consumers
    write_queue_nums: int = 16  # seen by producers
    perm: int = PERM_READ_WRITE  # sum of 4 read, 2 write, 1 inherit, 8 priority
    topic_filter_type: str = "SINGLE_TAG"  # or ``MULTI_TAG``
    topic_sys_flag: int = 0  # 1 unit, 2 unit subscription
    order: bool = False
    other: Mapping[str, Any] = field(default_factory=dict)  # written back

    @classmethod
    def from_json(cls, name: str, entry: Any) -> TopicConfig:
        """Return the topic of an entry; ``ValueError`` if it is invalid."""
        rest = object_of(f"topic {shown(name)}", entry)
        rest.pop("topicName", None)
        return cls(
            topic_name=name,
            read_queue_nums=take_int(rest, name, "readQueueNums", 16),
            write_queue_nums=take_int(rest, name, "writeQueueNums", 16),
            perm=take_int(rest, name, "perm", PERM_READ_WRITE),
            topic_filter_type=take_str(rest, name, "topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=take_int(rest, name, "topicSysFlag", 0),
            order=take_bool(rest, name, "order", False),
            other=rest,
        )

    @property
    def name(self) -> str:
        """Key of the entry."""
        return self.topic_name

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the broker writes it: names in alphabetical order."""
        entry: dict[str, Any] = {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }
        if self.other:
            entry = dict(sorted((dict(self.other) | entry).items()))
        return entry


class TopicTable(EntryTable[TopicConfig]):
    """Topics of a store, and their file, ``config/topics.json``."""

    _FILE = TOPICS_JSON
    _TABLE = "topicConfigTable"
    _ENTRY = TopicConfig
