"""``snapshot``: a copy of a store in use, which opens clean and has all that was acknowledged."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import MessageStore, Snapshot, StoreConfig, StoreNotFoundError
from rmqstore.brokerfiles.delays import DelayTable
from rmqstore.brokerfiles.offsets import OffsetTable
from rmqstore.services import snapshot as module
from support import mounts

PYTHON_PATH = ":".join(map(str, [Path(__file__).parent, Path(__file__).parents[2]]))
SIZES: dict[str, object] = {
    "mapped_file_size_commit_log": 64 << 10, "mapped_file_size_consume_queue": 6000,
    "max_hash_slot_num": 500, "max_index_num": 2000,
}  # fmt: skip


def config(**more: object) -> StoreConfig:
    return StoreConfig(**SIZES | more)  # type: ignore[arg-type]


def put(store: MessageStore, numbers: range) -> None:
    for i in numbers:
        store.put("t", b"%06d" % i + b"x" * 300, keys=[f"k{i}"], queue_id=i % 3)


def numbers(store: MessageStore) -> list[int]:
    return [int(message.body[:6]) for message in store.scan("t")]


def check(made: Snapshot, least: int, *, first: int = 0) -> int:
    """The copy is clean, and has all messages from the first to ``least`` or a later one."""
    copy = Path(made.path)
    assert not (copy / "abort").exists()
    assert not (copy / "rmqstore-quarantine").exists()
    assert not copy.with_name(copy.name + ".unfinished").exists()
    assert made.bytes > 0
    with rmqstore.open(copy) as store:
        found = numbers(store)
    assert len(found) >= least - first
    with rmqstore.open(copy, "r+", verify="full") as store:
        assert store.recovery.clean
        assert store.recovery.bytes_cut == 0
        assert store.recovery.units_written == 0
        assert store.recovery.index_files_rebuilt == 0
        assert store.recovery.log_end == made.until
        assert numbers(store) == found == list(range(first, first + len(found)))
        for queue_id in range(3):
            own = [i for i in found if i % 3 == queue_id]
            queue = store["t"][queue_id]
            assert [int(message.body[:6]) for message in queue] == own
            assert queue.max_offset == -(-(first + len(found) - queue_id) // 3)
        for i in random.Random(1).sample(found, min(30, len(found))):
            assert [m.body[:6] for m in store.query("t", f"k{i}", index_only=True)] == [b"%06d" % i]
        assert store.query("t", f"k{first + len(found)}") == []
        assert store.index_coverage()[-1][1] == made.until
        last = first + len(found)
        done = store.put("t", b"%06d" % last + b"x" * 300, keys=[f"k{last}"], queue_id=last % 3)
        assert done.physical_offset == made.until or done.physical_offset % (64 << 10) == 0
    return len(found)


class Writing:
    """Puts messages from a thread until the block ends; ``done`` of them are acknowledged."""

    def __init__(self, store: MessageStore, done: int) -> None:
        self.done = done
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            put(self._store, range(self.done, self.done + 1))
            self.done += 1
            self._stop.wait(0.001)  # each file of the copy is forced to the disk

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for(self, done: int) -> None:
        while self.done < done and self._thread.is_alive():
            self._stop.wait(0.001)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("places", ["own", "two"])
def test_of_a_store_that_is_written(tmp_path: Path, flush: str, places: str) -> None:
    logs = f"{tmp_path / 'a'},{tmp_path / 'b'}" if places == "two" else None
    chosen = config(flush_disk_type=flush, store_path_commit_log=logs)
    with rmqstore.open(tmp_path / "store", "a", config=chosen) as store:
        put(store, range(300))
        with Writing(store, 300) as writing:
            for turn in range(2):
                writing.wait_for(300 + 40 * turn)
                acknowledged = writing.done
                made = store.snapshot(tmp_path / f"copy{turn}")
                assert check(made, acknowledged) >= acknowledged
        assert numbers(store) == list(range(writing.done))


def test_cut_where_a_file_ends(tmp_path: Path) -> None:
    """The next file is there: 4.9.3 would else go on before the blank at the end of this one."""
    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(50))
        end = store.stats()["wrote_position"]
    assert end < 64 << 10
    with (tmp_path / "store" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(end)
        file.write(((64 << 10) - end).to_bytes(4) + (0xCBD43194).to_bytes(4))
    with rmqstore.open(tmp_path / "store") as store:
        made = store.snapshot(tmp_path / "copy")
    assert made.until == 64 << 10
    names = sorted(one.name for one in (tmp_path / "copy" / "commitlog").iterdir())
    assert names == [f"{0:020d}", f"{64 << 10:020d}"]
    assert (tmp_path / "copy" / "commitlog" / names[1]).stat().st_size == 64 << 10
    with rmqstore.open(tmp_path / "copy", "r+") as store:
        assert store.put("t", b"x").physical_offset == made.until


def test_puts_go_on_while_it_is_copied(tmp_path: Path) -> None:
    """At any moment of it, also to a topic that is new; what is put then is not in it."""
    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(1000))
        stored = itertools.count(1000)
        pieces: list[int] = []

        def progressed(done: int, total: int) -> None:
            assert 0 < done <= total
            pieces.append(done)
            i = next(stored)
            put(store, range(i, i + 1))
            store.put(f"new{i}", b"x")

        # The config files come first: while they are copied no topic can be made.
        made = store.snapshots.make(tmp_path / "copy", lambda done, total: None)
        check(made, 1000)
        put(store, range(1000, 1000))
        copied = module._Copy.tree

        def tree(self: module._Copy, root: Path, name: str, only: str = "") -> None:
            self._progressed = (lambda done, total: None) if name == "config" else progressed
            copied(self, root, name, only)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module._Copy, "tree", tree)
            made = store.snapshot(tmp_path / "second")
        assert pieces == sorted(pieces)
        assert len(pieces) > 10
        assert numbers(store) == list(range(next(stored)))
    assert check(made, 1000) == 1000


def of_closed(root: Path) -> Callable[[], None]:
    with rmqstore.open(root, "a", config=config()) as store:
        put(store, range(1000))
    return lambda: None


def of_killed(root: Path) -> Callable[[], None]:
    code = (
        "import os, sys\nsys.path[:0] = sys.argv[2].split(':')\nfrom test_snapshot import *\n"
        "store = rmqstore.open(sys.argv[1], 'a', config=config())\n"
        "put(store, range(1000)); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, root, PYTHON_PATH], check=False)
    assert (root / "abort").exists()
    return lambda: None


def of_live(root: Path) -> Callable[[], None]:
    store = rmqstore.open(root, "a", config=config())
    put(store, range(1000))
    return store.close


def unchanging(root: Path) -> dict[Path, tuple[int, int, int]]:
    """What a reader leaves as it is of each file: all but the time of reading."""
    found = {path: path.stat() for path in root.rglob("*")}
    return {path: (one.st_ino, one.st_size, one.st_mtime_ns) for path, one in found.items()}


@pytest.mark.parametrize("make", [of_closed, of_killed, of_live])
def test_of_a_store_opened_to_read(
    tmp_path: Path, make: Callable[[Path], Callable[[], None]]
) -> None:
    close = make(tmp_path / "store")
    before = unchanging(tmp_path / "store")
    with rmqstore.open(tmp_path / "store") as store:
        made = store.snapshot(tmp_path / "copy")
    assert unchanging(tmp_path / "store") == before or make is of_live
    assert check(made, 1000) == 1000
    close()


def test_beside_an_owner_that_writes(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=config()) as owner:
        put(owner, range(200))
        with Writing(owner, 200) as writing, rmqstore.open(tmp_path / "store") as store:
            for turn in range(2):
                writing.wait_for(200 + 50 * turn)
                acknowledged = writing.done
                made = store.snapshot(tmp_path / f"copy{turn}")
                check(made, acknowledged)


def test_config_files_come_with_it_and_are_not_ahead(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=config()) as store:
        put(store, range(50))
        store.create_topic("empty", 7)
        offsets = {"offsetTable": {"t@g": {"0": 3, "1": 2}}}
        (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
        store.put("gone", b"x")
        store.delete_topic("gone")
        made = store.snapshot(tmp_path / "copy")
    with rmqstore.open(made.path, "r+") as store:
        assert set(store) == {"empty", "t"}
        assert store["empty"].write_queue_nums == 7
        assert "gone" in store.deleted_topics
    assert json.loads((tmp_path / "copy/config/consumerOffset.json").read_text()) == offsets


def test_progress_that_is_only_in_memory_comes_with_it(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(30))
        with store.consumer("t", group="g") as consumer:
            for _, _message in zip(range(7), consumer, strict=False):
                consumer.commit()
            made = store.snapshot(tmp_path / "copy")
            committed = dict(store.offsets)
    with rmqstore.open(made.path) as copy:
        assert dict(copy.offsets) == committed
        assert sum(committed["t", "g"].values()) == 7


def test_what_was_delivered_and_what_has_ended_comes_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., None]
) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        for count in (1, 2):  # delayOffset.json is not there yet, and then it is
            store.put("t", b"%06d" % count, delay_level=1)
            store.clock.advance(2)
            wait_until(lambda c=count: len(numbers(store)) == c and not store.delayed())
            made = store.snapshot(tmp_path / f"copy{count}")
            assert DelayTable.load(made.path).offsets == {1: count}
        for _ in range(3):
            store.begin("t", b"000003").commit()
        store.begin("t", b"000004")
        made = store.snapshot(tmp_path / "copy")
    half = ("RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS")
    assert OffsetTable.load(made.path).offsets[half] == {0: 3}
    with rmqstore.open(made.path, "r+", config=config()) as copy:
        assert copy.delayed() == []
        assert [one.message.body for one in copy.in_doubt()] == [b"000004"]
        assert sorted(numbers(copy)) == [1, 2, 3, 3, 3]
    assert "delivered" not in caplog.text


def test_queue_offsets_go_on_where_retention_took_the_records(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=config()) as store:
        put(store, range(1000))
    files = sorted((root / "commitlog").iterdir())
    for file in files[:3]:
        file.unlink()
    with rmqstore.open(root, "r+", config=config()) as store:
        [first, *_] = numbers(store)
        assert first > 100
        made = store.snapshot(tmp_path / "copy")
    with rmqstore.open(made.path, "r+", verify="full") as copy:
        assert numbers(copy) == list(range(first, 1000))
        assert [copy["t"][i].max_offset for i in range(3)] == [334, 333, 333]
        assert copy.put("t", b"x", queue_id=0).queue_offset == 334


def test_retention_meanwhile(tmp_path: Path) -> None:
    """Files that go from the log's front while it is copied are not in the copy."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=config()) as store:
        put(store, range(1000))
    files = sorted((root / "commitlog").iterdir())
    copied = module._Copy.file

    def file(self: module._Copy, source: Path, target: Path, **more: object) -> bool:
        if source == files[2]:
            for one in files[:4]:
                one.unlink()
        return copied(self, source, target, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, rmqstore.open(root) as store:
        patch.setattr(module._Copy, "file", file)
        made = store.snapshot(tmp_path / "copy")
    names = sorted(one.name for one in (tmp_path / "copy" / "commitlog").iterdir())
    assert names == [one.name for one in files[4:]]
    with rmqstore.open(made.path, "r+", verify="full") as copy:
        found = numbers(copy)
        assert found == list(range(found[0], 1000))


@pytest.mark.parametrize("call", ["copy_file_range", "ioctl", "both"])
def test_where_the_file_system_can_do_less(tmp_path: Path, call: str) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(errno.EXDEV, "not here")

    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(300))
        with pytest.MonkeyPatch.context() as patch:
            if call != "ioctl":
                patch.setattr(module.os, "copy_file_range", refuse)
            if call != "copy_file_range":
                patch.setattr(module.fcntl, "ioctl", refuse)
            made = store.snapshot(tmp_path / "copy")
        assert check(made, 300) == 300


def test_a_file_system_that_shares_blocks(tmp_path: Path) -> None:
    """Every file is cloned, and what is behind the cut is taken from the clone."""

    def clone(into: int, request: int, fd: int) -> int:
        assert request == 0x40049409
        os.ftruncate(into, 0)
        os.pwrite(into, os.pread(fd, os.fstat(fd).st_size, 0), 0)
        return 0

    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(300))
        with pytest.MonkeyPatch.context() as patch, Writing(store, 300) as writing:
            patch.setattr(module.fcntl, "ioctl", clone)
            acknowledged = writing.done
            made = store.snapshot(tmp_path / "copy")
        check(made, acknowledged)


def test_where_it_may_not_be_put(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=config()) as store:
        put(store, range(10))
        full, file = tmp_path / "full", tmp_path / "file"
        full.mkdir()
        (full / "x").touch()
        file.touch()
        with pytest.raises(FileExistsError, match="is not empty"):
            store.snapshot(full)
        with pytest.raises(NotADirectoryError):
            store.snapshot(file)
        for inside in (root, root / "copy"):
            with pytest.raises(ValueError, match="must be outside the store"):
                store.snapshot(inside)
        with pytest.raises(ValueError, match="no mount point"):
            store.snapshot("/proc")
        (tmp_path / "copy.unfinished").mkdir()
        with pytest.raises(FileExistsError, match="not finished, or is under way"):
            store.snapshot(tmp_path / "copy")
        (tmp_path / "copy.unfinished").rmdir()
        (tmp_path / "copy").mkdir()
        assert check(store.snapshot(tmp_path / "copy"), 10) == 10
        assert check(store.snapshot(tmp_path / "made" / "on the way, too"), 10) == 10
    with pytest.raises(rmqstore.StoreClosedError):
        store.snapshot(tmp_path / "late")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "copy",
        "file",
        "full",
        "made",
        "store",
    ]


def test_of_damage_is_none(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(400))
        at = next(iter(store.scan())).physical_offset
    log = tmp_path / "store" / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 20)
    with rmqstore.open(tmp_path / "store") as store:
        shutil.rmtree(tmp_path / "store" / "consumequeue")
        with pytest.raises(rmqstore.StoreError):
            store.snapshot(tmp_path / "copy")
    assert [one.name for one in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk(tmp_path: Path, kind: str) -> None:
    with (
        rmqstore.open(tmp_path / "store", "a", config=config()) as store,
        mounts.disk(tmp_path / "full", kind, 2) as disk,
    ):
        put(store, range(10_000))
        with pytest.raises(OSError, match="No space left") as refused:
            store.snapshot(disk / "copy")
        assert refused.value.errno == errno.ENOSPC
        assert not any(one.name.startswith("copy") for one in disk.iterdir())
        put(store, range(10_000, 10_010))
        assert check(store.snapshot(tmp_path / "copy"), 10_010) == 10_010


KILLED = """
import os, sys
sys.path[:0] = sys.argv[2].split(':')
from test_snapshot import *
left = int(sys.argv[3])
def step(call):
    def counted(*arguments, **more):
        global left
        left -= 1
        if left == 0: os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **more)
    return counted
for name in ("file", "name", "write"):
    setattr(module._Copy, name, step(getattr(module._Copy, name)))
module.sync_path = step(module.sync_path)
module.Snapshots._complete = step(module.Snapshots._complete)
Path.rename = step(Path.rename)
with rmqstore.open(sys.argv[1] + "/store", "a", config=config()) as store:
    store.snapshot(sys.argv[1] + "/copy")
"""


@pytest.mark.parametrize("after", [1, 5, 14, -8, -7, -5, -4, -3, -2, -1])
def test_killed_meanwhile(tmp_path: Path, after: int) -> None:
    """Nothing is left that opens as a store, until all of it is there."""
    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(700))
    steps = count_steps(tmp_path)
    shutil.rmtree(tmp_path / "copy")
    step = after if after > 0 else steps + 1 + after
    assert 0 < step <= steps
    done = run_killed(tmp_path, step)
    assert done.returncode == -signal.SIGKILL
    making = tmp_path / "copy.unfinished"
    if making.exists():
        assert not (tmp_path / "copy").exists()
        if not (making / "commitlog").exists():
            for mode in ("r", "r+"):
                with pytest.raises(StoreNotFoundError):
                    rmqstore.open(making, mode)  # type: ignore[arg-type]
        else:  # complete and closed; only the name is missing
            with rmqstore.open(making, "r+", verify="full") as copy:
                assert copy.recovery.clean
                assert numbers(copy) == list(range(700))
        shutil.rmtree(making)
    if (tmp_path / "copy").exists():
        with rmqstore.open(tmp_path / "copy", "r+", verify="full") as copy:
            assert copy.recovery.clean
            assert numbers(copy) == list(range(700))
        shutil.rmtree(tmp_path / "copy")
    with rmqstore.open(tmp_path / "store", "r+", verify="full") as store:
        assert check(store.snapshot(tmp_path / "copy"), 700) == 700


def run_killed(tmp_path: Path, left: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", KILLED, tmp_path, PYTHON_PATH, str(left)]
    return subprocess.run(command, capture_output=True, check=False)


def count_steps(tmp_path: Path) -> int:
    """How many steps a snapshot takes, each of which may be its last."""
    command = [sys.executable, "-c", KILLED + "\nprint(-left)\n", tmp_path, PYTHON_PATH, "0"]
    return int(subprocess.check_output(command))


def test_on_the_command_line(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=config()) as store:
        put(store, range(100))
        command = [sys.executable, "-m", "rmqstore", "snapshot", tmp_path / "store"]
        done = subprocess.run([*command, tmp_path / "copy"], capture_output=True, check=True)
        again = subprocess.run([*command, tmp_path / "copy"], capture_output=True, check=False)
    said = json.loads(done.stdout)
    assert said["path"] == str(tmp_path / "copy")
    assert done.stderr == b""
    assert check(Snapshot(**said), 100) == 100
    assert (again.returncode, b"is not empty" in again.stderr) == (2, True)
    inside = subprocess.run([*command, tmp_path / "store/in"], capture_output=True, check=False)
    assert inside.returncode == 2
    assert re.fullmatch(rb"rmqstore: DIRECTORY must be outside the store, got .*\n", inside.stderr)
