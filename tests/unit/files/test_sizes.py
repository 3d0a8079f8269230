"""File sizes as names and lengths tell them: one file that is off says nothing about the others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore import IncompatibleStoreError
from support import oracle_store
from support.serving import wait_until

LOG_SIZE = 8192
QUEUE_SIZE = 400
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=QUEUE_SIZE,
    max_hash_slot_num=10,
    max_index_num=40,
)
COUNT = 120
BROKER_COUNT = 3498


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("Topic1", b"%03d" % number * 60, queue_id=number % 4, keys=f"k{number}")
    assert len(oracle_store.log_files(root / "commitlog")) > 3
    return root


@pytest.fixture
def root(made, tmp_path):
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def files(root: Path, directory: str) -> list[Path]:
    return [path for _, path in oracle_store.log_files(root / directory)]


def resize(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size + by)


def assert_refused(root: Path, path: Path, config=None) -> None:
    before = oracle_store.snapshot(root)
    with pytest.raises(IncompatibleStoreError, match=path.name) as refused:
        rmqstore.open(root, "r+", config=config)
    assert str(path) in str(refused.value)
    after = oracle_store.snapshot(root)
    after.pop("lock", None)  # the lock itself may come
    before.pop("lock", None)
    assert {name: entry[3] for name, entry in after.items()} == {
        name: entry[3] for name, entry in before.items()
    }


@pytest.mark.parametrize("by", [1, 4096, 1 << 20, 1 << 40])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_brokers_log_file_that_is_too_long(broker_copy, tmp_path, number, by):
    """Every record is shown all the same, and writing names the file."""
    root = broker_copy("broker-clean", tmp_path).root
    path = files(root, "commitlog")[number]
    resize(path, by)
    with rmqstore.open(root) as store:
        assert store.scan().to_table().num_rows == BROKER_COUNT
        assert store.config.mapped_file_size_commit_log == 1 << 20
    assert_refused(root, path)


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("by", [-1, 1, 100, 1 << 40])
def test_a_log_file_that_is_off(root, number, by):
    path = files(root, "commitlog")[number]
    resize(path, by)
    with rmqstore.open(root) as store:
        assert store.config.mapped_file_size_commit_log == LOG_SIZE
        assert store.scan().to_table().num_rows == COUNT
    for config in (None, CONFIG):
        if by > 0 or number != -1:
            assert_refused(root, path, config)
    if by < 0 and number == -1:  # a short last file is completed
        with rmqstore.open(root, "r+") as store:
            assert store.config.mapped_file_size_commit_log == LOG_SIZE
            assert len(store.scan().to_table()) == COUNT
        assert path.stat().st_size == LOG_SIZE


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_one_sparse_file_of_a_tebibyte(tmp_path, mode):
    """Nothing tells the size: never the error of a configuration that nobody gave."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    path = root / "commitlog" / f"{0:020d}"
    path.touch()
    resize(path, 1 << 40)
    if mode == "r+":
        assert_refused(root, path)
    else:
        with rmqstore.open(root) as store:
            assert list(store.topics) == []


@pytest.mark.parametrize("by", [-1, 1, 20, 1 << 40])
@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("queue_id", [0, 3])
def test_a_queue_file_that_is_off(root, queue_id, number, by):
    path = files(root, f"consumequeue/Topic1/{queue_id}")[number]
    before = path.read_bytes()
    resize(path, by)
    with rmqstore.open(root) as store:
        assert store.config.mapped_file_size_consume_queue == QUEUE_SIZE
        found = sum(len(list(store["Topic1"][each])) for each in store["Topic1"])
        assert found == COUNT
    if by > 0:
        for config in (None, CONFIG):
            assert_refused(root, path, config)
    else:
        with rmqstore.open(root, "r+") as store:
            assert store.config.mapped_file_size_consume_queue == QUEUE_SIZE
        assert path.read_bytes() == before


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("config", [None, CONFIG])
@pytest.mark.parametrize("count", [1, 2])
def test_queue_files_without_a_length(root, config, killed, count):
    """A power cut may keep a file's name alone, with a whole file behind it as well."""
    if killed:
        (root / "abort").touch()
    every = {path: path.read_bytes() for path in files(root, "consumequeue/Topic1/3")}
    assert len(every) == 2
    for path in list(every)[:count]:
        os.truncate(path, 0)
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=config if mode == "r+" else None) as store:
            assert sum(len(list(store["Topic1"][each])) for each in store["Topic1"]) == COUNT
    assert {path: path.read_bytes() for path in every} == every


@pytest.mark.parametrize("lengths", [[0], [0, 0], [100, 0]])
@pytest.mark.parametrize("config", [None, CONFIG])
def test_the_last_log_files_without_a_length(root, config, lengths):
    """A broker names two files ahead; both may be on the disk without a byte."""
    stop = int(files(root, "commitlog")[-1].name) + LOG_SIZE
    (root / "abort").touch()
    for length in lengths:
        path = root / "commitlog" / f"{stop:020d}"
        path.touch()
        os.truncate(path, length)
        stop += LOG_SIZE
    for mode in ("r", "r+", "r"):
        with rmqstore.open(root, mode, config=config if mode == "r+" else None) as store:
            assert len(store.scan().to_table()) == COUNT
            assert sum(len(list(store["Topic1"][each])) for each in store["Topic1"]) == COUNT
    assert {path.stat().st_size for path in files(root, "commitlog")} == {LOG_SIZE}


def test_files_with_one_missing_between_them(root):
    """Distances of names are then twice the size: lengths tell it."""
    for path in files(root, "commitlog")[3:] + files(root, "commitlog")[1:2]:
        path.unlink()
    with rmqstore.open(root) as store:
        assert store.config.mapped_file_size_commit_log == LOG_SIZE


def test_two_files_that_are_both_too_long(root):
    for path in files(root, "commitlog")[2:]:
        path.unlink()
    for path in sorted((root / "commitlog").iterdir()):
        resize(path, 1)
    with rmqstore.open(root) as store:
        assert store.config.mapped_file_size_commit_log == LOG_SIZE


@pytest.mark.parametrize(
    ("slots", "entries"), [(100, 4000), (95, 4001), (1000, 1000), (3294, 5000)]
)
def test_slots_are_told_where_a_record_has_several_keys(
    tmp_path: Path, slots: int, entries: int
) -> None:
    """The log begins at 0, so that only the last entry shows where the entries begin.

    With 3,294 slots its offset lies across the end of the first 16 KiB that are searched.
    """
    config = rmqstore.StoreConfig.small(max_hash_slot_num=slots, max_index_num=entries)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        for i in range(40):
            store.put("t", b"x", keys=[f"a{i}", f"b{i}", f"c{i}"])
    with rmqstore.open(tmp_path) as store:
        assert (store.config.max_hash_slot_num, store.config.max_index_num) == (slots, entries)
        assert len(store.query("t", "b7", index_only=True)) == 1


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
@pytest.mark.parametrize("named", ["", "mappedFileSizeCommitLog=8192\n", "maxIndexNum=40\n"])
def test_sizes_that_a_broker_conf_leaves_out(root, tmp_path, mode, named):
    """They are taken from the files, whatever else it says; those that it has are checked."""
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{named}diskMaxUsedSpaceRatio=80\nmaxHashSlotNum=10\n"
                    if "Index" in named else f"{named}diskMaxUsedSpaceRatio=80\n")  # fmt: skip
    with rmqstore.open(root, mode, config=conf) as store:
        config = store.config
        assert config.disk_max_used_space_ratio == 80
        assert config.mapped_file_size_commit_log == LOG_SIZE
        assert config.mapped_file_size_consume_queue == QUEUE_SIZE
        if mode != "r":
            assert (config.max_hash_slot_num, config.max_index_num) == (10, 40)
        assert len(store.query("Topic1", "k7")) == 1


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [("mappedFileSizeCommitLog", 4096, "commitlog"),
     ("mappedFileSizeConsumeQueue", 200, "consumequeue"),
     ("maxIndexNum", 50, "index")],
)  # fmt: skip
def test_sizes_that_a_broker_conf_names_are_those(root, tmp_path, key, value, where):
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{key}={value}\n")
    with pytest.raises(
        IncompatibleStoreError, match=f"{where}.*the size is not the configured one"
    ):
        rmqstore.open(root, "r+", config=conf)


def test_a_new_store_has_the_sizes_of_a_broker(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("maxIndexNum=40\nmaxHashSlotNum=10\n")
    config = rmqstore.StoreConfig.from_file(conf).replace(mapped_file_size_consume_queue=400)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        assert store.config.mapped_file_size_commit_log == 1 << 30
        assert store.config.mapped_file_size_consume_queue == 400
        assert store.config.max_index_num == 40


@pytest.mark.parametrize(("slots", "entries"), [(10, 40), (15, 39), (30, 36)])
@pytest.mark.parametrize("configured", [(10, 40), (15, 39), (30, 36)])
def test_index_files_as_long_with_other_slots(
    tmp_path: Path, slots: int, entries: int, configured: tuple[int, int]
) -> None:
    """The length is the same: the chains tell, and a broker would misread the file."""
    config = CONFIG.replace(max_hash_slot_num=slots, max_index_num=entries)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        for number in range(COUNT):
            store.put("t", b"x", keys=f"k{number}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    config = CONFIG.replace(max_hash_slot_num=configured[0], max_index_num=configured[1])
    if configured != (slots, entries):
        text = rf"index: .*max_hash_slot_num has \({slots}, not {configured[0]}\); name the right"
        with pytest.raises(IncompatibleStoreError, match=text):
            rmqstore.open(tmp_path, "r+", config=config)
        assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for mode in ("r", "r+"):
        open_with = config if mode == "r" or configured == (slots, entries) else None
        with rmqstore.open(tmp_path, mode, config=open_with) as store:
            assert store.config.max_hash_slot_num == slots
            for number in range(COUNT):
                assert len(store.query("t", f"k{number}", index_only=True)) == 1


@pytest.mark.parametrize("odd", range(3))
def test_index_files_of_which_one_fits_other_slots(tmp_path: Path, odd: int) -> None:
    """A few keys fit other slots by chance: the sizes of most files are those that are named."""
    for slots, entries in ((15, 39), (10, 40)):
        config = CONFIG.replace(max_hash_slot_num=slots, max_index_num=entries)
        with rmqstore.open(tmp_path / str(slots), "a", config=config) as store:
            for number in range(COUNT):
                store.put("t", b"x", keys=f"k{number}")
    files, others = (sorted((tmp_path / name / "index").iterdir()) for name in ("15", "10"))
    assert len(files) > 3
    shutil.copy(others[0], files[odd])
    for slots, entries in ((30, 36), (10, 40)):
        config = CONFIG.replace(max_hash_slot_num=slots, max_index_num=entries)
        text = rf"max_hash_slot_num has \(15, not {slots}\)"
        with pytest.raises(IncompatibleStoreError, match=text):
            rmqstore.open(tmp_path / "15", "r+", config=config)
    assert not (tmp_path / "15" / "rmqstore-quarantine").exists()
    with rmqstore.open(tmp_path / "15", "r") as store:
        assert store.config.max_hash_slot_num == 15


def test_a_snapshot_by_a_reader_from_before_the_first_files(tmp_path):
    """The reader has the default sizes then; the copy has those of the files."""
    with (
        rmqstore.open(tmp_path / "store", "a", config=CONFIG) as owner,
        rmqstore.open(tmp_path / "store") as reader,
    ):
        assert not list((tmp_path / "store/index").glob("*"))
        owner.put("Topic1", b"a key", queue_id=0, keys="k")
        wait_until(lambda: owner.queue_bounds("Topic1", 0)[1] == 1)
        made = reader.snapshot(tmp_path / "copy")
    with rmqstore.open(made.path) as copy:
        assert [one.body for one in copy.query("Topic1", "k")] == [b"a key"]
        assert copy.config.max_index_num == CONFIG.max_index_num
