"""Pulls as clients make them: stored bytes, behind a header where one is asked for."""

import json
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore import FilterError, GetStatus, StoreClosedError
from rmqstore._core import PullFilter, QueueHolds


@pytest.fixture
def store(tmp_path: Path):
    with rmqstore.open(tmp_path, "a") as made:
        yield made


def fill(store, count=10):
    for number in range(count):
        store.put("orders", b"body %d" % number, queue_id=1, tags=f"t{number % 2}",
                  properties={"n": str(number)})  # fmt: skip
    store.get("orders", 1, count - 1)  # waits until all are dispatched


def bodies(records):
    found = []
    while records:
        size = int.from_bytes(records[:4], "big")
        found.append(rmqstore.decode_record(records[:size]).body)
        records = records[size:]
    return found


def test_the_records_are_those_of_get(store):
    fill(store)
    status, following, least, most, count, records = store.core.pull("orders", 1, 2, 5, 1 << 18)
    assert (status, following, least, most, count) == (GetStatus.FOUND, 7, 0, 10, 5)
    assert bodies(records) == [m.body for m in store.get("orders", 1, 2, 5).messages]


def test_filters_are_those_of_get(store):
    fill(store)
    for tags, sql in [("t1", None), (None, "n > 6"), ("t0", "n > 4"), ("t9", None)]:
        made = PullFilter(tags, sql)
        for _ in range(2):  # a filter may be used again
            pulled = store.core.pull("orders", 1, 0, 32, 1 << 18, made)
            got = store.get("orders", 1, 0, tags=tags, sql=sql)
            assert pulled[:4] == (got.status, got.next_offset, got.min_offset, got.max_offset)
            assert bodies(pulled[5]) == [m.body for m in got.messages]
    with pytest.raises(FilterError):
        PullFilter(None, "n >")


def test_a_frame_is_header_and_records(store):
    fill(store)
    plain = store.core.pull("orders", 1, 0, 3, 1 << 18)
    framed = store.core.pull("orders", 1, 0, 3, 1 << 18, None, -7)[5]
    length = int.from_bytes(framed[4:8], "big")
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4
    assert framed[8 + length :] == plain[5]
    assert json.loads(framed[8 : 8 + length]) == {
        "code": 0, "flag": 1, "language": "JAVA", "opaque": -7, "remark": "FOUND",
        "serializeTypeCurrentRPC": "JSON", "version": 399,
        "extFields": {"suggestWhichBrokerId": "0", "nextBeginOffset": "3", "minOffset": "0",
                      "maxOffset": "10"},
    }  # fmt: skip


@pytest.mark.parametrize("offset", [-1, 0, 9, 10, 11, 1 << 62])
def test_statuses_are_those_of_get(store, offset):
    fill(store)
    for queue in (1, 3):
        got = store.get("orders", queue, offset)
        pulled = store.core.pull("orders", queue, offset, 32, 1 << 18, None, 5)
        assert pulled[:4] == (got.status, got.next_offset, got.min_offset, got.max_offset)
        assert (pulled[5] == b"") == (not got.messages)
    assert store.core.pull("unknown", 0, 0, 1, 1)[0] is GetStatus.NO_MESSAGE_IN_QUEUE


def test_bytes_are_limited_but_for_one_record(store):
    fill(store)
    assert store.core.pull("orders", 1, 0, 32, 1)[4] == 1
    one = len(store.core.pull("orders", 1, 0, 1, 1)[5])
    assert store.core.pull("orders", 1, 0, 32, 3 * one)[4] == 3


def test_bad_arguments(store):
    for bad in [("orders", -1, 0, 1, 1), ("orders", 0, 0, 0, 1), ("orders", 0, 0, 1, 0)]:
        with pytest.raises(ValueError, match="got"):
            store.core.pull(*bad)
    store.close()
    with pytest.raises(StoreClosedError):
        store.core.pull("orders", 0, 0, 1, 1)


def moved(holds, seconds=60.0):
    until = time.monotonic() + seconds
    while not (found := holds.moved()) and time.monotonic() < until:
        time.sleep(0.001)
    return found


def test_holds_that_moved(store):
    fill(store)
    holds = QueueHolds(store.core)
    old = holds.add("orders", 1, 4)
    end = holds.add("orders", 1, 10)
    new = holds.add("unborn", 0, 0)
    assert len(holds) == 3
    assert holds.moved() == [old]
    holds.set_offset(old, 10)
    assert holds.moved() == []
    store.put("unborn", b"x", queue_id=0)
    assert moved(holds) == [new]
    holds.remove(new)
    assert holds.add("orders", 2, 0) == new
    store.put("orders", b"x", queue_id=1)
    assert moved(holds) == [old, end]
    for number in (old, end, new):
        holds.remove(number)
        with pytest.raises(KeyError):
            holds.remove(number)
    assert len(holds) == 0
    assert holds.moved() == []
    with pytest.raises(KeyError):
        holds.set_offset(1 << 40, 0)


def test_holds_outlive_the_store(store):
    holds = QueueHolds(store.core)
    holds.add("orders", 0, 0)
    store.close()
    assert holds.moved() == []
    with pytest.raises(StoreClosedError):
        holds.add("orders", 0, 0)
    with pytest.raises(StoreClosedError):
        QueueHolds(store.core)
