"""The reading methods of the store's interface that other tests do not compare, one by one."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop.driver import SMALL, Driver, DriverError, copy
from rmqstore.errors import MessageNotFoundError

STORES = ["broker-clean", "broker-killed"]
MISSING = [("nothing", 0), ("orders", 99)]


@pytest.fixture(params=STORES)
def both(
    request: pytest.FixtureRequest, real: Driver, broker_store: Any, tmp_path: Path
) -> Iterator[tuple[Driver, rmqstore.MessageStore]]:
    """The real store open on a copy, and ours on what it has then."""
    path = copy(broker_store(request.param).root, tmp_path / "store")
    assert real.open(path, SMALL)["start"]
    with rmqstore.open(path) as store:
        yield real, store


def places(store: rmqstore.MessageStore, seed: str, most: int = 400) -> list[list[Any]]:
    """Some places of each queue: both ends, and others by chance."""
    draw = random.Random(seed)
    found: list[list[Any]] = []
    for topic, queue_ids in store.queue_ids().items():
        for queue_id in queue_ids:
            low, high = store.queue_bounds(topic, queue_id)
            if low < high:
                some = {low, high - 1, *(draw.randrange(low, high) for _ in range(6))}
                found += [[topic, queue_id, offset] for offset in sorted(some)]
    return draw.sample(found, most) if len(found) > most else found


def runtime_info(real: Driver) -> dict[str, str]:
    """``getRuntimeInfo``, which fails until the first sample of its rates, after a second."""
    until = time.monotonic() + 60
    while True:
        try:
            info: dict[str, str] = real.answers("getRuntimeInfo", [[]])[0]
            return info
        except DriverError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


@pytest.mark.long
def test_places_times_and_sums(
    both: tuple[Driver, rmqstore.MessageStore], compared: Callable[[str, int], None], seed: str
) -> None:
    real, store = both
    chosen = places(store, seed)
    units = {
        (topic, queue_id, offset): store[topic][queue_id].units(offset, offset + 1)[0]
        for topic, queue_id, offset in chosen
    }
    expected = [int(unit["physical_offset"]) for unit in units.values()]
    assert real.answers("getCommitLogOffsetInQueue", chosen) == expected
    times = [store.at(offset).store_timestamp for offset in expected]
    assert real.answers("getMessageStoreTimeStamp", chosen) == times
    queues = sorted({(topic, queue_id) for topic, queue_id, _ in chosen})
    two = [[topic, queue_id] for topic, queue_id in queues]
    assert real.answers("getMaxOffsetInQueue", two) == [store.queue_bounds(*q)[1] for q in queues]
    assert real.answers("getMinOffsetInQueue", two) == [store.queue_bounds(*q)[0] for q in queues]
    assert real.answers("getMessageTotalInQueue", two) == [len(store[t][q]) for t, q in queues]
    earliest = [store[t][q][store.queue_bounds(t, q)[0]].store_timestamp for t, q in queues]
    assert real.answers("getEarliestMessageTime", two) == earliest
    compared("methods places, times, sums", 2 * len(chosen) + 4 * len(queues))


@pytest.mark.long
def test_bounds_of_the_log(
    both: tuple[Driver, rmqstore.MessageStore], compared: Callable[[str, int], None]
) -> None:
    real, store = both
    stats = store.stats()
    assert real.answers("getMinPhyOffset", [[]]) == [stats["commitLogMinOffset"]]
    scanned = store.scan(columns=["physical_offset", "store_size"]).to_table().to_pydict()
    end = scanned["physical_offset"][-1] + scanned["store_size"][-1]
    assert real.answers("getMaxPhyOffset", [[]]) == [end]
    # It asks for 8 MiB of the log at once, which files of 1 MiB do not have: -1.
    assert real.answers("getEarliestMessageTime", [[]]) == [-1]
    assert stats["earliestMessageTimeStamp"] == store.at(0).store_timestamp
    assert real.answers("dispatchBehindBytes", [[]]) == [stats["dispatch_behind_bytes"]]
    runtime_info(real)  # which may wait for a second
    before, there, after = store.stats(), runtime_info(real), store.stats()
    assert int(there["commitLogMinOffset"]) == stats["commitLogMinOffset"]
    # Others fill and empty this disk meanwhile; test_the_used_share_of_a_disk has the formula.
    for name in ("commitLogDiskRatio", "consumeQueueDiskRatio"):
        low, high = sorted((before[name], after[name]))
        assert low - 0.011 < float(there[name]) < high + 0.011
    left = {
        name for name in there if not name.startswith(("scheduleMessage", "commitLogDiskRatio_"))
    }
    assert left <= set(stats)
    compared("methods bounds of the log, runtime info", 7)


def test_records_by_their_offset(
    both: tuple[Driver, rmqstore.MessageStore], compared: Callable[[str, int], None], seed: str
) -> None:
    real, store = both
    offsets = sorted(
        {
            store.at(int(store[t][q].units(o, o + 1)[0]["physical_offset"])).physical_offset
            for t, q, o in places(store, seed, 150)
        }
    )
    messages = [store.at(offset) for offset in offsets]
    one = [[offset] for offset in offsets]
    assert real.answers("lookMessageByOffset", one) == [m.msg_id for m in messages]
    sized = [[m.physical_offset, m.store_size] for m in messages]
    for method, arguments in (
        ("selectOneMessageByOffset", one),
        ("selectOneMessageByOffset", sized),
    ):
        raw = [base64.b64decode(text) for text in real.answers(method, arguments)]
        assert [rmqstore.decode_record(record) for record in raw] == messages
    compared("methods records by offset", 3 * len(offsets))


def test_what_is_not_there(
    both: tuple[Driver, rmqstore.MessageStore], compared: Callable[[str, int], None]
) -> None:
    real, store = both
    for topic, queue_id in MISSING:
        assert real.answers("getMaxOffsetInQueue", [[topic, queue_id]]) == [0]
        assert store.queue_bounds(topic, queue_id) == (0, 0)
        assert real.answers("getMessageTotalInQueue", [[topic, queue_id]]) == [0]
    end = store.stats()["commitLogMaxOffset"]
    assert real.answers("lookMessageByOffset", [[end + (1 << 30)]]) == [None]
    with pytest.raises(MessageNotFoundError):
        store.at(end + (1 << 30))
    compared("methods nothing there", 5)


def test_the_parity_page_has_each_method_and_setting(
    real: Driver, compared: Callable[[str, int], None]
) -> None:
    import parity_rows
    from rmqstore.config.fields import specs_of
    from rmqstore.config.reasons import MEANINGLESS, REFUSED
    from rmqstore.config.store_config import StoreConfig

    named = real.names()
    methods = sorted((name, types) for kind, name, types in named if kind == "method")
    assert methods == sorted((one.name, one.arguments) for one in parity_rows.INTERFACE)
    there = {name.casefold() for kind, name, _ in named if kind == "field"}
    fields = [spec.java for spec in specs_of(StoreConfig).values() if not spec.ours]
    ours = {key.casefold() for key in (*fields, *MEANINGLESS, *REFUSED)}
    assert len(there) == len(ours) == 77
    assert there - ours == {"isenablebatchpush"}  # its setter has no "is"
    compared("methods names of the interface", len(methods) + len(there))
