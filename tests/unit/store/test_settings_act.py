"""Each setting of the engine does what it says: one test a setting."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.config.store_config import StoreConfig
from rmqstore.errors import MessageIllegalError

HOUR = 3_600_000
NEVER = {
    "flush_interval_commit_log": HOUR,
    "flush_commit_log_thorough_interval": HOUR,
    "flush_interval_consume_queue": HOUR,
    "flush_consume_queue_thorough_interval": HOUR,
}
PAGE = 4096

Open = Callable[..., rmqstore.MessageStore]


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Open:
    """A function that opens a store with settings, flushed by hand unless they say otherwise."""
    count = iter(range(100))

    def make(**settings: Any) -> rmqstore.MessageStore:
        path = tmp_path / f"store{next(count)}"
        store = rmqstore.open(path, "a", config=StoreConfig.small(**(NEVER | settings)))
        request.addfinalizer(store.close)
        return store

    return make


def comes(condition: Callable[[], object]) -> bool:
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def flushed(store: rmqstore.MessageStore) -> bool:
    stats = store.stats()
    return bool(stats["flushed_position"] == stats["wrote_position"])


def test_mapped_file_size_commit_log(opened: Open) -> None:
    store = opened(mapped_file_size_commit_log=PAGE)
    for _ in range(8):
        store.put("t", b"x" * 1000)
    sizes = [file.stat().st_size for file in Path(store.path, "commitlog").iterdir()]
    assert len(sizes) >= 3
    assert set(sizes) == {PAGE}


def test_mapped_file_size_consume_queue(opened: Open) -> None:
    store = opened(mapped_file_size_consume_queue=45)  # rounded up to 60
    store.put_many("t", [b""] * 7, queue_id=0)
    assert len(store["t"][0]) == 7
    files = sorted(Path(store.path, "consumequeue/t/0").iterdir())
    assert [int(file.name) for file in files] == [0, 60, 120]
    assert {file.stat().st_size for file in files} == {60}


def test_max_hash_slot_num_and_max_index_num(opened: Open) -> None:
    store = opened(max_hash_slot_num=10, max_index_num=5)
    store.put_many("t", [b""] * 9, keys=[f"k{n}" for n in range(9)], uniq_key=False)
    assert len(store.query("t", "k8")) == 1
    sizes = [file.stat().st_size for file in Path(store.path, "index").iterdir()]
    assert sizes == [40 + 4 * 10 + 20 * 5] * 3  # four keys a file


def test_max_message_size(opened: Open) -> None:
    store = opened(max_message_size=500)
    store.put("t", b"x" * 200)
    with pytest.raises(MessageIllegalError, match="max_message_size"):
        store.put("t", b"x" * 500)


def test_flush_interval_commit_log(opened: Open) -> None:
    seldom = opened(flush_commit_log_least_pages=0)
    often = opened(flush_commit_log_least_pages=0, flush_interval_commit_log=10)
    seldom.put("t", b"x")
    often.put("t", b"x")
    assert comes(lambda: flushed(often))
    assert seldom.stats()["flushed_position"] == 0


def test_flush_commit_log_least_pages(opened: Open) -> None:
    store = opened(flush_interval_commit_log=10, flush_commit_log_least_pages=20)
    store.put("t", b"x" * 10 * PAGE)
    time.sleep(0.2)  # some intervals, in which nothing is due
    assert store.stats()["flushed_position"] == 0
    store.put("t", b"x" * 15 * PAGE)
    assert comes(lambda: store.stats()["flushed_position"] > 0)


def test_flush_commit_log_thorough_interval(opened: Open) -> None:
    store = opened(
        flush_interval_commit_log=10,
        flush_commit_log_least_pages=10_000,
        flush_commit_log_thorough_interval=100,
    )
    store.put("t", b"x")
    assert comes(lambda: flushed(store))


def test_flush_interval_consume_queue(opened: Open) -> None:
    seldom = opened(flush_consume_queue_least_pages=0)
    often = opened(flush_consume_queue_least_pages=0, flush_interval_consume_queue=10)
    for store in (seldom, often):
        store.put("t", b"x")
    assert comes(lambda: often.stats()["consume_queue_syncs"])
    assert seldom.stats()["consume_queue_syncs"] == 0


def test_flush_consume_queue_least_pages(opened: Open) -> None:
    store = opened(flush_interval_consume_queue=10, flush_consume_queue_least_pages=3)
    store.put("t", b"x", queue_id=0)
    time.sleep(0.2)  # some intervals, in which nothing is due
    assert store.stats()["consume_queue_syncs"] == 0
    store.put_many("t", [b""] * (4 * PAGE // 20), queue_id=0)
    assert comes(lambda: store.stats()["consume_queue_syncs"])


def test_flush_consume_queue_thorough_interval(opened: Open) -> None:
    store = opened(
        flush_interval_consume_queue=10,
        flush_consume_queue_least_pages=10_000,
        flush_consume_queue_thorough_interval=100,
    )
    store.put("t", b"x")
    assert comes(lambda: store.stats()["consume_queue_syncs"])


def test_message_index_enable(opened: Open) -> None:
    store = opened(message_index_enable=False)
    store.put("t", b"x", keys="k")
    store.flush()
    assert store.stats()["index_files"] == 0
    assert len(store.query("t", "k")) == 1  # searched in the log
    assert [len(found) for found in store.query_many("t", ["k", "none"])] == [1, 0]
    assert store.query("t", "k", index_only=True) == []


@pytest.mark.parametrize("checked", [True, False])
def test_check_crc_on_recover(opened: Open, tmp_path: Path, checked: bool) -> None:
    store = opened()
    store.put("t", b"first", queue_id=0)
    last = store.put("t", b"second", queue_id=0)
    store.flush()
    killed = tmp_path / "killed"
    shutil.copytree(store.path, killed)
    log = killed / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    at = data.index(b"second")
    data[at] ^= 1
    log.write_bytes(data)
    config = StoreConfig.small(check_crc_on_recover=checked)
    with rmqstore.open(killed, "r+", config=config) as recovered:
        assert recovered.recovery.bytes_cut == (
            0 if not checked else store.stats()["wrote_position"] - last.physical_offset
        )
        assert len(recovered["t"][0]) == (1 if checked else 2)


def test_message_delay_level(opened: Open) -> None:
    store = opened(message_delay_level="1h 2d")
    first = store.put("t", b"x", delay_level=1)
    second = store.put("t", b"x", delay_level=2)
    units = [int(store["SCHEDULE_TOPIC_XXXX"][n].units(0, 1)[0]["tags_code"]) for n in (0, 1)]
    assert units == [first.store_timestamp + HOUR, second.store_timestamp + 48 * HOUR]


def test_flush_delay_offset_interval(opened: Open) -> None:
    store = opened(flush_delay_offset_interval=60_000)
    file = Path(store.path, "config", "delayOffset.json")
    store.put("t", b"x", delay_level=1)
    store.clock.advance(2)
    assert comes(lambda: not store.delayed())
    assert not file.exists()
    store.clock.advance(60)
    assert comes(file.exists)


def test_default_topic_queue_nums(opened: Open) -> None:
    store = opened(default_topic_queue_nums=7)
    store.put("t", b"x")
    assert store["t"].write_queue_nums == 7


def test_store_host(opened: Open) -> None:
    store = opened(store_host="10.1.2.3:4567")
    done = store.put("t", b"x")
    assert store.at(done.physical_offset).store_host == "10.1.2.3:4567"
    assert done.msg_id.startswith("0A010203000011D7")


def test_max_body_size(opened: Open) -> None:
    store = opened(max_body_size=100)
    assert store.config.max_body_size == 100


def test_record_checksum(opened: Open) -> None:
    store = opened(record_checksum=True)
    done = store.put("t", b"x")
    assert "__CRC32#" in store.at(done.physical_offset).properties


NAMED = "INNER_MULTI_DISPATCH\x01{}"


def test_enable_multi_dispatch(opened: Open) -> None:
    """Whether a record that a client names further queues in goes to them."""
    for enabled in (False, True):
        store = opened(enable_multi_dispatch=enabled)
        done = store.core.put_stored("t", 2, b"1", NAMED.format("other"))
        assert ("INNER_MULTI_QUEUE_OFFSET" in store.at(done.physical_offset).properties) == enabled
        assert ("other" in store.topics) == enabled


def test_enable_lmq(opened: Open) -> None:
    """Whether these may be light ones."""
    store = opened(enable_multi_dispatch=True)
    with pytest.raises(MessageIllegalError, match="needs enable_lmq"):
        store.core.put_stored("t", 2, b"1", NAMED.format("%LMQ%a"))
    store = opened(enable_multi_dispatch=True, enable_lmq=True)
    store.core.put_stored("t", 2, b"1", NAMED.format("%LMQ%a"))
    assert [message.body for message in store["%LMQ%a"][0]] == [b"1"]


def test_max_lmq_consume_queue_num(opened: Open) -> None:
    for most in (0, 1, 3):
        store = opened(max_lmq_consume_queue_num=most)
        for number in range(most):
            store.put("t", b"1", lite_topics=[f"a{number}"])
        with pytest.raises(rmqstore.PutError, match="max_lmq_consume_queue_num") as caught:
            store.put("t", b"1", lite_topics=["more"])
        assert caught.value.status == rmqstore.PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


def test_compress_above(opened: Open) -> None:
    store = opened(compress_above=10)
    flags = [store.at(store.put("t", bytes(size)).physical_offset).sys_flag for size in (9, 10)]
    assert flags == [0, 1]
