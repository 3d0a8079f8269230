"""Index files built from the entries of a log's ranges, and compared with them.

Each range's entries go into a file of their own.  Once all are there, the contents of each index
file are known, and a task can fill one; a second attempt, even a concurrent one, writes the same
bytes.

Source: ``store/index/IndexService.java``, ``store/index/IndexFile.java``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqstore import _core
from rmqstore.base import layout
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import StoreError
from rmqstore.files.regular import open_regular
from rmqstore.offline.ranges import RangeReport
from rmqstore.offline.walk import ENTRY_BYTES

__all__ = [
    "ChainError",
    "IndexEntry",
    "IndexFileReader",
    "IndexMatch",
    "IndexPlan",
    "LooseEntry",
    "create_index_file",
    "fill_index_file",
    "index_seconds",
    "loose_entries",
    "name_index_files",
    "open_index_part",
    "plan_index",
]


class LooseEntry(NamedTuple):
    """Index entry from a walk, not numbered yet.

    Attributes
    ----------
    key_hash : int
        Of ``topic#key``, 0 or more.
    physical_offset : int
        Of the record, in bytes.
    store_timestamp : int
        Of the record, in ms since the epoch.
    """

    key_hash: int
    physical_offset: int
    store_timestamp: int


class IndexEntry(NamedTuple):
    """Entry of an index file.

    Attributes
    ----------
    key_hash : int
        Of ``topic#key``, 0 or more.
    physical_offset : int
        Of the record, in bytes.
    seconds : int
        From the begin time of the file to the record's store time.
    """

    key_hash: int
    physical_offset: int
    seconds: int


class ChainError(NamedTuple):
    """An entry or a slot that links to the wrong entry.

    Attributes
    ----------
    number : int
        Of the entry, from 1; of a slot ``-1 - slot``.
    expected, found : int
        Numbers of the correct entry and of the linked one; 0: none.
    """

    number: int
    expected: int
    found: int


@dataclass(frozen=True)
class IndexPlan:
    """An index file to build.

    Attributes
    ----------
    number : int
        In the order of the files; its name until :func:`name_index_files`.
    before : (str, int) or None
        File and position of the last entry of the previous index file.
    pieces : tuple of (str, int, int)
        Entry files and byte ranges of them, in log order.
    """

    number: int
    before: tuple[str, int] | None
    pieces: tuple[tuple[str, int, int], ...]

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(stop - start for _, start, stop in self.pieces) // ENTRY_BYTES

    def entry_before(self) -> bytes:
        """Return the last entry of the previous file; empty for the first."""
        if self.before is None:
            return b""
        path, position = self.before
        return bytes(_bytes_of(path, position, position + ENTRY_BYTES))


def plan_index(
    reports: Iterable[RangeReport], entry_files: Sequence[str | os.PathLike[str]], max_entries: int
) -> list[IndexPlan]:
    """Plan the index files for the entries of all ranges.

    Parameters
    ----------
    reports : iterable of RangeReport
        One for each range, in order.
    entry_files : sequence of path-like
        Entry file of each range, by number.
    max_entries : int
        ``StoreConfig.max_index_num``: one more than an index file takes.

    Returns
    -------
    list of IndexPlan
        In log order.
    """
    pieces: list[list[tuple[str, int, int]]] = []
    befores: list[tuple[str, int] | None] = []
    last: tuple[str, int] | None = None
    room = 0
    keyless = False  # a record without keys also creates a file if there is no room
    for report in reports:
        at, totals = 0, report.totals
        path = os.fspath(entry_files[report.number])
        while at < totals.keys:
            if room == 0:
                pieces.append([])
                befores.append(last)
                room = max_entries - 1
            count = min(room, totals.keys - at)
            pieces[-1].append((path, at * ENTRY_BYTES, (at + count) * ENTRY_BYTES))
            at, room = at + count, room - count
            last = path, (at - 1) * ENTRY_BYTES
        keyless = totals.keyless_last if totals.keys else keyless or totals.keyless > 0
    if keyless and room == 0:
        pieces.append([])
        befores.append(last)
    return [
        IndexPlan(number, before, tuple(some))
        for number, (before, some) in enumerate(zip(befores, pieces, strict=True))
    ]


def create_index_file(
    directory: str | os.PathLike[str], config: StoreConfig, plan: IndexPlan
) -> None:
    """Create an index file, named by its number, without keys.

    Parameters
    ----------
    directory : path-like
        The new ``index``.
    config : StoreConfig
        Slots and entries of a file.
    plan : IndexPlan

    Notes
    -----
    Source: ``store/index/IndexService.java getAndCreateLastIndexFile``.
    """
    open_index_part(directory, config, plan.number, "a").close()


def fill_index_file(directory: str | os.PathLike[str], config: StoreConfig, plan: IndexPlan) -> int:
    """Enter the keys of an index file made by :func:`create_index_file`.

    Parameters
    ----------
    directory : path-like
        The new ``index``.
    config : StoreConfig
        Slots and entries of a file.
    plan : IndexPlan

    Returns
    -------
    int
        Store time of the first key, in ms since the epoch.

    Notes
    -----
    Source: ``store/index/IndexFile.java putKey``.
    """
    with open_index_part(directory, config, plan.number, "r+") as part:
        part.begin_fill(plan.entry_before())
        for one in plan.pieces:
            part.enter(_bytes_of(*one))
        part.end_fill()
        return part.begin_timestamp


def name_index_files(
    directory: str | os.PathLike[str], begin_timestamps: Sequence[int]
) -> list[str]:
    """Rename complete index files as in a store: to times, each later than the one before.

    Parameters
    ----------
    directory : path-like
        The new ``index``; its files are named by number.
    begin_timestamps : sequence of int
        Store time of each file's first key, in ms since the epoch, in file order.

    Returns
    -------
    list of str
        The names, in file order.
    """
    names: list[str] = []
    for number, begin_timestamp in enumerate(begin_timestamps):
        names.append(_core.next_index_name(names[-1] if names else None, begin_timestamp))
        Path(directory, str(number)).rename(Path(directory, names[-1]))
    return names


def loose_entries(entries: memoryview) -> list[LooseEntry]:
    """Return the entries of a :class:`LogSlice` one by one."""
    return [LooseEntry(*one) for one in _core.loose_entries(entries)]


def index_seconds(begin_timestamp: int, store_timestamp: int) -> int:
    """Return an entry's seconds, in a file whose first key has ``begin_timestamp``, in ms."""
    return _core.index_seconds_of(begin_timestamp, store_timestamp)


class IndexFileReader:
    """Reader of an index file as it is.

    Parameters
    ----------
    path : path-like
    config : StoreConfig
        Slots and entries of a file; inferred from its length if they do not fit.

    Attributes
    ----------
    begin_timestamp, end_timestamp : int
        Store times of the first and the last key, in ms since the epoch.

    Raises
    ------
    IncompatibleStoreError
        No index file has this length.
    OSError
        The file cannot be read.
    """

    begin_timestamp: int
    end_timestamp: int

    def __init__(self, path: str | os.PathLike[str], config: StoreConfig) -> None:
        self._part = _core.IndexPart(
            path, config.max_hash_slot_num, config.max_index_num, "r", True
        )
        self.begin_timestamp = self._part.begin_timestamp
        self.end_timestamp = self._part.end_timestamp

    def first_at(self, physical_offset: int) -> int:
        """Return the number of the first entry whose record is at or after an offset."""
        return self._part.place_of(physical_offset)

    def matching(self, number: int, stop: int, entries: memoryview, before: int) -> int:
        """Return how many entries equal a walk's.

        Parameters
        ----------
        number, stop : int
            Bounds of the entries in the file.
        entries : memoryview
            Of a :class:`LogSlice`; at least as many.
        before : int
            ``end_timestamp`` of the previous index file, -1 if unknown.

        Returns
        -------
        int
            Entries before the first difference.
        """
        return self._part.match(number, stop, entries, before)

    def entries(self, number: int, stop: int) -> list[IndexEntry]:
        """Return the entries in a range of numbers, as far as they exist."""
        return [IndexEntry(*one) for one in self._part.entries(number, stop)]

    def check_chains(self, most: int) -> tuple[list[ChainError], int, int]:
        """Return the entries and slots that do not link to the newest earlier entry.

        Parameters
        ----------
        most : int
            Maximum number of errors.

        Returns
        -------
        errors, count, used : list of ChainError, int, int
            The first errors, the number of all, and the number of slots in use.
        """
        bad, count, used = self._part.check_chains(most)
        return [ChainError(*one) for one in bad], count, used

    def close(self) -> None:
        """Close the file."""
        self._part.close()


def open_index_part(
    directory: str | os.PathLike[str], config: StoreConfig, number: int, mode: str
) -> _core.IndexPart:
    """Open a file of a new index by its number."""
    path = Path(directory, str(number))
    return _core.IndexPart(path, config.max_hash_slot_num, config.max_index_num, mode, False)


def _bytes_of(path: str, start: int, stop: int) -> memoryview:
    """Map bytes of a file, so that they need not fit in memory."""
    with open_regular(path) as file:
        mapped = mmap.mmap(file.fileno(), stop, access=mmap.ACCESS_READ)
    return memoryview(mapped)[start:stop]


class IndexMatch:
    """Entries of a log range, compared in order with those of all index files.

    Attributes
    ----------
    parts : list of (str, IndexFileReader, int, int, int)
        Files with entries of the range that are not compared yet: path, reader, first and last
        entry, and the end time of the file before, -1 if unknown.
    differs : bool
        An entry was not as expected: the rest is to be compared regardless of the order.
    repeated : dict of str to (int, int)
        Entries passed over, as one shortly before is the same: their number by file, and the first.
    other_times : bool
        A header has other times than the first or last entry.
    """

    def __init__(self, config: StoreConfig, files: Iterable[str], start: int, stop: int) -> None:
        self.parts: list[tuple[str, IndexFileReader, int, int, int]] = []
        self.differs = False
        self.repeated: dict[str, tuple[int, int]] = {}
        self.other_times = False
        before = -1
        for path in files:
            with ExitStack() as opened:
                try:
                    part = opened.enter_context(closing(IndexFileReader(path, config)))
                    low, high = part.first_at(start), part.first_at(stop)
                except (StoreError, OSError):
                    before = -1
                    continue  # reported by the check of that file
                if low < high:
                    opened.pop_all()
                    self.parts.append((path, part, low, high, before))
                before = part.end_timestamp

    def rest(self, data: memoryview) -> memoryview:
        """Return what is left of the next entries behind those that are as expected."""
        while data and self.parts and not self.differs:
            path, part, low, high, before = self.parts[0]
            count = min(high - low, len(data) // ENTRY_BYTES)
            matched = part.matching(low, low + count, data, before)
            if matched and not _has_times(part, low, data[: matched * ENTRY_BYTES]):
                self.other_times = True
            data = data[matched * ENTRY_BYTES :]
            self.parts[0] = (path, part, low + matched, high, before)
            if matched < count:
                self.differs = not self._pass_repeated()
            self._end_part()
        return data

    def end(self) -> None:
        """Pass over what follows the last expected entry, as far as it is repeated."""
        while self.parts and not self.differs:
            self._pass_repeated()
            self.differs = not self._end_part()

    def _end_part(self) -> bool:
        """Close the first file if all of it is compared; return whether it was."""
        _, part, low, high, _ = self.parts[0]
        if low < high:
            return False
        self.parts.pop(0)
        part.close()
        return True

    def _pass_repeated(self) -> bool:
        """Pass over the next entries that an opening or a broker entered again."""
        path, part, low, high, before = self.parts[0]
        if low == 1:
            return False
        # Of the last record alone: where offsets go back, no search can use the file.
        offset = part.entries(low - 1, low)[0].physical_offset
        known = {one[:2] for one in part.entries(max(1, part.first_at(offset)), low)}
        again = part.entries(low, min(high, part.first_at(offset + 1)))
        passed = next((n for n, one in enumerate(again) if one[:2] not in known), len(again))
        if passed:
            count, first = self.repeated.get(path, (0, low))
            self.repeated[path] = (count + passed, first)
            self.parts[0] = (path, part, low + passed, high, before)
        return passed > 0

    def close(self) -> None:
        """Close the index files."""
        for _, part, _, _, _ in self.parts:
            part.close()


def _has_times(part: IndexFileReader, number: int, same: memoryview) -> bool:
    """Whether the header's times match the first and last entry, where ``same`` holds these."""
    first, last = same[:ENTRY_BYTES], same[-ENTRY_BYTES:]
    if number == 1 and loose_entries(first)[0].store_timestamp != part.begin_timestamp:
        return False
    if number + len(same) // ENTRY_BYTES < part.first_at(layout.INT64_MAX):
        return True
    return loose_entries(last)[0].store_timestamp == part.end_timestamp
