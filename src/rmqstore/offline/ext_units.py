"""Comparison of the ext units of a queue with the tags codes of its records.

Source: ``store/ConsumeQueueExt.java``.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from pathlib import Path

from rmqstore.base.layout import EXT_ADDRESS, EXT_UNIT, INT64_MIN, UNIT_FIELDS
from rmqstore.files import paths
from rmqstore.files.regular import open_regular
from rmqstore.offline.start_files import listed
from rmqstore.services.stored import SCHEDULE_TOPIC

__all__ = ["without_ext_unit"]


def without_ext_unit(
    root: str, topic: str, queue_id: int, expected: memoryview, found: bytes
) -> list[tuple[int, int]]:
    """Return the units whose ext unit lacks the record's tags code: number and ext offset.

    A unit with a plain tags code has no ext unit; ext units of delayed messages have times.
    """
    with closing(_ExtFiles(root, topic, queue_id)) as files:
        return files.wrong(expected, found)


class _ExtFiles:
    """Ext files of a queue, read as they are; ``close`` them."""

    def __init__(self, root: str, topic: str, queue_id: int) -> None:
        self._directory = Path(root, paths.CONSUME_QUEUE_EXT, topic, str(queue_id))
        lengths = Counter(one.size for one in listed(self._directory) or [] if one.size > 0)
        self._has_times = topic == SCHEDULE_TOPIC  # in the place of tags codes
        self._file_bytes = lengths.most_common(1)[0][0] if lengths else 0
        self._opened: tuple[int, int] | None = None  # start of a file, and its descriptor

    def close(self) -> None:
        """Close the file read last."""
        if self._opened is not None:
            os.close(self._opened[1])
            self._opened = None

    def wrong(self, expected: memoryview, found: bytes) -> list[tuple[int, int]]:
        """Return the units whose ext unit lacks the record's tags code: number and ext offset."""
        import numpy as np

        codes = np.frombuffer(found, UNIT_FIELDS)["tags_code"]
        wanted = np.frombuffer(expected, UNIT_FIELDS)["tags_code"]
        return [
            (number, int(codes[number]) - INT64_MIN)
            for number in (codes <= EXT_ADDRESS).nonzero()[0].tolist()
            if not self._is_right(int(codes[number]) - INT64_MIN, int(wanted[number]))
        ]

    def _is_right(self, offset: int, wanted: int) -> bool:
        code = self._tags_code(offset)
        return code is not None if self._has_times else code == wanted

    def _tags_code(self, offset: int) -> int | None:
        """Return the tags code of the ext unit at an offset, if there is one."""
        if self._file_bytes == 0:
            return None
        start = offset - offset % self._file_bytes
        if self._opened is None or self._opened[0] != start:
            self.close()
            try:
                with open_regular(self._directory / paths.offset_file_name(start)) as file:
                    self._opened = start, os.dup(file.fileno())
            except OSError:
                return None
        data = os.pread(self._opened[1], EXT_UNIT.size, offset - start)
        if len(data) < EXT_UNIT.size:
            return None
        size, code, _, bitmap = EXT_UNIT.unpack(data)
        return code if size == EXT_UNIT.size + max(0, bitmap) else None
