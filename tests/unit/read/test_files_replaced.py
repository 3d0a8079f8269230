"""A reader whose open or listed files of a queue were removed or made again by an owner."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import rmqstore

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=50,
    max_index_num=200,
)
UNITS = 10  # of a queue's file
LISTED = 0.15  # seconds after which a reader lists files again


@pytest.fixture
def owner(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(45):
            store.put("orders", (b"%d" % number) * 150, queue_id=0)
        store.flush()
        yield store


def queue_file(root, number: int) -> Path:
    return Path(root) / "consumequeue/orders/0" / f"{number * 200:020d}"


def remove_front(root) -> int:
    """Remove three log files and the queue's files before them; return the first offset kept."""
    first, second, third, kept, *_ = sorted((Path(root) / "commitlog").iterdir())
    for path in (first, second, third):
        path.unlink()
    for path in sorted((Path(root) / "consumequeue/orders/0").iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data), 20):
            if int.from_bytes(data[at : at + 8], "big") >= int(kept.name):
                return (int(path.name) + at) // 20
        path.unlink()
    raise AssertionError("no unit is left")


READS = {
    "get": lambda reader, time: [m.queue_offset for m in reader.get("orders", 0, 0, 45).messages],
    "iteration": lambda reader, time: [m.queue_offset for m in reader["orders"][0]],
    "scan": lambda reader, time: (
        reader.scan("orders", 0, columns=["queue_offset"]).to_pandas().queue_offset.tolist()
    ),
    "count": lambda reader, time: list(range(reader.scan("orders", 0).count())),
    "offset_at": lambda reader, time: list(range(reader["orders"][0].offset_at(time) + 45)),
}


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("lost", [1, 6, UNITS])
def test_a_file_made_again(owner, lost, read, config):
    """As a recovery does: the one that the reader has open lacked units."""
    path = queue_file(owner.path, 0)
    whole = path.with_name("whole")
    shutil.copyfile(path, whole)
    first = owner.get("orders", 0, 0, 1).messages[0].store_timestamp
    with rmqstore.open(owner.path, config=config) as reader:
        assert len(reader.get("orders", 0, 0, 45).messages) == 45
        with path.open("r+b") as file:
            file.seek(200 - lost * 20)
            file.write(bytes(lost * 20))
        whole.replace(path)
        assert READS[read](reader, first) == list(range(45))


@pytest.mark.parametrize("read", READS)
def test_units_lost_in_place_are_reported(owner, read):
    first = owner.get("orders", 0, 0, 1).messages[0].store_timestamp
    with rmqstore.open(owner.path) as reader:
        assert len(reader.get("orders", 0, 0, 45).messages) == 45
        with queue_file(owner.path, 0).open("r+b") as file:
            file.write(bytes(200))
        with pytest.raises(rmqstore.StoreCorruptError, match="does not lead") as caught:
            READS[read](reader, first)
        assert Path(caught.value.path) == queue_file(owner.path, 0)
        assert caught.value.offset in range(0, 200, 20)


@pytest.mark.parametrize("read", ["units", "ext_units"])
def test_units_before_the_first_file_were_removed(owner, read):
    with rmqstore.open(owner.path) as reader:
        queue = reader["orders"][0]
        assert len(queue.units(0, 5)) == 5
        kept = remove_front(owner.path)
        time.sleep(LISTED)
        assert queue.min_offset == kept > UNITS
        with pytest.raises(FileNotFoundError):
            getattr(queue, read)(0, 5, bounds=(0, 45))


@pytest.mark.parametrize("removed", ["a file between others", "the last file"])
def test_derived_units_follow_the_beginning(owner, removed):
    """A reader that derived units keeps them until an owner has written them."""
    root = Path(owner.path)
    owner.close()
    queue_file(root, 1 if removed == "a file between others" else 4).unlink()
    with rmqstore.open(root, config=CONFIG) as reader:
        queue = reader["orders"][0]
        assert (queue.min_offset, queue.max_offset) == (0, 45)
        kept = remove_front(root)
        time.sleep(LISTED)
        assert (queue.min_offset, queue.max_offset) == (kept, 45)
        assert [m.queue_offset for m in queue] == list(range(kept, 45))
        got = reader.get("orders", 0, 0, 5)
        assert (got.status, got.next_offset) == (rmqstore.GetStatus.OFFSET_TOO_SMALL, kept)
