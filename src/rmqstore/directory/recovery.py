"""Results of opening: the core's figures as a :class:`Recovery`, and log lines."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmqstore.base.warn import log_warning
from rmqstore.files import paths
from rmqstore.files.newer import Newer
from rmqstore.types import RecoveredRange, Recovery

__all__ = ["describe_recovery", "describe_verification"]

_UNITS_SHOWN = 8
_FILES_SHOWN = 4  # of queues with missing files


def describe_recovery(
    path: str,
    mode: str,
    found: dict[str, Any],
    *,
    was_closed: bool,
    newer: list[Newer],
    damaged_files: Sequence[str] = (),
    broken_links: Sequence[str] = (),
    sizes: Sequence[str] = (),
) -> Recovery:
    """Return the core's findings as a ``Recovery``, and log any damage.

    ``found`` is ``Engine._recovery``'s; ``was_closed``: there was no ``abort``.
    """
    notes = [str(one) for one in newer if one.reading]
    for note in notes:
        log_warning("%s: of RocketMQ 5: %s", path, note)
    for one in broken_links:
        log_warning("%s: %s: is its disk mounted?", path, one)
    notes += broken_links
    if found["completed_file"]:
        notes.append("a short last commit log file was given its full length")
    ranges = tuple(_range(path, mended) for mended in found["ranges"])
    for mended in ranges:
        # Reading reports the others, or nothing is lost.
        if mended.kind in ("cut", "filled") or (mended.kind == "damaged" and not mended.named):
            log_warning("%s: %s", path, mended)
    for one in damaged_files:
        log_warning("%s: commit log: %s", path, one)
    filled = sum(mended.kind == "filled" for mended in ranges)
    if filled:
        notes.append(f"{filled} damaged ranges were filled")
    if found["full_dispatch"]:
        notes.append("queues were completed from the whole log")
    if found["lacks"]:
        shown = "; ".join(f"{file} is {what}" for file, what in found["lacks"][:_FILES_SHOWN])
        more = ", ..." if len(found["lacks"]) > _FILES_SHOWN else ""
        made = "derived from the log in memory" if mode == "r" else "written anew from the log"
        notes.append(f"queue files: {shown}{more}: their units were {made}")
        log_warning("%s: %s", path, notes[-1])
    if found["index_set_aside"]:
        notes.append(
            f"{found['index_set_aside']} index files that could not be used were moved to "
            "rmqstore-quarantine/index"
        )
        log_warning("%s: %s", path, notes[-1])
    for note in sizes:
        log_warning("%s: %s", path, note)
    notes += sizes
    if found["skipped"]:
        notes.append(f"{found['skipped']} records name a topic or queue that cannot be")
    return Recovery(
        clean=found["clean"] if mode != "r" else was_closed,
        mode=mode,
        records_checked=found["records_checked"],
        bytes_cut=found["bytes_cut"],
        saved_to=tuple(mended.saved_to for mended in ranges if mended.saved_to),
        queues_rebuilt=found["queues_rebuilt"],
        index_files_rebuilt=found["index_files_rebuilt"],
        units_written=found["units_written"],
        seconds=found["seconds"],
        log_start=found["log_start"],
        log_end=found["log_end"],
        notes=tuple(notes),
        ranges=ranges,
        damaged_files=tuple(damaged_files),
    )


def _range(path: str, mended: tuple[str, int, int, int, str, str, bool]) -> RecoveredRange:
    kind, start, stop, records, reason, saved, named = mended
    place = str(Path(path, paths.QUARANTINE, saved)) if saved else None
    lost = records if records >= 0 else None
    return RecoveredRange(kind, start, stop, lost, reason, place, named)


def describe_verification(
    path: str,
    recovery: Recovery,
    verified: tuple[int, int, list[tuple[int, int]], list[tuple[str, list[int], int]]],
) -> Recovery:
    """Return ``recovery`` with the findings of ``verify="full"``, and log them.

    ``verified`` is ``Engine._verify``'s: records and units checked, invalid ranges of the log,
    and for each queue directory its wrong queue offsets and -errno or 0.
    """
    records, units, ranges, queues = verified
    notes = [f"bytes {start} to {stop} of the log are no good record" for start, stop in ranges]
    for directory, offsets, status in queues:
        if status:
            notes.append(f"{directory} cannot be read: {os.strerror(-status)}")
        else:
            shown = ", ".join(map(str, offsets[:_UNITS_SHOWN]))
            more = ", ..." if len(offsets) > _UNITS_SHOWN else ""
            notes.append(
                f"{len(offsets)} units of {directory} contradict the log, "
                f"at queue offsets {shown}{more}"
            )
    for note in notes:
        log_warning("%s: %s", path, note)
    checked = f"{records} records and {units} units were checked"
    notes.append(checked if notes else f"{checked}: nothing was found")
    return dataclasses.replace(recovery, records_checked=records, notes=(*recovery.notes, *notes))
