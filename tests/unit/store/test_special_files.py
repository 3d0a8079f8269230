"""FIFOs, directories and devices where a store's files belong: named, and never waited for."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from crash.checks import contents
from rmqstore import offline
from rmqstore.base.syncing import sync_path
from rmqstore.cli.state import state_of
from rmqstore.files import newer, paths
from rmqstore.files.regular import not_regular, open_regular
from rmqstore.offline.index import _bytes_of
from rmqstore.offline.queues import QueueFiles
from rmqstore.serve.consuming.lookups import _index_end
from rmqstore.spark.common import sight
from rmqstore.spark.sink.ledger import _load
from rmqstore.spark.sink.staging import sum_of

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=8192,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=10,
    max_index_num=40,
)
COUNT = 120
MAKERS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "a device": lambda path: path.symlink_to(os.devnull),
}
KINDS = pytest.mark.parametrize("kind", [*MAKERS])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(COUNT):
            store.put("T", b"%03d" % number * 60, queue_id=0, keys=f"k{number}")
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Fail what waits for the other end of a FIFO."""

    def fail(*_: object) -> None:
        raise AssertionError("waits for ever")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put_in_place(path: Path, kind: str) -> Path:
    path.unlink(missing_ok=True)
    MAKERS[kind](path)
    return path


def first_file(root: Path, directory: str) -> Path:
    return min((root / directory).iterdir())


def last_file(root: Path, directory: str) -> Path:
    return max((root / directory).iterdir())


@KINDS
@pytest.mark.parametrize("write", [False, True])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str, write: bool) -> None:
    path = put_in_place(tmp_path / "file", kind)
    with pytest.raises(OSError, match=f"{kind}, not|Is a directory") as raised:
        open_regular(path, write=write)
    assert raised.value.filename == str(path)
    assert not_regular(path) == f"{kind}, not a regular file"


def test_a_file_a_link_to_one_and_a_socket(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert not_regular(tmp_path / name) is None
        with open_regular(tmp_path / name, write=True) as file:
            assert file.read(3) == b"abc"
            file.write(b"d")
    assert (tmp_path / "file").read_bytes() == b"abcd"
    assert not_regular(tmp_path / "none") is None
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
    assert not_regular(tmp_path / "socket") == "a socket, not a regular file"
    with pytest.raises(OSError, match="No such device"):
        open_regular(tmp_path / "socket")


@KINDS
@pytest.mark.parametrize("name", [paths.LOCK, paths.CHECKPOINT, paths.ABORT])
def test_a_writer_says_what_is_there(root: Path, kind: str, name: str) -> None:
    put_in_place(root / name, kind)
    before = contents(root)
    with pytest.raises(OSError, match=f"{kind}, not a regular file: move it away") as raised:
        rmqstore.open(root, "r+")
    assert raised.value.filename == str(root / name)
    assert contents(root) == before
    text = next(one.message for one in offline.broker_start(root).findings if one.file == name)
    assert text == f"{kind}, not a regular file: move it away"


@KINDS
@pytest.mark.parametrize("which", [first_file, last_file])
def test_a_log_file_that_is_none(root: Path, kind: str, which: Callable[[Path, str], Path]) -> None:
    path = put_in_place(which(root, "commitlog"), kind)
    told = f"{path.name} is {kind}, not a regular file: move it out of the directory, and put"
    with rmqstore.open(root) as store:
        [text] = [one for one in store.recovery.damaged_files if path.name in one]
        assert text.startswith(told)
        assert 0 < len(list(store.scan(on_corruption="skip"))) < COUNT
        state_of(store)
    with pytest.raises(rmqstore.IncompatibleStoreError) as raised:
        rmqstore.open(root, "r+")
    way = f"{kind}, not a regular file; move it out of the directory"
    assert str(raised.value) == f"{path}: {way}"
    finding = offline.broker_start(root).findings[0]
    assert (finding.file, finding.message) == (f"commitlog/{path.name}", way)


@KINDS
def test_a_log_file_behind_the_end_of_a_killed_store(root: Path, kind: str) -> None:
    (root / paths.ABORT).touch()
    size = CONFIG.mapped_file_size_commit_log
    end = int(last_file(root, "commitlog").name) + size
    put_in_place(root / "commitlog" / paths.offset_file_name(end), kind)
    with rmqstore.open(root) as store:
        assert len(store.recovery.damaged_files) == 1
        assert len(list(store.scan())) == COUNT
        state_of(store)


@pytest.mark.parametrize("name", [".nfs0001", "lost+found", ".DS_Store"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, Path.touch])
@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_one_text_for_a_foreign_file(
    root: Path, directory: str, name: str, make: Callable[[Path], object]
) -> None:
    make(root / directory / name)
    finding = offline.broker_start(root).findings[0]
    with pytest.raises(rmqstore.IncompatibleStoreError) as raised:
        rmqstore.open(root, "r+")
    assert str(raised.value) == f"{root / directory / name}: {finding.message}"


def test_a_fifo_is_not_waited_for(root: Path, tmp_path: Path) -> None:
    """Each place in Python that opens a file of a store by its name."""
    for name in ("commitlog", "consumequeue/T/0", "index"):
        for path in (root / name).iterdir():
            put_in_place(path, "a FIFO")
    assert sight.seen(str(root)).records == ()
    put_in_place(root / "fifo", "a FIFO")
    for call in (
        lambda: list(QueueFiles(root, "T", 0, CONFIG).read(0, 9)),
        lambda: _bytes_of(str(root / "fifo"), 0, 1),
        lambda: _load(root / "fifo", dict),
        lambda: sum_of(root / "fifo"),
    ):
        with pytest.raises(OSError, match="a FIFO") as raised:
            call()
        assert raised.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="Invalid argument"):
        sync_path(root / "fifo")
    assert not newer._has_timer_unit(root / "fifo")


def test_an_index_file_that_is_a_fifo_has_no_newest_entry(root: Path) -> None:
    with rmqstore.open(root) as store:
        assert _index_end(store) != (0, 0)
        put_in_place(last_file(root, "index"), "a FIFO")
        assert _index_end(store) == (0, 0)


def test_a_snapshot_names_a_fifo(root: Path, tmp_path: Path) -> None:
    with rmqstore.open(root) as store:
        put_in_place(root / paths.CHECKPOINT, "a FIFO")
        with pytest.raises(OSError, match="a FIFO"):
            store.snapshot(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_another_store_at_its_place_is_not_seen(root: Path, tmp_path: Path) -> None:
    planned = sight.seen(str(root))
    shutil.copytree(root, tmp_path / "copy")
    planned.check()
    for kind in MAKERS:
        path = root / planned.records[0][0]
        if path.is_dir():
            path.rmdir()
        put_in_place(path, kind)
        with pytest.raises(sight.StoreNotVisibleError, match="no record in"):
            planned.check()
