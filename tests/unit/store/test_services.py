"""What services build on: the store's clock, its housekeeping, records stored as given."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessageIllegalError, ReadOnlyStoreError, StoreClosedError
from rmqstore.services.housekeeping import Housekeeper

DAY = 86_400


class Owner:
    """Has a clock that is moved by hand, and a task that counts."""

    def __init__(self) -> None:
        self.time = 1_000_000
        self.ran = 0
        self.fails = False
        self.happened = threading.Event()

    def now(self) -> int:
        return self.time

    def task(self) -> None:
        self.ran += 1
        self.happened.set()
        if self.fails:
            raise OSError("as asked for")


def test_store_times_go_by_the_clock(store: rmqstore.MessageStore) -> None:
    before = store.put("t", b"1").store_timestamp
    store.clock.advance(7 * DAY)
    after = store.put("t", b"2", queue_id=1).store_timestamp
    assert 7 * DAY * 1000 <= after - before < 8 * DAY * 1000
    assert abs(store.clock.now() - after) < DAY * 1000
    born = store["t"][1][0].born_timestamp
    assert 0 <= after - born < 60_000
    many = store.put_many("t", [b"3"], queue_id=0)
    assert store.at(int(many.physical_offset[0])).born_timestamp >= born


def test_a_clock_that_steps_back_gives_no_older_store_time(store: rmqstore.MessageStore) -> None:
    before = store.put("t", b"1").store_timestamp
    store.clock.advance(-DAY)
    assert store.put("t", b"2").store_timestamp >= before
    assert store.clock.now() < before


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e18, -1e18])
def test_a_clock_refuses_what_is_no_time(store: rmqstore.MessageStore, seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds must be"):
        store.clock.advance(seconds)


def test_a_record_is_stored_as_given(store: rmqstore.MessageStore) -> None:
    store.create_topic("half", 1)
    done = store.core.put_stored(
        "half",
        0,
        b"body",
        "TRAN_MSG\x01true\x02UNIQ_KEY\x01u-1\x02",
        flag=7,
        sys_flag=0x8,
        born_timestamp=123,
        born_host="10.0.0.1:99",
        reconsume_times=3,
        prepared_transaction_offset=456,
        store_host="[2001:db8::1]:7",
    )
    message = store["half"][0][done.queue_offset]
    assert message.properties == {"TRAN_MSG": "true", "UNIQ_KEY": "u-1"}
    assert (message.body, message.flag, message.sys_flag) == (b"body", 7, 0x28)
    assert (message.born_timestamp, message.born_host) == (123, "10.0.0.1:99")
    assert (message.reconsume_times, message.prepared_transaction_offset) == (3, 456)
    assert message.store_host == "[2001:db8::1]:7"
    assert message.msg_id == done.msg_id
    assert [m.physical_offset for m in store.query("half", "u-1")] == [done.physical_offset]


def test_a_prepared_record_is_in_no_queue(store: rmqstore.MessageStore) -> None:
    store.core.put_stored("half", 0, b"", "UNIQ_KEY\x01u", sys_flag=0x4)
    assert store.get("half", 0, 0).status == rmqstore.GetStatus.NO_MESSAGE_IN_QUEUE


def test_a_record_that_cannot_be_stored_is_refused(
    store: rmqstore.MessageStore, tmp_path: Path
) -> None:
    with pytest.raises(MessageIllegalError):
        store.core.put_stored("../x", 0, b"", "")
    with pytest.raises(MessageIllegalError):
        store.core.put_stored("t", 0, b"", "a\x01" + "b" * 40_000)
    with pytest.raises(TypeError):
        store.core.put_stored("t", 0, "text", "")  # type: ignore[arg-type]
    store.put("t", b"")
    with rmqstore.open(store.path) as reader, pytest.raises(ReadOnlyStoreError):
        reader.core.put_stored("t", 0, b"", "")


def test_tasks_run_when_they_are_due() -> None:
    owner = Owner()
    keeper = Housekeeper(owner.now)
    try:
        keeper.every(3600, owner.task, "count")
        assert keeper.run_due() == 0
        owner.time += 3_600_000
        keeper.wake()
        assert owner.happened.wait(30)
        assert keeper.run_due() == 0
        assert owner.ran == 1
    finally:
        keeper.stop()
    owner.time += 3_600_000
    assert keeper.run_due() == 0


def test_a_task_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner()
    owner.fails = True
    keeper = Housekeeper(owner.now)
    try:
        keeper.every(3600, owner.task, "count")
        for _ in range(2):
            owner.happened.clear()
            owner.time += 3_600_000
            keeper.wake()
            assert owner.happened.wait(30)
            keeper.run_due()
    finally:
        keeper.stop()
    assert owner.ran == 2
    assert "count failed, and will be tried again: as asked for" in caplog.text


def test_a_clock_that_steps_back_delays_a_task_by_its_interval_at_most() -> None:
    owner = Owner()
    keeper = Housekeeper(owner.now)
    try:
        keeper.every(10, owner.task, "count")
        owner.time -= DAY * 1000
        keeper.run_due()
        owner.time += 10_000
        keeper.wake()
        assert owner.happened.wait(30)
    finally:
        keeper.stop()


def test_a_store_without_services_has_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small()) as store:
        store.put("t", b"")
        assert set(threading.enumerate()) <= before


def test_housekeeping_does_not_keep_a_store(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small())
    store.housekeeper.every(3600, store.flush, "flush")
    thread = store.housekeeper._thread
    assert thread is not None
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
    thread.join(30)
    assert not thread.is_alive()


def test_closing_ends_the_housekeeping(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "s", "a", config=StoreConfig.small())
    store.housekeeper.every(3600, store.flush, "flush")
    keeper = store.housekeeper
    store.close()
    store.close()
    assert keeper._thread is None
    with pytest.raises(StoreClosedError):
        store.put("t", b"")
