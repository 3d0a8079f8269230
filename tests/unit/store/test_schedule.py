"""Delayed messages: delivered when they are due, once, whatever happens to store and clock."""

from __future__ import annotations

import gc
import json
import logging
import re
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import PutError, StoreCorruptError
from rmqstore.services.schedule_search import waiting
from rmqstore.services.stored import SCHEDULE_TOPIC
from rmqstore.types import PutStatus
from support.forked_child import in_child

SMALL = StoreConfig.small()
Wait = Callable[[Callable[[], object]], None]


def bodies(store: rmqstore.MessageStore, topic: str = "t") -> list[bytes]:
    return [message.body for message in store.scan(topic) if topic in store]


def offsets(root: Path) -> dict[str, int]:
    text = (root / "config" / "delayOffset.json").read_text()
    return json.loads(re.sub(r"(\d+):", r'"\1":', text))["offsetTable"]


def test_delivered_as_a_broker_stores_it(tmp_path: Path, wait_until: Wait) -> None:
    config = SMALL.replace(message_delay_level="1s 1m")
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        done = store.put(
            "t",
            b"x" * 5000,
            delay_level=2,
            tags="A",
            keys=["k", "l"],
            properties={"a": "b"},
            flag=7,
            queue_id=3,
            born_host="10.0.0.1:99",
            born_timestamp=1234,
        )
        assert (done.queue_id, done.queue_offset) == (1, 0)
        [waits] = store.delayed()
        assert (waits.level, waits.due) == (2, done.store_timestamp + 60_000)
        assert (waits.message.topic, waits.message.queue_id) == ("t", 3)
        assert (waits.message.body, waits.message.tags) == (b"x" * 5000, "A")
        assert waits.message.physical_offset == done.physical_offset
        store.clock.advance(30)  # the clock goes on as well, on a busy machine by seconds
        assert bodies(store) == []
        store.clock.advance(31)
        wait_until(lambda: bodies(store))
        assert store.delayed() == []
        delayed = store.at(done.physical_offset)
        [real] = store["t"].messages()
        assert real.properties == delayed.properties
        assert {"DELAY": "2", "REAL_TOPIC": "t", "REAL_QID": "3"}.items() <= real.properties.items()
        for name in ("body", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times"):
            assert getattr(real, name) == getattr(delayed, name), name
        assert (real.topic, real.queue_id, real.queue_offset) == ("t", 3, 0)
        [unit] = store["t"][3].units()
        assert unit["tags_code"] == rmqstore.string_hash("A")
        assert [m.body for m in store.query("t", "l")] == [b"x" * 5000]
    assert offsets(tmp_path / "s") == {"2": 1}


def test_levels(tmp_path: Path, wait_until: Wait) -> None:
    config = SMALL.replace(message_delay_level="1m 10m 3h 1d")
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for level in (1, 2, 3, 4, 99):
            store.put("t", b"%d" % level, delay_level=level)
        assert store.at(store.delayed()[-1].message.physical_offset).properties["DELAY"] == "4"
        for seconds, count in ((30, 0), (31, 1), (540, 2), (3 * 3600, 3), (24 * 3600, 5)):
            store.clock.advance(seconds)
            wait_until(lambda count=count: len(bodies(store)) >= count)
            assert len(bodies(store)) == count
        with pytest.raises(ValueError, match="delay_level"):
            store.put("t", b"x", delay_level=-1)


def test_levels_by_their_delay(tmp_path: Path) -> None:
    config = SMALL.replace(message_delay_level="2s 1m 3h 1d")
    with rmqstore.open(tmp_path / "s", "a", config=config) as store:
        for delay in ("2s", "1m", "3h", "1d"):
            store.put("t", b"x", delay_level=delay)
        assert [one.level for one in store.delayed()] == [1, 2, 3, 4]
        store.put("now", b"x")
        with store.consumer("now", group="g") as consumer:
            [message] = consumer
            assert consumer.retry(message, delay_level="3h").queue_id == 2
            for wrong, error in (("60s", ValueError), ("soon", TypeError), ("", TypeError)):
                with pytest.raises(error, match="delay_level must be"):
                    consumer.retry(message, delay_level=wrong)
                with pytest.raises(error, match="delay_level must be"):
                    store.put("t", b"x", delay_level=wrong)
        with pytest.raises(ValueError, match="'2s 1m 3h 1d', got '10s'"):
            store.put("t", b"x", delay_level="10s")


def test_soon_after_its_time_by_the_real_clock(tmp_path: Path, wait_until: Wait) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        for number in range(3):
            done = store.put("t", b"%d" % number, delay_level=1)
            wait_until(lambda number=number: len(bodies(store)) > number)
            [*_, real] = store["t"].messages()
            assert real.store_timestamp >= done.store_timestamp + 1000


def test_no_thread_and_no_file_without_delays(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.put("t", b"x")
        assert "rmq-schedule" not in {thread.name for thread in threading.enumerate()}
        assert store.delayed() == []
    assert not (tmp_path / "s" / "config" / "delayOffset.json").exists()


def test_a_store_that_is_dropped_ends_its_thread(tmp_path: Path, wait_until: Wait) -> None:
    store = rmqstore.open(tmp_path / "s", "a", config=SMALL)
    store.put("t", b"x", delay_level=18)
    gone = weakref.ref(store)
    del store
    wait_until(lambda: gc.collect() >= 0 and gone() is None)
    wait_until(lambda: "rmq-schedule" not in {thread.name for thread in threading.enumerate()})


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_what_a_broker_delivered_is_not_delivered_again(
    broker_store: Callable[[str], Path],
    wait_until: Wait,
    caplog: pytest.LogCaptureFixture,
    mode: str,
) -> None:
    root = broker_store("broker-clean")
    with rmqstore.open(root, "r") as store:
        delivered = len(list(store["delayed"].messages()))
        retries = len(list(store["%RETRY%orders-group"].messages()))
        waits = [one.message.body for one in store.delayed()]
        assert waits == [b"delayed %d" % n for n in range(15, 20)]
    with rmqstore.open(root, mode) as store, caplog.at_level(logging.WARNING):
        if mode == "r+":
            wait_until(lambda: not store.delayed())
            assert len(list(store["delayed"].messages())) == delivered + len(waits)
            assert len(list(store["%RETRY%orders-group"].messages())) == retries
        else:
            assert len(store.delayed()) == len(waits)
    if mode == "r+":
        assert offsets(root) == {"1": 10, "2": 5, "3": 13, "18": 5}
        with rmqstore.open(root, "r+") as store:
            assert store.delayed() == []
            assert len(list(store["delayed"].messages())) == delivered + len(waits)


@pytest.mark.parametrize("uniq_key", [True, False])
def test_an_old_offset_file_costs_nothing(
    tmp_path: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture, uniq_key: bool
) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(50):
            store.put("t", b"%d" % (number // 3), delay_level=3, uniq_key=uniq_key, tags="x")
            store.put("u", b"other")
        store.clock.advance(11)
        wait_until(lambda: len(bodies(store)) == 50)
        for number in range(7):
            store.put("t", b"later %d" % number, delay_level=3)
        store.clock.advance(1)
        assert len(store.delayed()) == 7
    shift = 12
    for kept in ("", '{"offsetTable":{}}', '{\n\t"offsetTable":{3:20\n\t}\n}'):
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        file = copy / "config" / "delayOffset.json"
        file.unlink()
        if kept:
            file.write_text(kept)
        with rmqstore.open(copy, "r") as store:
            store.clock.advance(shift)
            assert len(store.delayed()) == 7
        with rmqstore.open(copy, "r+") as store:
            store.clock.advance(shift + 11)
            wait_until(lambda: not store.delayed())
            assert len(bodies(store)) == 57
        assert offsets(copy) == {"3": 57}
        shutil.rmtree(copy)


def test_a_killed_owner(tmp_path: Path, wait_until: Wait) -> None:
    code = """
import os, sys, rmqstore
store = rmqstore.open(sys.argv[1], "a", config=rmqstore.StoreConfig.small())
put = store.core.put_stored
left = int(sys.argv[2])
def counted(*arguments, **more):
    global left
    done = put(*arguments, **more)
    left -= 1
    if left == 0:
        os._exit(9)
    return done
store.core.put_stored = counted
for number in range(40):
    store.put("t", b"%d" % number, delay_level=1 + number % 3)
store.clock.advance(20)
while True:
    pass
"""
    for kills in (1, 17, 40):
        root = tmp_path / str(kills)
        ended = subprocess.run([sys.executable, "-c", code, root, str(kills)], check=False)
        assert ended.returncode == 9
        with rmqstore.open(root, "r") as store:
            store.clock.advance(20)
            assert len(store.delayed()) == 40 - kills
        with rmqstore.open(root, "r+") as store:
            store.clock.advance(30)
            wait_until(lambda: not store.delayed())
            assert sorted(map(int, bodies(store))) == list(range(40))
            for level in range(3):  # the order of each level is kept
                mine = [int(body) for body in bodies(store) if int(body) % 3 == level]
                assert mine == sorted(mine)


def test_a_clock_that_steps_back_and_forward(tmp_path: Path, wait_until: Wait) -> None:
    day = 86_400
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.put("t", b"before", delay_level=5)  # a minute
        store.clock.advance(-day)
        store.put("t", b"after", delay_level=5)
        store.clock.advance(30)
        threading.Event().wait(0.1)
        assert bodies(store) == []  # nothing early
        store.clock.advance(40)
        wait_until(lambda: len(bodies(store)) == 2)
        store.put("t", b"third", delay_level=5)
        store.clock.advance(day + 70)
        wait_until(lambda: len(bodies(store)) == 3)
        store.clock.advance(-day)
        store.clock.advance(2 * day)
        threading.Event().wait(0.1)
        assert bodies(store) == [b"before", b"after", b"third"]


def test_killed_while_the_clock_was_back(tmp_path: Path, wait_until: Wait) -> None:
    root = tmp_path / "s"
    store = rmqstore.open(root, "a", config=SMALL)
    store.put("t", b"x", delay_level=5)
    store.clock.advance(-86_400)
    store.put("t", b"y", delay_level=5)
    store.clock.advance(-86_400 + 1)
    store.clock.advance(70)
    wait_until(lambda: len(bodies(store)) == 2)
    file = root / "config" / "delayOffset.json"
    wait_until(file.exists)
    shutil.copytree(root, tmp_path / "copy")
    (tmp_path / "copy" / "config" / "delayOffset.json").unlink()
    store.close()
    for copy in (root, tmp_path / "copy"):
        with rmqstore.open(copy, "r+") as store:
            store.clock.advance(100_000)
            threading.Event().wait(0.05)
            assert store.delayed() == []
            assert bodies(store) == [b"x", b"y"]


@pytest.mark.parametrize("uniq_key", [True, False])
@pytest.mark.parametrize("others", [0, 5000])
@pytest.mark.parametrize("written", ["", '{"offsetTable":{5:1}}'])
def test_delivered_early_by_a_broker_whose_clock_was_behind(
    tmp_path: Path, wait_until: Wait, uniq_key: bool, others: int, written: str
) -> None:
    # As 4.9.3 does with what is due later than its delay from now.
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        store.clock.advance(100)
        for number in range(4):
            store.put("t", b"early %d" % number, delay_level=5, uniq_key=uniq_key, queue_id=0)
        if uniq_key:
            for _ in range(others):
                store.put("t", b"", queue_id=0)
        store.clock.advance(-100)
        for unit in list(waiting(store.core, SCHEDULE_TOPIC, 4, 0, 4)):
            store.schedule._deliver(store.schedule.levels[5], unit)
        for _ in range(others):
            store.put("t", b"", queue_id=0)
        store.put("t", b"late", delay_level=5, uniq_key=uniq_key, queue_id=0)
        assert len(store.delayed()) == 5
        shutil.copytree(root, tmp_path / "copy")
    (tmp_path / "copy" / "config").mkdir(exist_ok=True)
    (tmp_path / "copy" / "config" / "delayOffset.json").write_text(written)
    for shift in (0, 200):
        with rmqstore.open(tmp_path / "copy", "r") as store:
            store.clock.advance(shift)
            assert [one.message.body for one in store.delayed()] == [b"late"]
    with rmqstore.open(tmp_path / "copy", "r+") as store:
        assert [one.message.body for one in store.delayed()] == [b"late"]
        store.clock.advance(70)
        wait_until(lambda: not store.delayed())
        expected = [b"early %d" % number for number in range(4)]
        assert [body for body in bodies(store) if body] == [*expected, b"late"]


def test_forgotten_times_are_corrected(tmp_path: Path, wait_until: Wait) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        dues = []
        for number in range(5):
            done = store.put("t", b"%d" % number, delay_level=4, tags="T")
            dues.append(done.store_timestamp + 30_000)
            assert len(store[SCHEDULE_TOPIC][3]) == number + 1
            store.core.set_tags_code(3, number, [rmqstore.string_hash("T"), 0, -7][number % 3])
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            assert [one.due for one in store.delayed()] == dues
            codes = store[SCHEDULE_TOPIC][3].units()["tags_code"].tolist()
            assert (codes == dues) == (mode == "r+")
    with rmqstore.open(root, "r+") as store:
        assert store[SCHEDULE_TOPIC][3].units()["tags_code"].tolist() == dues
        assert bodies(store) == []
        store.clock.advance(31)
        wait_until(lambda: len(bodies(store)) == 5)


def test_a_deleted_topic_is_made_again(tmp_path: Path, wait_until: Wait) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.put("t", b"old")
        store.put("t", b"x", delay_level=5, queue_id=2)
        store.delete_topic("t")
        store.clock.advance(61)
        wait_until(lambda: "t" in store and len(list(store["t"].messages())) == 1)


def test_a_full_disk_is_tried_again(
    tmp_path: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        put, full = store.core.put_stored, True

        def refuse(*arguments: object, **more: object) -> object:
            if full:
                raise PutError("no space", status=PutStatus.DISK_FULL)
            return put(*arguments, **more)

        store.core.put_stored = refuse
        for number in range(3):
            store.put("t", b"%d" % number, delay_level=1)
        store.clock.advance(2)
        wait_until(lambda: "tried again" in caplog.text)
        assert len(store.delayed()) == 3
        full = False
        wait_until(lambda: not store.delayed())
        assert bodies(store) == [b"0", b"1", b"2"]


def test_thousands_at_once_in_order(tmp_path: Path, wait_until: Wait) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        for number in range(3000):
            store.put("t", b"%d" % number, delay_level=1 + number % 2, queue_id=0)
        store.clock.advance(6)
        wait_until(lambda: not store.delayed())
        for level in range(2):
            mine = [int(body) for body in bodies(store) if int(body) % 2 == level]
            assert mine == list(range(level, 3000, 2))


@pytest.mark.parametrize("offset", [-5, 3, 99])
def test_offsets_that_are_none_are_corrected(tmp_path: Path, wait_until: Wait, offset: int) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        for number in range(6):
            store.put("t", b"%d" % number, delay_level=5)
    file = root / "config" / "delayOffset.json"
    file.write_text(f'{{"offsetTable":{{5:{max(offset, -1)}}}}}')
    with rmqstore.open(root, "r+") as store:
        store.clock.advance(61)
        wait_until(lambda: not store.delayed())
        first = min(max(offset, 0), 6)
        assert bodies(store) == [b"%d" % number for number in range(first, 6)]


def test_a_torn_offset_file(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=SMALL) as store:
        store.put("t", b"x", delay_level=1)
    file = root / "config" / "delayOffset.json"
    file.write_text('{"offsetTable":{1:')
    with rmqstore.open(root, "r") as store, pytest.raises(StoreCorruptError, match="delayOffset"):
        store.delayed()
    with pytest.raises(StoreCorruptError, match="delayOffset"):
        rmqstore.open(root, "r+")
    assert file.read_text() == '{"offsetTable":{1:'
    Path(f"{file}.bak").write_text('{"offsetTable":{1:1}}')
    with rmqstore.open(root, "r+") as store:
        assert store.delayed() == []


def test_offsets_are_written_every_so_often(tmp_path: Path, wait_until: Wait) -> None:
    root = tmp_path / "s"
    config = SMALL.replace(flush_delay_offset_interval=60_000)
    with rmqstore.open(root, "a", config=config) as store:
        store.put("t", b"x", delay_level=1)
        store.clock.advance(2)
        wait_until(lambda: not store.delayed())
        file = root / "config" / "delayOffset.json"
        assert not file.exists()
        store.clock.advance(60)
        wait_until(file.exists)
        assert offsets(root) == {"1": 1}
        assert (
            store.stats()["flushed_position"]
            >= store.scan("t").to_table()["physical_offset"][0].as_py()
        )


def test_beside_a_live_owner(tmp_path: Path, wait_until: Wait) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.put("t", b"first", delay_level=5)
        store.put("t", b"second", delay_level=18)
        with rmqstore.open(tmp_path / "s", "r") as reader:
            wait_until(lambda: len(reader.delayed()) == 2)
            store.clock.advance(61)
            reader.clock.advance(61)
            wait_until(lambda: [one.message.body for one in reader.delayed()] == [b"second"])


def test_files_that_the_owner_removes_meanwhile_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.put("t", b"1", delay_level=18)
        store.flush()
        with rmqstore.open(tmp_path / "s") as reader:
            units = reader.core.units
            gone = [2]

            def removed(topic: str, queue_id: int, start: int, stop: int) -> object:
                if gone[0] > 0:
                    gone[0] -= 1
                    raise FileNotFoundError(2, "the file is gone", reader.path)
                return units(topic, queue_id, start, stop)

            monkeypatch.setattr(reader.core, "units", removed)
            assert [one.message.body for one in reader.delayed()] == [b"1"]
            gone[0] = 1 << 30
            with pytest.raises(FileNotFoundError):
                reader.delayed()


def test_a_table_that_is_put_delivers_too(tmp_path: Path, wait_until: Wait) -> None:
    with rmqstore.open(tmp_path / "a", "a", config=SMALL) as one:
        one.put("t", b"x", delay_level=1)
        table = one.scan(SCHEDULE_TOPIC).to_table()
    with rmqstore.open(tmp_path / "b", "a", config=SMALL) as store:
        store.put_table(table)
        store.clock.advance(2)
        wait_until(lambda: bodies(store))


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    """Nor does it wait for locks that threads of its parent hold."""
    with rmqstore.open(tmp_path / "s", "a", config=SMALL) as store:
        store.housekeeper.every(1000, store.flush, "flush")
        store.put("t", b"x", delay_level=18)
        held, forked = threading.Event(), threading.Event()
        assert store.schedule._sleep is not None
        sleep, housekeeper = store.schedule._sleep, store.housekeeper

        def hold() -> None:
            with store.schedule._lock, sleep.changed, housekeeper._changed:
                held.set()
                forked.wait(60)

        def end() -> None:  # as the interpreter's exit does, and then the store's own
            sleep.stop()
            housekeeper.stop()
            store.close()

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            assert held.wait(60)
            assert in_child(end).startswith("ForkedStoreError: ")
        finally:
            forked.set()
            thread.join()
        assert not (tmp_path / "s" / "config" / "delayOffset.json").exists()
