"""What a store does beyond put, get and query: checksums, deletion, many keys, letting go."""

from __future__ import annotations

import os
import pickle
import shutil
import signal

import pytest

import rmqstore
from rmqstore import GetStatus, StoreCorruptError

SMALL = rmqstore.StoreConfig.small()


def test_a_record_checksum_covers_all_of_the_record(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=SMALL.replace(record_checksum=True)) as store:
        first = store.put("Topic1", b"body", tags="TagA", properties={"region": "north"})
        store.put_many("Topic1", [b"a", b"b"], tags="TagB", uniq_key=False)
        store.put_batch("Topic1", [b"c"], properties={"region": "south"})
        for queue in store["Topic1"].values():
            for message in queue:
                assert len(message.properties["__CRC32#"]) == 10
        size = store.at(first.physical_offset).store_size
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes()[:size])
    rmqstore.decode_record(data)
    data[data.index(b"north")] ^= 1
    with pytest.raises(StoreCorruptError, match="__CRC32#"):
        rmqstore.decode_record(data)
    assert rmqstore.decode_record(data, check_crc=False).properties["region"] == "oorth"


def test_a_deleted_topic_stays_deleted(tmp_path):
    """Also across a kill, and where the whole log is dispatched again."""
    root = tmp_path / "store"
    child = os.fork()
    if child == 0:
        try:
            store = rmqstore.open(root, "a", config=SMALL)
            store.put_many("orders", [b"old"] * 100, keys=[f"k{i}" for i in range(100)], queue_id=0)
            store.flush()
            store.delete_topic("orders")
            assert "orders" not in store.topics
            store.put_many("orders", [b"new"] * 10, queue_id=0)
            store.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    for mode, verify in [("r", "tail"), ("r+", "tail"), ("r+", "full")]:
        with rmqstore.open(root, mode, verify=verify) as store:
            assert [m.body for m in store["orders"][0]] == [b"new"] * 10
            assert len(store.query("orders", "k7")) == 1
    shutil.rmtree(root / "index")
    with rmqstore.open(root, "r+") as store:
        assert len(store.query("orders", "k7", index_only=True)) == 1
        assert store.put("orders", b"next", queue_id=0).queue_offset == 10
        with pytest.raises(rmqstore.TopicNotFoundError):
            store.delete_topic("unknown")


def test_many_keys_are_found_as_each_by_itself(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        keys = [f"key-{i % 700}" for i in range(2000)]
        store.put_many("orders", [str(i).encode() for i in range(2000)], keys=keys)
        wanted = [f"key-{i}" for i in range(0, 800, 7)]
        single = [store.query("orders", key) for key in wanted]
        assert store.query_many("orders", wanted) == single
        assert store.query_many("orders", wanted, max_num=1) == [hits[:1] for hits in single]
        offsets, starts = store.locate_many("orders", wanted)
        for i, hits in enumerate(single):
            found = offsets[starts[i] : starts[i + 1]].tolist()
            assert found == [m.physical_offset for m in hits]
        assert store.query_many("orders", []) == []
        with pytest.raises(TypeError, match="keys"):
            store.query_many("orders", "key-1")


def test_a_message_lets_go_of_its_file(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        store.put("orders", b"hello", keys="k", queue_id=0)
        message = store["orders"][0][0]
        view = message.raw_body
        assert view.readonly
        assert message.detach() is message
        again = message.raw_body
    assert bytes(view) == bytes(again) == message.body == b"hello"
    view.release()
    assert bytes(again) == b"hello"
    copy = pickle.loads(pickle.dumps(message))
    assert copy == message
    assert hash(copy) == hash(message)
    assert rmqstore.Message.__new__(rmqstore.Message).topic == ""


def test_what_the_index_covers_and_what_is_searched_without_it(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=SMALL) as store:
        store.put_many("orders", [b"x"] * 500, keys=[f"k{i}" for i in range(500)])
        assert len(store.query("orders", "k499")) == 1  # that waits until all are in the index
        [(start, stop)] = store.index_coverage()
        assert (start, stop) == (0, store.stats()["wrote_position"])
    for path in (root / "index").iterdir():
        path.unlink()
    with rmqstore.open(root) as store:
        assert store.index_coverage() == []
        assert store.query("orders", "k77", index_only=True) == []
        assert len(store.query("orders", "k77")) == 1
    with rmqstore.open(root, "r+", config=SMALL) as store:  # the index is made anew
        assert len(store.query("orders", "k77", index_only=True)) == 1


def test_the_first_record_is_found_again_without_an_index(tmp_path):
    """What was walked once and held no key is not walked again: it must have held none."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=SMALL) as store:
        done = store.put("t", b"only", keys="k", uniq_key=False)
    for path in (root / "index").iterdir():
        path.unlink()
    with rmqstore.open(root) as store:
        for _ in range(3):
            assert [m.physical_offset for m in store.query("t", "k")] == [done.physical_offset]
        assert store.scan("t", keys=["no", "k"]).count() == 1


def test_a_reader_follows_an_owner_that_came_later(tmp_path):
    """Queues derived from the log of a dead store give way to the files of its next owner."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=SMALL) as store:
        store.put_many("orders", [b"x"] * 20, queue_id=0)
    for path in (root / "consumequeue" / "orders" / "0").iterdir():
        path.unlink()
    with rmqstore.open(root) as reader:
        assert len(reader["orders"][0]) == 20
        with rmqstore.open(root, "r+", config=SMALL) as store:
            store.put_many("orders", [b"y"] * 30, queue_id=0)
            store.flush()
            offset = 0
            for _ in range(100):
                got = reader.get("orders", 0, offset, 1000)
                offset = got.next_offset
                if offset == 50:
                    break
                signal.sigtimedwait([], 0.05)
            assert offset == 50
        assert reader.get("orders", 0, 50).status is GetStatus.OFFSET_OVERFLOW_ONE


def test_offsets_by_time(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=SMALL) as store:
        for i in range(5):
            store.put("orders", bytes([i]), queue_id=0)
            signal.sigtimedwait([], 0.003)
        queue = store["orders"][0]
        times = [m.store_timestamp for m in queue]
        for time in range(times[0] - 2, times[-1] + 3):
            lower = next((i for i, t in enumerate(times) if t >= time), 5)
            upper = max((i for i, t in enumerate(times) if t <= time), default=-1)
            assert queue.offset_at(time) == lower
            assert queue.offset_at(time, "upper") == upper
        assert queue.offset_at(times[2], "nearest") == 2


def test_unique_keys_of_stores_in_different_months(tmp_path):
    """One clock is a month ahead of the other: each put meets the other's month."""
    with (
        rmqstore.open(tmp_path / "one", "a", config=SMALL) as one,
        rmqstore.open(tmp_path / "other", "a", config=SMALL) as other,
    ):
        other.clock.advance(31 * 86400)
        keys = [store.put("t", b"x").uniq_key for _ in range(500) for store in (one, other)]
        one.put_many("many", [b"x"] * 100, queue_id=0)
        keys += [message.uniq_key for message in one["many"][0]]
    assert len(set(keys)) == len(keys)
