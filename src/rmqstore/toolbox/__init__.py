"""Tools for whole stores: diagnosis, sizes, searches, offsets, copies and exports.

Functions that return data and print nothing; the command line is a thin front with the same names.
They work on a copy and on a dead disk; readers work beside a live owner, too.

>>> from rmqstore import toolbox
>>> for one in toolbox.disk_use("data/store", by=("topic", "day"), top=20):
...     print(one.keys, one.bytes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.base.lazy import loaded_on_use

if TYPE_CHECKING:
    from rmqstore.toolbox.backlog import unconsumed
    from rmqstore.toolbox.checks.verify import Checked, Report, verify
    from rmqstore.toolbox.copies.backups import BackupCheck, BackupFile, backup, verify_backup
    from rmqstore.toolbox.copies.differences import Difference, difference
    from rmqstore.toolbox.copies.extracts import Extracted, extract
    from rmqstore.toolbox.exchange.export import Exported, export
    from rmqstore.toolbox.exchange.importing import Imported, import_messages
    from rmqstore.toolbox.forecast import GroupLoss, Plan, PlanEvent, plan
    from rmqstore.toolbox.journey import Step, trace
    from rmqstore.toolbox.offsets import (
        GroupOffset,
        offsets_by_time,
        offsets_clone,
        offsets_get,
        offsets_set,
    )
    from rmqstore.toolbox.prometheus import metrics_text
    from rmqstore.toolbox.repairs.rebuild import Rebuilt, rebuild
    from rmqstore.toolbox.repairs.repair import Action, Repair, repair, undo
    from rmqstore.toolbox.reports import report
    from rmqstore.toolbox.search import grep
    from rmqstore.toolbox.settings import ConfigEntry, config_convert, config_lint, config_show
    from rmqstore.toolbox.sizes import (
        DiskUse,
        Statistics,
        disk_use,
        statistics,
    )

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

_MODULES = {
    "Action": "repairs.repair",
    "BackupCheck": "copies.backups",
    "BackupFile": "copies.backups",
    "Checked": "checks.verify",
    "ConfigEntry": "settings",
    "Difference": "copies.differences",
    "DiskUse": "sizes",
    "Exported": "exchange.export",
    "Extracted": "copies.extracts",
    "GroupLoss": "forecast",
    "GroupOffset": "offsets",
    "Imported": "exchange.importing",
    "Plan": "forecast",
    "PlanEvent": "forecast",
    "Rebuilt": "repairs.rebuild",
    "Repair": "repairs.repair",
    "Report": "checks.verify",
    "Statistics": "sizes",
    "Step": "journey",
    "backup": "copies.backups",
    "config_convert": "settings",
    "config_lint": "settings",
    "config_show": "settings",
    "difference": "copies.differences",
    "disk_use": "sizes",
    "export": "exchange.export",
    "extract": "copies.extracts",
    "grep": "search",
    "import_messages": "exchange.importing",
    "metrics_text": "prometheus",
    "offsets_by_time": "offsets",
    "offsets_clone": "offsets",
    "offsets_get": "offsets",
    "offsets_set": "offsets",
    "plan": "forecast",
    "rebuild": "repairs.rebuild",
    "repair": "repairs.repair",
    "report": "reports",
    "statistics": "sizes",
    "trace": "journey",
    "unconsumed": "backlog",
    "undo": "repairs.repair",
    "verify": "checks.verify",
    "verify_backup": "copies.backups",
}

__getattr__, __dir__ = loaded_on_use(__name__, _MODULES)
