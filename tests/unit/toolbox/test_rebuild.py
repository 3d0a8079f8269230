"""``toolbox.rebuild`` against the files that a real broker and the store itself built."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore import opening
from rmqstore.toolbox import rebuild, undo
from support import repairs
from support.archives import unpack

STORES = Path(__file__).parents[2] / "data/stores"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    target = tmp_path_factory.mktemp("real")
    unpack(STORES / "broker-clean.tar.xz", target)
    return next(target.rglob("commitlog")).parent


def test_the_files_of_a_real_broker_are_the_same(real):
    before = repairs.tree(real)
    found = rebuild(real)
    assert len(found) == sum(1 for one in real.glob("consumequeue/*/*/*")) + len(
        list(real.glob("index/*"))
    )
    assert all(one.same for one in found)
    assert repairs.tree(real) == before


def test_rebuilt_files_have_the_bytes_of_the_real_broker(real, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(real, root)
    for one in [*root.glob("consumequeue/*/*/*"), *root.glob("index/*")]:
        size = one.stat().st_size
        os.truncate(one, 0)
        os.truncate(one, size)
    damaged = repairs.tree(root)
    found = rebuild(root, apply=True)
    assert not any(one.same for one in found)
    for one in real.glob("consumequeue/*/*/*"):
        assert (root / one.relative_to(real)).read_bytes() == one.read_bytes()
    wanted = [one.read_bytes() for one in sorted(real.glob("index/*"))]
    assert [one.read_bytes() for one in sorted(root.glob("index/*"))] == wanted
    assert all(one.same for one in rebuild(root))
    with rmqstore.open(root, "r+") as store:
        assert store.recovery.clean
        assert store.recovery.units_written == 0
    shutil.rmtree(root)
    shutil.copytree(real, root)
    assert damaged  # undone in test_repair


def test_comparing_opens_no_store(real, monkeypatch):
    monkeypatch.setattr(opening, "open", None)  # it reads the log once more
    assert all(one.same for one in rebuild(real))


def test_one_part_alone(tmp_path):
    root = tmp_path / "store"
    repairs.make(root)
    repairs.DAMAGE["index-entries"](root)
    repairs.DAMAGE["queue-units-zeroed"](root)
    damaged = repairs.tree(root)
    [differing] = [one for one in rebuild(root, index=False) if not one.same]
    assert (differing.rebuilt, differing.file, differing.count) == (
        "queue", repairs.queue_file(0), 100)  # fmt: skip
    assert {one.rebuilt for one in rebuild(root, queues=False)} == {"index"}
    assert repairs.tree(root) == damaged
    rebuild(root, index=False, apply=True)
    assert {one.rebuilt for one in rebuild(root) if not one.same} == {"index"}
    [name] = [one.name for one in root.iterdir() if one.name.startswith("rmqstore-repair-")]
    undo(root, name)
    assert repairs.tree(root) == damaged


def test_what_retention_removed_stays_as_it_is(tmp_path):
    root = tmp_path / "store"
    repairs.make(root)
    (root / repairs.log(0)).unlink()
    with rmqstore.open(root, "r+"):
        pass
    with rmqstore.open(root) as store:
        bounds = {(t.name, q.queue_id): (q.min_offset, q.max_offset)
                  for t in store.topics.values() for q in t.values()}  # fmt: skip
    assert all(low > 0 for low, high in bounds.values() if high)
    found = rebuild(root)
    assert all(one.same for one in found if one.rebuilt == "queue")
    repairs.patch(repairs.queue_file(0), repairs.UNITS - 40, bytes(40))(root)
    assert [one.file for one in rebuild(root, index=False, apply=True) if not one.same] == [
        repairs.queue_file(0)]  # fmt: skip
    with rmqstore.open(root) as store:
        assert bounds == {(t.name, q.queue_id): (q.min_offset, q.max_offset)
                          for t in store.topics.values() for q in t.values()}  # fmt: skip


def test_queues_of_deleted_topics_are_not_brought_back(tmp_path):
    root = tmp_path / "store"
    repairs.make(root)
    with rmqstore.open(root, "r+") as store:
        store.delete_topic("bills")
    repairs.DAMAGE["queue-units-zeroed"](root)
    rebuild(root, apply=True)
    assert not list(root.glob("consumequeue/bills/*/*"))
    assert all(one.same for one in rebuild(root))


def test_damage_of_the_log_and_wrong_arguments(tmp_path):
    root = tmp_path / "store"
    repairs.make(root)
    repairs.flip(root, 10)
    repairs.DAMAGE["index-gone"](root)
    before = repairs.tree(root)
    with pytest.raises(rmqstore.StoreCorruptError, match="BODYCRC"):
        rebuild(root, apply=True)
    assert repairs.tree(root) == before
    with pytest.raises(ValueError, match="jobs must be 1 to 256"):
        rebuild(root, jobs=0)
    with pytest.raises(TypeError, match="jobs must be int"):
        rebuild(root, jobs="2")
    with pytest.raises(rmqstore.StoreNotFoundError):
        rebuild(tmp_path)


def test_the_only_topic_was_deleted(tmp_path):
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=repairs.CONFIG) as store:
        for number in range(10):
            store.put("orders", b"%d" % number, queue_id=0)
        store.delete_topic("orders")
    assert not list(root.glob("consumequeue/*"))
    assert rebuild(root, index=False, apply=True) == []
    assert not list(root.glob("consumequeue/*"))
    for one in root.glob("rmqstore-deleted.json*"):  # as a broker, which dispatches it again
        one.unlink()
    assert [one.count for one in rebuild(root, index=False, apply=True)] == [10]


@pytest.mark.parametrize("unlisted", [False, True])
@pytest.mark.parametrize("left", ["nothing", "empty", "no files"])
def test_a_store_without_queues_and_index(real, tmp_path, left, unlisted):
    root = tmp_path / "store"
    shutil.copytree(real, root)
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
        if left != "nothing":
            (root / name).mkdir()
    if left == "no files":
        (root / "consumequeue/payments/0").mkdir(parents=True)
    if unlisted:  # a broker dispatches the whole log all the same
        topics = root / "config/topics.json"
        table = json.loads(topics.read_text())
        del table["topicConfigTable"]["orders"]
        topics.write_text(json.dumps(table))
    with rmqstore.open(real) as store:
        sizes = store.config  # no file shows them
    before = repairs.tree(root)
    expected = rebuild(root, config=sizes)
    assert repairs.tree(root) == before
    assert rebuild(root, apply=True, config=sizes) == expected
    named = {one.file for one in expected}
    for one in real.glob("consumequeue/*/*/*"):
        name = str(one.relative_to(real))
        assert name in named
        assert (root / name).read_bytes() == one.read_bytes()
    wanted = [one.read_bytes() for one in sorted(real.glob("index/*"))]
    assert [one.read_bytes() for one in sorted(root.glob("index/*"))] == wanted
    assert all(one.same for one in rebuild(root))
    [name] = [one.name for one in root.iterdir() if one.name.startswith("rmqstore-repair-")]
    undo(root, name)
    assert repairs.tree(root) == before


def test_damage_and_no_records_where_all_is_missing(tmp_path):
    root = tmp_path / "store"
    repairs.make(root)
    repairs.flip(root, 10)
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    before = repairs.tree(root)
    with pytest.raises(rmqstore.StoreCorruptError, match="BODYCRC"):
        rebuild(root, apply=True)
    assert repairs.tree(root) == before
    for one in root.glob("commitlog/*"):
        size = one.stat().st_size
        os.truncate(one, 0)
        os.truncate(one, size)
    before = repairs.tree(root)
    assert rebuild(root, apply=True) == []
    assert repairs.tree(root) == before


def test_a_queue_written_since_its_topic_was_rebuilt_is_not_undone(tmp_path):
    repairs.make(tmp_path)
    repairs.DAMAGE["queues-and-index-gone"](tmp_path)
    rebuild(tmp_path, apply=True)
    [made] = tmp_path.glob("rmqstore-repair-*")
    repairs.patch(repairs.queue_file(0), 0, b"a")(tmp_path)
    with pytest.raises(ValueError, match=f"{repairs.queue_file(0)} did"):
        undo(tmp_path, made.name)


def test_a_far_queue_offset_in_a_range_of_its_own_makes_no_rows(tmp_path):
    with rmqstore.open(tmp_path, "a", config=repairs.CONFIG) as store:
        store.put("orders", b"x", queue_id=0)
        for number, topic in enumerate(["bills", "orders", "bills"]):
            for _ in range((4400, 3409, 500)[number]):
                last = store.put(topic, b"y" * 2000, queue_id=0)
                if topic == "orders":
                    offset = last.physical_offset
    far = offset % repairs.LOG + 20
    repairs.patch(repairs.log(offset // repairs.LOG), far, (20_000).to_bytes(8, "big"))(tmp_path)
    for name in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / name)
    planned = {one.file: one.count for one in rebuild(tmp_path)}
    done = {one.file: one.count for one in rebuild(tmp_path, apply=True)}
    found = {name: count for name, count in done.items() if name.startswith("consumequeue/")}
    assert found == {name: planned[name] for name in found}
    assert all((tmp_path / name).exists() for name in found)


def test_queues_on_another_disk_are_copied_sparse(tmp_path, monkeypatch):
    root = tmp_path / "s"
    with rmqstore.open(root, "a") as store:
        for number in range(4):
            store.put("orders", b"x", queue_id=number)
    wanted = {one.name: one.read_bytes() for one in sorted(root.glob("consumequeue/orders/*/*"))}
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    rename = Path.rename

    def refused(source, target):
        if source.name == "orders":
            raise OSError(errno.EXDEV, "another disk")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", refused)
    rebuild(root, apply=True)
    files = sorted(root.glob("consumequeue/orders/*/*"))
    assert len(files) == 4
    assert {one.name: one.read_bytes() for one in files} == wanted
    used = [512 * one.stat().st_blocks for one in files]
    assert max(used) < 2 << 20, used  # of 6,000,000
