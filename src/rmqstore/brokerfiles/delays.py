"""``config/delayOffset.json``: progress of each delay level's delivery.

Source: ``store/schedule/ScheduleMessageService.java``, ``DelayOffsetSerializeWrapper.java``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqstore.base.arguments import shown
from rmqstore.base.layout import INT32_MAX, INT64_MAX
from rmqstore.brokerfiles.configfile import ConfigFile
from rmqstore.brokerfiles.fields import file_object, object_of
from rmqstore.files.paths import CONFIG, DELAY_OFFSET_JSON

__all__ = ["DelayTable"]

_TABLE = "offsetTable"


class DelayTable:
    """Progress of all delay levels of a store, and its file."""

    offsets: dict[int, int]

    def __init__(
        self, root: str | os.PathLike[str], check_owned: Callable[[], object] = lambda: None
    ) -> None:
        self.file = ConfigFile(Path(root) / CONFIG / DELAY_OFFSET_JSON, check_owned)
        self.offsets = {}  # delay level, from 1, to the next queue offset to deliver
        self._other: dict[str, Any] = {}

    @classmethod
    def load(
        cls, root: str | os.PathLike[str], check_owned: Callable[[], object] = lambda: None
    ) -> DelayTable:
        """Read the table of a store, empty without a file; ``StoreCorruptError`` if torn."""
        table = cls(root, check_owned)
        loaded = table.file.load(_decode)
        if loaded is not None:
            table.offsets, table._other = loaded
        return table

    def save(self) -> None:
        """Write the file; creates the ``config`` directory if it is missing."""
        self.file.save({_TABLE: dict(sorted(self.offsets.items())), **self._other})


def _decode(data: Any) -> tuple[dict[int, int], dict[str, Any]]:
    """Return level to offset, and the rest of a parsed file."""
    rest = file_object(data)
    table = object_of(_TABLE, rest.pop(_TABLE, None) or {})
    offsets: dict[int, int] = {}
    for key, offset in table.items():
        text = str(key)
        if not (text.isascii() and text.isdigit() and 0 < int(text[:11]) <= INT32_MAX):
            raise ValueError(f"level {shown(key)} must be 1 to {INT32_MAX}")
        if type(offset) is not int or not -1 <= offset <= INT64_MAX:
            raise ValueError(
                f"offset of level {text} is {shown(offset)}, must be -1 to {INT64_MAX}"
            )
        offsets[int(text)] = max(0, offset)
    return offsets, rest
