"""A store opened to read, beside an owner that appends, rolls files and deletes them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import rmqstore

FILE_SIZE = 32 << 10
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
)
TIMEOUT = 60.0
BODY = b"x" * 900


@pytest.fixture
def owner(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put("t", BODY, queue_id=0)
        store.flush()
        yield store


def read_up_to(reader, count):
    """Read queue t/0 from where ``get`` says to go on, until so many are there."""
    deadline = time.monotonic() + TIMEOUT
    at, offsets = 0, []
    while at < count:
        assert time.monotonic() < deadline, (at, count)
        got = reader.get("t", 0, at, 50)
        offsets += [message.queue_offset for message in got.messages]
        at = got.next_offset
    return offsets


def log_of(store):
    return Path(store.path, "commitlog")


def put_until(owner, reader, count):
    """Put into queue t/0 until it has so many messages, all of them seen by the reader."""
    while owner.put("t", BODY, queue_id=0).queue_offset < count - 1:
        pass
    assert read_up_to(reader, count) == list(range(count))


def remove_first(directory, count):
    for path in sorted(directory.iterdir())[:count]:
        path.unlink()


def test_files_that_came_after_the_reader_opened(owner):
    with rmqstore.open(owner.path) as reader:
        assert read_up_to(reader, 1) == [0]
        put_until(owner, reader, 300)
        assert len(list(log_of(owner).iterdir())) > 5


def test_files_removed_just_after_they_were_looked_at(owner):
    """However lately minimums were read: nobody passes over messages untold."""
    with rmqstore.open(owner.path) as reader:
        put_until(owner, reader, 600)
    with rmqstore.open(owner.path) as reader:  # it has no file open that could still be read
        queue = reader["t"][0]
        messages = iter(queue)
        assert next(messages).queue_offset == 0
        assert (queue.min_offset, queue.max_offset) == (0, 600)
        remove_first(log_of(owner), 15)
        with pytest.raises(rmqstore.MessagesRemovedError) as removed:
            list(messages)
        least = removed.value.min_offset
        assert 300 < least < 600
        got = reader.get("t", 0, least - 1)
        assert got.status is rmqstore.GetStatus.OFFSET_TOO_SMALL
        assert got.next_offset == got.min_offset == queue.min_offset == least
        assert queue[least].queue_offset == least
        with pytest.raises(IndexError, match=f"min is {least}"):
            queue[least - 1]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_without_an_index_every_query_finds_the_first_record(tmp_path, mode):
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        store.put("t", b"first", keys="first", queue_id=0)
        store.put("t", b"second", uniq_key=False, queue_id=0)
    shutil.rmtree(path / "index")
    with rmqstore.open(path, mode, config=None if mode == "r" else CONFIG) as store:
        for _ in range(3):
            assert [message.body for message in store.query("t", "first")] == [b"first"]


def test_keys_that_come_after_the_unique_key(tmp_path):
    """The index names a message by its first key before it has the others."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        for n in range(3):
            store.put("t", b"%d" % n, keys=[f"key-{n}", f"other-{n}"], queue_id=0)
    index = next((path / "index").iterdir())
    whole = index.read_bytes()
    count = int.from_bytes(whole[36:40])  # entries from 1 on: three a message
    assert count == 10
    index.write_bytes(whole[:36] + (count - 2).to_bytes(4) + whole[40:])
    with rmqstore.open(path) as store:
        uniq_key = store["t"][0][2].uniq_key
        for key in (uniq_key, "key-2", "other-2", "other-2", "key-2", uniq_key):
            assert [message.body for message in store.query("t", key)] == [b"2"], key
        for key in ("key-1", "other-1", "key-0"):
            assert len(store.query("t", key)) == 1


def test_queue_files_removed_with_them(owner):
    with rmqstore.open(owner.path) as reader:
        put_until(owner, reader, 600)
    with rmqstore.open(owner.path) as reader:
        remove_first(log_of(owner), 15)
        remove_first(Path(owner.path, "consumequeue/t/0"), 3)
        got = reader.get("t", 0, 0)
        assert got.status is rmqstore.GetStatus.OFFSET_TOO_SMALL
        assert 300 < got.min_offset == got.next_offset < 600
        rest = [message.queue_offset for message in reader["t"][0]]
        assert rest == list(range(got.min_offset, 600))
