"""Many at once: reading what was just written, closing under way, views that outlive it all."""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import random
import shutil
import threading
import time

import pytest

import rmqstore
from support import oracle_store
from threads.test_activities import in_threads

pytestmark = [pytest.mark.threads]

TINY = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
    flush_interval_commit_log=5,
    flush_interval_consume_queue=5,
    flush_consume_queue_thorough_interval=20,
)


@pytest.fixture(autouse=True)
def _watchdog():
    """A deadlock ends the run with every thread's stack, instead of hanging it."""
    faulthandler.dump_traceback_later(100, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_everybody_reads_what_it_wrote(tmp_path, flush):
    config = TINY.replace(flush_disk_type=flush)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:

        def work(number):
            topic = f"topic-{number % 3}"
            for i in range(150):
                body = b"%d-%d" % (number, i)
                key = f"{number}-{i}"
                put = store.put(topic, body, keys=key, queue_id=number % 2)
                found = store.get(topic, number % 2, put.queue_offset, 1)
                assert [m.body for m in found.messages] == [body]
                assert [m.body for m in store.query(topic, key)] == [body]
                assert store.at(put.physical_offset).body == body
                assert store.message(put.msg_id).body == body
                assert store[topic][number % 2][put.queue_offset].body == body

        in_threads(6, work)
    oracle_store.check_store(tmp_path / "store")


def test_readers_and_writers(tmp_path):
    """Writers, readers by queue, by key and by place, and readers with "r", over many rolls."""
    root = tmp_path / "store"
    done = threading.Event()
    lock = threading.Lock()
    known: list[tuple[int, int, int, str]] = []
    with rmqstore.open(root, "a", config=TINY) as store:
        store.put("Topic1", b"0", queue_id=0)

        def write(number):
            for i in range(60):
                bodies = [b"%d-%d-%d" % (number, i, k) + b"x" * (k * 37) for k in range(12)]
                keys = [body.decode() for body in bodies]
                put = store.put_many("Topic1", bodies, queue_id=number, keys=keys)
                places = zip(put.queue_offset.tolist(), put.physical_offset.tolist(), strict=True)
                with lock:
                    known.extend(
                        (number, *place, key) for place, key in zip(places, keys, strict=True)
                    )

        def read(number):
            draw = random.Random(number)
            while not done.is_set():
                with lock:
                    some = draw.sample(known, min(len(known), 20))
                for queue_id, queue_offset, physical_offset, key in some:
                    m = store.at(physical_offset)
                    assert m.body == key.encode()
                    assert store.get("Topic1", queue_id, queue_offset, 3).messages[0] == m
                    assert [hit.physical_offset for hit in store.query("Topic1", key)] == [
                        physical_offset
                    ]

        def follow(number):
            with rmqstore.open(root, "r") as reader:
                seen = 0
                while not done.is_set():
                    found = reader.get("Topic1", number % 3, seen, 100)
                    for m in found.messages:
                        assert m.queue_offset == seen
                        seen += 1
                    time.sleep(0.001)

        def work(number):
            if number < 3:
                write(number)
                if all(not t.is_alive() or t is threading.current_thread() for t in writers):
                    done.set()
            elif number < 6:
                read(number)
            else:
                follow(number)

        writers: list[threading.Thread] = []

        def staged(number):
            if number < 3:
                writers.append(threading.current_thread())
            try:
                work(number)
            except BaseException:
                done.set()
                raise

        timer = threading.Timer(40, done.set)
        timer.start()
        in_threads(8, staged)
        timer.cancel()
        assert len(known) == 3 * 60 * 12
    oracle_store.check_store(root)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("attempt", range(5))
def test_close_under_way(tmp_path, flush, attempt):
    """Whoever is inside ends well, whoever comes later gets StoreClosedError; nothing is lost."""
    root = tmp_path / "store"
    store = rmqstore.open(root, "a", config=TINY.replace(flush_disk_type=flush))
    store.put("Topic1", b"first", keys="first", queue_id=0)
    acknowledged = [[] for _ in range(4)]
    closed = [False] * 10

    def work(number):
        if number == 9:
            time.sleep(0.02 + 0.02 * attempt)
            store.close()
            closed[9] = True
            return
        try:
            while True:
                if number < 4:
                    put = store.put("Topic1", b"x" * 100 * number, queue_id=number)
                    acknowledged[number].append(put.physical_offset)
                    time.sleep(0.0005)  # a small store is enough: the slow codec reads it all
                elif number < 6:
                    for m in store.get("Topic1", 0, 0, 50).messages:
                        assert m.topic == "Topic1"
                elif number == 6:
                    assert store.query("Topic1", "first")
                elif number == 7:
                    for m in store["Topic1"][0]:
                        assert m.queue_id == 0
                else:
                    store.flush()
        except rmqstore.StoreClosedError:
            closed[number] = True

    in_threads(10, work)
    assert all(closed)
    assert store.closed
    for call in [
        lambda: store.put("Topic1", b""),
        lambda: store.put_many("Topic1", [b""]),
        lambda: store.get("Topic1", 0, 0),
        lambda: store.query("Topic1", "first"),
        lambda: store.at(0),
        lambda: store["Topic1"],
        store.flush,
        store.stats,
    ]:
        with pytest.raises(rmqstore.StoreClosedError):
            call()
    assert oracle_store.is_clean(root)
    records = {r.physical_offset for r in oracle_store.walk_log(root / "commitlog")}
    assert {offset for some in acknowledged for offset in some} <= records
    oracle_store.check_store(root)


def test_many_close_at_once(tmp_path):
    for number in range(10):
        store = rmqstore.open(tmp_path / str(number), "a", config=TINY)
        store.put("Topic1", b"x")
        in_threads(6, lambda _, store=store: store.close())
        assert oracle_store.is_clean(tmp_path / str(number))


@pytest.mark.parametrize("mode", ["a", "r"])
def test_messages_outlive_roll_close_and_deletion(tmp_path, mode):
    root = tmp_path / "store"
    bodies = [hashlib.sha256(b"%d" % number).digest() * 40 for number in range(300)]
    writer = rmqstore.open(root, "a", config=TINY)
    writer.put_many("Topic1", bodies, queue_id=0)
    writer.flush()
    store = writer if mode == "a" else rmqstore.open(root, "r")
    messages = store.get("Topic1", 0, 0, 1000).messages
    assert len(messages) == len(bodies)
    views = [m.raw_body for m in messages]
    assert all(view.readonly for view in views)
    writer.put_many("Topic1", bodies, queue_id=1)  # and rolls
    store.close()
    writer.close()
    shutil.rmtree(root)
    del store, writer
    gc.collect()
    for m, view, body in zip(messages, views, bodies, strict=True):
        assert view == body
        assert m.body == body
    kept = views[7]
    del messages, views, m, view
    gc.collect()
    assert bytes(kept) == bodies[7]


def test_a_store_nobody_closed_goes_away(tmp_path):
    """Its threads end by themselves, its lock is free, and `abort` stays."""
    before = set(threading.enumerate())  # of which others may end meanwhile
    for number in range(5):
        store = rmqstore.open(tmp_path / "store", "a", config=TINY, timeout=60)
        store.put("Topic1", b"%d" % number, queue_id=0)
        view = store.get("Topic1", 0, number).messages[0].raw_body
        del store
        gc.collect()
        assert view == b"%d" % number
    assert set(threading.enumerate()) <= before
    with rmqstore.open(tmp_path / "store", "r+", timeout=60) as store:
        assert not store.recovery.clean
        assert [m.body for m in store["Topic1"][0]] == [b"0", b"1", b"2", b"3", b"4"]
