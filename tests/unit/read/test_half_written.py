"""The end of queue and log as a reader tells it, while a unit and its record come byte by byte.

A real broker's store, whose newest message is taken back and then written anew in steps, with the
same reader looking on: it is there when it is whole, not before, and what is not whole yet is no
damage. Damage is what has a good unit behind it.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

import rmqstore
from support import oracle_store

UNIT = 20
CQ_FILE = 6000
LOG_FILE = 1 << 20


@dataclass
class Newest:
    """The newest message of a store, and where its bytes lie."""

    root: Path
    record: object
    count: int  # messages of its queue, it included
    message: object

    @property
    def place(self):
        return self.record.topic, self.record.queue_id

    def _spot(self, back):
        topic, queue_id = self.place
        offset = (self.count - 1 - back) * UNIT
        name = f"{offset // CQ_FILE * CQ_FILE:020d}"
        return self.root / "consumequeue" / topic / str(queue_id) / name, offset % CQ_FILE

    def unit(self, back=0):
        path, at = self._spot(back)
        return path.read_bytes()[at : at + UNIT]

    def write_unit(self, data, back=0):
        path, at = self._spot(back)
        write(path, at, data)

    def log(self, physical_offset=None):
        at = self.record.physical_offset if physical_offset is None else physical_offset
        return self.root / "commitlog" / f"{at // LOG_FILE * LOG_FILE:020d}", at % LOG_FILE

    def record_bytes(self):
        path, at = self.log()
        return path.read_bytes()[at : at + self.record.store_size]

    def write_record(self, data):
        write(*self.log(), data)


def write(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.fixture
def newest(broker_copy, tmp_path):
    root = broker_copy("broker-clean", tmp_path).root
    record = list(oracle_store.walk_log(root / "commitlog"))[-1]
    with rmqstore.open(root) as store:
        queue = store[record.topic][record.queue_id]
        message = queue[-1].detach()
        count = queue.max_offset
    assert message.physical_offset == record.physical_offset
    return Newest(root, record, count, message)


ORDERS = ["first to last", "last to first", "any"]


def steps(data, order):
    """What is seen of bytes that come in an order, from none of them to all."""
    places = list(range(len(data)))
    if order == "last to first":
        places.reverse()
    elif order == "any":
        random.Random(len(data)).shuffle(places)
    seen = bytearray(len(data))
    yield bytes(seen)
    for at in places:
        seen[at] = data[at]
        yield bytes(seen)


def assert_not_there(store, newest):
    """Everything ends before the newest message, and nothing is said to be damaged."""
    topic, queue_id = newest.place
    end = newest.count - 1
    queue = store[topic][queue_id]
    assert queue.max_offset == len(queue.units()) == end
    got = store.get(topic, queue_id, end - 1)
    assert [message.queue_offset for message in got.messages] == [end - 1]
    assert (got.next_offset, got.max_offset) == (end, end)
    assert store.get(topic, queue_id, end).status is rmqstore.GetStatus.OFFSET_OVERFLOW_ONE
    assert store.get(topic, queue_id, end + 1).status is rmqstore.GetStatus.OFFSET_OVERFLOW_BADLY
    assert [message.queue_offset for message in queue[-2:]] == [end - 2, end - 1]
    with pytest.raises(IndexError, match=f"max is {end}"):
        queue[end]


def assert_there(store, newest):
    topic, queue_id = newest.place
    assert store[topic][queue_id].max_offset == newest.count
    got = store.get(topic, queue_id, newest.count - 2)
    assert got.messages[1:] == [newest.message]
    assert got.next_offset == got.max_offset == newest.count
    assert store[topic][queue_id][-1] == newest.message
    assert store.at(newest.record.physical_offset) == newest.message


@pytest.mark.parametrize("order", ORDERS)
def test_a_unit_comes_after_its_record(newest, order):
    """As an owner writes them."""
    unit, record = newest.unit(), newest.record_bytes()
    newest.write_unit(bytes(UNIT))
    newest.write_record(bytes(len(record)))
    with rmqstore.open(newest.root) as store:
        assert_not_there(store, newest)
        for cut in range(0, len(record), 7):
            newest.write_record(record[:cut])
            assert_not_there(store, newest)
        newest.write_record(record)
        assert store.at(newest.record.physical_offset) == newest.message
        for seen in steps(unit, order):
            newest.write_unit(seen)
            if seen == unit:
                assert_there(store, newest)
            else:
                assert_not_there(store, newest)
        assert seen == unit
        assert_there(store, newest)


@pytest.mark.parametrize("order", ORDERS)
def test_a_unit_that_is_not_whole_when_the_store_is_opened(newest, order):
    """Its record is: then it is derived from that, whatever the unit looks like."""
    unit = newest.unit()
    for seen in steps(unit, order):
        newest.write_unit(seen)
        with rmqstore.open(newest.root) as store:
            assert_there(store, newest)
            newest.write_unit(unit)
            assert_there(store, newest)


@pytest.mark.parametrize("order", ORDERS)
def test_a_record_comes_after_its_unit(newest, order):
    """As in a copy of a store that was written meanwhile, or on a disk after a power cut."""
    record = newest.record_bytes()
    start = newest.record.physical_offset
    stop = record.index(newest.record.topic.encode())  # what follows has no checksum
    rest = record[stop:]
    newest.write_record(bytes(stop) + rest)
    with rmqstore.open(newest.root) as store:
        for seen in steps(record[:stop], order):
            if seen == record[:stop]:
                break
            newest.write_record(seen + rest)
            assert_not_there(store, newest)
            with pytest.raises(rmqstore.MessageNotFoundError):
                store.at(start)
        newest.write_record(record)
        assert_there(store, newest)


def test_a_record_of_which_the_front_is_there(newest):
    """Up to the properties, which have no checksum: theirs is told by whole sectors."""
    record, topic = newest.record_bytes(), newest.record.topic.encode()
    newest.write_record(bytes(len(record)))
    with rmqstore.open(newest.root) as store:
        for cut in range(record.index(topic) + len(topic) + 1):
            newest.write_record(record[:cut] + bytes(len(record) - cut))
            assert_not_there(store, newest)
        newest.write_record(record)
        assert_there(store, newest)


@pytest.fixture
def owned(newest):
    """Hold the store's lock, as an owner does: what is missing is not derived from the log then."""
    with (newest.root / "lock").open("r+b") as file:
        fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        yield


@pytest.fixture
def without_units(newest):
    """Take the units of the newest message's topic away: only the log can show it."""
    shutil.rmtree(newest.root / "consumequeue" / newest.record.topic)


def scanned(store):
    return store.scan(columns=["physical_offset"]).to_table()["physical_offset"].to_pylist()


@pytest.mark.parametrize("zeros", [1, 9])
@pytest.mark.parametrize("at", ["topic", "properties"])
@pytest.mark.usefixtures("without_units")
def test_what_no_checksum_covers_is_still_coming(newest, at, zeros, request):
    """A hole in topic or properties: beside an owner it may be filled, later or never."""
    record, topic = newest.record_bytes(), newest.record.topic.encode()
    start = newest.record.physical_offset
    hole = record.index(topic) if at == "topic" else len(record) - 30
    newest.write_record(record[:hole] + bytes(zeros) + record[hole + zeros :])
    with rmqstore.open(newest.root) as store:
        assert scanned(store)[-1] == start  # nobody will complete it
    request.getfixturevalue("owned")
    with rmqstore.open(newest.root) as store:
        assert start not in scanned(store)
        newest.write_record(record)
        assert scanned(store)[-1] == start


@pytest.mark.usefixtures("owned", "without_units")
def test_zeros_of_a_property_are_there_once_another_record_follows(newest):
    record = newest.record_bytes()
    start = newest.record.physical_offset
    hole = len(record) - 30
    newest.write_record(record[:hole] + bytes(5) + record[hole + 5 :])
    with rmqstore.open(newest.root) as store:
        assert start not in scanned(store)
        path, at = newest.log(start + len(record))
        write(path, at, record[:20])
        assert scanned(store)[-1] == start


@pytest.mark.parametrize("back", [1, 3])
def test_damage_without_an_owner_is_told_from_the_log(newest, back):
    """As a recovery makes the unit anew."""
    topic, queue_id = newest.place
    unit = newest.unit(back)
    newest.write_unit(unit[:7] + bytes([unit[7] ^ 1]) + unit[8:], back)
    for mode in ("r", "r+"):
        with rmqstore.open(newest.root, mode) as store:
            assert len(list(store[topic][queue_id])) == newest.count
    assert newest.unit(back) == unit


@pytest.mark.parametrize("back", [1, 3])
def test_damage_is_what_a_good_unit_follows(newest, owned, back):
    """The same bytes as the end's are an error in the middle, and only where they are read."""
    topic, queue_id = newest.place
    at = newest.count - 1 - back
    unit = newest.unit(back)
    for bad in (unit[:7] + bytes([unit[7] ^ 1]) + unit[8:], unit[:11] + b"\x01" + unit[12:]):
        newest.write_unit(bad, back)
        with rmqstore.open(newest.root) as store:
            assert store[topic][queue_id][-1] == newest.message
            with pytest.raises(rmqstore.StoreCorruptError):
                store.get(topic, queue_id, at)
            with pytest.raises(rmqstore.StoreCorruptError):
                list(store[topic][queue_id])
            assert store.get(topic, queue_id, at + 1).next_offset == newest.count
            newest.write_unit(unit, back)
            assert len(list(store[topic][queue_id])) == newest.count


def test_a_record_damaged_in_front_of_a_good_unit(newest):
    topic, queue_id = newest.place
    with rmqstore.open(newest.root) as store:
        before = store[topic][queue_id][-2].detach()
        path, at = newest.log(before.physical_offset)
        body = path.read_bytes().index(bytes(before.raw_body), at)
        write(path, body, bytes([before.raw_body[0] ^ 1]))
        assert store[topic][queue_id][-1] == newest.message
        with pytest.raises(rmqstore.StoreCorruptError, match="body") as corrupt:
            store.get(topic, queue_id, newest.count - 2)
        assert corrupt.value.offset % LOG_FILE == at
        with pytest.raises(rmqstore.StoreCorruptError):
            store.at(before.physical_offset)
