"""Comparison of index files with the keys of a log's ranges, and of their links with themselves."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from rmqstore.base.layout import INDEX_RANGE, INT32, INT64_MAX
from rmqstore.config.store_config import StoreConfig
from rmqstore.files import paths
from rmqstore.offline.index import (
    IndexFileReader,
    IndexMatch,
    LooseEntry,
    index_seconds,
    loose_entries,
)
from rmqstore.offline.start_files import numbers_of
from rmqstore.offline.walk import ENTRY_BYTES, LogWalk

__all__ = ["EntryCheck", "file_faults", "lies_within"]

_BEFORE = 1000  # entries looked back for a repetition
_KEPT = 200_000  # index entries of a range kept for comparison out of order
_TEXTS = {
    "index-time": "{} with another time than the record's",
    "index-duplicate": "{} that another one repeats, which is harmless: a query finds both",
    "index-extra": "{} without a record that has the key and is indexed",
}


def lies_within(offset: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether one of the ranges, which are in order, has an offset."""
    at = bisect_right(ranges, (offset, INT64_MAX))
    return at > 0 and offset < ranges[at - 1][1]


def file_faults(path: str, config: StoreConfig, *, counted: bool) -> list[tuple[str, str]]:
    """Return the faults of an index file by itself, each with its kind.

    ``counted``: its header's number of used slots has to be right.
    """
    found = []
    with closing(IndexFileReader(path, config)) as reader:
        bad, count, used = reader.check_chains(1)
    if bad:
        number, expected, there = bad[0]
        what = f"entry {number}" if number >= 0 else f"slot {-1 - number}"
        found.append(
            (
                "index-chain",
                f"{count:,} wrong links, the first of {what}: to entry {there}, not {expected}: a "
                "broker finds fewer messages there, or searches for ever",
            )
        )
    (said,) = numbers_of(path, INT32, INDEX_RANGE.size)
    if counted and used != said:
        found.append(("index-header", f"its header says {said:,} used slots, and {used:,} are"))
    return found


def _fault(kind: str, path: str, count: int, first: int) -> tuple[str, str, str]:
    what = _TEXTS[kind].format(f"{count:,} {'entry' if count == 1 else 'entries'}")
    way = "" if kind == "index-duplicate" else "; rebuild the index"
    return kind, path, f"{what}, the first number {first}{way}"


class EntryCheck:
    """Comparison of the index entries of a log range with all index files."""

    def __init__(
        self, config: StoreConfig, files: Iterable[str], start: int, stop: int, end: int
    ) -> None:
        self._end = end  # keys of records after it may be missing
        self._is_behind = start > end or not config.message_index_enable
        self._match = IndexMatch(config, files, start, stop)
        self._wanted: list[LooseEntry] = []  # from the first difference on
        self._uncounted = 0

    def compare(self, data: memoryview) -> None:
        """Compare the next entries; those not found in order are kept for :meth:`end`."""
        data = self._match.rest(data)
        count = len(data) // ENTRY_BYTES
        if self._is_behind:
            return
        if self._end == INT64_MAX and (not self._match.parts or len(self._wanted) + count > _KEPT):
            self._uncounted += count  # nothing to compare them with
        else:
            self._wanted += loose_entries(data)

    def close(self) -> None:
        """Close the index files."""
        self._match.close()

    def end(self, walk: LogWalk, unread: list[tuple[int, int]]) -> Iterator[tuple[str, str, str]]:
        """Compare what was not found in order; yield kind, file and text of each fault.

        ``unread`` are parts of the log whose keys are not known.
        """
        self._match.end()
        for path, (count, first_one) in self._match.repeated.items():
            yield _fault("index-duplicate", path, count, first_one)
        known = Counter((one.key_hash, one.physical_offset) for one in self._wanted)
        times = {(one.key_hash, one.physical_offset): one.store_timestamp for one in self._wanted}
        for path, part, low, high, before in self._match.parts:
            wrong: Counter[str] = Counter()
            first: dict[str, int] = {}
            entries = part.entries(low, min(high, low + _KEPT))
            there = {one[:2] for one in part.entries(max(1, low - _BEFORE), low)} | times.keys()
            for at, (key_hash, offset, seconds) in enumerate(entries, low):
                key = key_hash, offset
                kind = None
                if known[key] > 0:
                    known[key] -= 1
                    # The first entry's time is counted from the end of the previous file.
                    wanted = index_seconds(part.begin_timestamp if at > 1 else before, times[key])
                    if seconds != wanted and (at > 1 or before >= 0):
                        kind = "index-time"
                elif not self._uncounted and not lies_within(offset, unread):
                    again = key in there and walk.has_key(offset, key_hash)
                    kind = "index-duplicate" if again else "index-extra"
                if kind is not None:
                    wrong[kind] += 1
                    first.setdefault(kind, at)
            for kind, count in wrong.items():
                yield _fault(kind, path, count, first[kind])
        lacking = {key[1]: count for key, count in known.items() if count and key[1] <= self._end}
        missing = sum(lacking.values()) + self._uncounted
        if missing:
            place = f", the first of the record at {min(lacking)}" if lacking else ""
            yield (
                "index-missing",
                paths.INDEX,
                f"no entry for {missing:,} keys of the log{place}: a broker does not find these; "
                "rebuild the index",
            )
