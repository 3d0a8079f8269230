"""The tables of docs/format.md say what layout.pxd says, and what lies in an encoded record."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqstore

pytestmark = pytest.mark.pure

TOP = Path(__file__).parents[3]
PAGE = (TOP / "docs/format.md").read_text()
NATIVE = TOP / "src/rmqstore/_native"
LAYOUT = {
    name: int(value, 0)
    for name, value in re.findall(
        r"^    ([A-Z][A-Z0-9_]+) = (-?(?:0x)?[0-9A-F]+)\b",
        (NATIVE / "format/layout.pxd").read_text(),
        re.MULTILINE,
    )
}


class Row(NamedTuple):
    """A line of a table: where a field lies, how long it is, what layout.pxd calls its place."""

    at: int | None
    size: int | None
    field: str
    constant: str


def tables() -> dict[str, list[Row]]:
    """Tables of offsets by the heading of their third column, or by that of the page before it."""
    found: dict[str, list[Row]] = {}
    heading = ""
    rows: list[Row] = []
    for line in PAGE.splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| at | bytes |"):
            rows = found[heading if cells[2] == "field" else cells[2]] = []
        elif re.match(r"\| *\d* *\| *\d* *\|", line):
            at, size = (int(cell) if cell else None for cell in cells[:2])
            constant = cells[4].strip("`") if len(cells) > 4 else ""
            rows.append(Row(at, size, cells[2], constant))
    return found


def test_offsets_are_those_of_the_layout() -> None:
    named = [row for rows in tables().values() for row in rows if row.constant]
    assert len(named) > 25
    for row in named:
        if not row.constant.endswith("_MAX_BYTES"):
            assert row.at == LAYOUT[row.constant], row
    assert "at most 127" in PAGE
    assert LAYOUT["TOPIC_MAX_BYTES"] == 127
    assert "at most 32,767" in PAGE
    assert LAYOUT["PROPERTIES_MAX_BYTES"] == 32767


def test_every_place_of_the_layout_is_on_the_page() -> None:
    places = {
        name
        for name in LAYOUT
        if re.match(r"(RECORD|UNIT|INDEX|ENTRY|CHECKPOINT|WATERMARK|SYS)_", name)
        and not re.search(r"_(BYTES|DIGITS|PREPARED|COMMIT|ROLLBACK|BLANK_SIZE)$", name)
    }
    assert len(places) > 25
    assert {name for name in places if f"`{name}`" not in PAGE} == set()
    bits = re.findall(r"^\| `(0x\w+)` \|.*\| `(SYS_\w+)` \|$", PAGE, re.MULTILINE)
    assert {name: int(bit, 16) for bit, name in bits} == {
        name: LAYOUT[name] for name in places if name.startswith("SYS_") and name != "SYS_FLAG"
    }
    for name in ("MAGIC_MESSAGE", "MAGIC_MESSAGE_V2", "MAGIC_BLANK", "UNIT_BLANK_SIZE"):
        assert f"`0x{LAYOUT[name] & 0xFFFFFFFF:08X}`" in PAGE, name


@pytest.mark.parametrize(
    ("table", "stop"),
    [("Record", 88), ("Consume queue", LAYOUT["UNIT_BYTES"]),
     ("Blank", LAYOUT["RECORD_BLANK_BYTES"]), ("header", LAYOUT["INDEX_HEADER_BYTES"]),
     ("entry", LAYOUT["INDEX_ENTRY_BYTES"]),
     ("watermark", 84)],
)  # fmt: skip
def test_fields_follow_each_other(table: str, stop: int) -> None:
    at = 0
    for row in tables()[table]:
        if row.size is not None and at < stop:
            assert row.at == at, row
            at += row.size
    assert at == stop


def test_an_encoded_record_has_its_fields_there() -> None:
    given = {
        "QUEUEID": 3, "FLAG": -7, "QUEUEOFFSET": 1 << 40, "PHYSICALOFFSET": 1 << 50,
        "SYSFLAG": 0x8, "BORNTIMESTAMP": 1_700_000_000_001, "STORETIMESTAMP": 1_700_000_000_002,
        "RECONSUMETIMES": 5, "PREPAREDTRANSACTIONOFFSET": 1 << 33,
    }  # fmt: skip
    record = rmqstore.encode_record(
        "orders", b"body", queue_id=3, flag=-7, queue_offset=1 << 40, physical_offset=1 << 50,
        sys_flag=0x8, born_timestamp=given["BORNTIMESTAMP"],
        store_timestamp=given["STORETIMESTAMP"], reconsume_times=5,
        prepared_transaction_offset=1 << 33, born_host="1.2.3.4:5", store_host="6.7.8.9:10",
        properties=b"TAGS\x01paid",
    )  # fmt: skip
    given |= {"TOTALSIZE": len(record), "BODYLENGTH": 4,
              "BODYCRC": rmqstore.crc32(b"body") & 0x7FFFFFFF,
              "MAGICCODE": LAYOUT["MAGIC_MESSAGE"],
              "BORNHOST": struct.unpack(">q", bytes([1, 2, 3, 4, 0, 0, 0, 5]))[0],
              "STOREHOST": struct.unpack(">q", bytes([6, 7, 8, 9, 0, 0, 0, 10]))[0]}  # fmt: skip
    for row in tables()["Record"]:
        if row.at is not None and row.size is not None:
            (value,) = struct.unpack_from({4: ">i", 8: ">q"}[row.size], record, row.at)
            assert value == given.pop(row.field), row
    assert not given
    assert record[88:] == b"body\x06orders\x00\x09TAGS\x01paid"
    empty = rmqstore.encode_record("t", b"")
    assert len(empty) - 1 == LAYOUT["RECORD_FIXED_BYTES"] == 91
    assert "91 bytes" in PAGE


def test_the_watermark_is_written_there() -> None:
    source = (NATIVE / "log/checkpoint.pxi").read_text()
    constants = dict(re.findall(r"(WATERMARK_\w+) = (\d+)", source))
    written = {
        int(constants.get(place, place) or 0): int(bits) // 8
        for bits, place in re.findall(r"put_i(32|64)\(mark(?: \+ (\w+))?,", source)
    }
    assert written == {row.at: row.size for row in tables()["watermark"]}


def test_the_parts_named_are_there() -> None:
    named = re.findall(r"`(\w+/\w+\.(?:px[id]|py)|\w+\.py)(?:: (\w+))?`", PAGE)
    assert len(named) > 15
    for file, function in named:
        path = (NATIVE if file.endswith(("pxi", "pxd")) else NATIVE.parent) / file
        defined = rf"^ *(?:cdef|def|class)\b[^\n=]*\b{function}\b"
        assert not function or re.search(defined, path.read_text(), re.MULTILINE), (file, function)
