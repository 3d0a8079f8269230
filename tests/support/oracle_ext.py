"""consumequeue_ext, read slowly and on its own, as 4.9.3's own recovery walks it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from support.oracle import OracleError
from support.oracle_store import FILLER_UNIT, QueueName, read_queues, walk_log

LONG_MIN = -(1 << 63)
MAX_ADDRESS = -(1 << 31) - 1
END_BYTES = 4


@dataclass(frozen=True)
class ExtUnit:
    tags_code: int
    store_timestamp: int
    bitmap: bytes


def is_address(code: int) -> bool:
    return code <= MAX_ADDRESS


def unpack(data: bytes, at: int) -> ExtUnit | None:
    """The unit at ``at`` of a file; ``None``: there is none."""
    if at + 2 > len(data):
        return None
    (size,) = struct.unpack_from(">h", data, at)
    if size < 20 or at + size > len(data):
        return None
    _, code, stored, bitmap = struct.unpack_from(">hqqh", data, at)
    if bitmap < 0 or size != 20 + bitmap:
        return None
    return ExtUnit(code, stored, data[at + 20 : at + size])


def read_files(directory: Path) -> dict[int, bytes]:
    """The files of a queue's ext directory by the offset of their first byte."""
    if not directory.is_dir():
        return {}
    return {int(path.name): path.read_bytes() for path in sorted(directory.iterdir())}


def walk(files: dict[int, bytes]) -> dict[int, ExtUnit]:
    """All units by offset: of each file from its first byte to the first that is none.

    Behind that there is an end mark, or nothing but zeros.
    """
    found = {}
    for start, data in files.items():
        at = 0
        while (unit := unpack(data, at)) is not None:
            found[start + at] = unit
            at += 20 + len(unit.bitmap)
            if at > len(data) - END_BYTES:
                raise OracleError(f"the end of the file of {start} is not kept free: {at}")
        rest = data[at:]
        if rest[:2] != b"\xff\xff" and rest.strip(b"\0"):
            raise OracleError(f"bytes behind the last unit of the file of {start}, at {at}")
    return found


def ext_of(root: Path, topic: str, queue_id: int) -> dict[int, ExtUnit]:
    return walk(read_files(root / "consumequeue_ext" / topic / str(queue_id)))


def check_ext(
    root: Path, *, orphans: bool = False, behind: bool = False
) -> dict[tuple[str, int, int], ExtUnit]:
    """Assert the invariants of the ext units of a closed store; return them by unit.

    Each address names a whole unit with the record's tags code and store time, addresses ascend
    along a queue, and no unit lies behind the last one that is named. Without ``orphans`` each
    is named by some unit. ``behind``: a killed 4.9.3 was there, whose next start cuts an ext file
    by its position alone and leaves the bytes behind it.
    """
    records = {one.physical_offset: one for one in walk_log(root / "commitlog")}
    found: dict[tuple[str, int, int], ExtUnit] = {}
    for (topic, queue_id), units in read_queues(root).items():
        there = ext_of(root, topic, queue_id)
        named: list[int] = []
        for offset, unit in enumerate(units, units.min_offset):
            where = (topic, queue_id, offset)
            physical, _, code = unit
            if unit == FILLER_UNIT or not is_address(code):
                continue
            address = code - LONG_MIN
            assert address in there, (where, address)
            assert not named or address > named[-1], (where, address, named[-1])
            named.append(address)
            record = records[physical]
            assert there[address].tags_code == record.tags_code, where
            assert there[address].store_timestamp == record.store_timestamp, where
            found[where] = there[address]
        if orphans:
            assert behind or not there or (named and max(there) == named[-1]), (topic, queue_id)
        elif named or there:
            assert sorted(there) == named, (topic, queue_id)
    return found


def resolved(root: Path, queue: QueueName, code: int) -> int:
    """The final tags code of a unit; an address that names nothing stays."""
    if not is_address(code):
        return code
    size = max((len(one) for one in read_files(_directory(root, queue)).values()), default=1)
    offset = code - LONG_MIN
    data = read_files(_directory(root, queue)).get(offset - offset % size, b"")
    unit = unpack(data, offset % size)
    return code if unit is None else unit.tags_code


def _directory(root: Path, queue: QueueName) -> Path:
    return root / "consumequeue_ext" / queue[0] / str(queue[1])
