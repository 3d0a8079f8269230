"""Blanks that are not the end of their log file: a misplaced write, or an older page.

Every reader of the log passes over what is behind; a queue still leads there.
Source: ``store/CommitLog.java checkMessageAndReturnSize``.
"""

from __future__ import annotations

import contextlib
import os
from typing import BinaryIO

from rmqstore.base import layout
from rmqstore.errors import MessagesRemovedError
from rmqstore.files.regular import open_regular
from rmqstore.offline.ranges import LogPlan

__all__ = ["blank_of", "early_blank"]

_PIECE = 1 << 20


def blank_of(plan: LogPlan, offset: int) -> int | None:
    """Return the offset of the blank of a log file with something behind it, if there is one."""
    files = plan.by_files()
    walk = files.walk((offset - plan.first) // plan.file_size)
    start = offset - offset % plan.file_size
    last = start
    with contextlib.suppress(MessagesRemovedError):
        for found in walk.slices():
            last = max([last, *(run.log_stop for run in found.runs)])
    last = max([last, *(one.resumed for one in walk.damages)])
    return early_blank(plan, last, start + plan.file_size)


def early_blank(plan: LogPlan, at: int, stop: int) -> int | None:
    """Return the offset of a blank with something behind it.

    ``at`` is the end of a valid record, ``stop`` that of the file.
    """
    try:
        with open_regular(plan.file_of(stop - 1)) as file:
            blank = _blank(file, at, stop, plan.file_size)
            if blank is not None and _has_more(file, blank % plan.file_size, plan.file_size):
                return blank
    except FileNotFoundError:
        pass
    return None


def _blank(file: BinaryIO, at: int, stop: int, file_size: int) -> int | None:
    """Return the offset of the blank behind a record, over records without a unit."""
    while at + layout.RECORD_BLANK_BYTES <= stop:
        head = os.pread(file.fileno(), layout.RECORD_BLANK_BYTES, at % file_size)
        if len(head) < layout.RECORD_BLANK_BYTES:
            return None
        size, magic = layout.RECORD_START.unpack(head)
        if magic == layout.MAGIC_BLANK:
            return at
        if magic != layout.MAGIC_MESSAGE or size < layout.RECORD_FIXED_BYTES:
            return None
        at += size
    return None


def _has_more(file: BinaryIO, blank: int, stop: int) -> bool:
    """Whether anything but zeros follows a blank; places in the file."""
    return any(
        os.pread(file.fileno(), min(_PIECE, stop - at), at).strip(b"\0")
        for at in range(blank + layout.RECORD_BLANK_BYTES, stop, _PIECE)
    )
