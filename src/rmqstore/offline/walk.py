"""A walk through a range of a commit log: the units and index entries of its records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqstore import _core
from rmqstore.base.layout import UNIT_BYTES
from rmqstore.config.store_config import StoreConfig
from rmqstore.directory.layout import log_paths
from rmqstore.files.links import absolute

__all__ = [
    "ENTRY_BYTES",
    "SLICE_BYTES",
    "Damage",
    "LogSlice",
    "LogWalk",
    "Unit",
    "UnitRun",
    "WalkTotals",
]

ENTRY_BYTES = _core.LOOSE_ENTRY_BYTES
"""Bytes of an index entry from a walk, not numbered yet."""

SLICE_BYTES = 4 << 20
"""Bytes of the log that a walk covers at a time."""


class Unit(NamedTuple):
    """Fields of a consume queue unit.

    Attributes
    ----------
    physical_offset : int
        Of the record, in bytes.
    size : int
        Bytes of the record.
    tags_code : int
        Hash of the tag, 64 bits; the delivery time in ``SCHEDULE_TOPIC``.
    """

    physical_offset: int
    size: int
    tags_code: int


class UnitRun(NamedTuple):
    """Consecutive units in one file of a queue.

    Attributes
    ----------
    topic : str
    queue_id : int
    first : int
        Queue offset of the first unit.
    log_start, log_stop : int
        Begin of the first unit's record and end of the last one's, in the log.
    units : memoryview
        The units as stored, 20 bytes each.
    """

    topic: str
    queue_id: int
    first: int
    log_start: int
    log_stop: int
    units: memoryview

    @property
    def stop(self) -> int:
        """Queue offset after the last unit."""
        return self.first + len(self.units) // UNIT_BYTES


class LogSlice(NamedTuple):
    """Units and index entries of some MiB of the log.

    Attributes
    ----------
    runs : list of UnitRun
    entries : memoryview
        Index entries in log order, :data:`ENTRY_BYTES` each.
    """

    runs: list[UnitRun]
    entries: memoryview


class Damage(NamedTuple):
    """Invalid bytes of the log.

    Attributes
    ----------
    physical_offset : int
        Expected begin of a record.
    reason : str
        The field that fails its check.
    resumed : int
        Begin of the next valid record in the range, -1 if there is none.
    """

    physical_offset: int
    reason: str
    resumed: int


class WalkTotals(NamedTuple):
    """Counts of a walk.

    Attributes
    ----------
    bytes, records, units, keys : int
        ``keys`` are index entries.
    skipped : int
        Records with an impossible topic or queue, or an implausible queue offset.
    keyless : int
        Records without keys.
    keyless_last : bool
        One of them follows the last record with keys.
    first_record, next_record : int
        Begin of the first record in the range, and of the first after it; -1: none.
    """

    bytes: int = 0
    records: int = 0
    units: int = 0
    keys: int = 0
    skipped: int = 0
    keyless: int = 0
    keyless_last: bool = False
    first_record: int = -1
    next_record: int = -1


class LogWalk:
    """Units and index entries that dispatch makes from a range of a store's log.

    Parameters
    ----------
    path : path-like
        Directory of the store; nothing in it changes.
    config : StoreConfig
        Sizes and delay levels in force, and the directories of the log, as for opening.
    start, stop : int
        Physical offsets.
    deleted : mapping of str to int, optional
        Deleted topics, each with the log's end at that time: older records have no units.
    unclean : bool, optional
        Unclean exit: a torn last record counts as none.
    any_version : bool, optional
        Accept records of RocketMQ 5.

    Raises
    ------
    StoreNotFoundError
        No store, or no file of its log.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: StoreConfig,
        start: int,
        stop: int,
        *,
        deleted: Mapping[str, int] | None = None,
        unclean: bool = False,
        any_version: bool = False,
    ) -> None:
        self._deleted = dict(deleted or {})
        self._walk = _core.LogUnits(
            path,
            config,
            self._deleted,
            start,
            stop,
            unclean=unclean,
            any_version=any_version,
            places=log_paths(absolute(path), config),
        )

    @property
    def damages(self) -> list[Damage]:
        """Damage met so far."""
        return [Damage(*one) for one in self._walk.damages]

    @property
    def odd_fields(self) -> tuple[list[tuple[int, str]], int]:
        """Physical offset and a field of records with an impossible value; how many there are.

        The first 100 are listed.
        """
        return self._walk.odd_fields()

    @property
    def totals(self) -> WalkTotals:
        """Counts so far."""
        found = self._walk.totals()
        return WalkTotals(
            bytes=found["bytes"],
            records=found["records"],
            units=found["units"],
            keys=found["keys"],
            skipped=found["skipped"],
            keyless=found["noted"],
            keyless_last=bool(found["noted_last"]),
            first_record=found["first_record"],
            next_record=found["next_record"],
        )

    def slices(self, most: int = SLICE_BYTES) -> Iterator[LogSlice]:
        """Walk the range in slices.

        Parameters
        ----------
        most : int, optional
            Approximate bytes of the log per slice.

        Yields
        ------
        LogSlice

        Raises
        ------
        IncompatibleStoreError
            The log has a record of RocketMQ 5.
        OSError
            A file cannot be read.
        """
        while (found := self._walk.next(most)) is not None:
            runs, entries = found
            yield LogSlice(
                [UnitRun(*run[:5], memoryview(run[5])) for run in runs], memoryview(entries)
            )

    def has_unit(
        self, topic: str, queue_id: int, queue_offset: int, physical_offset: int, size: int
    ) -> bool:
        """Whether a record of that size is there, and names that queue and queue offset.

        Not true before the deletion of a topic: the record had a queue of the same name.
        """
        if physical_offset < self._deleted.get(topic, 0):
            return False
        return self._walk.names(physical_offset, size, topic, queue_id, queue_offset)

    def has_key(self, physical_offset: int, key_hash: int) -> bool:
        """Whether the record there has a key of that hash.

        Also true before the log's first record: a removed record may have had it.
        """
        return self._walk.has_key(physical_offset, key_hash)

    def is_blank(self, start: int, stop: int) -> bool:
        """Whether all bytes of a part of the log are zeros."""
        return self._walk.is_blank(start, stop)
