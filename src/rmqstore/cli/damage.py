"""Damage of a store, as text for ``info``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.base.arrays import unit_array
from rmqstore.base.layout import UNIT_BLANK_SIZE
from rmqstore.directory.registry import check_deleted_topics
from rmqstore.errors import StoreCorruptError, StoreError
from rmqstore.files.paths import CONSUME_QUEUE

if TYPE_CHECKING:
    from rmqstore.store import MessageStore

__all__ = ["compare_counts", "known_damage", "waiting_messages", "zeroed_units"]


def known_damage(opened: MessageStore) -> list[str]:
    """Return the damage found by opening, a text for each place."""
    recovery = opened.recovery
    found = list(recovery.damaged_files)
    for one in recovery.ranges:
        if one.kind == "damaged":
            count = "an unknown number of" if one.records is None else f"{one.records:,}"
            noun = "record" if one.records == 1 else "records"
            found.append(
                f"bytes {one.start:,} to {one.stop:,} of the log, {count} {noun}: {one.reason}"
            )
    try:
        check_deleted_topics(opened.path)
    except StoreCorruptError as error:
        found.append(str(error))
    return found


def zeroed_units(opened: MessageStore) -> list[str]:
    """Return the queues with zeroed units, a text for each; for a store without an owner."""
    found = []
    for topic in opened.topics.values():
        for queue in topic.values():
            try:
                first, stop = opened.queue_bounds(queue.topic, queue.queue_id)
                units = opened.core.units(queue.topic, queue.queue_id, first, stop)
            except (StoreError, OSError):  # reading it reports that
                continue
            # A search of the bytes: importing NumPy takes longer than all else that info does.
            if first == stop or bytes(4) not in memoryview(units).cast("i")[2::5].tobytes():
                continue
            zeroed = (unit_array(units)["size"] == 0).nonzero()[0]
            if len(zeroed):
                found.append(
                    f"{_entries(len(zeroed))} of {CONSUME_QUEUE}/{queue.topic}/{queue.queue_id} "
                    f"{'is' if len(zeroed) == 1 else 'are'} zeroed, the first at queue offset "
                    f"{first + int(zeroed[0]):,}: opened to write with verify='full', the store "
                    "has them again from the log"
                )
    return found


def compare_counts(opened: MessageStore) -> tuple[list[str], list[str]]:
    """Return the differences of queues and log: damage, and notes that need not be damage.

    With multi-dispatch several units name a record. A unit that names none, or one in a missing
    file, stands for a lost message, even after the damage was filled.
    """
    import numpy as np

    parts = []
    blank = 0
    file_size = opened.config.mapped_file_size_commit_log
    missing = [
        int(each.removeprefix("missing "))
        for each in opened.recovery.damaged_files
        if each.startswith("missing ")
    ]
    for topic in opened.topics.values():
        for queue in topic.values():
            try:
                units = queue.units()
            except (StoreError, OSError):  # reading it reports that
                continue
            sizes, offsets = units["size"], units["physical_offset"]
            lost = (sizes == UNIT_BLANK_SIZE) | np.isin(offsets - offsets % file_size, missing)
            blank += int(lost.sum())
            parts.append(offsets[(sizes > 0) & ~lost])
    named = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    every = opened.scan(on_corruption="skip", on_removed="skip")
    there = np.unique(np.fromiter((one.physical_offset for one in every), np.int64))
    bad = np.setdiff1d(named, there, assume_unique=True)
    unqueued = np.setdiff1d(there, named, assume_unique=True)
    damage, notes = [], []
    if len(bad):
        one = len(bad) == 1
        where = f"at {bad[0]:,}" if one else f"the first at {bad[0]:,}, the last at {bad[-1]:,}"
        damage.append(
            f"{_entries(len(bad))} of the queues name{'s' if one else ''} no good record of the "
            f"log, {where}"
        )
    if blank:
        one = blank == 1
        notes.append(
            f"{_entries(blank)} of the queues stand{'s' if one else ''} for "
            f"{'a message that is' if one else 'messages that are'} lost"
        )
    if len(unqueued):
        one = len(unqueued) == 1
        notes.append(
            f"{len(unqueued):,} of the messages {'is' if one else 'are'} in no queue, such as "
            "those of topics that were deleted"
        )
    return damage, notes


def waiting_messages(opened: MessageStore) -> tuple[dict[str, int | None], list[str]]:
    """Return the numbers of delayed and in-doubt messages, None if unknown, and their damage."""
    counts: dict[str, int | None] = {}
    damage = []
    for name, noun, listed in (
        ("delayed", "delayed", opened.delayed),
        ("in_doubt", "half", opened.in_doubt),
    ):
        counts[name] = None
        try:
            found = listed()
        except (StoreError, OSError) as error:
            damage.append(f"{noun} messages cannot be listed: {error}")
            continue
        counts[name] = len(found)
        bad = [one.physical_offset for one in found if one.message is None]
        if bad:
            what = "message that waits is" if len(bad) == 1 else "messages that wait are"
            places = [at for at in bad if at >= 0]  # other units name no record
            first = f", the first at {min(places):,}" if places else ""
            damage.append(f"{len(bad):,} {noun} {what} damaged{first}")
    return counts, damage


def _entries(count: int) -> str:
    return f"{count:,} entr" + ("y" if count == 1 else "ies")
