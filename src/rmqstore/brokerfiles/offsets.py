"""``config/consumerOffset.json``: the progress of each consumer group in each queue.

With light queues enabled ``config/lmqConsumerOffset.json`` takes its place; groups named
``%LMQ%...`` have one offset a topic there, that of queue 0.

Source: ``broker/offset/ConsumerOffsetManager.java``, ``LmqConsumerOffsetManager.java``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rmqstore.base.arguments import shown
from rmqstore.base.layout import INT32_MAX, INT64_MAX, INT64_MIN
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.fields import file_object, object_of
from rmqstore.files.paths import CONFIG, CONSUMER_OFFSET_JSON, LMQ_CONSUMER_OFFSET_JSON

__all__ = ["LIGHT_PREFIX", "OffsetTable", "Offsets", "check_names"]

Offsets = dict[tuple[str, str], dict[int, int]]

_SEPARATOR = "@"
_TABLE = "offsetTable"
_LIGHT_TABLE = "lmqOffsetTable"
LIGHT_PREFIX = "%LMQ%"
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class OffsetTable:
    """Progress of all groups of a store, and its file, ``name`` under ``config``."""

    offsets: Offsets

    def __init__(self, root: str | os.PathLike[str], name: str = CONSUMER_OFFSET_JSON) -> None:
        self.file = ConfigFile(Path(root) / CONFIG / name)
        self.offsets = {}  # next queue offsets
        self._light = name == LMQ_CONSUMER_OFFSET_JSON
        self._unknown: dict[str, Any] = {}  # entries whose key is not a topic and group
        self._other: dict[str, Any] = {}

    @classmethod
    def load(cls, root: str | os.PathLike[str], name: str = CONSUMER_OFFSET_JSON) -> OffsetTable:
        """Read the table of a store, empty without a file; ``StoreCorruptError`` if torn."""
        table = cls(root, name)
        table.reload()
        return table

    def reload(self) -> None:
        """Reread the file, as :meth:`load`; on an error nothing changes."""
        loaded = self.file.load(_decode_light if self._light else _decode)
        self.offsets, self._unknown, self._other = loaded if loaded is not None else ({}, {}, {})

    def take_over(self, other: OffsetTable) -> None:
        """Copy the offsets of another file's table; this file is not written yet."""
        self.offsets = {names: dict(queues) for names, queues in other.offsets.items()}

    def save(self) -> None:
        """Write the file, in a new ``config`` if missing; ``ValueError`` if a name has ``@``."""
        self.file.save(self.to_json())

    def to_json(self, offsets: Offsets | None = None) -> dict[str, Any]:
        """Return the JSON to write, a copy; ``ValueError`` if a name contains ``@``.

        ``offsets`` are the table's, or a copy that nobody changes.
        """
        table: dict[str, Any] = {}
        light: dict[str, Any] = {}
        for (topic, group), queues in (self.offsets if offsets is None else offsets).items():
            check_names(topic, group)
            key = topic + _SEPARATOR + group
            if self._light and group.startswith(LIGHT_PREFIX):
                light[key] = next(iter(queues.values()), None)
            else:
                table[key] = dict(queues)
        written = {_TABLE: {**table, **self._unknown}, **self._other}
        return {_LIGHT_TABLE: light, **written} if self._light else written


def check_names(topic: str, group: str) -> None:
    """Raise ``ValueError`` unless the file can have a topic and a group together."""
    for kind, name in (("topic", topic), ("group", group)):
        if _SEPARATOR in name or not name:
            raise ValueError(
                f"{kind} must not be empty or contain '@', which separates topic and group in "
                f"{CONSUMER_OFFSET_JSON}; got {name!r}"
            )


def _decode_light(data: Any) -> tuple[Offsets, dict[str, Any], dict[str, Any]]:
    """Decode as :func:`_decode`, with the offsets of light groups among the others."""
    offsets, unknown, rest = _decode(data)
    table = object_of(_LIGHT_TABLE, rest.pop(_LIGHT_TABLE, None) or {})
    for key, offset in table.items():
        names = str(key).split(_SEPARATOR)
        if len(names) != 2 or not all(names):
            raise ValueError(f"{shown(key)} in {_LIGHT_TABLE} is not a topic and a group")
        offsets[names[0], names[1]] = _decode_queues(str(key), {0: offset})
    return offsets, unknown, rest


def _decode(data: Any) -> tuple[Offsets, dict[str, Any], dict[str, Any]]:
    """Return offsets, entries of unknown form, and the rest of a parsed file."""
    rest = file_object(data)
    table = object_of(_TABLE, rest.pop(_TABLE, None) or {})
    offsets: Offsets = {}
    unknown: dict[str, Any] = {}
    for key, queues in table.items():
        names = str(key).split(_SEPARATOR)
        if len(names) == 2 and all(names):
            offsets[names[0], names[1]] = _decode_queues(str(key), queues)
        else:
            unknown[key] = queues
    return offsets, unknown, rest


def _decode_queues(where: str, queues: Any) -> dict[int, int]:
    """Return queue id to offset; keys may be quoted, as other JSON writers do."""
    result: dict[int, int] = {}
    for key, offset in object_of(shown(where), queues).items():
        if isinstance(key, str) and _NUMBER.fullmatch(key) is None:
            raise ValueError(f"queue {shown(key)} of {shown(where)} is no number")
        queue_id = int(key)
        if not 0 <= queue_id <= INT32_MAX:
            raise ValueError(f"queue {shown(queue_id)} of {shown(where)} must be 0 to {INT32_MAX}")
        if type(offset) is not int or not INT64_MIN <= offset <= INT64_MAX:
            raise ValueError(f"offset of queue {queue_id} of {shown(where)} is {shown(offset)}")
        result[queue_id] = offset
    return result
