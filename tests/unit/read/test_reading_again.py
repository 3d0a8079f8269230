"""What a store opened to read shows once files came, went, or were made anew under it."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import rmqstore
from rmqstore import _core
from support.damaged_store import CONFIG, killed

PER_FILE = CONFIG.mapped_file_size_consume_queue // 20
BODY = b"x" * 300
LISTED = 0.12  # seconds; directories are listed ten times a second


def put(store, count, topic="t", body=BODY, **named):
    for _ in range(count):
        store.put(topic, body, queue_id=0, **named)
    store.flush()


def shown(store, topic="t"):
    """Queue offsets and bodies that ``get`` leads to, from the beginning on."""
    at, found = 0, {}
    while True:
        got = store.get(topic, 0, at, 100)
        found.update({m.queue_offset: m.body for m in got.messages})
        if not got.messages and got.next_offset <= at:
            return found
        at = got.next_offset


def unit_place(path, queue_offset, topic="t"):
    """The queue's file that has a unit, and the unit's place in it."""
    size = CONFIG.mapped_file_size_consume_queue
    at = queue_offset * 20
    return path / f"consumequeue/{topic}/0" / f"{at - at % size:020d}", at % size


def write_unit(path, queue_offset, unit, topic="t"):
    file_path, at = unit_place(path, queue_offset, topic)
    with file_path.open("r+b") as file:
        file.seek(at)
        file.write(unit)


def read_unit(path, queue_offset, topic="t"):
    file_path, at = unit_place(path, queue_offset, topic)
    return file_path.read_bytes()[at : at + 20]


@pytest.mark.parametrize("told", [True, False])
def test_opened_before_the_first_queue_file(tmp_path, told):
    """The files of other stores have other sizes than the default: the first one tells."""
    path = tmp_path / "store"
    with (
        rmqstore.open(path, "a", config=CONFIG) as owner,
        rmqstore.open(path, config=CONFIG if told else None) as reader,
    ):
        assert shown(reader) == {}
        put(owner, 3 * PER_FILE + 1)
        time.sleep(LISTED)
        assert len(shown(reader)) == 3 * PER_FILE + 1


def test_opened_while_the_log_file_has_no_length(tmp_path):
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, 100)
    whole = tmp_path / "whole"
    path.rename(whole)
    (path / "commitlog").mkdir(parents=True)
    (path / "commitlog" / f"{0:020d}").touch()
    with rmqstore.open(path) as reader:
        assert shown(reader) == {}
        shutil.copytree(whole, path, dirs_exist_ok=True)
        time.sleep(LISTED)
        assert len(shown(reader)) == 100


@pytest.mark.parametrize("again", [0, 1, PER_FILE // 2, 4 * PER_FILE])
@pytest.mark.parametrize("read_before", [True, False])
def test_topic_that_was_deleted_and_made_again(tmp_path, again, read_before):
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, 2 * PER_FILE + 3, body=b"old")
        with rmqstore.open(path) as reader:
            if read_before:
                assert set(shown(reader).values()) == {b"old"}
            queue = reader["t"][0]
            assert queue.max_offset == 2 * PER_FILE + 3
            owner.delete_topic("t")
            put(owner, again, body=b"new")
            time.sleep(LISTED)
            assert shown(reader) == dict.fromkeys(range(again), b"new")
            assert queue.max_offset == again
            put(owner, 2 * PER_FILE, body=b"new")
            time.sleep(LISTED)
            assert shown(reader) == dict.fromkeys(range(again + 2 * PER_FILE), b"new")


def test_topic_of_a_killed_store_that_an_owner_deletes_and_makes_again(tmp_path):
    """What was derived from the log of a store that nobody owned does not outlive the topic."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, 2 * PER_FILE, body=b"old")
    killed(path)
    shutil.rmtree(path / "consumequeue/t")
    with rmqstore.open(path) as reader:
        assert len(shown(reader)) == 2 * PER_FILE
        with rmqstore.open(path, "a", config=CONFIG) as owner:
            owner.delete_topic("t")
            put(owner, 3, body=b"new")
            time.sleep(2 * LISTED)
            shown(reader)  # this one finds out
            assert shown(reader) == dict.fromkeys(range(3), b"new")


@pytest.mark.needs_debug_build
def test_a_queue_file_goes_between_its_listing_and_its_opening(tmp_path, monkeypatch):
    """No reader that told the queue from the log is told that its file is gone."""
    if not _core.FAULTS:
        pytest.fail("no failure injection in this build: build it with RMQSTORE_BUILD=faults")
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, 2 * PER_FILE)
    killed(path)
    aside = tmp_path / "aside"
    shutil.copytree(path / "consumequeue", aside)
    for later in range(1, 12):
        shutil.rmtree(path / "consumequeue")
        monkeypatch.delenv("RMQ_FAIL_AT", raising=False)
        with rmqstore.open(path) as reader:
            told = shown(reader)
            assert len(told) == 2 * PER_FILE
            shutil.copytree(aside, path / "consumequeue")
            time.sleep(LISTED)
            failing = _core.fault_counts()[0] + later
            monkeypatch.setenv("RMQ_FAIL_AT", f"open:{failing}:{errno.ENOENT}")
            for _ in range(3):  # a directory that is not there is a deleted topic, until it is
                assert shown(reader) in (told, {}), later
                time.sleep(LISTED)
            assert shown(reader) == told, later


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("bad", [-5, 1 << 40])
def test_unit_that_names_no_place_of_the_log_is_damage(tmp_path, mode, bad):
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        put(owner, 10 * PER_FILE)
    with rmqstore.open(path, mode) as store:
        write_unit(path, 7, bad.to_bytes(8, signed=True) + read_unit(path, 7)[8:])
        with pytest.raises(rmqstore.StoreCorruptError, match=f"consumequeue/t/0/{0:020d}, .*140"):
            store.get("t", 0, 7)
        assert len(store.get("t", 0, 0, 7).messages) == 7
        assert store.get("t", 0, 8).messages[0].queue_offset == 8


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_tags_where_a_unit_has_an_ext_address(tmp_path, mode):
    """The address tells nothing of the tag: the record does."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        for n in range(PER_FILE * 2):
            owner.put("t", BODY, queue_id=0, tags="ab"[n % 2])
    for n in range(PER_FILE * 2):
        address = -(1 << 63) + n * 48
        write_unit(path, n, read_unit(path, n)[:12] + address.to_bytes(8, signed=True))
    with rmqstore.open(path, mode) as store:
        got = store.get("t", 0, 0, 100, tags="b")
        assert [m.queue_offset for m in got.messages] == list(range(1, PER_FILE * 2, 2))
        assert store.get("t", 0, 0, 100, tags="c").messages == []


def test_bad_units_at_the_end_are_looked_at_once(tmp_path):
    """A broker's own recovery may leave units behind that name nothing."""
    path = tmp_path / "store"
    config = CONFIG.replace(mapped_file_size_consume_queue=20 * 100_000)
    with rmqstore.open(path, "a", config=config) as owner:
        put(owner, 5)
    file_path = path / "consumequeue/t/0" / f"{0:020d}"
    left = (1 << 30).to_bytes(8) + (400).to_bytes(4) + bytes(8)
    with file_path.open("r+b") as file:
        file.seek(100)
        file.write(left * 60_000)
    with rmqstore.open(path) as reader:
        assert len(shown(reader)) == 5
        began = time.process_time()
        for _ in range(200):
            reader.get("t", 0, 5)
        assert time.process_time() - began < 2  # 200 walks over 60,000 take 20 s
        with rmqstore.open(path, "r+") as owner:
            put(owner, 3)
            time.sleep(LISTED)
            assert len(shown(reader)) == 8


def test_threads_on_a_store_that_was_killed(tmp_path):
    """While an owner comes and writes the queues that were derived from the log."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as owner:
        for n in range(4 * PER_FILE):
            owner.put("t", b"%d" % n, queue_id=0)
    killed(path)
    shutil.rmtree(path / "consumequeue/t")
    with rmqstore.open(path) as reader, ThreadPoolExecutor(3) as pool:
        ended = threading.Event()

        def read():
            rounds = 0
            while rounds < 3 or not ended.is_set():
                found = shown(reader)
                assert [found[n] for n in range(4 * PER_FILE)] == [
                    b"%d" % n for n in range(4 * PER_FILE)
                ]
                rounds += 1

        reads = [pool.submit(read) for _ in range(3)]
        try:
            with rmqstore.open(path, "r+", config=CONFIG) as owner:
                for _ in range(5):
                    put(owner, PER_FILE)
                    time.sleep(LISTED)
        finally:
            ended.set()
        for each in reads:
            each.result()
