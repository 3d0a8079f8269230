"""The index file as a model in memory, with its chains and quirks, and the index of a log."""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from support.oracle import Record, index_keys, string_hash

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
NO_ENTRY = (0, 0, 0, 0)
MAX_INT = 0x7FFFFFFF


@lru_cache(maxsize=4096)  # looked for in one file after the other
def key_hash(key: str) -> int:
    value = abs(string_hash(key))
    return value if value <= MAX_INT else 0


def file_size(slot_num: int, index_num: int) -> int:
    return HEADER_SIZE + SLOT_SIZE * slot_num + ENTRY_SIZE * index_num


class IndexModel:
    """One index file.  ``entries[n]`` is entry n as (key hash, physical offset, time, previous)."""

    def __init__(
        self, slot_num: int, index_num: int, *, end_phy_offset: int = 0, end_timestamp: int = 0
    ) -> None:
        self.slot_num, self.index_num = slot_num, index_num
        # a new file starts from the end values of the full one before it
        self.begin_timestamp = self.end_timestamp = end_timestamp
        self.begin_phy_offset = self.end_phy_offset = end_phy_offset
        self.hash_slot_count = 0
        self.index_count = 1
        self.slots: dict[int, int] = {}
        self.entries: list[tuple[int, int, int, int]] = [NO_ENTRY]

    @property
    def is_full(self) -> bool:
        return self.index_count >= self.index_num

    @property
    def header(self) -> tuple[int, int, int, int, int, int]:
        return (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count,
        )

    def put_key(self, key: str, physical_offset: int, store_timestamp: int) -> bool:
        if self.is_full:
            return False
        hashed = key_hash(key)
        slot = hashed % self.slot_num
        previous = self.slots.get(slot, 0)
        if previous <= 0 or previous > self.index_count:
            previous = 0
        difference = 0
        if self.begin_timestamp > 0:
            difference = max(0, min(MAX_INT, (store_timestamp - self.begin_timestamp) // 1000))
        self.entries.append((hashed, physical_offset, difference, previous))
        self.slots[slot] = self.index_count
        if self.index_count <= 1:
            self.begin_phy_offset = physical_offset
            self.begin_timestamp = store_timestamp
        if previous == 0:
            self.hash_slot_count += 1
        self.index_count += 1
        self.end_phy_offset = physical_offset
        self.end_timestamp = store_timestamp
        return True

    def select_phy_offset(
        self, key: str, max_num: int = 64, begin: int = 0, end: int | None = None
    ) -> list[int]:
        return [hit[0] for hit in self.select(key, max_num, begin, end)]

    def select(
        self, key: str, max_num: int | None = 64, begin: int = 0, end: int | None = None
    ) -> list[tuple[int, int]]:
        """The (physical offset, entry number) of the hits, newest first."""
        hashed = key_hash(key)
        number = self.slots.get(hashed % self.slot_num, 0)
        found: list[tuple[int, int]] = []
        if number <= 0 or number > self.index_count or self.index_count <= 1:
            return found
        walked = 0
        while max_num is None or len(found) < max_num:
            walked += 1
            if walked > self.index_count:
                raise ValueError(f"the chain of {key!r} loops")
            entry_hash, physical_offset, difference, previous = self.entry(number)
            if difference < 0:
                break
            time = self.begin_timestamp + difference * 1000
            if entry_hash == hashed and time >= begin and (end is None or time <= end):
                found.append((physical_offset, number))
            if previous <= 0 or previous > self.index_count or previous == number or time < begin:
                break
            number = previous
        return found

    def entry(self, number: int) -> tuple[int, int, int, int]:
        return self.entries[number] if number < len(self.entries) else NO_ENTRY

    def dump(self) -> bytes:
        """The whole file.  A file without a key holds nothing but what it was seeded with."""
        data = bytearray(file_size(self.slot_num, self.index_num))
        count = self.index_count if self.index_count > 1 else 0
        struct.pack_into(">qqqqii", data, 0, *self.header[:5], count)
        for slot, number in self.slots.items():
            struct.pack_into(">i", data, HEADER_SIZE + SLOT_SIZE * slot, number)
        base = HEADER_SIZE + SLOT_SIZE * self.slot_num
        for number, entry in enumerate(self.entries):
            struct.pack_into(">iqii", data, base + ENTRY_SIZE * number, *entry)
        return bytes(data)

    @classmethod
    def load(cls, data: bytes | mmap.mmap, slot_num: int, index_num: int) -> IndexModel:
        if len(data) != file_size(slot_num, index_num):
            raise ValueError(f"{len(data)} bytes, {file_size(slot_num, index_num)} expected")
        model = cls(slot_num, index_num)
        (
            model.begin_timestamp,
            model.end_timestamp,
            model.begin_phy_offset,
            model.end_phy_offset,
            model.hash_slot_count,
            count,
        ) = struct.unpack_from(">qqqqii", data, 0)
        model.index_count = max(1, count)
        base = HEADER_SIZE + SLOT_SIZE * slot_num
        slots = array("i", data[HEADER_SIZE:base])
        if sys.byteorder == "little":
            slots.byteswap()
        model.slots = {slot: number for slot, number in enumerate(slots) if number}
        for number in range(1, model.index_count):
            model.entries.append(struct.unpack_from(">iqii", data, base + ENTRY_SIZE * number))
        return model

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexModel):
            return NotImplemented
        return (
            (self.slot_num, self.index_num, self.header)
            == (
                other.slot_num,
                other.index_num,
                other.header,
            )
            and self.slots == other.slots
            and self.entries == other.entries
        )

    __hash__ = None  # type: ignore[assignment]


class IndexSet:
    """The index files of a store, oldest first."""

    def __init__(self, slot_num: int, index_num: int, files: Iterable[IndexModel] = ()) -> None:
        self.slot_num, self.index_num = slot_num, index_num
        self.files = list(files)

    def __iter__(self) -> Iterator[IndexModel]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def _last(self) -> IndexModel:
        if not self.files or self.files[-1].is_full:
            full = self.files[-1] if self.files else IndexModel(self.slot_num, self.index_num)
            self.files.append(
                IndexModel(
                    self.slot_num,
                    self.index_num,
                    end_phy_offset=full.end_phy_offset,
                    end_timestamp=full.end_timestamp,
                )
            )
        return self.files[-1]

    def put_key(self, key: str, physical_offset: int, store_timestamp: int) -> None:
        while not self._last().put_key(key, physical_offset, store_timestamp):
            pass

    def put_record(self, record: Record) -> None:
        """Index a record as the dispatch does; skip a covered one."""
        if record.physical_offset < self._last().end_phy_offset:
            return
        for key in index_keys(record):
            self.put_key(f"{record.topic}#{key}", record.physical_offset, record.store_timestamp)

    def select(
        self, key: str, max_num: int | None = None, begin: int = 0, end: int | None = None
    ) -> list[int]:
        """Distinct physical offsets with the key's hash, newest first, over all files."""
        found: dict[int, None] = {}
        for file in reversed(self.files):
            starts_late = end is not None and file.begin_timestamp > end
            if not starts_late and file.end_timestamp >= begin:
                found.update(dict.fromkeys(file.select_phy_offset(key, MAX_INT, begin, end)))
            if file.begin_timestamp < begin:
                break
        offsets = list(found)
        return offsets if max_num is None else offsets[:max_num]


def read_index(root: str | Path, slot_num: int | None = None) -> IndexSet:
    """Read every index file; without ``slot_num`` a file has four entries a slot.

    One of the default size has the default slots: who could not read the others made it.
    """
    folder = Path(root) / "index"
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    files = []
    for path in paths:
        size = path.stat().st_size
        slots = (size - HEADER_SIZE) // (SLOT_SIZE + 4 * ENTRY_SIZE)
        if slot_num and size != file_size(5_000_000, 20_000_000):
            slots = slot_num
        entries = (size - HEADER_SIZE - SLOT_SIZE * slots) // ENTRY_SIZE
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            files.append(IndexModel.load(data, slots, entries))
    if not files:
        return IndexSet(slot_num or 5_000_000, 4 * (slot_num or 5_000_000))
    return IndexSet(files[0].slot_num, files[0].index_num, files)


def index_of(records: Iterable[Record], slot_num: int, index_num: int) -> IndexSet:
    """The index files that dispatching these records, in log order, leaves."""
    index = IndexSet(slot_num, index_num)
    for record in records:
        index.put_record(record)
    return index
