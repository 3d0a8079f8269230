"""A reader that rebuilt the units that a killed owner never wrote, while a new owner recovers.

The new owner first takes back the units behind the last that it believes, some of those that the
reader has read from the files among them, and then writes them all in ascending order.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import GetStatus

UNIT = 20
COUNT, WRITTEN, BELIEVED = 100, 80, 70
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=UNIT * 1000
)


def body_of(number: int) -> bytes:
    return b"%d" % number * 9


@pytest.fixture
def reader(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put_many("t", [body_of(number) for number in range(COUNT)], queue_id=0)
    (root / "abort").touch()
    set_units(root, WRITTEN, bytes((COUNT - WRITTEN) * UNIT))
    with rmqstore.open(root) as reader:
        assert reader.queue_bounds("t", 0) == (0, COUNT)
        assert bodies(reader, 0) == [body_of(number) for number in range(COUNT)]
        yield reader


def queue_file(root: Path) -> Path:
    return root / "consumequeue" / "t" / "0" / f"{0:020d}"


def set_units(root: Path, start: int, data: bytes) -> bytes:
    """Write units from ``start`` on; return those that were there."""
    with queue_file(root).open("r+b") as file:
        file.seek(start * UNIT)
        before = file.read(len(data))
        file.seek(start * UNIT)
        file.write(data)
    return before


def bodies(store: rmqstore.MessageStore, start: int) -> list[bytes]:
    return [message.body for message in store.get("t", 0, start, COUNT).messages]


def test_what_is_taken_back_is_no_damage(reader):
    root = Path(reader.path)
    taken = set_units(root, BELIEVED, bytes((WRITTEN - BELIEVED) * UNIT))
    got = reader.get("t", 0, BELIEVED - 10, COUNT)
    assert [m.body for m in got.messages] == [body_of(n) for n in range(BELIEVED - 10, BELIEVED)]
    assert (got.status, got.next_offset, got.max_offset) == (GetStatus.FOUND, BELIEVED, BELIEVED)
    got = reader.get("t", 0, BELIEVED, COUNT)
    assert (got.status, got.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, BELIEVED)
    assert len(got.messages) == 0
    for number in range(BELIEVED, WRITTEN):
        set_units(root, number, taken[(number - BELIEVED) * UNIT :][:UNIT])
        found = bodies(reader, number - 1)
        assert found[:2] == [body_of(number - 1), body_of(number)]
    assert bodies(reader, 0) == [body_of(number) for number in range(COUNT)]


def test_an_empty_unit_with_others_behind_it_is(reader):
    set_units(Path(reader.path), BELIEVED, bytes(UNIT))
    with pytest.raises(rmqstore.StoreCorruptError):
        reader.get("t", 0, BELIEVED - 10, COUNT)
    assert bodies(reader, BELIEVED + 1)[0] == body_of(BELIEVED + 1)
