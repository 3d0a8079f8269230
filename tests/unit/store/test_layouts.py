"""A log outside the store's directory, in several directories, and in some that are only read."""

import ctypes
import errno
import gc
import itertools
import logging
import mmap
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore import IncompatibleStoreError, StoreConfig, StoreNotFoundError
from rmqstore.directory.layout import LogPath, log_paths
from support import mounts
from support.unprivileged import run_unprivileged

FILE = 16384  # bytes of a log file
SMALL: dict[str, object] = {
    "mapped_file_size_commit_log": FILE,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def config(*log: Path | str, **more: object) -> StoreConfig:
    named = ",".join(map(str, log)) if log else None
    return StoreConfig(store_path_commit_log=named, **SMALL | more)  # type: ignore[arg-type]


def put(store: rmqstore.MessageStore, numbers: range) -> None:
    for i in numbers:
        store.put("t", b"%06d" % i + b"x" * 1000, keys=[f"k{i}"], queue_id=i % 2)


def check(store: rmqstore.MessageStore, numbers: range) -> None:
    """Every message is found by scan, place, queue and key."""
    found = list(store.scan())
    assert [int(one.body[:6]) for one in found] == list(numbers)
    for one in found:
        assert store.at(one.physical_offset) == one
        assert store["t"][one.queue_id][one.queue_offset] == one
    for i in {numbers[0], numbers[len(numbers) // 2], numbers[-1]}:
        assert [one.body[:6] for one in store.query("t", f"k{i}")] == [b"%06d" % i]


def files(directory: Path) -> list[int]:
    return sorted(int(one.name) // FILE for one in directory.iterdir())


def test_a_log_elsewhere(tmp_path: Path) -> None:
    root, log = tmp_path / "root", tmp_path / "disk" / "log"
    conf = tmp_path / "broker.conf"
    sizes = f"mappedFileSizeCommitLog={FILE}\nmappedFileSizeConsumeQueue=2000\n"
    index = "maxHashSlotNum=100\nmaxIndexNum=400\n"
    conf.write_text(f"{sizes}{index}storePathRootDir={root}\nstorePathCommitLog={log}\n")
    with rmqstore.open(root, "a", config=conf) as store:
        put(store, range(40))
        check(store, range(40))  # which waits for dispatch, as a reader beside it does not
        with rmqstore.open(root, config=conf) as beside:
            check(beside, range(40))
    assert not (root / "commitlog").exists()
    assert files(log) == [0, 1, 2]
    with rmqstore.open(root, "r+", config=config(log)) as store:
        check(store, range(40))
        put(store, range(40, 60))
        assert store.recovery.clean
    with rmqstore.open(root, config=config(log)) as store:
        check(store, range(60))
    for mode in ("r", "r+"):
        with pytest.raises(StoreNotFoundError, match="a log that lies elsewhere needs config="):
            rmqstore.open(root, mode)  # type: ignore[arg-type]
    with pytest.raises(IncompatibleStoreError, match="is it mounted"):
        rmqstore.open(root, "a")


def test_a_path_is_relative_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with rmqstore.open("root", "a", config=config("logs/a")) as store:
        put(store, range(3))
    assert files(tmp_path / "logs" / "a") == [0]


def test_the_own_directory_by_name(tmp_path: Path) -> None:
    assert log_paths(str(tmp_path), config(tmp_path / "commitlog")) is None
    assert log_paths(str(tmp_path), config()) is None


@pytest.mark.parametrize("close", [True, False])
def test_files_go_to_the_paths_in_turn(tmp_path: Path, close: bool) -> None:
    """By the number of the file over the sorted names, as 4.9.3 chooses."""
    logs = [tmp_path / name for name in ("c", "a", "b")]
    chosen = config(*logs)
    store = rmqstore.open(tmp_path / "root", "a", config=chosen)
    put(store, range(100))
    check(store, range(100))
    if close:
        store.close()
    else:
        del store  # its threads end; abort stays
        gc.collect()
    with rmqstore.open(tmp_path / "root", "r+", config=chosen, timeout=60) as store:
        assert store.recovery.clean == close
        check(store, range(100))
        assert store.config.store_path_commit_log == chosen.store_path_commit_log
    by_name = [files(tmp_path / name) for name in ("a", "b", "c")]
    for place, numbers in enumerate(by_name):
        assert numbers
        assert all(number % 3 == place for number in numbers)
    with rmqstore.open(tmp_path / "root", config=chosen) as store:
        check(store, range(100))


def test_more_paths_later(tmp_path: Path) -> None:
    """A broker's disks fill up one after the other: the log goes on in new ones."""
    root = tmp_path / "root"
    with rmqstore.open(root, "a", config=config()) as store:
        put(store, range(20))
    (tmp_path / "b").mkdir()
    chosen = config(root / "commitlog", tmp_path / "b")
    with rmqstore.open(root, "r+", config=chosen) as store:
        put(store, range(20, 100))
        check(store, range(100))
    assert len(files(tmp_path / "b")) > 1
    only = chosen.replace(read_only_commit_log_store_paths=str(root / "commitlog"))
    before = files(root / "commitlog")
    with rmqstore.open(root, "r+", config=only) as store:
        put(store, range(100, 160))
        check(store, range(160))
    assert files(root / "commitlog") == before


def test_read_only_paths_take_no_new_file(tmp_path: Path) -> None:
    root, old, new = tmp_path / "root", tmp_path / "old", tmp_path / "new"
    with rmqstore.open(root, "a", config=config(old)) as store:
        put(store, range(20))
    new.mkdir()
    chosen = config(new, read_only_commit_log_store_paths=str(old))
    assert log_paths(str(root), chosen) == [LogPath(str(new), False), LogPath(str(old), True)]
    with rmqstore.open(root, "r+", config=chosen) as store:
        put(store, range(20, 60))
        check(store, range(60))
    assert files(old) == [0, 1]
    assert files(new)[0] == 2
    with pytest.raises(ValueError, match="new files of the log have no place"):
        rmqstore.open(root, config=config(old, read_only_commit_log_store_paths=str(old)))


def test_a_full_path_is_passed_over(tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    with rmqstore.open(tmp_path / "root", "a", config=config(*logs)) as store:
        assert store.core.log_places() == [(str(one), False, False) for one in logs]
        put(store, range(5))
        store.core.log_path_full(str(logs[1]), True)
        put(store, range(5, 60))
        assert files(logs[1]) == []
        store.core.log_path_full(str(logs[0]), True)  # both: 4.9.3 goes on with both
        put(store, range(60, 120))
        check(store, range(120))
        with pytest.raises(ValueError, match="is no directory of the log"):
            store.core.log_path_full(str(tmp_path), True)
    assert files(logs[1])


def test_a_disk_without_room_is_passed_over(tmp_path: Path) -> None:
    with mounts.disk(tmp_path / "full", "tmpfs", 1) as full:
        logs = [tmp_path / "a", full / "log"]
        chosen = config(*logs)
        with rmqstore.open(tmp_path / "root", "a", config=chosen) as store:
            put(store, range(10))
            mounts.fill_up(full)
            put(store, range(10, 100))
            check(store, range(100))
        assert len(files(full / "log")) <= 2
        with rmqstore.open(tmp_path / "root", "r+", config=chosen) as store:
            check(store, range(100))


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_the_same_file_in_two_paths(tmp_path: Path, mode: str) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    with rmqstore.open(tmp_path / "root", "a", config=config(*logs)) as store:
        put(store, range(40))
    name = f"{FILE:020d}"
    (logs[0] / name).write_bytes(b"")
    with pytest.raises(IncompatibleStoreError, match="twice") as refused:
        rmqstore.open(tmp_path / "root", mode, config=config(*logs))  # type: ignore[arg-type]
    assert str(logs[0] / name) in str(refused.value)
    assert str(logs[1]) in str(refused.value)
    assert (logs[0] / name).read_bytes() == b""


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_missing_path(tmp_path: Path, mode: str) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    with rmqstore.open(tmp_path / "root", "a", config=config(*logs)) as store:
        put(store, range(40))
    logs[1].rename(tmp_path / "unmounted")
    with pytest.raises(StoreNotFoundError, match="is its disk mounted"):
        rmqstore.open(tmp_path / "root", mode, config=config(*logs))  # type: ignore[arg-type]
    assert not logs[1].exists()


def test_an_empty_path_is_no_end_of_the_log(tmp_path: Path) -> None:
    """The mount point of a disk that is not mounted: without its files the log would be cut."""
    logs = [tmp_path / "a", tmp_path / "b"]
    with rmqstore.open(tmp_path / "root", "a", config=config(*logs)) as store:
        put(store, range(20))
    assert (files(logs[0]), files(logs[1])) == ([0], [1])
    logs[1].rename(tmp_path / "unmounted")
    logs[1].mkdir()
    with pytest.raises(IncompatibleStoreError, match="mounted"):
        rmqstore.open(tmp_path / "root", "r+", config=config(*logs))
    logs[1].rmdir()
    (tmp_path / "unmounted").rename(logs[1])
    with rmqstore.open(tmp_path / "root", "r+", config=config(*logs)) as store:
        check(store, range(20))


def test_a_path_that_takes_no_writes(tmp_path: Path) -> None:
    code = (
        "import sys, rmqstore\n"
        "try: rmqstore.open(sys.argv[1], 'a', config=rmqstore.StoreConfig.small(\n"
        "    store_path_commit_log=sys.argv[2]))\n"
        "except OSError as error: print(error.errno, error)\n"
    )
    base = tmp_path
    (base / "log").mkdir(mode=0o555)
    said = run_unprivileged("-c", code, base / "root", base / "log").stdout
    assert said.startswith(f"{errno.EACCES} ")
    assert "read_only_commit_log_store_paths" in said
    assert str(base / "log") in said


def test_a_path_on_a_read_only_disk(tmp_path: Path) -> None:
    """Files there are read, also by a recovery, and never written."""
    with mounts.disk(tmp_path / "old", "tmpfs", 1) as disk:
        root, new = tmp_path / "root", tmp_path / "new"
        log = disk / "log"
        with rmqstore.open(root, "a", config=config(log)) as store:
            put(store, range(32))
        new.mkdir()
        chosen = config(new, read_only_commit_log_store_paths=str(log))
        with rmqstore.open(root, "r+", config=chosen) as store:
            put(store, range(32, 60))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        try:
            (root / "abort").touch()
            (root / "checkpoint").unlink()
            with rmqstore.open(root, "r+", config=chosen, verify="full") as store:
                check(store, range(60))
                put(store, range(60, 80))
                check(store, range(80))
        finally:
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)


@pytest.mark.parametrize(
    "value", ["/a,,/b", "/a, /b", "/a ,/b", ",/a", "", " "], ids=["gap", "in", "on", "at", "0", "_"]
)
def test_a_path_that_is_none(tmp_path: Path, value: str) -> None:
    with pytest.raises(ValueError, match=r"^store_path_commit_log is .*must be paths"):
        rmqstore.open(tmp_path, "a", config=StoreConfig(store_path_commit_log=value))


def test_one_directory_by_two_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(ValueError, match="are the same directory"):
        rmqstore.open(tmp_path, "a", config=config(tmp_path / "a", tmp_path / "b"))


def test_a_copy_opens_with_the_configuration_of_the_original(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What lies below the configured root is below the opened one; what does not is refused."""
    first, other = tmp_path / "first", tmp_path / "other"
    inside = config(first / "logs" / "x", store_path_root_dir=str(first))
    with rmqstore.open(first, "a", config=inside) as store:
        put(store, range(20))
    shutil.copytree(first, other)
    with caplog.at_level(logging.WARNING), rmqstore.open(other, "r+", config=inside) as store:
        put(store, range(20, 30))
        check(store, range(30))
    assert f"{other} is opened, not {first}" in caplog.text
    with rmqstore.open(first, config=inside) as store:
        check(store, range(20))
    outside = config(tmp_path / "log", store_path_root_dir=str(first))
    for mode in ("r", "r+", "a"):
        with pytest.raises(ValueError, match="is another store"):
            rmqstore.open(other, mode, config=outside)  # type: ignore[arg-type]


def test_damage_is_saved_in_the_root_and_restored(tmp_path: Path) -> None:
    from rmqstore.offline import quarantine

    root, logs = tmp_path / "root", [tmp_path / "a", tmp_path / "b"]
    chosen = config(*logs)
    with rmqstore.open(root, "a", config=chosen) as store:
        put(store, range(40))
        [third] = [one for one in store.scan() if one.body[:6] == b"000016"]
    at = third.physical_offset
    damaged = logs[at // FILE % 2] / f"{at - at % FILE:020d}"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: at % FILE + 4] + b"\xff" * 20 + whole[at % FILE + 24 :])
    with pytest.raises(rmqstore.StoreCorruptError) as refused:
        rmqstore.open(root, "r+", config=chosen, verify="full")
    assert refused.value.path == str(damaged)
    with (
        rmqstore.open(root, config=chosen) as store,
        pytest.raises(rmqstore.StoreCorruptError) as r,
    ):
        store.at(at)
    assert r.value.path == str(damaged)
    with rmqstore.open(root, "r+", config=chosen, on_corruption="fill", verify="full") as store:
        assert [Path(one).parent for one in store.recovery.saved_to] == [
            root / "rmqstore-quarantine"
        ]
        assert len(list(store.scan())) == 39
    [saved] = quarantine.saved_ranges(root, config=chosen)
    assert (saved.offset, saved.place) == (at, "filler")


WRITER = """
import sys, rmqstore
root, log = sys.argv[1:]
sizes = dict(mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=2000,
             max_hash_slot_num=100, max_index_num=400)
config = rmqstore.StoreConfig(store_path_commit_log=log, flush_disk_type="SYNC_FLUSH", **sizes)
with rmqstore.open(root, "a", config=config) as store:
    for i in range(100000):
        store.put("t", b"%06d" % i + b"x" * 1000, keys=[f"k{i}"], queue_id=i % 2)
        print(i, flush=True)
"""


def test_killed_while_it_writes_to_two_paths(tmp_path: Path) -> None:
    root, logs = tmp_path / "root", [tmp_path / "a", tmp_path / "b"]
    acknowledged = -1
    for stop in (7, 40):
        code = WRITER.replace("range(100000)", f"range({acknowledged + 1}, 100000)")
        command = [sys.executable, "-c", code, str(root), ",".join(map(str, logs))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for line in itertools.islice(writer.stdout, stop):
                acknowledged = int(line)
            os.kill(writer.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        with rmqstore.open(root, config=config(*logs)) as store:
            left = [int(one.body[:6]) for one in store.scan()]
        assert left[: acknowledged + 1] == list(range(acknowledged + 1))
        with rmqstore.open(root, "r+", config=config(*logs), verify="full") as store:
            assert [int(one.body[:6]) for one in store.scan()] == left
        acknowledged = left[-1]


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_dledger_store_is_refused_by_name(tmp_path: Path, mode: str) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / f"{0:020d}").write_bytes(bytes(4096))
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(IncompatibleStoreError, match=r"dledger-n0: the log of a DLedger group"):
        rmqstore.open(tmp_path, mode)  # type: ignore[arg-type]
    assert {one.name for one in tmp_path.iterdir()} == {"commitlog", "dledger-n0"}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_warm_files_have_all_their_pages(tmp_path: Path, flush: str) -> None:
    size = 16 << 20  # a large folio of the page cache may take a few MiB
    for warm in (False, True):
        chosen = StoreConfig.small(
            mapped_file_size_commit_log=size,
            warm_maped_file_enable=warm,
            flush_least_pages_when_warm_maped_file=100,
            flush_disk_type=flush,
        )
        with rmqstore.open(tmp_path / str(warm), "a", config=chosen) as store:
            for _ in range(5):
                store.put("t", bytes(2_000_000), queue_id=0, wait=False)
            for _ in range(1000):
                filled = cached_of_unnamed_file(tmp_path / str(warm) / "commitlog")
                if filled == size or (filled and not warm):
                    break
                signal.sigtimedwait([], 0.01)
            assert 0 < filled <= size
            assert (filled == size) == warm
            for _ in range(5):
                store.put("t", bytes(2_000_000), queue_id=0, wait=False)
            assert len(list(store.scan())) == 10


def cached_of_unnamed_file(directory: Path) -> int:
    """Bytes in memory of the file that is made ahead, 0 without one."""
    for one in Path("/proc/self/fd").iterdir():
        try:
            found = one.stat()  # of a file that is about to be made it has no size yet
            if one.readlink().parent == directory and not found.st_nlink and found.st_size:
                with one.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
                    pages = (ctypes.c_char * (len(mapped) // mmap.PAGESIZE))()
                    at = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
                    libc = ctypes.CDLL(None)
                    assert (
                        libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(len(mapped)), pages) == 0
                    )
                    return sum(page & 1 for page in pages.raw) * mmap.PAGESIZE
        except (OSError, BufferError):
            continue
    return 0


def test_flushing_after_each_put(tmp_path: Path) -> None:
    """flushCommitLogTimed=false: not only every interval, but when enough pages are dirty."""
    for timed in (True, False):
        chosen = StoreConfig.small(
            flush_commit_log_timed=timed,
            flush_interval_commit_log=3_600_000,
            flush_commit_log_thorough_interval=3_600_000,
        )
        with rmqstore.open(tmp_path / str(timed), "a", config=chosen) as store:
            for _ in range(200):
                store.put("t", bytes(40_000), queue_id=0)
            for _ in range(0 if timed else 500):
                if store.stats()["flushed_position"] > 4_000_000:
                    break
                signal.sigtimedwait([], 0.01)
            assert (store.stats()["flushed_position"] > 0) is not timed
