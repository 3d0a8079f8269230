"""``opening.config_in_force`` is ``config`` of the store opened with ``"r"``, log unread."""

import resource
import shutil

import pytest

import rmqstore
from rmqstore import StoreConfig, opening
from rmqstore._core import Core
from rmqstore.config.file_sizes import with_found_sizes
from support import repairs

GIVEN = {
    "nothing": None,
    "defaults": StoreConfig(),
    "right": repairs.CONFIG,
    "wrong": StoreConfig.small(),
    "queues": StoreConfig(mapped_file_size_consume_queue=4000),
    "index": StoreConfig(max_hash_slot_num=500, max_index_num=2000),
    "other index": StoreConfig(max_hash_slot_num=700, max_index_num=900),
}


def emptied(root):
    for one in (*root.glob("consumequeue/*/*/*"), *root.glob("index/*")):
        one.unlink()


def index_resized(root):
    shutil.rmtree(root / "index")
    config = repairs.CONFIG.replace(max_hash_slot_num=300, max_index_num=1000)
    (root / "checkpoint").unlink()
    with rmqstore.open(root, "r+", config=config):
        pass


STATES = {
    "closed": lambda root: None,
    "no-checkpoint": repairs.gone("consumequeue", "index", "checkpoint"),
    "empty-directories": emptied,
    "other-index-files": index_resized,
    "queue-file-twice-as-long": repairs.truncate(repairs.queue_file(0), 2 * repairs.UNITS),
    **repairs.DAMAGE,
}


@pytest.mark.parametrize("state", STATES)
def test_sizes_as_opened(tmp_path, state):
    root = tmp_path / "store"
    repairs.make(root)
    STATES[state](root)
    before = repairs.tree(root)
    for config in GIVEN.values():
        with rmqstore.open(root, config=config) as store:
            found = opening.config_in_force(str(root), config)
            assert found == store.config
            store.core.recovery()  # looks into the log, which changes no size
            assert with_found_sizes(config or StoreConfig(), store.core.sizes()) == found
    assert repairs.tree(root) == before


@pytest.mark.parametrize("given", ["nothing", "defaults", "ext"])
def test_sizes_of_ext_files(tmp_path, given):
    root = tmp_path / "store"
    config = repairs.CONFIG.replace(
        enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1 << 16
    )
    repairs.make(root, config=config)
    assert [*root.glob("consumequeue_ext/*/*/*")]
    for part in ("consumequeue", "consumequeue_ext"):
        chosen = {"nothing": None, "defaults": StoreConfig(), "ext": config}[given]
        with rmqstore.open(root, config=chosen) as store:
            assert opening.config_in_force(str(root), chosen) == store.config
        shutil.rmtree(root / part)


def test_beside_an_owner(tmp_path):
    root = tmp_path / "store"
    repairs.make(root)
    with rmqstore.open(root, "r+") as owner, rmqstore.open(root) as store:
        assert opening.config_in_force(str(root), None) == store.config
        owner.put("orders", b"a")


def test_from_a_broker_conf(tmp_path):
    root, file = tmp_path / "store", tmp_path / "broker.conf"
    repairs.make(root)
    shutil.rmtree(root / "consumequeue")
    file.write_text("mappedFileSizeConsumeQueue=4000\nmaxHashSlotNum=600\n")
    with rmqstore.open(root, config=file) as store:
        found = opening.config_in_force(str(root), StoreConfig.from_file(file))
        assert found == store.config
        assert (found.mapped_file_size_consume_queue, found.max_hash_slot_num) == (4000, 500)


def test_no_store(tmp_path):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path in (tmp_path, tmp_path / "link", tmp_path / "none"):
        with pytest.raises(rmqstore.StoreNotFoundError) as opened:
            rmqstore.open(path)
        with pytest.raises(rmqstore.StoreNotFoundError) as found:
            opening.config_in_force(str(path), None)
        assert str(found.value) == str(opened.value)


def test_the_log_is_not_read(tmp_path):
    root = tmp_path / "store"
    repairs.make(root)
    shutil.rmtree(root / "consumequeue")
    core = Core()
    core.open(str(root), "r", StoreConfig(), 0.0, lambda: ({}, None), infer_sizes=7)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))  # no file can be opened
    try:
        sizes = core.sizes()
        with pytest.raises(OSError, match="Too many open files"):
            core.recovery()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        core.close()
    assert sizes[0] == repairs.LOG
