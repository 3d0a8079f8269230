"""A real file system loses power: ext4 is shut down without its journal, and mounted again."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from crash import writer
from faults.campaign_power import DELETED
from faults.framework import Case, Run, campaign
from faults.model import Model, Named, learn
from faults.power_writer import write
from faults.reopen import check_reopened
from faults.victim import Victim

GOING_DOWN = 0x8004587D  # the ioctl of ext4, XFS and f2fs
NO_LOG_FLUSH = 2
CLONE_NEWNS = 0x20000
WRITE_NOW = 7  # sync_file_range: write these pages, and wait
IMAGE_BYTES = 96 << 20
OPTIONS = ["commit=1", "commit=1,data=writeback", "commit=30"]
_libc = ctypes.CDLL(None, use_errno=True)


def run_command(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.decode().strip()}")


def own_mounts() -> None:
    """What this process mounts goes with it."""
    if _libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    run_command("mount", "--make-rprivate", "/")


@contextlib.contextmanager
def mounted(image: Path, at: Path, options: str) -> Iterator[None]:
    at.mkdir(exist_ok=True)
    run_command("mount", "-o", f"loop,{options}", image, at)
    try:
        yield
    finally:
        run_command("umount", "-l", at)


def shut_down(at: Path) -> None:
    descriptor = os.open(at, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, GOING_DOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


def try_here(case: Case, item: int) -> str:
    """Why this machine cannot do it; empty where it can."""
    try:
        own_mounts()
        image = new_image(case)
        with mounted(image, case.scratch / "mount", OPTIONS[0]):
            shut_down(case.scratch / "mount")
    except OSError as error:
        return str(error)
    return ""


def new_image(case: Case) -> Path:
    image = case.scratch / "image"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    run_command("mkfs.ext4", "-q", "-F", image)
    return image


@campaign("ext4", cases=100, slice=3)
def ext4(run: Run) -> None:
    if os.geteuid() != 0:
        run.not_run("no root")
        return
    (why,) = run.fork(try_here, ["try"], counts=False) or [""]
    if why:
        run.not_run(why)
        return
    run.fork(one_shutdown, range(run.cases), seconds=180)


def one_shutdown(case: Case, number: int) -> None:
    own_mounts()
    image, at = new_image(case), case.scratch / "mount"
    root = at / "made" / "store"
    model = Model(Named({"e~3000~8"}))
    flush = ["ASYNC_FLUSH", "SYNC_FLUSH"][number % 2]
    config = writer.config(flush)
    options = case.draw.choice(OPTIONS)
    seed = case.draw.getrandbits(32)
    with mounted(image, at, options):
        victim = Victim.forked(lambda acks: write(str(root), acks, seed, "e~3000~8", config))
        victim.wait_for_lines(case.draw.choice([20, 200, 800]))
        stop = threading.Event()
        pages = threading.Thread(target=write_pages, args=(at, stop, random.Random(seed)))
        pages.start()
        time.sleep(case.draw.uniform(0, 1.5 if number % 5 == 0 else 0.2))
        said = victim.said_so_far()  # what is said from now on may be on the way already
        shut_down(at)
        stop.set()
        pages.join()
        _, all_said = victim.kill()
    learn(model, said)
    # A deletion that began since then may be on the disk as well.
    later = all_said[said.rfind(b"\n") + 1 :].splitlines(keepends=True)
    learn(model, b"".join(line for line in later if line.startswith(b"deleting ")))
    expected = model if flush == "SYNC_FLUSH" else model.flushed_part()
    expected.gaps = True
    with mounted(image, at, "commit=1"):
        if not any((root / "commitlog").glob("*")):
            if expected.acked:
                case.violation("I1", f"{len(expected.acked)} acknowledged, and there is no log")
            return
        again = case.draw.choice([config, None])
        modes = case.draw.choice([("r", "r+"), ("r+",)])
        check_reopened(
            case, root, expected, config=again, modes=modes, more="after~3000~8", gone=DELETED
        )
    case.note("acknowledged", len(model.acked))


def write_pages(at: Path, stop: threading.Event, draw: random.Random) -> None:
    """Have the system write single pages, in no order, as it does when memory is short."""
    while not stop.wait(0.002):
        with contextlib.suppress(OSError, IndexError):  # directories of deleted topics go away
            files = [path for path in at.rglob("*") if path.name.isdigit() and path.is_file()]
            path = draw.choice(files)
            descriptor = os.open(path, os.O_RDWR)
            try:
                page = draw.randrange(max(1, os.fstat(descriptor).st_size // 4096))
                offset, length = ctypes.c_int64(page * 4096), ctypes.c_int64(4096)
                _libc.sync_file_range(descriptor, offset, length, WRITE_NOW)
            finally:
                os.close(descriptor)
