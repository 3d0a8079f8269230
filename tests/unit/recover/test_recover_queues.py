"""Queues after power cuts, deletions and damage: what a recovery makes of them, and a reader sees.

A power cut leaves any subset of the pages and sectors that were written since the last sync. Images
of that kind are made from two states of a store: the files as they were when all was flushed, and
the files as a killed process left them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct

import pytest

import rmqstore
from support import damaged_store, oracle_store

SLOW = 100_000_000  # ms: only what is asked for is flushed
CONFIG = rmqstore.StoreConfig.small(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=1000,
    max_index_num=4000,
    flush_interval_commit_log=SLOW,
    flush_interval_consume_queue=SLOW,
    flush_commit_log_thorough_interval=SLOW,
    flush_consume_queue_thorough_interval=SLOW,
)
PAGE, SECTOR, UNIT = 4096, 512, 20


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


def put_some(store, name, count, queues=3):
    for n in range(count):
        store.put("orders", b"%s %d" % (name, n), queue_id=n % queues, keys=f"{name.decode()}-{n}")


@pytest.fixture(scope="module")
def two_states(tmp_path_factory):
    """A store as of its last flush, and as a killed process left it."""
    top = tmp_path_factory.mktemp("states")

    def work():
        store = rmqstore.open(top / "now", "a", config=CONFIG)
        put_some(store, b"first", 1500)
        store.flush()
        shutil.copytree(top / "now", top / "durable")
        put_some(store, b"second", 4000)
        assert len(store["orders"][0]) == 1834

    in_child(work)
    return top / "durable", top / "now"


def image(states, target, seed, kinds=("consumequeue", "commitlog"), keep=None):
    """Make a store in which a random part of what was never synced is missing."""
    durable, now = states
    rng = random.Random(seed)
    shutil.copytree(now, target)
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target)
        if not path.is_file() or name.parts[0] not in kinds:
            continue
        current = path.read_bytes()
        before = b""
        if (durable / name).exists():
            before = (durable / name).read_bytes()
        before = before.ljust(len(current), b"\0")
        share = rng.choice([0, 0.1, 0.5, 0.9, 1]) if keep is None else keep
        made = bytearray(current)
        for page in range(0, len(current), PAGE):
            step = SECTOR if rng.random() < 0.1 else PAGE
            for at in range(page, min(page + PAGE, len(current)), step):
                if rng.random() >= share:
                    made[at : at + step] = before[at : at + step]
        path.write_bytes(made)
    return target


def seen(store):
    """All that a store shows: queues with ends, places and bodies, and what keys find."""
    view = {}
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            entries = []
            for at in range(queue.min_offset, queue.max_offset):
                got = store.get(name, queue_id, at, 1)
                entries.append([(m.queue_offset, m.physical_offset, m.body) for m in got.messages])
            view[name, queue_id] = queue.min_offset, queue.max_offset, entries
    keys = [f"{name}-{n}" for name in ("first", "second") for n in range(0, 4000, 97)]
    found = [[m.physical_offset for m in store.query("orders", key)] for key in keys]
    return {name: one for name, one in view.items() if one[1]}, found


def units_of(root, topic, queue_id):
    files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
    data = b"".join(path.read_bytes() for path in files)
    return [struct.unpack(">qiq", data[at : at + UNIT]) for at in range(0, len(data), UNIT)]


def assert_sound(store, root):
    """Each record is at its place, nothing lies between, and it goes on behind the end."""
    records = {}
    for record in oracle_store.walk_log(root / "commitlog"):
        if record.sys_flag & 12 == 0:  # not a filler in the place of what was lost
            records[record.topic, record.queue_id, record.queue_offset] = record
    for (topic, queue_id, at), record in records.items():
        [message] = store.get(topic, queue_id, at, 1).messages
        assert message.physical_offset == record.physical_offset
        assert message.body == record.body
    for name, topic in store.topics.items():
        for queue_id, queue in topic.items():
            if queue.max_offset == 0:
                continue
            units = units_of(root, name, queue_id)
            for at in range(queue.min_offset, queue.max_offset):
                blank = (name, queue_id, at) not in records
                assert (units[at] == (0, 0x7FFFFFFF, 0)) == blank, (name, queue_id, at, units[at])
            assert not any(any(unit) for unit in units[queue.max_offset :])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kinds", [("consumequeue",), ("consumequeue", "commitlog")])
def test_power_cuts(two_states, tmp_path, kinds, seed):
    root = image(two_states, tmp_path / "store", seed, kinds)
    with rmqstore.open(root) as store:
        before = seen(store)
    config = CONFIG if seed % 2 else None
    with rmqstore.open(root, "r+", config=config) as store:
        assert seen(store) == before
        assert_sound(store, root)
        bodies = [b"third %d" % n for n in range(90)]
        done = store.put_many("orders", bodies, queue_id=1)
        first = int(done.queue_offset[0])
        assert [m.body for m in store.get("orders", 1, first, 90).messages] == bodies
        assert_sound(store, root)
    with rmqstore.open(root) as store:
        assert [m.body for m in store.get("orders", 1, first, 90).messages] == bodies


def test_zeros_are_no_unit(two_states, tmp_path):
    """The log ends before the records of a queue's last page; a page before that is zeros."""
    root = image(two_states, tmp_path / "store", 1, ("commitlog",), keep=0)
    path = root / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    assert any(data[PAGE * 3 : PAGE * 4])
    data[PAGE * 3 : PAGE * 4] = bytes(PAGE)
    path.write_bytes(data)
    with rmqstore.open(root, "r+") as store:
        assert store.put("orders", b"next", queue_id=0).queue_offset == 500
        assert [m.queue_offset for m in store["orders"][0]] == list(range(501))
        assert_sound(store, root)


@pytest.mark.parametrize("closed", [True, False])
def test_a_hole_below_the_watermark(two_states, tmp_path, closed):
    """Units that had been synced are lost all the same."""
    root = tmp_path / "store"
    shutil.copytree(two_states[0], root)
    path = root / "consumequeue" / "orders" / "2" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[PAGE : PAGE + SECTOR] = bytes(SECTOR)
    path.write_bytes(data)
    if closed:
        (root / "abort").unlink()
    with rmqstore.open(root, "r+", verify="full" if closed else "tail") as store:
        assert store.recovery.clean is closed
        assert_sound(store, root)


@pytest.mark.parametrize("value", [0, 3, 120, 700, 1 << 40])
@pytest.mark.parametrize("synced", [True, False])
def test_a_record_of_another_place(two_states, tmp_path, value, synced):
    """One whose QUEUEOFFSET was damaged takes no other message's place."""
    root = tmp_path / "store"
    shutil.copytree(two_states[0 if synced else 1], root)
    with rmqstore.open(root) as store:
        units = store["orders"][1].units()["physical_offset"].tolist()
    hit = 450 if synced else 1400
    offset = units[hit]
    path = root / "commitlog" / f"{offset >> 20 << 20:020d}"
    data = bytearray(path.read_bytes())
    at = offset % (1 << 20) + 20
    assert struct.unpack_from(">q", data, at) == (hit,)
    struct.pack_into(">q", data, at, value)
    path.write_bytes(data)
    views = []
    for mode in ("r", "r+"):
        with rmqstore.open(root, mode) as store:
            queue = store["orders"][1]
            assert queue.max_offset == len(units)
            views.append([])
            for n in range(len(units)):
                try:
                    got = store.get("orders", 1, n, 1).messages
                except rmqstore.StoreCorruptError:
                    assert (synced, n) == (True, hit)  # nobody had to look there
                    continue
                found = [(m.queue_offset, m.physical_offset) for m in got]
                views[-1] += [one for one in found if one[0] == n]  # a blank unit is passed over
    expected = [(n, place) for n, place in enumerate(units) if n != hit]
    assert views[1] == expected
    assert views[0] == expected


def broker_like(root):
    """Take away what a broker's store does not have: our watermark and our note of deletions."""
    page = bytearray((root / "checkpoint").read_bytes())
    page[2048:] = bytes(len(page) - 2048)
    (root / "checkpoint").write_bytes(page)
    for name in ("rmqstore-deleted.json", "rmqstore-deleted.json.bak"):
        (root / name).unlink(missing_ok=True)


LIVES = [(20, 5), (5, 20), (1, 2)]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [(*life, lost) for life in LIVES for lost in (False, True)]
    # One record alone tells a new life from a damaged QUEUEOFFSET only by its unit.
    + [(1, 1, False), (30, 1, False)],
)
def test_a_topic_made_again_in_a_broker_store(tmp_path, old, new, closed, lost):
    """The records of its earlier life do not come back, also where the queue's file is lost."""
    root = tmp_path / "store"

    def work():
        store = rmqstore.open(root, "a", config=CONFIG)
        store.put_many("orders", [b"old %d" % n for n in range(old)], queue_id=0)
        store.put("others", b"other", queue_id=0)
        store.flush()
        store.delete_topic("orders")
        store.put_many("orders", [b"new %d" % n for n in range(new)], queue_id=0)
        if closed:
            store.close()
        else:
            store.flush()

    in_child(work)
    broker_like(root)
    if lost:
        shutil.rmtree(root / "consumequeue" / "orders" / "0")
    expected = [b"new %d" % n for n in range(new)]
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode) as store:
            assert [m.body for m in store["orders"][0]] == expected
            if mode == "r+":
                assert store.put("orders", b"next", queue_id=0).queue_offset == new
                expected.append(b"next")


def test_a_queue_that_begins_with_a_later_file_is_recovered(tmp_path):
    """As when a flipped queue id names a queue that was not there: its first unit is not 0."""
    config = CONFIG.replace(mapped_file_size_consume_queue=3 * UNIT)
    root = tmp_path / "store"

    def work():
        store = rmqstore.open(root, "a", config=config)
        for n in range(6):
            store.put("orders", b"%d" % n, queue_id=0, uniq_key=False)
        last = store.put("orders", b"last", queue_id=0, uniq_key=False).physical_offset
        store.flush()
        with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(last + 12)
            file.write(struct.pack(">i", 9))

    in_child(work)
    with rmqstore.open(root, "r+", config=config) as store:
        assert [m.body for m in store["orders"][0]] == [b"%d" % n for n in range(6)]
        assert store.get("orders", 9, 6, 1).messages[0].body == b"last"


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("config", [damaged_store.CONFIG, None], ids=["config", "told"])
def test_a_record_names_the_first_place_of_another_queue(tmp_path, mode, config):
    """And that queue's second follows it, as where a topic of one message was made again."""
    root = damaged_store.killed(damaged_store.make(tmp_path / "store"))
    with rmqstore.open(root, "r") as store:
        expected = damaged_store.bodies(store)
    first = damaged_store.records(root)[1]
    assert (first.queue_id, first.queue_offset) == (1, 0)
    damaged_store.poke(root, first.physical_offset + 12, bytes(4))
    del expected["Topic1", 1, 0]
    with rmqstore.open(root, mode, config=config) as store:
        assert damaged_store.bodies(store) == expected


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_recovery_was_killed_before_it_met_the_new_life(tmp_path, mode):
    """It had put the unit of the earlier life's only message into the queue's lost file."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        done = store.put("orders", b"old", queue_id=0)
        store.delete_topic("orders")
        store.put_many("orders", [b"new 0", b"new 1"], queue_id=0)
    broker_like(root)
    (root / "abort").touch()
    (queue,) = (root / "consumequeue" / "orders" / "0").iterdir()
    (size,) = struct.unpack_from(">i", (root / "commitlog" / f"{0:020d}").read_bytes())
    unit = struct.pack(">qiq", done.physical_offset, size, 0)
    queue.write_bytes(unit.ljust(queue.stat().st_size, b"\0"))
    with rmqstore.open(root, mode) as store:
        assert [m.body for m in store["orders"][0]] == [b"new 0", b"new 1"]


@pytest.mark.parametrize("bit", [32, 0])
def test_the_first_record_names_a_place_that_it_cannot_have(tmp_path, bit):
    """The ones behind it begin no new life, for which the queue's files would be unlinked."""
    config = CONFIG.replace(mapped_file_size_consume_queue=3 * UNIT)
    root = tmp_path / "store"

    def work():
        store = rmqstore.open(root, "a", config=config)
        offsets = [store.put("orders", b"%d" % n, queue_id=0).physical_offset for n in range(7)]
        store.flush()
        with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(20)
            file.write(struct.pack(">q", 1 << bit))
            file.seek(offsets[5])  # a power cut took them, and not their units
            file.write(bytes(1 << 16))

    in_child(work)
    broker_like(root)
    files = {path.name for path in (root / "consumequeue/orders/0").iterdir()}
    assert len(files) == 3
    with rmqstore.open(root, "r+", config=config) as store:
        bodies = {m.body for m in store.scan()}
        assert bodies >= {b"1", b"2", b"3", b"4"}
        found = [store.get("orders", 0, at, 1).messages for at in range(1, 5)]
        assert [some[0].body for some in found] == [b"1", b"2", b"3", b"4"]
    assert files <= {path.name for path in (root / "consumequeue/orders/0").iterdir()}


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("config", [CONFIG, None], ids=["config", "told"])
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("value", [0, 3, 5, 6])
def test_the_first_record_behind_lost_ones_names_another_offset(
    tmp_path, mode, config, first, value
):
    """The lost ones are then missing behind it, where the log has no room for them."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        offsets = [store.put("orders", b"%d" % n, queue_id=0).physical_offset for n in range(12)]
    broker_like(root)
    (root / "abort").touch()
    log = root / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(offsets[first])
        file.write(bytes(offsets[7] - offsets[first]))
        file.seek(offsets[7] + 20)
        file.write(struct.pack(">q", value))
    for path in (root / "consumequeue/orders/0").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    fill = {"on_corruption": "fill"} if mode == "r+" else {}
    with rmqstore.open(root, mode, config=config, **fill) as store:
        found = {at: store.get("orders", 0, at, 1).messages for at in range(8, 12)}
        assert {at: [m.body for m in found[at]] for at in found} == {
            at: [b"%d" % at] for at in range(8, 12)
        }
        assert store["orders"][0].max_offset == 12
