"""Filter push-down: scans narrowed to the messages that may pass a filter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from rmqstore.base.layout import INT32_MAX, INT64_MAX, INT64_MIN
from rmqstore.columns.bounds import Bounds, bounds_of, is_never, range_of, texts_of
from rmqstore.columns.expressions import fields_of

if TYPE_CHECKING:
    from rmqstore.columns.selection import ScanExtent, ScanSelection

__all__ = [
    "Bounds",
    "bounds_of",
    "fields_of",
    "is_never",
    "narrowed",
    "range_of",
    "texts_of",
    "with_tags_and_times",
]

S = TypeVar("S", bound="ScanSelection")

_POSITIONS = {"topic", "queue_id", "queue_offset", "physical_offset", "uniq_key"}
_LOOKUPS = 4096  # most keys to look up in the index
_NO_TAG = re.compile(r"[ |]|&&")  # never in a tag of a tag expression


def narrowed(scan: S, bounds: Bounds) -> tuple[S, ...]:
    """Return scans that together give each message of ``scan`` within the bounds, once.

    In log order, one after the other; they may give other messages too.
    """
    topics = _wanted_topics(scan, bounds)
    low, high = range_of(bounds, "queue_id")
    elsewhere = scan.queue_id is not None and not low <= scan.queue_id <= high
    if scan.is_empty or is_never(bounds) or topics == () or elsewhere:
        return ()
    scan = with_tags_and_times(scan, bounds)
    if scan.is_along_queue and scan.queue_id is not None:
        return (_queue_range(scan, scan.topics[0], scan.queue_id, bounds),)
    if not bounds.keys() & _POSITIONS:
        return (scan,)
    extent = scan.extent()
    if topics is not None and extent.queued == extent.stop:
        there = scan.store.queue_ids()
        topics = tuple(topic for topic in topics if topic in there)
    if topics == ():
        return ()
    return _by_keys(scan, topics, bounds, extent) or (_along_log(scan, topics, bounds, extent),)


def _along_log(scan: S, topics: tuple[str, ...] | None, bounds: Bounds, extent: ScanExtent) -> S:
    """Narrow to one queue if all records are in queues, else within the log or queues."""
    low, high = range_of(bounds, "queue_id")
    changes: dict[str, Any] = {}
    if low == high and 0 <= low <= INT32_MAX:
        changes["queue_id"] = low
    if topics is not None and len(topics) == 1 and changes:
        whole = scan.start is None and scan.stop is None and not scan.keys
        by_offset = "queue_offset" in bounds or "physical_offset" not in bounds
        if whole and by_offset and scan.queue_id is None and extent.queued == extent.stop:
            scan = scan.replace(topic=topics, queue_id=low)
            return _queue_range(scan, topics[0], low, bounds)
    # With a single topic and a queue, start and stop would be queue offsets.
    if topics is not None and (len(topics) > 1 or scan.queue_id is None):
        changes["topic"] = topics
        if len(topics) == 1:
            changes.pop("queue_id", None)
    return _log_range(scan.replace(**changes), bounds, extent.start)


def _wanted_topics(scan: S, bounds: Bounds) -> tuple[str, ...] | None:
    topics = texts_of(bounds, "topic")
    if topics is None:
        return scan.topics or None
    return tuple(sorted(topics.intersection(scan.topics) if scan.topics else topics))


def with_tags_and_times(scan: S, bounds: Bounds) -> S:
    """Return a scan narrowed by tags and store times, or the same if they exclude nothing."""
    changes: dict[str, Any] = {}
    low, high = range_of(bounds, "store_timestamp")
    if low > (INT64_MIN if scan.since is None else scan.since):
        changes["since"] = low
    if high < (INT64_MAX if scan.until is None else scan.until) - 1:
        changes["until"] = high + 1
    tags = texts_of(bounds, "tags")
    if scan.tags is None and tags:
        plain = all(tag not in {"", "*"} and tag == tag.strip() for tag in tags)
        if plain and not any(map(_NO_TAG.search, tags)):
            changes["tags"] = " || ".join(sorted(tags))
    return scan.replace(**changes) if changes else scan


def _between(scan: S, low: int, high: int, first: int) -> S:
    """Narrow to ``[low, high]``; a ``low`` up to ``first`` sets no start, so nothing is missed."""
    changes: dict[str, Any] = {}
    if low > max(scan.start or 0, first):
        changes["start"] = low
    if high < INT64_MAX and (scan.stop is None or high + 1 < scan.stop):
        changes["stop"] = max(high + 1, 0)
    return scan.replace(**changes) if changes else scan


def _log_range(scan: S, bounds: Bounds, first: int) -> S:
    return _between(scan, *range_of(bounds, "physical_offset"), first)


def _queue_range(scan: S, topic: str, queue_id: int, bounds: Bounds) -> S:
    first, _ = scan.store.queue_bounds(topic, queue_id)
    return _between(scan, *range_of(bounds, "queue_offset"), first)


def _by_keys(
    scan: S, topics: Iterable[str] | None, bounds: Bounds, extent: ScanExtent
) -> tuple[S, ...]:
    """Search by the index as far as the log is in queues: rolled back records are in neither."""
    keys = texts_of(bounds, "uniq_key")
    first, queued, end = extent
    if keys is None or scan.keys or scan.queue_id is not None or queued <= first:
        return ()
    among = tuple(topics) if topics is not None else tuple(scan.store.queue_ids())
    if not among or any("\ufffd" in topic for topic in among):
        return ()
    lookups = len(keys) * len(among)
    uncovered = (end - first) - sum(
        max(0, min(stop, end) - max(start, first)) for start, stop in scan.store.index_coverage()
    )
    if lookups > _LOOKUPS or lookups * uncovered >= end - first:
        return ()
    found = _log_range(scan, bounds, first)
    stop = queued if found.stop is None else min(found.stop, queued)
    parts = [found.replace(topic=among, keys=sorted(keys), stop=stop)]
    if queued < end and (found.stop is None or found.stop > queued):
        changes: dict[str, Any] = {} if topics is None else {"topic": topics}
        parts.append(found.replace(start=max(found.start or 0, queued), **changes))
    return tuple(parts)
