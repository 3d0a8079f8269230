"""One writer: whatever becomes of the file `lock`, of its directory, and of their names."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from crash.checks import contents, environment, output_of
from rmqstore.directory.lock_owner import lock_owner
from rmqstore.offline.locking import is_owned, locked, wait_until_free
from support import oracle_store
from support.forked_child import waiting_child

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
)
PATIENCE = 120
PAUSE = 0.01  # seconds between puts
# A second, and what a busy machine adds; puts are counted, as it may pause all threads for long.
NOTICED = 500

OWNER = """
    import sys, rmqstore
    store = rmqstore.open(sys.argv[1], "r+")
    print("has it", flush=True)
    sys.stdin.readline()
"""
SHARING_OPENER = """
    import sys, rmqstore
    elsewhere = {"store_path_commit_log": sys.argv[2]} if sys.argv[2] else {}
    config = rmqstore.StoreConfig(mapped_file_size_commit_log=64 << 10, **elsewhere)
    try:
        rmqstore.open(sys.argv[1], "a", config=config).close()
    except rmqstore.StoreLockedError as error:
        print(error)
"""
OPENER = """
    import sys, rmqstore
    try:
        rmqstore.open(sys.argv[1], "r+", timeout=float(sys.argv[2])).close()
    except rmqstore.StoreLockedError as error:
        print(error)
"""


def unlinked(root: Path) -> None:
    (root / "lock").unlink()


def made_anew(root: Path) -> None:
    (root / "lock").unlink()
    (root / "lock").write_bytes(b"lock")


def renamed(root: Path) -> None:
    (root / "lock").rename(root / "lock.bak")


def copied_over(root: Path) -> None:
    shutil.copy2(root / "lock", root / "new")
    (root / "new").replace(root / "lock")


LOSSES = [unlinked, made_anew, renamed, copied_over]


def moved(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


def moved_and_made_anew(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))
    root.mkdir()


def swapped_with_a_copy(root: Path) -> None:
    shutil.copytree(root, root.with_name("copy"))
    root.rename(root.with_name("elsewhere"))
    root.with_name("copy").rename(root)


def removed(root: Path) -> None:
    shutil.rmtree(root)


MOVES = [moved, moved_and_made_anew, swapped_with_a_copy, removed]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        for number in range(20):
            store.put("Topic1", b"%d" % number, queue_id=0, keys=f"k{number}")
    return tmp_path / "store"


def put_until_it_fails(store: rmqstore.MessageStore) -> tuple[int, rmqstore.StoreFailedError]:
    """Put until the store has failed; how many were acknowledged, and the error."""
    for count in range(NOTICED):
        try:
            store.put("Topic1", b"after %d" % count, queue_id=0)
        except rmqstore.StoreFailedError as error:
            return count, error
        time.sleep(PAUSE)
    raise AssertionError(f"not noticed within {NOTICED} puts")


def fails_for_good(store: rmqstore.MessageStore, root: Path, named: str) -> int:
    count, error = put_until_it_fails(store)
    assert named in str(error)
    for call in (
        lambda: store.put("Topic1", b"never", queue_id=0),
        lambda: store.put_many("Topic1", [b"never"], queue_id=0),
        store.flush,
        lambda: store.create_topic("Topic2"),
    ):
        with pytest.raises(rmqstore.StoreFailedError):
            call()
    with pytest.raises(rmqstore.StoreFailedError, match=named):
        store.close()
    assert store.closed
    return count


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_an_owner_whose_lock_lost_its_name(root: Path, lose: Callable[[Path], None], flush: str):
    store = rmqstore.open(root, "r+", config=CONFIG.replace(flush_disk_type=flush))
    lose(root)
    count = fails_for_good(store, root, "lock")
    assert (root / "abort").exists()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        bodies = [one.body for one in store["Topic1"][0]]
    told = [b"%d" % i for i in range(20)] + [b"after %d" % i for i in range(count)]
    assert bodies[: len(told)] == told
    assert bodies[len(told) :] in ([], [b"after %d" % count])  # the one whose put failed
    oracle_store.check_store(root)


@pytest.mark.parametrize("move", MOVES)
def test_an_owner_whose_directory_is_another_one(root: Path, move: Callable[[Path], None]):
    store = rmqstore.open(root, "r+", config=CONFIG)
    move(root)
    fails_for_good(store, root, str(root))
    if move is not removed:
        assert (root.with_name("elsewhere") / "abort").exists()
    if move is swapped_with_a_copy:  # a store of its own
        with rmqstore.open(root, "r+", config=CONFIG) as store:
            assert len(store["Topic1"][0]) == 20


@pytest.mark.parametrize("move", MOVES)
def test_an_owner_whose_log_is_another_one(root: Path, move: Callable[[Path], None]):
    """Of the log's directory: what is put after that is in no file of the store."""
    store = rmqstore.open(root, "r+", config=CONFIG)
    move(root / "commitlog")
    fails_for_good(store, root, "commitlog")


@pytest.mark.parametrize("change", [unlinked, moved])
def test_a_loss_just_before_the_end_is_noticed_by_close(root: Path, change):
    store = rmqstore.open(root, "r+", config=CONFIG)
    store.put("Topic1", b"x", queue_id=0)
    change(root)
    with pytest.raises(rmqstore.StoreFailedError):
        store.close()
    left = root if change is unlinked else root.with_name("elsewhere")
    assert (left / "abort").exists()


def test_a_link_to_the_store_that_leads_elsewhere(root: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(root)
    shutil.copytree(root, tmp_path / "copy")
    store = rmqstore.open(tmp_path / "link", "r+", config=CONFIG)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "copy")
    fails_for_good(store, tmp_path / "link", "link")


def test_a_closed_store_moves(root: Path, tmp_path: Path):
    root.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "lock").unlink()
    with rmqstore.open(tmp_path / "elsewhere", "r+", config=CONFIG) as store:
        store.put("Topic1", b"x", queue_id=0)
    assert not (tmp_path / "elsewhere" / "abort").exists()


@pytest.mark.parametrize("lose", LOSSES)
def test_a_second_opener_is_refused_all_the_same(root: Path, tmp_path: Path, lose):
    (tmp_path / "link").symlink_to(root)
    store = rmqstore.open(root, "r+", config=CONFIG)
    lose(root)
    before = contents(root)
    for path in (root, tmp_path / "link"):
        told = output_of(OPENER, path, 0)
        assert f"process {os.getpid()} " in told
        assert "do not delete 'lock'" in told
        for mode in ("r+", "a"):
            with pytest.raises(rmqstore.StoreLockedError, match="in this process already"):
                rmqstore.open(path, mode)
    with pytest.raises(rmqstore.StoreLockedError):
        rmqstore.open(root, "r+", timeout=0.2)
    assert contents(root) == before  # no new lock either
    with pytest.raises(rmqstore.StoreFailedError):
        store.close()
    rmqstore.open(root, "r+").close()


def test_a_timeout_waits_for_both_locks(root: Path):
    store = rmqstore.open(root, "r+", config=CONFIG)
    unlinked(root)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OPENER), str(root), str(PATIENCE)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as opener:
        time.sleep(0.3)  # it waits by then, or has yet to: either is right
        with pytest.raises(rmqstore.StoreFailedError):
            store.close()
        assert opener.communicate(timeout=PATIENCE)[0] == ""
    assert opener.returncode == 0


@pytest.mark.parametrize("lost", [False, True])
def test_who_asks_without_opening(root: Path, lost: bool):
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(root)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "has it\n"
        if lost:
            unlinked(root)
        found = lock_owner(root)
        assert found is not None
        assert found.pid == owner.pid
        assert is_owned(str(root))
        with pytest.raises(rmqstore.StoreLockedError, match=str(owner.pid)):
            wait_until_free(str(root), 0.05)
        with pytest.raises(rmqstore.StoreLockedError, match=str(owner.pid)), locked(str(root), 0.0):
            pass
    finally:
        owner.kill()
        owner.communicate()
    assert lock_owner(root) is None
    with locked(str(root), PATIENCE):
        assert is_owned(str(root))
        with pytest.raises(rmqstore.StoreLockedError):
            rmqstore.open(root, "r+")
        assert "lock" in output_of(OPENER, root, 0)
    assert not is_owned(str(root))
    rmqstore.open(root, "r+").close()


def test_no_directory_no_lock(tmp_path: Path):
    assert lock_owner(tmp_path / "none") is None
    with locked(str(tmp_path / "none"), 0.0):
        assert not (tmp_path / "none").exists()


def test_a_child_keeps_neither_lock(root: Path):
    store = rmqstore.open(root, "r+", config=CONFIG)
    with waiting_child():
        with pytest.raises(rmqstore.StoreLockedError):
            rmqstore.open(root, "r+")
        store.close()
        rmqstore.open(root, "r+").close()


@pytest.mark.needs_debug_build
@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_on_directories(root: Path, number: int):
    """The other guards hold: `lock` against a process, the table within this one."""
    code = """
        import os, subprocess, sys, rmqstore
        root, number, opener = sys.argv[1:]
        os.environ["RMQ_FAIL_AT"] = f"lock-directory:1:{number}+"
        store = rmqstore.open(root, "r+")
        del os.environ["RMQ_FAIL_AT"]
        store.put("Topic1", b"x", queue_id=0)
        print("refused:", subprocess.run([sys.executable, "-c", opener, root, "0"],
                                         capture_output=True, text=True).stdout)
        os.remove(root + "/lock")
        try:
            rmqstore.open(root, "r+")
        except rmqstore.StoreLockedError as error:
            print("refused:", error)
        try:
            while True:
                store.put("Topic1", b"x", queue_id=0)
        except rmqstore.StoreFailedError as error:
            print("failed:", error)
    """
    said = output_of(code, root, number, textwrap.dedent(OPENER)).splitlines()
    assert [line.partition(":")[0] for line in said if ":" in line] == [
        "refused",
        "refused",
        "failed",
    ]
    assert "open elsewhere" in said[0]


# Openers in a loop, and somebody who deletes `lock` in another one.
OPENINGS = os.environ.get("RMQSTORE_OPENINGS", "25")  # of each of three

WRITER = """
    import os, pathlib, sys, time, rmqstore
    root, mark, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    opened = number = 0
    while opened < most:
        number += 1
        try:
            store = rmqstore.open(root, "r+")
        except rmqstore.StoreLockedError:
            continue
        held = os.open(mark, os.O_CREAT | os.O_EXCL)  # FileExistsError: there are two
        opened += 1
        try:
            store.put("Topic1", f"{os.getpid()}-{number}".encode(), queue_id=0)
        except rmqstore.StoreFailedError:
            pass
        os.close(held)
        os.remove(mark)
        try:
            store.close()
        except rmqstore.StoreFailedError:
            pass
    print(number)
"""


@pytest.fixture
def remover(root: Path) -> Iterator[list[int]]:
    """Delete `lock` again and again, and count."""
    stop = threading.Event()
    counted = [0]

    def remove() -> None:
        while not stop.wait(0.001):
            try:
                (root / "lock").unlink()
            except FileNotFoundError:
                continue
            counted[0] += 1

    thread = threading.Thread(target=remove)
    thread.start()
    yield counted
    stop.set()
    thread.join()


def test_never_two_writers(root: Path, tmp_path: Path, remover: list[int]):
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(WRITER),
                str(root),
                str(tmp_path / "mark"),
                OPENINGS,
            ],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    told = [one.communicate(timeout=PATIENCE) for one in writers]
    assert [one.returncode for one in writers] == [0] * 3, [error for _, error in told]
    assert sum(int(out) for out, _ in told) > 3 * int(OPENINGS)  # some were refused
    assert remover[0] > 0
    with rmqstore.open(root, "r") as store:
        bodies = [one.body for one in store["Topic1"][0]]
    assert len(bodies) == len(set(bodies)) >= 20


# A log that lies elsewhere


def with_log(log: Path, *, more: str = "") -> rmqstore.StoreConfig:
    return CONFIG.replace(store_path_commit_log=f"{log}{more}")


def test_two_stores_with_one_directory_for_their_logs(tmp_path: Path):
    log, other = tmp_path / "log", tmp_path / "log2"
    first = rmqstore.open(tmp_path / "one", "a", config=with_log(log, more=f",{other}"))
    first.put("Topic1", b"x", queue_id=0)
    for config in (with_log(log), with_log(other), with_log(other, more=f",{log}")):
        with pytest.raises(rmqstore.StoreLockedError, match="log"):
            rmqstore.open(tmp_path / "two", "a", config=config)
        assert not (tmp_path / "two" / "lock").exists()
    first.close()
    shutil.rmtree(tmp_path / "two")
    with rmqstore.open(tmp_path / "one", "r+", config=with_log(log, more=f",{other}")) as store:
        assert len(store["Topic1"][0]) == 1


@pytest.mark.parametrize("own_first", [False, True])
def test_a_log_that_is_that_of_another_store(root: Path, tmp_path: Path, own_first: bool):
    openings = [
        lambda: rmqstore.open(root, "r+", config=CONFIG),
        lambda: rmqstore.open(tmp_path / "two", "a", config=with_log(root / "commitlog")),
    ]
    first, second = openings if own_first else reversed(openings)
    opened = first()
    with pytest.raises(rmqstore.StoreLockedError, match="commitlog"):
        second()
    opened.close()


def test_a_child_keeps_no_directory_of_the_log(tmp_path: Path):
    config = with_log(tmp_path / "log")
    store = rmqstore.open(tmp_path / "one", "a", config=config)
    with waiting_child():
        store.close()
        rmqstore.open(tmp_path / "one", "r+", config=config).close()


def linked(root: Path, other: Path) -> rmqstore.StoreConfig:
    (other / "commitlog").symlink_to(root / "commitlog")
    return CONFIG


def configured(root: Path, other: Path) -> rmqstore.StoreConfig:
    return CONFIG.replace(store_path_commit_log=str(root / "commitlog"))


@pytest.mark.parametrize("share", [linked, configured])
@pytest.mark.parametrize("begins", ["the store", "the other"])
@pytest.mark.parametrize("fresh", [False, True])
def test_two_stores_whose_log_is_one(
    tmp_path: Path, root: Path, share: Callable[[Path, Path], rmqstore.StoreConfig], begins: str,
    fresh: bool,
):  # fmt: skip
    """Whichever way they lead there, in this process and in another one, one of them writes."""
    if fresh:  # the directory is made by the first opening, and locked then
        root = tmp_path / "fresh"
        root.mkdir()
        if begins == "the other":
            (root / "commitlog").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    config = share(root, other)
    first, second = (root, CONFIG), (other, config)
    if begins == "the other":
        first, second = second, first
    with rmqstore.open(first[0], "a", config=first[1]) as store:
        before = contents(root / "commitlog")
        with pytest.raises(rmqstore.StoreLockedError):
            rmqstore.open(second[0], "a", config=second[1])
        assert "another store that is open" in output_of(
            SHARING_OPENER, second[0], second[1].store_path_commit_log or ""
        )
        assert contents(root / "commitlog") == before
        store.put("Topic1", b"goes on", queue_id=0)
    for path, config in (second, first):
        rmqstore.open(path, "r", config=config).close()
