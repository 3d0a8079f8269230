"""A field that no checksum covers is mended from the unit that leads to the record."""

import shutil

import pytest

from rmqstore.toolbox import rebuild, repair, verify
from support import repairs
from support.repairs import mended, patch_record, record_of

LAST = (repairs.COUNT - 1) // 6
FIELDS = {
    "queue id": (15, 4),
    "high queue id": (12, 0x40),
    "negative queue id": (12, 0x80),
    "next queue offset": (27, 1),
    "high queue offset": (22, 8),
    "negative queue offset": (20, 0x80),
    "prepared": (39, 4),
    "rolled back": (39, 12),
}


def flip(root, number, at, mask):
    patch_record(root, number, at, bytes([record_of(root, number)[at] ^ mask]))


def flip_topic(root, number, mask, letter=2):
    record = record_of(root, number)
    flip(root, number, 88 + int.from_bytes(record[84:88], "big") + 1 + letter, mask)


def is_whole_again(root, whole):
    mended(root, actions={"mend-record", "close"})
    planned = [one.action for one in repair(root).actions]
    done = repair(root, apply=True)
    assert [one.action for one in done.actions] == planned
    assert repairs.readable(root) == repairs.readable(whole)
    assert repairs.queued(root) == repairs.queued(whole)


@pytest.mark.parametrize("number", [0, 1, 50, LAST])
@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_of_a_record_that_a_queue_leads_to(root, whole, field, number):
    flip(root, number, *FIELDS[field])
    place = repairs.place_of(root, number)
    found = [one for one in verify(root, full=True, jobs=1).problems if one.kind == "record-header"]
    assert [(one.severity, one.file, one.offset) for one in found] == [
        ("warn", repairs.log(place // repairs.LOG), place)
    ]
    assert f"orders/0@{number}" in found[0].message
    is_whole_again(root, whole)


@pytest.mark.parametrize("mask", [1, 0x20, 0x80, 0x0F])
@pytest.mark.parametrize("number", [0, 50])
def test_a_damaged_letter_of_a_topic(root, whole, number, mask):
    flip_topic(root, number, mask)
    is_whole_again(root, whole)


def test_a_slash_in_a_topic(root, whole):
    flip_topic(root, 30, ord("d") ^ ord("/"))
    is_whole_again(root, whole)


def test_fields_of_several_records(root, whole):
    for number, field in enumerate(FIELDS.values(), 3):
        flip(root, 3 * number, *field)
    flip_topic(root, 60, 1)
    is_whole_again(root, whole)


def test_a_record_that_names_the_place_of_another_damaged_one(root, whole):
    flip(root, 40, *FIELDS["next queue offset"])
    flip(root, 41, *FIELDS["queue id"])
    mended(root, actions={"mend-record", "close"})
    repair(root, apply=True)
    assert repairs.readable(root) == repairs.readable(whole)


def test_after_a_kill(root, whole):
    flip(root, 40, *FIELDS["prepared"])
    (root / "abort").touch()
    is_whole_again(root, whole)


def test_two_fields_of_a_record_are_left(root):
    flip(root, 40, *FIELDS["queue id"])
    flip(root, 40, *FIELDS["prepared"])
    assert "mend-record" not in [one.action for one in repair(root).actions]
    assert "record-header" not in {one.kind for one in verify(root, full=True, jobs=1).problems}


def test_a_renamed_queue_changes_no_record(root):
    """All its units contradict their records: the directory is wrong."""
    (root / "consumequeue/orders/0").rename(root / "consumequeue/orders/7")
    log = repairs.tree(root / "commitlog")
    assert {one.action for one in repair(root, apply=True).actions} == {"rebuild-queue", "close"}
    assert {name: one[0] for name, one in repairs.tree(root / "commitlog").items()} == {
        name: one[0] for name, one in log.items()
    }
    assert verify(root, full=True, jobs=1).clean


def test_a_copied_queue_changes_no_record(root):
    shutil.copytree(root / "consumequeue/orders/0", root / "consumequeue/orders/7")
    assert "mend-record" not in {one.action for one in repair(root).actions}


def test_a_unit_without_neighbours_changes_no_record(root):
    flip(root, 40, *FIELDS["queue id"])
    for path in sorted((root / "consumequeue/orders/0").iterdir())[1:]:
        path.unlink()
    file = root / repairs.queue_file(0)
    unit = file.read_bytes()[800:820]
    file.write_bytes((bytes(800) + unit).ljust(repairs.UNITS, b"\0"))
    assert "mend-record" not in {one.action for one in repair(root).actions}


def test_a_rebuild_leaves_the_log(root):
    flip(root, 40, *FIELDS["queue id"])
    log = repairs.tree(root / "commitlog")
    rebuild(root, apply=True)
    assert repairs.tree(root / "commitlog") == log
