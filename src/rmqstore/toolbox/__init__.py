"""Tools for whole stores: diagnosis, sizes, searches, offsets, copies and exports.

Functions that return data and print nothing; the command line is a thin front with the same names.
They work on a copy and on a dead disk; readers work beside a live owner, too.

>>> from rmqstore import toolbox
>>> for one in toolbox.disk_use("data/store", by=("topic", "day"), top=20):
...     print(one.keys, one.bytes)
"""

from __future__ import annotations

from rmqstore.toolbox.checks.verify import Checked, Report, verify
from rmqstore.toolbox.copies.backups import BackupCheck, BackupFile, backup, verify_backup
from rmqstore.toolbox.copies.differences import Difference, difference
from rmqstore.toolbox.copies.extracts import Extracted, extract
from rmqstore.toolbox.disk_use import (
    DiskUse,
    Statistics,
    disk_use,
    statistics,
)
from rmqstore.toolbox.exchange.export import Exported, export
from rmqstore.toolbox.exchange.importing import Imported, import_messages
from rmqstore.toolbox.journey import Step, trace
from rmqstore.toolbox.offsets import (
    GroupOffset,
    offsets_by_time,
    offsets_clone,
    offsets_get,
    offsets_set,
)
from rmqstore.toolbox.plan import GroupLoss, Plan, PlanEvent, plan
from rmqstore.toolbox.prometheus import metrics_text
from rmqstore.toolbox.repairs.rebuild import Rebuilt, rebuild
from rmqstore.toolbox.repairs.repair import Action, Repair, repair, undo
from rmqstore.toolbox.reports import report
from rmqstore.toolbox.search import grep
from rmqstore.toolbox.settings import ConfigEntry, config_convert, config_lint, config_show
from rmqstore.toolbox.unconsumed import unconsumed

__all__ = [
    "Action",
    "BackupCheck",
    "BackupFile",
    "Checked",
    "ConfigEntry",
    "Difference",
    "DiskUse",
    "Exported",
    "Extracted",
    "GroupLoss",
    "GroupOffset",
    "Imported",
    "Plan",
    "PlanEvent",
    "Rebuilt",
    "Repair",
    "Report",
    "Statistics",
    "Step",
    "backup",
    "config_convert",
    "config_lint",
    "config_show",
    "difference",
    "disk_use",
    "export",
    "extract",
    "grep",
    "import_messages",
    "metrics_text",
    "offsets_by_time",
    "offsets_clone",
    "offsets_get",
    "offsets_set",
    "plan",
    "rebuild",
    "repair",
    "report",
    "statistics",
    "trace",
    "unconsumed",
    "undo",
    "verify",
    "verify_backup",
]
