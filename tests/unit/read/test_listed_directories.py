"""A reader over queues whose directories nobody changes: no listing is made, each change is seen.

A directory is relied on only some seconds after its last change: its times are set here.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from support.serving import wait_until

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=50,
    max_index_num=200,
)
UNITS = 10  # of a queue's file
IN_OPEN = 0x20
LONG_AGO = 1_000_000_000.0
AHEAD = 4_000_000_000.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a closed store of a topic with 25 messages in one queue."""
    path = tmp_path / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        put(store, 25)
    date(path, LONG_AGO)
    return path


def put(store: rmqstore.MessageStore, count: int) -> None:
    for _ in range(count):
        store.put("orders", b"x" * 150, queue_id=0, tags="A")


def directory(root: Path) -> Path:
    return root / "consumequeue/orders/0"


def file_of(root: Path, number: int) -> Path:
    return directory(root) / f"{number * 200:020d}"


def date(root: Path, at: float) -> None:
    if directory(root).exists():
        os.utime(directory(root), (at, at))


def shown(reader: rmqstore.MessageStore) -> dict[str, Any]:
    """Return what a reader shows of the queue, message by message."""
    found: dict[str, Any] = {"bounds": reader.queue_bounds("orders", 0)}
    for at in range(60):
        for tags in (None, "A"):
            try:
                got = reader.get("orders", 0, at, 1, tags=tags)
            except rmqstore.StoreCorruptError as error:
                found[f"{at} {tags}"] = (Path(error.path).name, error.offset)
            else:
                found[f"{at} {tags}"] = (
                    got.status, got.next_offset, got.min_offset, got.max_offset,
                    [message.body for message in got.messages],
                )  # fmt: skip
    return found


def append(root: Path) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        put(store, 2 * UNITS)


def append_in_place(root: Path) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        put(store, 3)


def fill_the_file(root: Path) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        put(store, 5)


def replace(root: Path) -> None:
    """As of another store: the messages of unit 3 on come first."""
    path = file_of(root, 0)
    data = path.read_bytes()
    other = path.with_name("other")
    other.write_bytes(data[60:] + data[:60])
    other.replace(path)


def replace_last(root: Path) -> None:
    path = file_of(root, 2)
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[:40] + bytes(160))
    other.replace(path)


def remove_first(root: Path) -> None:
    min((root / "commitlog").iterdir()).unlink()
    file_of(root, 0).unlink()


def remove_last(root: Path) -> None:
    file_of(root, 2).unlink()


def cut_last(root: Path) -> None:
    os.truncate(file_of(root, 2), 40)


def cut_inside_a_unit(root: Path) -> None:
    """Its tags code is lost, its size is not."""
    os.truncate(file_of(root, 2), 4 * 20 + 12)


def take_back(root: Path) -> None:
    with file_of(root, 2).open("r+b") as file:
        file.seek(20)
        file.write(bytes(180))


def remove_queue(root: Path) -> None:
    shutil.rmtree(directory(root))


def make_again(root: Path) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.delete_topic("orders")
        put(store, 12)


def change_directories(root: Path) -> None:
    """The path leads to another directory, with fewer files, and of the same times."""
    other = root / "consumequeue/orders/other"
    shutil.copytree(directory(root), other)
    (other / file_of(root, 2).name).unlink()
    os.utime(other, (LONG_AGO, LONG_AGO))
    directory(root).rename(root / "consumequeue/orders/aside")
    other.rename(directory(root))


CHANGES = [
    append, append_in_place, fill_the_file, replace, replace_last, remove_first, remove_last,
    cut_last, cut_inside_a_unit, take_back, remove_queue, make_again, change_directories,
]  # fmt: skip


def twin_of(root: Path) -> Path:
    """Copy a store; the queue's directory is dated ahead, so that it is listed every time."""
    twin = root.with_name("twin")
    shutil.copytree(root, twin)
    date(twin, AHEAD)
    return twin


def sees(root: Path, twin: Path, change: Callable[[Path], None], dated: float | None) -> None:
    """Make a change under a reader that knows the queue: it shows what that of the twin shows."""
    with rmqstore.open(root) as reader, rmqstore.open(twin) as listing:
        before = shown(reader)
        assert before == shown(listing)
        change(root)
        if dated is not None:
            date(root, dated)
        change(twin)
        date(twin, AHEAD)
        wait_until(lambda: before != shown(listing) == shown(reader), 10)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("dated", [None, LONG_AGO], ids=["now", "as before"])
def test_a_change_is_seen(root: Path, change: Callable[[Path], None], dated: float | None) -> None:
    sees(root, twin_of(root), change, dated)


@pytest.mark.parametrize("change", [append, replace, remove_first, make_again])
def test_changes_of_a_linked_queue_are_seen(
    root: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Below a link, on another disk perhaps."""
    twin = twin_of(root)
    elsewhere = tmp_path / "elsewhere"
    (root / "consumequeue/orders").rename(elsewhere)
    (root / "consumequeue/orders").symlink_to(elsewhere)
    sees(root, twin, change, None)


class Opened:
    """Whether anybody opened a directory since the last call."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0
        assert libc.inotify_add_watch(self.fd, os.fsencode(path), IN_OPEN) >= 0

    def __call__(self) -> bool:
        try:
            events = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return False
        # A name follows where a file of the directory was opened.
        at, found = 0, False
        while at < len(events):
            length = int.from_bytes(events[at + 12 : at + 16], "little")
            found = found or length == 0
            at += 16 + length
        return found


@pytest.fixture
def opened(root: Path) -> Iterator[Opened]:
    watch = Opened(directory(root))
    yield watch
    os.close(watch.fd)


def lists(reader: rmqstore.MessageStore, opened: Opened) -> None:
    """Wait until reads list the directory."""
    opened()

    def listed() -> bool:
        read_for(reader, 0.01)
        return opened()

    wait_until(listed, 10)


def read_for(reader: rmqstore.MessageStore, seconds: float) -> None:
    """Get in the middle and at the end for longer than a listing is relied on."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert len(reader.get("orders", 0, 12, 1).messages) == 1
        assert reader.get("orders", 0, 25, 1).max_offset >= 25


def test_a_directory_left_alone_is_not_listed_again(root: Path, opened: Opened) -> None:
    with rmqstore.open(root) as reader:
        read_for(reader, 0.15)
        assert opened()
        read_for(reader, 0.5)
        assert not opened()
        (directory(root) / "other").touch()
        lists(reader, opened)


def just_changed(root: Path) -> None:
    """Within one tick of a directory's clock, two changes leave the same times."""
    date(root, AHEAD)


def lacking_a_disk(root: Path) -> None:
    """The directory does not change as a link's target comes."""
    file_of(root, 3).symlink_to(root / "unmounted")
    date(root, LONG_AGO)


def of_many_files(root: Path) -> None:
    """A listing costs less than a check of as many files."""
    for _ in range(3):
        append(root)
    date(root, LONG_AGO)


@pytest.mark.parametrize("change", [just_changed, lacking_a_disk, of_many_files])
def test_a_directory_that_cannot_be_relied_on_is_listed_again(
    root: Path, opened: Opened, change: Callable[[Path], None]
) -> None:
    change(root)
    with rmqstore.open(root) as reader:
        for _ in range(3):
            lists(reader, opened)
