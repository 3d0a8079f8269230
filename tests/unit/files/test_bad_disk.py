"""Directories that are not as they should be: an error that says so, and nothing deleted.

Ids such as S22 are those of the reliability table.  See test_bad_records.py for what is inside
the files, and test_bad_places.py for disks, locks and limits.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import rmqstore
from rmqstore import GetStatus, IncompatibleStoreError, StoreError, StoreNotFoundError
from support import oracle_store

LOG_SIZE = 4096
QUEUE_SIZE = 200
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=QUEUE_SIZE,
    max_hash_slot_num=10,
    max_index_num=40,
)
COUNT = 100


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A store that was closed: some files of log, queues and index each."""
    root = tmp_path_factory.mktemp("closed") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("Topic1", b"%03d" % number * 20, queue_id=number % 2, keys=f"k{number}")
    assert len(oracle_store.log_files(root / "commitlog")) > 4
    return root


@pytest.fixture
def root(closed, tmp_path):
    shutil.copytree(closed, tmp_path / "store")
    return tmp_path / "store"


def log(root: Path, number: int) -> Path:
    """The log's file of that number; -1 the last."""
    return oracle_store.log_files(root / "commitlog")[number][1]


def queue_files(root: Path, queue_id: int = 0) -> list[Path]:
    return [path for _, path in oracle_store.log_files(root / f"consumequeue/Topic1/{queue_id}")]


def names_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def assert_refused(root, error, *named, mode="r+", config=CONFIG):
    """Writing refuses, names what it is about, and changes not a byte; the lock is free again."""
    before = oracle_store.snapshot(root)
    with pytest.raises(error) as raised:
        rmqstore.open(root, mode, config=config)
    for text in named:
        assert str(text) in str(raised.value), str(raised.value)
    after = oracle_store.snapshot(root)
    for name in before:
        assert after[name][3] == before[name][3], name
        assert after[name][1] == before[name][1], name
    assert after.keys() - before.keys() <= {"lock", "abort"}
    with pytest.raises(error):  # and not StoreLockedError
        rmqstore.open(root, mode, config=config)


def read_all(root, mode="r", config=None):
    """Every message of every queue that is there; in "r" nothing may change."""
    before = oracle_store.snapshot(root)
    with rmqstore.open(root, mode, config=config) as store:
        found = {}
        for name, topic in store.topics.items():
            for queue_id, queue in topic.items():
                at = queue.min_offset
                while at < queue.max_offset:
                    got = store.get(name, queue_id, at, 1000)
                    for m in got.messages:
                        found[m.keys[0]] = m.body
                    assert got.next_offset > at or got.status != GetStatus.FOUND
                    at = max(got.next_offset, at + 1)
    if mode == "r":
        assert oracle_store.snapshot(root) == before
    return found


def assert_whole(root, config=CONFIG):
    """Opening to write mends it: everything is there afterwards, and the store goes on."""
    names = names_of(root)
    assert len(read_all(root, "r+", config)) == COUNT
    assert names <= names_of(root) | {"abort"}
    oracle_store.check_store(root, slot_num=10)
    with rmqstore.open(root, "r+", config=config) as store:
        assert store.put("Topic1", b"next", queue_id=0, keys="next").queue_offset == COUNT // 2
        for number in range(COUNT):
            assert len(store.query("Topic1", f"k{number}")) == 1


# S14: short files


@pytest.mark.parametrize("left", [0, 1, 100, LOG_SIZE // 2])
def test_s14_a_short_last_log_file_is_completed(root, left):
    """As a kill between making a file and giving it its length leaves it."""
    start = oracle_store.log_files(root / "commitlog")[-1][0] + LOG_SIZE
    path = root / "commitlog" / f"{start:020d}"
    (root / "abort").touch()
    path.write_bytes(bytes(left))
    assert len(read_all(root)) == COUNT
    assert_whole(root)
    assert path.stat().st_size == LOG_SIZE


@pytest.mark.parametrize("left", [0, 1, 19, 20, 110])
def test_s14_s15_a_short_last_queue_file_is_completed(root, left):
    path = queue_files(root)[-1]
    (root / "abort").touch()
    with path.open("r+b") as file:
        file.truncate(left)
    assert len(read_all(root)) >= COUNT - QUEUE_SIZE // 20
    assert_whole(root)
    assert path.stat().st_size == QUEUE_SIZE


@pytest.mark.parametrize("left", [0, 1, 39, 40, 100])
def test_s14_a_short_last_index_file_is_made_anew(root, left):
    path = sorted((root / "index").iterdir())[-1]
    (root / "abort").touch()
    with path.open("r+b") as file:
        file.truncate(left)
    assert len(read_all(root, config=CONFIG)) == COUNT
    assert_whole(root)


def test_s14_a_short_middle_log_file_is_refused(root):
    path = log(root, 2)
    with path.open("r+b") as file:
        file.truncate(1000)
    assert_refused(root, (IncompatibleStoreError, rmqstore.StoreCorruptError), path.name)
    with pytest.raises(rmqstore.StoreCorruptError, match=path.name):
        read_all(root)  # the record that is cut
    with rmqstore.open(root, "r") as store:
        assert store["Topic1"][0][-1].keys == (f"k{COUNT - 2}",)


def test_s14_a_short_middle_queue_file_is_made_from_the_log(root):
    path = queue_files(root)[2]
    before = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(60)
    assert len(read_all(root)) == COUNT
    with rmqstore.open(root, "r+") as store:
        assert any(path.name in note for note in store.recovery.notes)
    assert path.read_bytes() == before
    assert len(read_all(root)) == COUNT


def test_a_log_file_that_is_too_long_is_refused(root):
    path = log(root, 1)
    with path.open("r+b") as file:
        file.truncate(LOG_SIZE + 100)
    assert_refused(root, IncompatibleStoreError, path.name)


def test_sizes_that_contradict_the_configuration(root):
    other = CONFIG.replace(mapped_file_size_commit_log=LOG_SIZE * 2)
    assert_refused(root, IncompatibleStoreError, "commitlog", config=other)
    other = CONFIG.replace(mapped_file_size_consume_queue=QUEUE_SIZE * 2)
    assert_refused(root, IncompatibleStoreError, "consumequeue", config=other)
    assert len(read_all(root)) == COUNT


# S22, S23, S35, S36: names


@pytest.mark.parametrize("number", [1, 2])
def test_s22_a_missing_middle_log_file(root, number):
    path = log(root, number)
    path.unlink()
    assert_refused(root, (IncompatibleStoreError, rmqstore.StoreCorruptError), "commitlog")
    with pytest.raises(rmqstore.StoreCorruptError, match="the file is missing; put it back") as gap:
        read_all(root)
    assert gap.value.path == str(path)
    with rmqstore.open(root, "r") as store:
        assert 0 < store.scan(on_corruption="skip").count() < COUNT
        assert store.get("Topic1", 0, 0, 1).status == GetStatus.FOUND
        with pytest.raises(LookupError):
            store.at(int(path.name))


def test_s22_a_missing_middle_queue_file_is_made_again(root):
    path = queue_files(root)[1]
    path.unlink()
    try:
        assert_whole(root)
    except (IncompatibleStoreError, rmqstore.StoreCorruptError) as error:
        assert path.name in str(error) or path.parent.name in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000100",
        "0000000000000000409",
        "000000000000000040960",
        "-0000000000000004096",
        "99999999999999999999",
        "09223372036854775807",
        "00000000000009000000",
    ],
)
def test_s23_s46_log_files_with_names_that_cannot_be(root, name):
    shutil.copy(log(root, 0), root / "commitlog" / name)
    assert_refused(root, StoreError, name)
    assert len(read_all(root)) == COUNT


@pytest.mark.parametrize("name", ["00000000000000000030", "99999999999999999980", "abc"])
def test_s23_queue_files_with_names_that_cannot_be(root, name):
    shutil.copy(queue_files(root)[0], root / "consumequeue/Topic1/0" / name)
    assert_refused(root, StoreError, name)
    assert len(read_all(root)) == COUNT


@pytest.mark.parametrize(
    "name", ["-1", "+5", "007", "2147483648", "9223372036854775808", "x", "\xe9"]
)
def test_queue_directories_with_names_that_cannot_be(root, name):
    (root / "consumequeue" / "Topic1" / name).mkdir()
    assert len(read_all(root)) == COUNT
    try:
        read_all(root, "r+", CONFIG)
    except IncompatibleStoreError as error:
        assert name in str(error)  # noqa: PT017
    assert (root / "consumequeue" / "Topic1" / name).is_dir()


@pytest.mark.parametrize("name", [b"a b", b"a.b", b"\xff\xfe", b"x" * 200])
def test_topic_directories_with_names_that_cannot_be(root, name):
    os.mkdir(os.path.join(os.fsencode(root), b"consumequeue", name))  # noqa: PTH102, PTH118
    assert len(read_all(root)) == COUNT
    with suppress(IncompatibleStoreError):
        read_all(root, "r+", CONFIG)
    assert name in os.listdir(os.fsencode(root / "consumequeue"))  # noqa: PTH208


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/Topic1/0"])
@pytest.mark.parametrize("name", ["lost+found", ".nfs0001", "README", "00000000000000004096.bak"])
def test_s36_foreign_files(root, folder, name):
    (root / folder / name).write_text("foreign")
    assert_refused(root, IncompatibleStoreError, name)
    assert len(read_all(root)) == COUNT


@pytest.mark.parametrize("folder", [".", "index", "consumequeue", "config"])
def test_s36_foreign_files_where_a_broker_minds_none(root, folder):
    path = root / folder / "README"
    path.write_text("foreign")
    assert len(read_all(root)) == COUNT
    assert len(read_all(root, "r+", CONFIG)) == COUNT
    assert path.read_text() == "foreign"
    path.unlink()  # the slow codec minds it
    assert_whole(root)


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_s35_no_log_but_queues(root, mode):
    (root / "commitlog").rename(root / "elsewhere")
    names = names_of(root / "consumequeue")
    with pytest.raises((StoreNotFoundError, IncompatibleStoreError)):
        rmqstore.open(root, mode, config=CONFIG)
    (root / "commitlog").mkdir(exist_ok=True)  # not mounted
    with pytest.raises((StoreNotFoundError, IncompatibleStoreError)):
        rmqstore.open(root, mode, config=CONFIG)
    assert names_of(root / "consumequeue") == names
    shutil.rmtree(root / "commitlog")
    (root / "elsewhere").rename(root / "commitlog")
    assert_whole(root)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_no_store(tmp_path, mode):
    with pytest.raises(StoreNotFoundError):
        rmqstore.open(tmp_path / "nothing", mode)
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises((StoreNotFoundError, OSError)):
        rmqstore.open(tmp_path / "file", mode)
    for name in ("commitlog", "consumequeue"):  # as a crash of the first opening leaves it
        (tmp_path / "empty" / name).mkdir(parents=True)
        with pytest.raises(StoreNotFoundError, match="there is no log file"):
            rmqstore.open(tmp_path / "empty", mode)
    assert names_of(tmp_path / "empty") == {"commitlog", "consumequeue"}


@pytest.mark.parametrize("what", ["consumequeue", "index", "config", "checkpoint", "lock"])
def test_what_can_be_made_again(root, what):
    path = root / what
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert len(read_all(root)) == COUNT
    assert_whole(root)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"\xff" * 4096, b"x" * 10, b"\x7f" * 5000])
def test_s19_a_checkpoint_is_a_hint(root, content):
    (root / "checkpoint").write_bytes(content)
    assert len(read_all(root)) == COUNT
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert store.stats()["dispatch_behind_bytes"] == 0
    for number in (0, 1):
        assert len(oracle_store.read_queue(root / f"consumequeue/Topic1/{number}")) == COUNT // 2
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert all(len(store.query("Topic1", f"k{n}")) == 1 for n in range(COUNT))


# S43: what is no file


@pytest.mark.parametrize("what", ["commitlog", "queue", "index", "checkpoint", "lock", "abort"])
@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_s43_what_is_no_file(root, what, kind):
    """Nothing blocks, and nothing is put in its place; of links see test_links.py."""
    path = {
        "commitlog": log(root, -1),
        "queue": queue_files(root)[-1],
        "index": sorted((root / "index").iterdir())[-1],
    }.get(what, root / what)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    for mode in ["r", "r+"]:
        try:
            read_all(root, mode, CONFIG)
        except (StoreError, OSError) as error:
            assert not isinstance(error, StoreNotFoundError)  # noqa: PT017
    assert path.is_fifo() or path.is_dir() or what in {"index"}
