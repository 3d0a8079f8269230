"""Topics deleted and made again, through power cuts, kills and other threads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time

import pytest

import rmqstore

SLOW = 100_000_000  # ms: only what is asked for is flushed
LOG_SIZE = 1 << 20
PATIENCE = 60
CONFIG = rmqstore.StoreConfig.small(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=20_000,
    flush_interval_commit_log=SLOW,
    flush_interval_consume_queue=SLOW,
    flush_commit_log_thorough_interval=SLOW,
    flush_consume_queue_thorough_interval=SLOW,
)


def in_child(work):
    """Run ``work`` in a child that ends by SIGKILL, as a process that dies in the middle."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def deletions(root):
    return json.loads((root / "rmqstore-deleted.json").read_text())["topics"]


def topics_in(root):
    return set(json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"])


def cut(root, position):
    """Take from the log what lies behind a position in its only file."""
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.truncate(position)
        file.truncate(LOG_SIZE)


def test_the_note_is_never_ahead_of_the_log(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put_many("orders", [b"old %d" % n for n in range(50)], queue_id=0)
        assert store.stats()["flushed_position"] == 0
        store.delete_topic("orders")
        assert deletions(tmp_path / "store")["orders"] <= store.stats()["flushed_position"]


@pytest.mark.parametrize("config", [CONFIG, None])
@pytest.mark.parametrize("killed", [True, False])
def test_a_log_that_ends_below_the_note(tmp_path, config, killed):
    """The log's end was lost: what is put to the topic made again is seen, and goes on being."""
    root = tmp_path / "store"

    def work():
        store = rmqstore.open(root, "a", config=CONFIG)
        store.put("others", b"stays", queue_id=0)
        store.flush()
        with root.joinpath("end").open("w") as file:
            file.write(str(store.stats()["wrote_position"]))
        store.put_many("orders", [b"old %d" % n for n in range(50)], queue_id=0)
        store.delete_topic("orders")

    in_child(work)
    end = int((root / "end").read_text())
    cut(root, end)
    assert deletions(root)["orders"] > end
    with rmqstore.open(root) as store:
        assert "orders" not in store
        assert [m.body for m in store["others"][0]] == [b"stays"]

    def go_on():
        store = rmqstore.open(root, "r+", config=config)
        assert deletions(root)["orders"] == end
        assert store.put("orders", b"new", queue_id=0).queue_offset == 0
        assert store.get("orders", 0, 0).messages[0].body == b"new"
        if killed:
            store.flush()
        else:
            store.close()

    in_child(go_on)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            assert [m.body for m in store["orders"][0]] == [b"new"]
            assert [m.body for m in store["others"][0]] == [b"stays"]


def test_deleted_while_a_message_is_put(tmp_path):
    """The message comes after the deletion: the topic is made again for it, in its file as well."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put("orders", b"old", queue_id=0)

        def keys():
            store.delete_topic("orders")
            yield "key"

        done = store.put("orders", b"new", queue_id=0, keys=keys())
        assert done.queue_offset == 0
        assert [m.body for m in store["orders"][0]] == [b"new"]
        assert "orders" in topics_in(root)
    with rmqstore.open(root) as store:
        assert [m.body for m in store["orders"][0]] == [b"new"]


@pytest.mark.long
@pytest.mark.parametrize("rows", ["put_many", "put_table"])
def test_deleted_while_rows_are_put(tmp_path, rows):
    """Each row comes before the deletion and is gone, or after it and is seen."""
    pyarrow = pytest.importorskip("pyarrow")
    root = tmp_path / "store"
    count = 20_000
    bodies = [b"%d" % n for n in range(count)]
    table = pyarrow.table({"topic": ["orders"] * count, "body": bodies, "queue_id": [0] * count})
    outcomes = set()
    with rmqstore.open(root, "a", config=rmqstore.StoreConfig.small()) as store:
        for turn in range(500):
            if turn >= 20 and True in outcomes:
                break  # the deletion has come between two rows
            results = []

            def put(results=results):
                if rows == "put_table":
                    results.append(store.put_table(table))
                else:
                    results.append(store.put_many("orders", bodies, queue_id=0))

            store.put("orders", b"first", queue_id=0)
            writer = threading.Thread(target=put)
            before = store.stats()["wrote_position"]
            writer.start()
            while store.stats()["wrote_position"] == before:
                pass
            store.delete_topic("orders")
            writer.join()
            note = deletions(root)["orders"]
            places = [int(at) for at in results[0].physical_offset]
            expected = [b"%d" % n for n, at in enumerate(places) if at >= note]
            outcomes.add(bool(expected))
            assert ("orders" in topics_in(root)) == bool(expected)
            assert ("orders" in store) == bool(expected)
            if expected:
                until = time.monotonic() + PATIENCE
                while store.stats()["dispatch_behind_bytes"] and time.monotonic() < until:
                    time.sleep(0.001)  # a busy machine may take longer than a read waits
                assert [m.body for m in store["orders"][0]] == expected
    assert True in outcomes


def broker_like(root):
    """Take away what a broker's store does not have: our watermark and our note of deletions."""
    page = bytearray((root / "checkpoint").read_bytes())
    page[2048:] = bytes(len(page) - 2048)
    (root / "checkpoint").write_bytes(page)
    for name in ("rmqstore-deleted.json", "rmqstore-deleted.json.bak"):
        (root / name).unlink(missing_ok=True)


def broker_deletes(root, topic):
    """Do as a broker that cleans up a topic: its queues and its entry go, and no more."""
    shutil.rmtree(root / "consumequeue" / topic)
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"][topic]
    path.write_text(json.dumps(table))


@pytest.fixture
def without_orders(tmp_path):
    """A closed store as a broker leaves it after a topic was deleted, and where its records are."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        places = [
            store.put("orders", b"old %d" % n, queue_id=n % 2, keys=f"k{n}").physical_offset
            for n in range(20)
        ]
        store.put("others", b"other", queue_id=0)
    broker_like(root)
    broker_deletes(root, "orders")
    return root, places


@pytest.mark.parametrize("verify", ["tail", "full"])
@pytest.mark.parametrize("index", [True, False])
def test_a_broker_deleted_a_topic(without_orders, verify, index):
    """It does not come back, not after a kill either; its records are in the log as before."""
    root, places = without_orders
    if not index:
        shutil.rmtree(root / "index")

    def look(mode):
        with rmqstore.open(root, mode, verify=verify if mode != "r" else "tail") as store:
            assert list(store) == ["others"]
            assert not (root / "consumequeue" / "orders").exists()
            assert [m.body for m in store["others"][0]] == [b"other"]
            assert store.at(places[3]).body == b"old 3"
            assert [m.physical_offset for m in store.query("orders", "k7")] == [places[7]]

    for mode in ("r", "r+", "r+", "r"):
        look(mode)
    (root / "abort").touch()
    for mode in ("r", "r+", "r"):
        look(mode)
    with rmqstore.open(root, "r+") as store:
        assert store.put("orders", b"new", queue_id=1).queue_offset == 0
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            assert [m.body for m in store["orders"][1]] == [b"new"]
            assert len(store["orders"][0]) == 0


DOUBTS = ["killed", "no topics.json", "torn", "listed", "a queue", "no queues", "no files", "own"]


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_topic_without_queues_is_shown_where_in_doubt(without_orders, doubt):
    root, _ = without_orders
    path = root / "config" / "topics.json"
    names = ["orders"]
    if doubt == "killed":
        (root / "abort").touch()
    elif doubt == "no topics.json":
        for file in path.parent.glob("topics.json*"):
            file.unlink()
    elif doubt == "torn":
        shutil.copy(path, path.with_suffix(".json.bak"))
        path.write_text("{")
    elif doubt == "listed":
        table = json.loads(path.read_text())
        table["topicConfigTable"]["orders"] = {"topicName": "orders"}
        path.write_text(json.dumps(table))
    elif doubt == "a queue":
        (root / "consumequeue" / "orders" / "1").mkdir(parents=True)
    elif doubt.startswith("no "):  # a broker dispatches the whole log then
        shutil.rmtree(root / "consumequeue")
        (root / "consumequeue/others/0" if doubt == "no files" else root / "consumequeue").mkdir(
            parents=True
        )
    else:
        names = ["RMQ_SYS_TRACE_TOPIC", "%RETRY%group"]
        for name in names:
            with rmqstore.open(root, "r+") as store:
                store.put_many(name, [b"old %d" % n for n in range(0, 20, 2)], queue_id=0)
            broker_like(root)
            broker_deletes(root, name)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            for name in names:
                assert [m.body for m in store[name][0]] == [b"old %d" % n for n in range(0, 20, 2)]


@pytest.mark.parametrize("config", [CONFIG, None])
def test_a_note_without_what_follows_it(tmp_path, config):
    """Cut off between the note and the queues' files: deleted for who reads as for who writes."""
    root = tmp_path / "store"
    with rmqstore.open(tmp_path / "first", "a", config=CONFIG) as store:
        store.put_many("orders", [b"old %d" % n for n in range(50)], queue_id=1)
        store.put("others", b"stays", queue_id=0)
        store.flush()
        shutil.copytree(store.path, root)
        store.delete_topic("orders")
    for name in ("rmqstore-deleted.json", "config/topics.json"):
        shutil.copy(tmp_path / "first" / name, root / name)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=config if mode == "r+" else None) as store:
            assert "orders" not in store
            assert [m.body for m in store["others"][0]] == [b"stays"]
    assert not (root / "consumequeue" / "orders").exists()


SYSTEM = [
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC", "TBW102", "BenchmarkTest", "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer",
]  # fmt: skip


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", SYSTEM)
def test_topics_of_the_broker_itself_are_not_deleted(tmp_path, name, there):
    """As a broker refuses it: messages of other topics wait in some of them."""
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        if there:
            store.create_topic(name, 1)
            store.put(name, b"kept", queue_id=0)
        store.put("orders", b"later", delay_level=18, queue_id=0)
        begun = store.begin("orders", b"half", queue_id=0)
        ended = store.begin("orders", b"ended", queue_id=0)
        ended.commit()
        before = {topic: len(list(store[topic].messages())) for topic in store}
        with pytest.raises(ValueError, match=f"broker itself.*got '{name}'"):
            store.delete_topic(name)
        assert {topic: len(list(store[topic].messages())) for topic in store} == before
        assert len(store.delayed()) == 1 + (there and name == SYSTEM[0])
        begun.commit()
        store.delete_topic("orders")
        store.flush()
    with rmqstore.open(tmp_path / "store", "r+", config=CONFIG, verify="full") as store:
        assert len(store.delayed()) == 1 + (there and name == SYSTEM[0])


def test_files_that_somebody_else_has_removed_are_no_error(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for queue_id in range(3):
            store.put("orders", b"old", queue_id=queue_id)
        store.flush()
        (root / "consumequeue" / "orders" / "1" / f"{0:020d}").unlink()
        store.delete_topic("orders")
        assert "orders" not in store
        assert not (root / "consumequeue" / "orders").exists()
        assert set(deletions(root)) == {"orders"}
        assert store.put("orders", b"new", queue_id=2).queue_offset == 0
