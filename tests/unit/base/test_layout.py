"""``rmqstore.base.layout`` has the values of the core's declarations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqstore.base import layout

pytestmark = pytest.mark.pure

NATIVE = Path(__file__).parents[3] / "src/rmqstore/_native"
DECLARED = {
    name: int(value, 0)
    for part in (*NATIVE.rglob("*.pxd"), *NATIVE.rglob("*.pxi"))
    for name, value in re.findall(
        r"^    ([A-Z][A-Z0-9_]+) = (-?(?:0x)?[0-9A-F]+)\b", part.read_text(), re.MULTILINE
    )
}
OWN = {"DELAY_LEVELS", "INT32_MAX", "INT64_MAX", "INT64_MIN", "RECORD_STORE_TIMESTAMP"}


def test_values_are_those_of_the_core() -> None:
    numbers = {name: value for name, value in vars(layout).items() if isinstance(value, int)}
    assert {name: DECLARED[name] for name in numbers.keys() - OWN} == {
        name: value for name, value in numbers.items() if name not in OWN
    }
    assert numbers["RECORD_STORE_TIMESTAMP"] == (
        DECLARED["RECORD_BORN_HOST"] + DECLARED["HOST_V4_BYTES"]
    )


def test_forms_have_their_fields_at_the_places_of_the_core() -> None:
    data = bytearray(DECLARED["INDEX_HEADER_BYTES"])
    data[DECLARED["INDEX_BEGIN_PHY_OFFSET"] + 7] = 1
    assert layout.INDEX_RANGE.unpack_from(data) == (0, 0, 1, 0)
    data = bytearray(layout.UNIT.pack(1, 2, 3))
    assert data[DECLARED["UNIT_SIZE"] : DECLARED["UNIT_TAGS_CODE"]] == b"\0\0\0\2"
    assert layout.CHECKPOINT_TIMES.size == DECLARED["CHECKPOINT_MASTER_FLUSHED"]
    assert layout.RECORD_START.size == DECLARED["RECORD_BODY_CRC"]
    assert layout.WATERMARK.size == DECLARED["WATERMARK_BYTES"]
    mark = layout.WATERMARK.pack(0, 0, 0, 0, 7)
    assert mark[DECLARED["WATERMARK_CRC"] :] == b"\0\0\0\7\0\0\0\0"
    assert layout.index_file_bytes(3, 10) == 40 + 3 * 4 + 10 * 20
