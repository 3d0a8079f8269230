"""``config/topics.json``: the topics and their numbers of queues.

Source: ``broker/topic/TopicConfigManager.java``, ``common/TopicConfig.java``,
``common/DataVersion.java``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.paths import CONFIG, TOPICS_JSON

__all__ = ["DataVersion", "TopicConfig", "TopicTable"]

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
PERM_READ_WRITE = 6


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic.

    Attributes
    ----------
    topic_name : str
        As in the file.  It is not checked to be safe as part of a path: see
        ``rmqstore.paths.is_topic_name``.
    read_queue_nums, write_queue_nums : int
        Queues that consumers and producers see.
    perm : int
        Sum of 4 read, 2 write, 1 inherit, 8 priority.
    topic_filter_type : str
        ``SINGLE_TAG`` or ``MULTI_TAG``.
    topic_sys_flag : int
        1 unit, 2 unit subscription.
    order : bool
        The topic is an ordered one.
    other : mapping
        The entry's other fields, which are written back.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, name: str, entry: Any) -> TopicConfig:
        """Return the topic that an entry describes; ``ValueError`` if it is invalid."""
        if not isinstance(entry, dict):
            raise ValueError(f"topic {name!r} is {type(entry).__name__}, must be an object")
        rest = dict(entry)
        rest.pop("topicName", None)
        return cls(
            topic_name=name,
            read_queue_nums=_take_int(rest, name, "readQueueNums", 16),
            write_queue_nums=_take_int(rest, name, "writeQueueNums", 16),
            perm=_take_int(rest, name, "perm", PERM_READ_WRITE),
            topic_filter_type=_take_str(rest, name, "topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=_take_int(rest, name, "topicSysFlag", 0),
            order=_take_bool(rest, name, "order", False),
            other=rest,
        )

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


@dataclass(slots=True)
class DataVersion:
    """How often and when the table was changed.

    Attributes
    ----------
    counter : int
        Changes.
    timestamp : int
        Time of the last one, in ms.
    other : dict
        Fields added by newer releases, which are written back.
    """

    counter: int = 0
    timestamp: int = 0
    other: dict[str, Any] = field(default_factory=dict)

    def next(self) -> None:
        """Count a change made now."""
        self.counter += 1
        self.timestamp = time.time_ns() // 1_000_000


class TopicTable:
    """All topics of a store, and their file.

    Parameters
    ----------
    root : str or os.PathLike
        The store; the file is ``config/topics.json`` under it.

    Attributes
    ----------
    version : DataVersion
        Increased by one with each change.
    """

    version: DataVersion

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.file = ConfigFile(Path(root) / CONFIG / TOPICS_JSON)
        self.version = DataVersion()
        self._topics: dict[str, TopicConfig] = {}
        self._other: dict[str, Any] = {}

    @classmethod
    def load(cls, root: str | os.PathLike[str]) -> TopicTable:
        """Read the table of a store; an empty one if there is no file.

        Raises
        ------
        StoreCorruptError
            The file is torn, and its ``.bak`` is torn or missing.
        OSError
            It cannot be read.
        """
        table = cls(root)
        table.reload()
        return table

    def reload(self) -> None:
        """Read the file again, as :meth:`load` does; on an error nothing changes."""
        loaded = self.file.load(_decode)
        version, topics, other = loaded if loaded is not None else (DataVersion(), {}, {})
        self.version = version
        self._topics = topics
        self._other = other

    def save(self) -> None:
        """Write the file; creates the ``config`` directory if it is missing.

        Raises
        ------
        OSError
            It cannot be written; the file is unchanged.
        """
        self.file.path.parent.mkdir(exist_ok=True)
        self.file.save(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON to write."""
        version = self.version
        return {
            "dataVersion": {
                **version.other,
                "counter": version.counter,
                "timestamp": version.timestamp,
            },
            "topicConfigTable": {name: one.to_json() for name, one in self._topics.items()},
            **self._other,
        }

    def put(self, topic: TopicConfig) -> None:
        """Add or replace a topic; the file is not written yet."""
        self._topics[topic.topic_name] = topic
        self.version.next()

    def remove(self, name: str) -> bool:
        """Remove a topic, and tell whether it was there; the file is not written yet."""
        if self._topics.pop(name, None) is None:
            return False
        self.version.next()
        return True

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic, ``None`` if there is none of this name."""
        return self._topics.get(name)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a topic of this name."""
        return name in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        """Iterate over the topics as they are now."""
        return iter(list(self._topics.values()))

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._topics)


def _decode(data: Any) -> tuple[DataVersion, dict[str, TopicConfig], dict[str, Any]]:
    """Return version, topics and the rest of a parsed file."""
    if not isinstance(data, dict):
        raise ValueError(f"the file holds {type(data).__name__}, must be an object")
    rest = dict(data)
    table = rest.pop("topicConfigTable", None) or {}
    written = rest.pop("dataVersion", None) or {}
    if not isinstance(table, dict) or not isinstance(written, dict):
        raise ValueError("topicConfigTable and dataVersion must be objects")
    fields = dict(written)
    version = DataVersion(
        counter=_take_int(fields, "dataVersion", "counter", 0, _LONG_MAX),
        timestamp=_take_int(fields, "dataVersion", "timestamp", 0, _LONG_MAX),
        other=fields,
    )
    topics = {str(name): TopicConfig.from_json(str(name), one) for name, one in table.items()}
    return version, topics, rest


def _take_int(
    entry: dict[str, Any], where: str, name: str, default: int, most: int = _INT_MAX
) -> int:
    """Remove a number of 0 to ``most`` from ``entry`` and return it."""
    value = entry.pop(name, None)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} of {where!r} is {value!r}, must be 0 to {most}")
    return value


def _take_str(entry: dict[str, Any], where: str, name: str, default: str) -> str:
    """Remove a text from ``entry`` and return it."""
    value = entry.pop(name, None)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ValueError(f"{name} of {where!r} is {value!r}, must be text")
    return value


def _take_bool(entry: dict[str, Any], where: str, name: str, default: bool) -> bool:
    """Remove a boolean from ``entry`` and return it."""
    value = entry.pop(name, None)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"{name} of {where!r} is {value!r}, must be true or false")
    return value
