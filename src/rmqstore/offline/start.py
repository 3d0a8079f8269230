"""Start of a 4.9.3 broker on a store, predicted from its files: whether it loads, what it loses.

Source: ``broker/BrokerController.java initialize``, ``common/ConfigManager.java load``,
``store/DefaultMessageStore.java load``, ``start``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore import opening
from rmqstore.config.store_config import StoreConfig, read_as_broker
from rmqstore.directory.layout import log_directories
from rmqstore.errors import StoreNotFoundError
from rmqstore.files import paths
from rmqstore.offline.findings import BrokerStart, Finding
from rmqstore.offline.start_files import FileSizes, load_findings
from rmqstore.offline.start_json import json_findings
from rmqstore.offline.start_losses import loss_findings
from rmqstore.offline.unit_search import queues_of

if TYPE_CHECKING:
    from rmqstore.store import MessageStore
    from rmqstore.types import RecoveredRange

__all__ = ["broker_start", "broker_start_of", "verdict_on"]


def broker_start(
    path: str | os.PathLike[str], *, config: StoreConfig | str | os.PathLike[str] | None = None
) -> BrokerStart:
    """Predict the start of a 4.9.3 broker on a store, by the checks of its ``load``.

    Reads little beyond names, lengths and both ends of files, and changes nothing. Works on a
    copy, on a dead disk and beside a live owner, for a start as if the owner were killed now.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    config : StoreConfig or path of a broker.conf, optional
        The broker's. Sizes it leaves unset are inferred from the files, as if configured right;
        a size shown by a single file is a finding unless it is the default.

    Returns
    -------
    BrokerStart
        Whether the broker starts, its own log line if not, and every finding.

    Raises
    ------
    StoreNotFoundError
        Neither a log nor a queue.
    IncompatibleStoreError
        A DLedger store.
    OSError
        A system call fails.
    ValueError
        The configuration is out of range, or names the log of another store.

    Notes
    -----
    Source: ``broker/BrokerController.java initialize``.
    """
    chosen = config
    if chosen is not None and not isinstance(chosen, StoreConfig):
        chosen = read_as_broker(chosen)
    try:
        with opening.open(path, config=chosen) as opened:
            return broker_start_of(opened, chosen)
    except StoreNotFoundError:
        root = Path(os.fsdecode(path))
        if not any((root / paths.CONSUME_QUEUE).glob("*/*/*")):
            raise
        return verdict_on(_without_log(root))


def broker_start_of(
    opened: MessageStore,
    config: StoreConfig | None = None,
    *,
    examined: Sequence[RecoveredRange] | None = None,
) -> BrokerStart:
    """Predict the start on a store open with ``"r"``; ``config`` is the broker's.

    ``examined``: all damage of the log, if it was read whole; the queues are then, too.
    """
    root = Path(opened.path)
    sizes = FileSizes.of(opened.config, config)
    directories = log_directories(opened.path, opened.config)
    ext = None if config is None else config.enable_consume_queue_ext
    findings = [
        *json_findings(root, opened.topics.values()),
        *load_findings(root, directories, sizes, ext=ext),
    ]
    if all(one.severity != "stop" for one in findings):
        findings += loss_findings(opened, root, directories, sizes, examined)
    found = verdict_on(findings)
    if found.messages_lost:  # for more than one reason, maybe
        most = sum(queue.messages for _, queue in queues_of(opened.core))
        found = replace(found, messages_lost=min(found.messages_lost, most))
    return found


def _without_log(root: Path) -> Iterable[Finding]:
    """Yield the finding for a log without files: a broker deletes its queues."""
    yield Finding(
        "lost",
        "missing-file",
        paths.COMMIT_LOG,
        None,
        "the log has no file: a broker deletes every consume queue; mount its disk first",
        line="The commitlog files are deleted, and delete the consume queue files",
        by_start=True,
    )


def verdict_on(findings: Iterable[Finding]) -> BrokerStart:
    """Order the findings, worst first, and return the verdict."""
    order = {"stop": 0, "lost": 1, "warn": 2}
    every = tuple(sorted(findings, key=lambda one: (order[one.severity], not one.by_start)))
    worst = every[0] if every else None
    lost = sum(one.messages for one in every if one.by_start)
    if worst is not None and worst.severity == "stop":
        return BrokerStart("refuses", worst.line, 0, every)
    if any(one.loops for one in every):
        looping = next(one for one in every if one.loops)
        return BrokerStart("loops", looping.line, lost, every)
    if worst is not None and worst.by_start:
        return BrokerStart("loses", worst.line, lost, every)
    return BrokerStart("starts", None, 0, every)
