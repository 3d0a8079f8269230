"""Repair of a blank that is not the end of its log file."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import NamedTuple

from rmqstore import _core
from rmqstore.files.regular import open_regular
from rmqstore.offline.ranges import LogPlan
from rmqstore.toolbox.checks.blanks import early_blank
from rmqstore.toolbox.repairs.repair_lost import lost_records

__all__ = ["behind_blank"]

_REASON = "a blank before the end of the file's records"

Part = tuple[int, int, str]


class Hidden(NamedTuple):
    """Records that no reader of the log meets."""

    records: int
    damaged: list[Part]  # the parts between them, each but the last with a record behind it
    blanks: list[int]  # before them


def behind_blank(plan: LogPlan, at: int, stop: int) -> Hidden:
    """Return what is behind the blanks of a log file.

    ``at`` is the end of a valid record, ``stop`` that of the file. None, unless a queue names one
    of the records: a recovery may have cut records behind a blank.
    """
    count, damaged, blanks = 0, [], []
    while (blank := early_blank(plan, at, stop)) is not None:
        pieces = _pieces(plan, blank, stop)
        found = {start for start, _, kind in pieces if kind == "message"}
        named = lost_records(Path(plan.path), blank + 1, stop, own=True)
        if not any(one.offset in found for one in named):
            break
        ends = [blank, *(start + size for start, size, _ in pieces)]
        begins = [*(start for start, _, _ in pieces), stop]
        gaps = zip(ends, begins, strict=True)
        damaged += [(low, high, _REASON) for low, high in gaps if low < high]
        count += len(found)
        blanks.append(blank)
        at = pieces[-1][0] if pieces[-1][2] == "blank" else stop  # which may be too early as well
    return Hidden(count, damaged, blanks)


def _pieces(plan: LogPlan, blank: int, stop: int) -> list[tuple[int, int, str]]:
    """Return the records behind a blank, and the next blank."""
    with (
        open_regular(plan.file_of(blank)) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as whole,
        whole[blank % plan.file_size + 1 : plan.file_size] as rest,
    ):
        return _core.log_pieces(rest, blank + 1, stop)
