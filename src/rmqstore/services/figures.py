"""Runtime statistics of an open store, under RocketMQ's names and ours.

Source: ``store/StoreStatsService.java getRuntimeInfo``, ``store/DefaultMessageStore.java
getRuntimeInfo``, ``broker/processor/AdminBrokerProcessor.java prepareRuntimeInfo``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqstore._core import Core
from rmqstore.directory.layout import log_directories
from rmqstore.errors import MessageNotFoundError, StoreCorruptError
from rmqstore.files import paths

__all__ = ["PUT_TIME_CLASSES", "RATE_SECONDS", "Figures", "disk_used_ratio"]

PUT_TIME_CLASSES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
RATE_SECONDS = (10, 60, 600)

_WRITTEN = ("wrote_position", "flushed_position", "dispatched_position")
_BEHIND = ("flush_behind_bytes", "dispatch_behind_bytes", "dispatch_behind_ms", "put_calls")


class Figures:
    """Runtime statistics of a store; ``log_end`` finds the current end of a reader's log."""

    def __init__(self, core: Core, log_end: Callable[[Core], int]) -> None:
        self._core = core
        self._log_end = log_end

    def stats(self) -> dict[str, Any]:
        """Return positions, counters, times and rates.

        Returns
        -------
        dict of str to int, float, str, tuple or dict
            Under two kinds of names, so that both can be searched for.  Ours in snake_case: byte
            positions in the log (``wrote_position``, ``flushed_position``,
            ``dispatched_position``) and how far behind flush and dispatch are
            (``flush_behind_bytes``, ``dispatch_behind_bytes``, ``dispatch_behind_ms``: between
            the store times of the last record and of the last one dispatched), syncs so far
            (``commit_log_syncs``, ``consume_queue_syncs``), ``topics``, ``queues``,
            ``index_files``, ``skipped_records``, whose topic or queue id is invalid, the size of
            deleted files that messages hold (``held_deleted_bytes``), and records and bytes
            read by scans (``scanned_records``, ``scanned_bytes``).

            Under RocketMQ's own names its runtime info: ``bootTimestamp`` (ms),
            ``runtime``, ``putMessageTimesTotal`` and ``putMessageSizeTotal`` (records and their
            bytes), ``putMessageAverageSize``, ``putMessageFailedTimes`` (calls),
            ``putMessageEntireTimeMax`` and ``getMessageEntireTimeMax`` (ms),
            ``putMessageDistributeTime`` (calls by how long they took, the wait for the disk
            included), ``dispatchMaxBuffer`` (bytes), ``putTps``, ``getFoundTps``,
            ``getMissTps``, ``getTotalTps``, ``getTransferedTps`` (per second, over the last 10,
            60 and 600 seconds, or as long as the store has been open), ``commitLogMinOffset``,
            ``commitLogMaxOffset``, ``commitLogDiskRatio``, ``consumeQueueDiskRatio`` (of the
            file system, 0 to 1; -1 where unknown), ``earliestMessageTimeStamp`` (-1:
            none), ``remainHowManyDataToFlush`` (bytes), ``commitLogDirCapacity`` (bytes:
            ``total``, ``free``).

        Raises
        ------
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        RocketMQ returns all of it as text; numbers are numbers here.  A put's time is measured
        to a tick of the system, some milliseconds.  Put times and rates exist only in stores that
        are open for writing: a reader has none.
        Source: ``store/StoreStatsService.java``.
        """
        found: dict[str, Any] = dict(self._core.stats())
        counted = self._core.figures()
        if self._core.mode == "r":  # nothing is behind; the log's end has to be found
            end = self._log_end(self._core)
            found.update(dict.fromkeys(_WRITTEN, end))
            found.update(dict.fromkeys(_BEHIND, 0))
        records = counted["put_records"]
        found.update(
            bootTimestamp=counted["opened_at"],
            runtime=_runtime(self._core.now() - counted["opened_at"]),
            putMessageEntireTimeMax=counted["put_most_ns"] // 1_000_000,
            putMessageTimesTotal=records,
            putMessageFailedTimes=counted["put_failed"],
            putMessageSizeTotal=counted["put_bytes"],
            putMessageDistributeTime=dict(zip(PUT_TIME_CLASSES, counted["put_times"], strict=True)),
            putMessageAverageSize=counted["put_bytes"] / max(1, records),
            dispatchMaxBuffer=counted["behind_most"],
            getMessageEntireTimeMax=counted["get_most_ns"] // 1_000_000,
            commitLogMinOffset=counted["log_first"],
            commitLogMaxOffset=found["wrote_position"],
            earliestMessageTimeStamp=self._earliest_time(counted["log_first"]),
            remainHowManyDataToFlush=found.get("flush_behind_bytes", 0),
        )
        found.update(_rates(counted["rates"]))
        found.update(self._disk_figures())
        return found

    def _earliest_time(self, first: int) -> int:
        """Return the store time of the log's first record, -1 if there is none."""
        try:
            return self._core.at(first).store_timestamp
        except (MessageNotFoundError, StoreCorruptError, OSError):
            return -1

    def _disk_figures(self) -> dict[str, Any]:
        """Return the use of the file systems; of several for the log that of the emptiest."""
        directories = log_directories(self._core.path, self._core.config)
        ratios = [(disk_used_ratio(log), os.fspath(log)) for log in directories]
        known = [one for one in ratios if one[0] >= 0]
        ratio, log = min(known, default=(-1.0, ""))
        capacity = {"total": -1, "free": -1}
        if log:
            status = os.statvfs(log)
            capacity = {
                "total": status.f_blocks * status.f_frsize,
                "free": status.f_bavail * status.f_frsize,
            }
        return {
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": disk_used_ratio(Path(self._core.path, paths.CONSUME_QUEUE)),
            "commitLogDirCapacity": capacity,
        }


def disk_used_ratio(path: str | os.PathLike[str]) -> float:
    """Return the used share of a path's file system, 0 to 1, as in RocketMQ; -1.0 if unknown.

    Rounded up to a hundredth of the space that a user without privileges may use.
    Source: ``common/UtilAll.java getDiskPartitionSpaceUsedPercent``.
    """
    try:
        status = os.statvfs(path)
    except OSError:
        return -1.0
    used = status.f_blocks - status.f_bfree
    whole = used + status.f_bavail
    return -(-used * 100 // whole) / 100 if whole > 0 else -1.0


def _rates(spans: list[tuple[float, float, float, float]]) -> dict[str, tuple[float, ...]]:
    """Return rates by RocketMQ's names, one a span."""
    return {
        "putTps": tuple(put for put, _, _, _ in spans),
        "getFoundTps": tuple(found for _, found, _, _ in spans),
        "getMissTps": tuple(missed for _, _, missed, _ in spans),
        "getTotalTps": tuple(found + missed for _, found, missed, _ in spans),
        "getTransferedTps": tuple(messages for _, _, _, messages in spans),
    }


def _runtime(millis: int) -> str:
    """Return a time as RocketMQ writes it."""
    seconds = max(0, millis) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
