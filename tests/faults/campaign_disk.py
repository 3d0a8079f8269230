"""Full disks: under log, queues or index, each a file system of its own; and space again."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rmqstore
from crash import writer
from faults import invariants
from faults.framework import WAITING, Case, Run, campaign
from faults.model import Model, Named, learn
from faults.reopen import Telling, check_reopened
from rmqstore import PutError, PutStatus

PARTS = {"log": "commitlog", "queues": "consumequeue", "index": "index"}
ENDS = ["killed while full", "goes on", "closed while full", "goes on"]
SIZE = 8 << 20
ROOM = {"log": 1400 << 10, "queues": 48 << 10, "index": 100 << 10}  # before it is full
CONFIG = {
    "mapped_file_size_commit_log": 512 << 10,
    "mapped_file_size_consume_queue": 800,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
_CLONE_NEWNS = 0x20000
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
PAGE = 4096
ERRORS = 10  # puts that are refused before it counts as full
RESUME = 10  # seconds
LIMIT = 40
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def may_mount() -> str:
    """Why nothing can be mounted here; "" if it can."""
    if os.geteuid() != 0:
        return "only root can mount"
    for program in ("mount", "umount", "mkfs.ext4"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return ""


def own_mounts() -> bool:
    """From now on what this process mounts is its own, and gone when it ends."""
    if _libc.unshare(_CLONE_NEWNS) != 0:
        return False
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    return done.returncode == 0


def mount(*arguments: object) -> bool:
    command = ["mount", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Disk:
    """A small file system that holds one part of a store, and a ballast beside it."""

    def __init__(self, scratch: Path, kind: str, part: str, root: Path) -> None:
        self.top = scratch / "disk"
        self.top.mkdir()
        if kind == "tmpfs":
            self.mounted = mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", self.top)
        else:
            image = scratch / "image"
            with image.open("wb") as file:
                file.truncate(SIZE)
            command = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", str(image)]
            made = subprocess.run(command, capture_output=True, check=False).returncode == 0
            self.mounted = made and mount("-o", "loop", image, self.top)
        if not self.mounted:
            return
        (self.top / "part").mkdir()
        self.ballast = self.top / "ballast"
        with self.ballast.open("wb") as file:
            status = os.fstatvfs(file.fileno())
            free = status.f_bavail * status.f_bsize
            os.posix_fallocate(file.fileno(), 0, free - ROOM[part])
        target = root / PARTS[part]
        target.mkdir(parents=True)
        self.mounted = mount("--bind", self.top / "part", target)

    def free(self) -> None:
        self.ballast.unlink()

    def fill(self) -> None:
        """Not a byte is left."""
        with (self.top / "rest").open("ab", buffering=0) as file:
            for piece in (1 << 16, 512):
                try:
                    while True:
                        file.write(bytes(piece))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise


def be_like_a_brokers(root: Path) -> None:
    """No block that was never written to, and no checkpoint: so it is where a broker was killed."""
    (root / "checkpoint").unlink(missing_ok=True)
    for path in (root / "commitlog").iterdir():
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            for at in range(0, size, PAGE):
                if not any(os.pread(file.fileno(), PAGE, at)):
                    _libc.fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, at, PAGE)


class Filler:
    """One thread of puts until the disk is full, and on when it is not any more."""

    def __init__(self, case: Case, store: Any, out: int, prefix: str) -> None:
        self.case = case
        self.store = store
        self.work = writer.Writer(store, out, 0, prefix)
        self.prefix = prefix
        self.number = 0

    def put(self) -> PutError | None:
        self.number += 8
        names = [f"{self.prefix}.{self.number + i}" for i in range(8)]
        draw = random.Random(f"{self.case.name} {self.number}")
        try:
            self.work.write_once(draw, names)
        except PutError as error:
            return error
        return None

    def until_full(self) -> int:
        """Put until so many are refused; how many calls were not."""
        refused = passed = 0
        until = time.monotonic() + LIMIT / 3
        while refused < ERRORS and time.monotonic() < until:
            error = self.put()
            if error is None:
                passed += 1
                continue
            refused += 1
            if error.status != PutStatus.DISK_FULL or error.errno != errno.ENOSPC:
                self.case.violation("error", f"{error.status!r} {error.errno}: {error}")
        if refused < ERRORS:
            self.case.violation("error", f"{passed} puts, and the disk was never full")
        return passed

    def until_resumed(self) -> None:
        until = time.monotonic() + RESUME
        while (error := self.put()) is not None:
            if time.monotonic() > until:
                self.case.violation("hung", f"space is free for {RESUME} s: {error}")
                return
            time.sleep(0.02)
        for _ in range(20):
            if error := self.put():
                self.case.violation("error", f"refused again with space free: {error}")
                return


@contextlib.contextmanager
def disk_under(case: Case, kind: str, part: str, root: Path) -> Iterator[Disk | None]:
    """A small disk below a part of a new store; None and a note where there can be none."""
    root.mkdir()
    if not own_mounts():
        case.note("not run: no mounts of its own")
        yield None
        return
    disk = Disk(case.scratch, kind, part, root)
    if not disk.mounted:
        case.note(f"not run: no {kind}")
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", root / PARTS[part], disk.top], check=False)


def one_disk(case: Case, item: str) -> None:
    part, kind, number = item.split("-")
    root = case.scratch / "store"
    with disk_under(case, kind, part, root) as disk:
        if disk is not None:
            fill_and_open(case, disk, root, part, kind, int(number))


def fill_and_open(case: Case, disk: Disk, root: Path, part: str, kind: str, number: int) -> None:
    flush = case.draw.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    end = ENDS[(number + list(PARTS).index(part)) % len(ENDS)]
    model = Model(Named({"d", "e", "after"}))
    told = case.scratch / "told"
    config = rmqstore.StoreConfig(**CONFIG, **writer.FAST, flush_disk_type=flush)
    name = f"{part} on {kind}, {flush}, {end}"

    def tell(kind: str, text: str) -> None:
        case.violation(kind, f"{name}: {text}")

    status = fill_in_child(case, root, told, config, disk, goes_on=end == "goes on", end=end)
    expected = -signal.SIGKILL if end == "killed while full" else 0
    if status != expected:
        tell("died", f"exit status {status}")
    learn(model, told.read_bytes())
    if not model.acked:
        tell("error", "nothing was put at all")
    named = Telling(case, tell)
    settings = case.draw.choice([config, None])
    if end == "killed while full" and number % 8 < 6:
        be_like_a_brokers(root)
        disk.fill()
    if end != "goes on":
        open_full(named, root, settings, model)
        disk.free()
    check_reopened(named, root, model, config=settings)


def fill_in_child(
    case: Case, root: Path, told: Path, config: Any, disk: Disk, *, goes_on: bool, end: str
) -> int:
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIMIT)
            out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            store = rmqstore.open(root, "a", config=config)
            filler = Filler(case, store, out, "d")
            filler.until_full()
            if end == "killed while full":
                disk.fill()
                os.kill(os.getpid(), signal.SIGKILL)
            if goes_on:
                disk.free()
                filler.until_resumed()
                model = Model(Named({"d"}))
                learn(model, told.read_bytes())
                invariants.check(store, model, case.violation, where="before it is closed")
                store.close()
            else:
                disk.fill()
                try:
                    store.close()
                except (OSError, rmqstore.StoreError) as error:
                    case.note(f"closing on a full disk raised {type(error).__name__}")
            os._exit(0)
        except BaseException as error:
            case.violation("error", repr(error))
            raise
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def open_full(case: Telling, root: Path, config: Any, model: Model) -> None:
    """A full disk keeps nobody from opening the store, and puts wait for space."""
    with rmqstore.open(root, "r", config=config) as store:
        invariants.check(store, model, case.violation, where='"r" on a full disk')
    try:
        store = rmqstore.open(root, "r+", config=config)
    except (OSError, rmqstore.StoreError) as error:
        case.violation("refused", f'"r+" on a full disk: {error!r}')
        return
    invariants.check(
        store, model, case.violation, where='"r+" on a full disk', losses=False, each_key=0
    )
    try:
        store.close()
    except OSError as error:  # what is missing in queues and index is made by the next opening
        if error.errno != errno.ENOSPC or not str(error.filename).startswith(str(root)):
            case.violation("error", f'"r+" on a full disk, at close: {error!r}')


@campaign("disk-full", cases=60, slice=6, theirs=True)
def disk_full(run: Run) -> None:
    """Under each part of the store; it goes on without a restart, or is opened full."""
    logging.disable(logging.CRITICAL)
    if reason := may_mount():
        run.not_run(reason)
        run.not_run(reason, "theirs")
        return
    names = [
        f"{part}-{kind}-{number}"
        for number in range(run.cases)
        for part in PARTS
        for kind in [("tmpfs", "ext4")[number % 2]]
    ]
    if run.wants("ours"):
        some = names[: run.cases]
        run.fork(one_disk, some, seconds=6 * LIMIT, jobs=WAITING * run.jobs)
    if run.wants("theirs"):
        from faults.their_disks import one_disk as one_of_theirs

        some = names[: run.number(6, 1)]
        jobs = WAITING * run.jobs
        run.fork(one_of_theirs, some, column="theirs", seconds=2 * LIMIT, jobs=jobs)
