"""Impossible values in fields of records that no checksum covers: noted, and left."""

import random

import pytest

from rmqstore.toolbox import repair, verify
from support import repairs
from support.repairs import patch_record, record_of

FIELDS = {
    "BORNTIMESTAMP": (40, 43),
    "BORNHOST": (52, 54),
    "STORETIMESTAMP": (56, 59),
    "STOREHOST": (68, 70),
    "RECONSUMETIMES": (72, 73),
    "SYSFLAG": (36, 38),
}


def fields(root):
    report = verify(root, full=True, jobs=1)
    assert report.clean, report.problems
    return [one for one in report.problems if one.kind == "record-field"]


@pytest.mark.parametrize("mask", [0x80, 0x10])
@pytest.mark.parametrize(
    ("name", "at"), [(name, at) for name, (low, high) in FIELDS.items() for at in (low, high - 1)]
)
def test_a_value_that_nobody_writes(root, name, at, mask):
    place = repairs.place_of(root, 30)
    patch_record(root, 30, at, bytes([record_of(root, 30)[at] ^ mask]))
    if name == "STORETIMESTAMP":  # the index has it as well
        found = {one.kind: one for one in verify(root, full=True, jobs=1).problems}["record-field"]
    else:
        [found] = fields(root)
        assert repair(root).actions == ()
    file = repairs.log(place // repairs.LOG)
    assert (found.severity, found.file, found.offset) == ("warn", file, place)
    assert found.message.startswith(name)


def test_a_flag_of_a_compressed_body(root):
    patch_record(root, 30, 39, b"\x01")
    [found] = fields(root)
    assert found.message.startswith("SYSFLAG")


def test_many_are_counted(root):
    for number in range(150):
        patch_record(root, number, 72, b"\x70")
    found = fields(root)
    assert len(found) == 101
    assert found[-1].message.startswith("50 more")


def test_a_store_without_damage_has_none(root):
    assert fields(root) == []


def test_every_other_bit_shows(root):
    """All but FLAG, times, hosts, retries, the prepared offset and the body's inside."""
    chance = random.Random(7)
    place = repairs.place_of(root, 30)
    path, start = root / repairs.log(place // repairs.LOG), place % repairs.LOG
    whole = path.read_bytes()
    record = whole[start:]
    size, body = int.from_bytes(record[:4], "big"), int.from_bytes(record[84:88], "big")
    seen = [*range(16), *range(20, 36), *range(84, 100), *range(88 + body, size)]
    for at in chance.sample(seen, 40):
        data = bytearray(whole)
        data[start + at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        assert not verify(root, full=True, jobs=1).clean, at
    path.write_bytes(whole)
    assert verify(root, full=True, jobs=1).clean
