"""A store opened to read maps its files and copies what it gives out: they may change under it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

import rmqstore

FILE_SIZE = 64 << 10
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=4000,
)
COUNT = 300
PAGE = 4096
LISTED_EVERY = 0.1  # seconds


def body_of(number):
    return b"%06d" % number * 100


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("t", body_of(number), keys=f"k{number}", queue_id=0)
    return path


def log_files(path):
    return sorted(Path(path, "commitlog").iterdir())


def read_all(store):
    """Bodies by queue offset of what can be read one by one, and how many cannot."""
    found, failed = {}, 0
    for number in range(COUNT):
        try:
            got = store.get("t", 0, number, 1).messages
        except (rmqstore.StoreCorruptError, OSError):
            failed += 1
            continue
        found.update((message.queue_offset, message.body) for message in got)
    return found, failed


def assert_right(found):
    assert found == {number: body_of(number) for number in found}


@pytest.mark.parametrize("cut", [0, PAGE, *(5 * PAGE + n for n in range(100, 900, 31))])
def test_a_log_file_that_is_cut_while_it_is_mapped(path, cut):
    with rmqstore.open(path) as store:
        before = store.get("t", 0, 0, COUNT).messages
        assert len(before) == COUNT
        file = log_files(path)[1]
        start = int(file.name)
        os.truncate(file, cut)
        found, failed = read_all(store)
        assert_right(found)
        gone = {
            message.queue_offset
            for message in before
            if start + cut < message.physical_offset + message.store_size <= start + FILE_SIZE
        }
        assert failed == len(gone)
        assert found.keys() == set(range(COUNT)) - gone
        assert_right({message.queue_offset: message.body for message in before})
        for number in set(range(COUNT)) - gone:
            assert [m.queue_offset for m in store.query("t", f"k{number}")] == [number]


def test_a_queue_file_that_is_cut_while_it_is_mapped(path):
    with rmqstore.open(path) as store:
        queue = store["t"][0]
        assert len(queue.units()) == COUNT
        os.truncate(sorted(Path(path, "consumequeue/t/0").iterdir())[1], 0)
        found, _ = read_all(store)
        assert_right(found)
        assert set(range(100)) <= found.keys()


@pytest.mark.parametrize("cut", [0, 40, 300, 2 * PAGE + 7])
def test_an_index_file_that_is_cut_while_it_is_mapped(path, cut):
    (file,) = Path(path, "index").iterdir()
    with rmqstore.open(path) as store:
        assert len(store.query("t", "k7")) == 1
        os.truncate(file, cut)
        time.sleep(2 * LISTED_EVERY)
        for number in range(COUNT):
            assert [m.queue_offset for m in store.query("t", f"k{number}")] == [number]
        keys = [f"k{number}" for number in range(COUNT)]
        many = store.query_many("t", keys)
        assert [[m.queue_offset for m in one] for one in many] == [[n] for n in range(COUNT)]


def test_a_file_that_is_removed_or_replaced_while_it_is_mapped(path, tmp_path):
    with rmqstore.open(path) as store:
        before = store.get("t", 0, 0, COUNT).messages
        first, second = log_files(path)[:2]
        short = tmp_path / "short"
        short.write_bytes(second.read_bytes()[: 2 * PAGE])
        first.unlink()
        short.rename(second)
        assert_right({message.queue_offset: message.body for message in before})
        found, _ = read_all(store)
        assert_right(found)
        assert found.keys() >= {
            message.queue_offset for message in before if message.physical_offset >= 2 * FILE_SIZE
        }


def test_readers_of_files_that_are_cut_and_restored(path):
    """Threads get, scan and query while a file of each kind is cut and restored: no wrong byte."""
    targets = [
        log_files(path)[1],
        sorted(Path(path, "consumequeue/t/0").iterdir())[1],
        next(Path(path, "index").iterdir()),
    ]
    whole = {target: target.read_bytes() for target in targets}
    done = threading.Event()
    failures = []
    counts = [0, 0, 0]

    def reading(which, read):
        try:
            while not done.is_set():
                try:
                    assert_right(read())
                except (rmqstore.StoreCorruptError, rmqstore.MessagesRemovedError, OSError):
                    continue
                counts[which] += 1
        except BaseException as error:
            failures.append(error)

    with rmqstore.open(path) as store:

        def get():
            return {m.queue_offset: m.body for m in store.get("t", 0, 0, COUNT).messages}

        def scan():
            return {m.queue_offset: m.body for m in store.scan("t", on_corruption="skip")}

        def query():
            keys = [f"k{number}" for number in range(0, COUNT, 3)]
            return {m.queue_offset: m.body for one in store.query_many("t", keys) for m in one}

        threads = [
            threading.Thread(target=reading, args=each) for each in enumerate((get, scan, query))
        ]
        for thread in threads:
            thread.start()
        for turn in range(60):
            target = targets[turn % len(targets)]
            os.truncate(target, PAGE * (turn % 5))
            with target.open("r+b") as file:
                file.write(whole[target])
        done.set()
        for thread in threads:
            thread.join(60)
        assert not failures
    with rmqstore.open(path) as store:
        assert len(store.get("t", 0, 0, COUNT).messages) == COUNT


def test_the_end_of_the_log_is_seen_at_once(path):
    """A reader that remembers the end of the log sees what an owner puts behind it."""
    with rmqstore.open(path, "r+") as owner, rmqstore.open(path) as reader:
        for number in range(COUNT, COUNT + 50):
            assert reader.query("t", f"k{number}") == []
            result = owner.put("t", body_of(number), keys=f"k{number}", queue_id=0)
            assert [m.body for m in reader.query("t", f"k{number}")] == [body_of(number)]
            assert reader.at(result.physical_offset).queue_offset == number
            end = owner["t"][0].max_offset
            until = time.monotonic() + 60  # a new file is seen when they are listed
            while reader["t"][0].max_offset != end:
                assert end % 100 == 1, end
                assert time.monotonic() < until


def test_the_topics_of_a_changed_file_are_seen_at_once(path):
    with rmqstore.open(path, "r+") as owner, rmqstore.open(path) as reader:
        for number in range(20):
            assert f"new{number}" not in reader.topics
            owner.create_topic(f"new{number}", 2)
            assert f"new{number}" in reader.topics
        shutil.rmtree(Path(path, "config"))
        assert "new0" not in reader.topics


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_offset_at_is_the_oracles(path, mode):
    with rmqstore.open(path, mode) as store:
        queue = store["t"][0]
        times = [message.store_timestamp for message in queue]
        for at in range(times[0] - 2, times[-1] + 3):
            assert queue.offset_at(at) == sum(each < at for each in times)
            assert queue.offset_at(at, "upper") == sum(each <= at for each in times) - 1
        assert queue.offset_at(times[9], bounds=(20, 30)) in {20, times.index(times[9])}
        assert queue.offset_at(-(1 << 63)) == 0
        assert queue.offset_at((1 << 63) - 1) == COUNT
