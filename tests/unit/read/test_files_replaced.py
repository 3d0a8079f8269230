"""A reader whose open or listed files of a queue were removed or made again by an owner."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import rmqstore
from support.restoring import read_while_restored

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
            store.put("orders", (b"%d" % number) * 150, queue_id=0, tags="A")
            store.core.advance_clock(10)
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


def offsets(messages: Iterable[rmqstore.Message]) -> list[int]:
    return [message.queue_offset for message in messages]


# Each finds queue offsets 0 to 44, of which unit 9 or those before it are lost.
READS: dict[str, Callable[[rmqstore.MessageStore, list[rmqstore.Message]], list[int]]] = {
    "get": lambda reader, put: offsets(reader.get("orders", 0, 0, 45).messages),
    "get tags": lambda reader, put: offsets(reader.get("orders", 0, 0, 45, tags="A").messages),
    "get sql": lambda reader, put: offsets(
        reader.get("orders", 0, 0, 45, sql="TAGS = 'A'").messages
    ),
    "iteration": lambda reader, put: offsets(reader["orders"][0]),
    "scan": lambda reader, put: offsets(reader.scan("orders", 0)),
    "scan tags": lambda reader, put: offsets(reader.scan("orders", 0, tags="A")),
    "scan topic": lambda reader, put: offsets(reader.scan("orders", start=0)),
    "scan from": lambda reader, put: [
        *range(4),
        *offsets(reader.scan("orders", start=put[4].physical_offset)),
    ],
    "scan behind": lambda reader, put: [
        *range(10),
        *offsets(reader.scan("orders", start=put[10].physical_offset)),
    ],
    "count": lambda reader, put: list(range(reader.scan("orders", 0).count())),
    "units": lambda reader, put: (
        reader["orders"][0]
        .units(bounds=(0, 45))["physical_offset"]
        .searchsorted([message.physical_offset for message in put])
        .tolist()
    ),
    "offset_at": lambda reader, put: [
        reader["orders"][0].offset_at(message.store_timestamp) for message in put
    ],
}


@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "inferred"])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("lost", [1, 6, UNITS])
def test_a_file_made_again(owner, lost, read, config):
    """As a recovery does: the one that the reader has open lacked units."""
    path = queue_file(owner.path, 0)
    whole = path.with_name("whole")
    shutil.copyfile(path, whole)
    put = owner.get("orders", 0, 0, 45).messages
    with rmqstore.open(owner.path, config=config) as reader:
        assert len(reader.get("orders", 0, 0, 45).messages) == 45
        with path.open("r+b") as file:
            file.seek(200 - lost * 20)
            file.write(bytes(lost * 20))
        whole.replace(path)
        assert READS[read](reader, put) == list(range(45))


# What reads each unit; a scan of a topic may read the log alone, which has all of it.
ALONG_UNITS = ["get", "get tags", "get sql", "iteration", "scan", "scan tags", "count"]


@pytest.mark.parametrize("read", [*ALONG_UNITS, "offset_at"])
def test_units_lost_in_place_are_reported(owner, read):
    put = owner.get("orders", 0, 0, 45).messages
    with rmqstore.open(owner.path) as reader:
        assert len(reader.get("orders", 0, 0, 45).messages) == 45
        with queue_file(owner.path, 0).open("r+b") as file:
            file.write(bytes(200))
        with pytest.raises(rmqstore.StoreCorruptError, match="does not lead") as caught:
            READS[read](reader, put)
        assert Path(caught.value.path) == queue_file(owner.path, 0)
        assert caught.value.offset in range(0, 200, 20)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("read", ALONG_UNITS)
def test_units_lost_of_a_closed_store_are_reported(owner, read, mode):
    """In the middle of a file, where no opening looks."""
    put = owner.get("orders", 0, 0, 45).messages
    owner.close()
    with queue_file(owner.path, 1).open("r+b") as file:
        file.seek(100)
        file.write(bytes(60))
    with (
        rmqstore.open(owner.path, mode) as store,
        pytest.raises(rmqstore.StoreCorruptError, match="does not lead") as caught,
    ):
        READS[read](store, put)
    assert (Path(caught.value.path), caught.value.offset) == (queue_file(owner.path, 1), 100)


@pytest.mark.parametrize("read", ["get", "get tags", "iteration", "count", "offset_at"])
def test_a_file_made_again_while_a_unit_is_waited_for(owner, read):
    path = queue_file(owner.path, 0)
    whole = path.with_name("whole")
    put = owner.get("orders", 0, 0, 45).messages
    with ExitStack() as opened:
        readers = []

        def tear() -> Callable[[], object]:
            readers.append(opened.enter_context(rmqstore.open(owner.path)))
            assert len(readers[-1].get("orders", 0, 0, 45).messages) == 45
            shutil.copyfile(path, whole)
            with path.open("r+b") as file:
                file.write(bytes(200))
            return partial(whole.replace, path)

        read_while_restored(tear, lambda: READS[read](readers[-1], put), list(range(45)))


@pytest.mark.parametrize("ending", ["owned", "closed"])
def test_many_bad_units_are_not_waited_for_one_by_one(owner, ending):
    """Each of 10 would sleep 50 times; sleeps are counted, as a busy machine has its own pace."""
    with rmqstore.open(owner.path) as reader:
        assert len(reader.get("orders", 0, 0, 45).messages) == 45
        if ending == "closed":
            owner.close()
        for number in range(3):
            with queue_file(owner.path, number).open("r+b") as file:
                file.write(bytes(200))
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        assert reader.scan("orders", 0, on_corruption="skip").count() == 15
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 10 * 50


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
