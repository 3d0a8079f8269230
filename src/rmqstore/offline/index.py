"""Index files made from the entries of many ranges of a log, and compared with them.

The entries of each range go into a file of its own.  Then it is known which of them each index
file has, and several processes can fill one: each enters the keys of its share of the slots, so
that a second attempt, also at the same time, writes the same bytes.

Source: ``store/index/IndexService.java``, ``store/index/IndexFile.java``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqstore import _core
from rmqstore.config.store_config import StoreConfig
from rmqstore.files.regular import open_regular
from rmqstore.offline.ranges import RangeReport
from rmqstore.offline.walk import ENTRY_BYTES

__all__ = [
    "ChainError",
    "IndexEntry",
    "IndexFileReader",
    "IndexPlan",
    "LooseEntry",
    "create_index_file",
    "fill_index_share",
    "index_seconds",
    "loose_entries",
    "name_index_files",
    "plan_index",
]

_SHARE_ENTRIES, _SHARES_MOST = 5_000_000, 4


class LooseEntry(NamedTuple):
    """An index entry that has no number yet, as a walk gives it; the time is in ms."""

    key_hash: int
    physical_offset: int
    store_timestamp: int


class IndexEntry(NamedTuple):
    """An entry of an index file; the time is in seconds after the file's first."""

    key_hash: int
    physical_offset: int
    seconds: int


class ChainError(NamedTuple):
    """An entry, or a slot as ``-1 - slot``, that leads to another entry than it should."""

    number: int
    expected: int
    found: int


@dataclass(frozen=True)
class IndexPlan:
    """One index file to be made.

    Attributes
    ----------
    number : int
        In the order of the files; its name until :func:`name_index_files`.
    before : (str, int) or None
        File and position of the last entry of the index file before it.
    pieces : tuple of (str, int, int)
        Files with entries, and which bytes of them, in log order.
    """

    number: int
    before: tuple[str, int] | None
    pieces: tuple[tuple[str, int, int], ...]

    @property
    def entries(self) -> int:
        """Number of its entries."""
        return sum(stop - start for _, start, stop in self.pieces) // ENTRY_BYTES

    @property
    def shares(self) -> int:
        """Number of tasks that it is worth: each goes through all entries, for its own slots."""
        return min(max(self.entries // _SHARE_ENTRIES, 1), _SHARES_MOST)

    def entry_before(self) -> bytes:
        """Return the last entry of the file before it; empty for the first one."""
        if self.before is None:
            return b""
        path, position = self.before
        return bytes(_bytes_of(path, position, position + ENTRY_BYTES))


def plan_index(
    reports: Iterable[RangeReport], entry_files: Sequence[str | os.PathLike[str]], max_entries: int
) -> list[IndexPlan]:
    """Return the index files that the entries of all ranges fill.

    Parameters
    ----------
    reports : iterable of RangeReport
        One for each range, in their order.
    entry_files : sequence of path-like
        By the number of the range, the file with its entries.
    max_entries : int
        ``StoreConfig.max_index_num``: of an index file, one more than it takes.

    Returns
    -------
    list of IndexPlan
        In log order.
    """
    pieces: list[list[tuple[str, int, int]]] = []
    befores: list[tuple[str, int] | None] = []
    last: tuple[str, int] | None = None
    room = 0
    keyless = False  # a record without keys has a file made where there is no room
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
    directory: str | os.PathLike[str], config: StoreConfig, plan: IndexPlan, slots_used: int = 0
) -> int:
    """Make an index file, named by its number, with its header and no key in it yet.

    Parameters
    ----------
    directory : path-like
        Stands for ``index``.
    config : StoreConfig
        Slots and entries of a file.
    plan : IndexPlan
    slots_used : int, optional
        The sum of what :func:`fill_index_share` returned, when all shares are there: the file is
        complete with it.

    Returns
    -------
    int
        When the first key was stored, in ms since the epoch.

    Notes
    -----
    Source: ``store/index/IndexService.java getAndCreateLastIndexFile``.
    """
    first, last = b"", b""
    if plan.pieces:
        (path, start, _), (last_path, _, stop) = plan.pieces[0], plan.pieces[-1]
        first = bytes(_bytes_of(path, start, start + ENTRY_BYTES))
        last = bytes(_bytes_of(last_path, stop - ENTRY_BYTES, stop))
    part = _open_part(directory, config, plan, "a")
    try:
        part.outline(plan.entry_before(), first, last, plan.entries, slots_used)
        return part.begin_timestamp
    finally:
        part.close()


def fill_index_share(
    directory: str | os.PathLike[str], config: StoreConfig, plan: IndexPlan, which: int, of: int
) -> int:
    """Enter one share of the keys of an index file that :func:`create_index_file` made.

    Parameters
    ----------
    directory : path-like
        Stands for ``index``.
    config : StoreConfig
        Slots and entries of a file.
    plan : IndexPlan
    which, of : int
        Which one of how many shares, from 0.

    Returns
    -------
    int
        How many of its slots are used.

    Notes
    -----
    Source: ``store/index/IndexFile.java putKey``.
    """
    part = _open_part(directory, config, plan, "r+")
    try:
        pieces = (_bytes_of(*one) for one in plan.pieces)
        return part.enter_share(which, of, plan.entry_before(), pieces)
    finally:
        part.close()


def name_index_files(
    directory: str | os.PathLike[str], begin_timestamps: Sequence[int]
) -> list[str]:
    """Give complete index files the names of a store's: times, of which each is a later one.

    Parameters
    ----------
    directory : path-like
        Stands for ``index``; its files are named by their numbers.
    begin_timestamps : sequence of int
        By the number of the file, when its first key was stored, in ms since the epoch.

    Returns
    -------
    list of str
        The names, in the order of the files.
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
    """Return the seconds of an entry, in a file whose first key has ``begin_timestamp``, in ms."""
    return _core.index_seconds_of(begin_timestamp, store_timestamp)


class IndexFileReader:
    """An index file of a store, read as it is.

    Parameters
    ----------
    path : path-like
    config : StoreConfig
        Slots and entries of a file; they are inferred from its length unless they fit.

    Attributes
    ----------
    begin_timestamp, end_timestamp : int
        When its first and its last key were stored, in ms since the epoch.

    Raises
    ------
    IncompatibleStoreError
        Its length is none that an index file may have.
    OSError
        It cannot be read.
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
        """Return the number of the first entry whose record is there or behind."""
        return self._part.place_of(physical_offset)

    def matching(self, number: int, stop: int, entries: memoryview, before: int) -> int:
        """Return how many entries are as a walk gave them.

        Parameters
        ----------
        number, stop : int
            The entries of the file.
        entries : memoryview
            Of a :class:`LogSlice`; at least as many.
        before : int
            ``end_timestamp`` of the index file before this one, -1 if that is not known.

        Returns
        -------
        int
            Entries before the first that differs.
        """
        return self._part.match(number, stop, entries, before)

    def entries(self, number: int, stop: int) -> list[IndexEntry]:
        """Return the entries with these numbers, as far as they are there."""
        return [IndexEntry(*one) for one in self._part.entries(number, stop)]

    def check_chains(self, most: int) -> tuple[list[ChainError], int]:
        """Return the entries and slots that lead to another entry than the newest before it.

        Parameters
        ----------
        most : int
            Errors to return, at most.

        Returns
        -------
        errors, count : list of ChainError, int
            The first of them, and how many there are.
        """
        bad, count = self._part.check_chains(most)
        return [ChainError(*one) for one in bad], count

    def close(self) -> None:
        """Close the file."""
        self._part.close()


def _open_part(
    directory: str | os.PathLike[str], config: StoreConfig, plan: IndexPlan, mode: str
) -> _core.IndexPart:
    path = Path(directory, str(plan.number))
    return _core.IndexPart(path, config.max_hash_slot_num, config.max_index_num, mode, False)


def _bytes_of(path: str, start: int, stop: int) -> memoryview:
    """Bytes of a file; mapped, so that no more of them are in memory than there is room for."""
    with open_regular(path) as file:
        mapped = mmap.mmap(file.fileno(), stop, access=mmap.ACCESS_READ)
    return memoryview(mapped)[start:stop]
