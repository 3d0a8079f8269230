"""Repair of records' fields that no checksum covers, by the units that lead to the records."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.start_files import relative
from rmqstore.toolbox.checks.record_headers import HeaderCheck, HeaderFault
from rmqstore.toolbox.repairs.derived import Derived
from rmqstore.toolbox.repairs.journal import Journal
from rmqstore.toolbox.repairs.repair_plan import Action, Change

__all__ = ["header_changes"]


def header_changes(plan: LogPlan, derived: Derived) -> list[Change]:
    """Return the changes of the fields, and drop what they mend from ``derived``."""
    changes = []
    for key, state in sorted(derived.queues.items()):
        for fault in HeaderCheck(plan, key).faults(state.loose):
            changes.append(_change(plan, fault))
            derived.queues.pop(key, None)
            if fault.named is not None:
                derived.queues.pop(fault.named, None)
            derived.index_same = True
    return changes


def _change(plan: LogPlan, fault: HeaderFault) -> Change:
    file = relative(Path(plan.path), plan.file_of(fault.offset))
    action = Action("mend-record", file, fault.offset, len(fault.data), fault.message)
    return Change(
        action, partial(_mend, file, fault.offset % plan.file_size + fault.at, fault.data)
    )


def _mend(file: str, at: int, data: bytes, journal: Journal) -> str:
    return journal.overwrite(file, at, at + len(data), [(at, data)])
