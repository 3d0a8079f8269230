"""A reader over queues whose files are as it listed them: no listing is made, each change is seen.

It is compared with a reader that lists each time, as one does that once met a broken link.
"""

from __future__ import annotations

import contextlib
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
from support.unprivileged import run_unprivileged

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=50,
    max_index_num=200,
)
UNITS = 10  # of a queue's file
LISTED = 0.12  # seconds after which a reader looks at files again
IN_OPEN = 0x20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a closed store of a topic with 25 messages in one queue."""
    path = tmp_path / "store"
    append(path, 25)
    return path


def append(root: Path, count: int) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        put(store, count)


def put(store: rmqstore.MessageStore, count: int) -> None:
    for number in range(count):
        store.put("orders", b"%d" % number * 60, queue_id=0, tags="A")


def directory(root: Path) -> Path:
    return root / "consumequeue/orders/0"


def file_of(root: Path, number: int) -> Path:
    return directory(root) / f"{number * 200:020d}"


@contextlib.contextmanager
def listing(root: Path) -> Iterator[rmqstore.MessageStore]:
    """Open a reader that lists the queue's files each time."""
    link = file_of(root, 10**9)
    link.symlink_to("nowhere")
    with rmqstore.open(root) as reader:
        reader.get("orders", 0, 0, 1)
        link.unlink()
        yield reader


def shown(reader: rmqstore.MessageStore) -> dict[str, Any]:
    """Return what a reader shows of the queue, message by message."""
    found: dict[str, Any] = {}
    for at in range(60):
        for tags in (None, "A"):
            try:
                got = reader.get("orders", 0, at, 1, tags=tags)
            except (rmqstore.StoreCorruptError, OSError) as error:
                found[f"{at} {tags}"] = (type(error), str(error))
            else:
                found[f"{at} {tags}"] = (
                    got.status, got.next_offset, got.min_offset, got.max_offset,
                    [message.body for message in got.messages],
                )  # fmt: skip
    found["bounds"] = reader.queue_bounds("orders", 0)
    return found


def append_in_place(root: Path) -> None:
    append(root, 3)


def fill_the_file(root: Path) -> None:
    append(root, 5)


def fill_and_roll(root: Path) -> None:
    append(root, 2 * UNITS)


def replace_by_a_copy(root: Path) -> None:
    other = directory(root) / "other"
    shutil.copy2(file_of(root, 0), other)
    other.replace(file_of(root, 0))


def replace(root: Path) -> None:
    """As of another store: the messages of unit 3 on come first."""
    data = file_of(root, 0).read_bytes()
    other = directory(root) / "other"
    other.write_bytes(data[60:] + data[:60])
    other.replace(file_of(root, 0))


def replace_last(root: Path) -> None:
    other = directory(root) / "other"
    other.write_bytes(file_of(root, 2).read_bytes()[:40] + bytes(160))
    other.replace(file_of(root, 2))


def remove_first(root: Path) -> None:
    min((root / "commitlog").iterdir()).unlink()
    file_of(root, 0).unlink()


def remove_between(root: Path) -> None:
    file_of(root, 1).unlink()


def remove_last(root: Path) -> None:
    file_of(root, 2).unlink()


def cut_last(root: Path) -> None:
    os.truncate(file_of(root, 2), 40)


def cut_inside_a_unit(root: Path) -> None:
    os.truncate(file_of(root, 2), 4 * 20 + 12)


def take_back(root: Path) -> None:
    with file_of(root, 2).open("r+b") as file:
        file.seek(20)
        file.write(bytes(180))


def take_back_into_the_file_before(root: Path) -> None:
    file_of(root, 2).write_bytes(bytes(200))
    with file_of(root, 1).open("r+b") as file:
        file.seek(60)
        file.write(bytes(140))


def remove_queue(root: Path) -> None:
    shutil.rmtree(directory(root))


def delete_topic(root: Path) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.delete_topic("orders")


def make_again(root: Path) -> None:
    """With the names of before, and one message less."""
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.delete_topic("orders")
        put(store, 24)


def make_again_the_same(root: Path) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.delete_topic("orders")
        put(store, 25)


def make_again_longer(root: Path) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.delete_topic("orders")
        put(store, 47)


def other_directory(root: Path) -> None:
    """The path leads to another directory, of one file less."""
    other = root / "consumequeue/orders/other"
    shutil.copytree(directory(root), other)
    (other / file_of(root, 2).name).unlink()
    directory(root).rename(root / "aside")
    other.rename(directory(root))


def link_to_the_last(root: Path) -> None:
    file_of(root, 2).rename(root / "elsewhere")
    file_of(root, 2).symlink_to(root / "elsewhere")


def directory_for_a_file(root: Path) -> None:
    file_of(root, 2).unlink()
    file_of(root, 2).mkdir()


CHANGES = [
    append_in_place, fill_the_file, fill_and_roll, replace_by_a_copy, replace, replace_last,
    remove_first, remove_between, remove_last, cut_last, cut_inside_a_unit, take_back,
    take_back_into_the_file_before, remove_queue, delete_topic, make_again, make_again_the_same,
    make_again_longer, other_directory, link_to_the_last, directory_for_a_file,
]  # fmt: skip


@pytest.mark.parametrize("read", ["all", "none"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen(root: Path, change: Callable[[Path], None], read: str) -> None:
    """Whether the reader has the files open or not."""
    with listing(root) as listed, rmqstore.open(root) as reader:
        if read == "all":
            assert shown(reader) == shown(listed)
        change(root)
        time.sleep(LISTED)
        assert shown(reader) == shown(listed)


@pytest.mark.parametrize("change", [fill_and_roll, replace, remove_first, make_again])
def test_changes_of_a_linked_queue_are_seen(
    root: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Below a link, on another disk perhaps."""
    (root / "consumequeue/orders").rename(tmp_path / "elsewhere")
    (root / "consumequeue/orders").symlink_to(tmp_path / "elsewhere")
    with listing(root) as listed, rmqstore.open(root) as reader:
        assert shown(reader) == shown(listed)
        change(root)
        time.sleep(LISTED)
        assert shown(reader) == shown(listed)


@pytest.mark.parametrize("number", [0, 2], ids=["before the first", "after the last"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_that_comes_back_is_seen(root: Path, number: int, linked: bool) -> None:
    """Restored from a backup, or by the mount of the disk that a link leads to."""
    with listing(root) as listed, rmqstore.open(root) as reader:
        whole = shown(reader)
        file_of(root, number).rename(root / "kept")
        time.sleep(LISTED)
        lacking = shown(reader)
        assert whole != lacking == shown(listed)
        if linked:
            file_of(root, number).symlink_to(root / "mounted")
            time.sleep(LISTED)
            assert shown(reader) == lacking
            (root / "kept").rename(root / "mounted")
        else:
            (root / "kept").rename(file_of(root, number))
        time.sleep(LISTED)
        assert shown(reader) == shown(listed) == whole


def test_a_file_behind_a_gap_is_seen(root: Path) -> None:
    """Where nobody looks for one: by the next listing."""
    with listing(root) as listed, rmqstore.open(root) as reader:
        for number in (1, 2):
            file_of(root, number).rename(root / f"kept-{number}")
        time.sleep(LISTED)
        before = shown(reader)
        assert before == shown(listed)
        (root / "kept-2").rename(file_of(root, 2))
        wait_until(lambda: before != shown(listed) == shown(reader), 10)


def test_a_file_made_before_it_is_used(root: Path) -> None:
    """Of zeros: the end stays in the file before it, and then moves into it."""
    append(root, 5)
    file_of(root, 3).write_bytes(bytes(200))
    with listing(root) as listed, rmqstore.open(root) as reader:
        assert shown(reader) == shown(listed)
        append(root, 7)
        time.sleep(LISTED)
        assert shown(reader) == shown(listed)
        assert reader.queue_bounds("orders", 0) == (0, 37)


SHUT = """
import os, sys, time, rmqstore
root, path, mode = sys.argv[1], sys.argv[2], int(sys.argv[3], 8)
def count():
    time.sleep(0.12)
    try:
        return len(reader.get("orders", 0, 0, 25).messages)
    except PermissionError as error:
        return os.path.relpath(error.filename, root)
with rmqstore.open(root) as reader:
    print(count())
    os.chmod(path, mode)
    until = time.monotonic() + 10
    while count() == 25 and time.monotonic() < until:
        pass
    print(*{count() for _ in range(4)})
    os.chmod(path, 0o755)
    print(count())
"""


@pytest.mark.parametrize(("below", "mode"), [("", "0"), ("", "400"), ("0", "0"), ("0", "100")])
def test_a_directory_that_may_not_be_read(root: Path, below: str, mode: str) -> None:
    """An error, at once or from the next listing on, until it may be read again."""
    path = root / "consumequeue/orders" / below
    done = run_unprivileged("-c", SHUT, root, path, mode)
    assert done.stdout.split() == ["25", "consumequeue/orders/0", "25"], done.stderr
    assert (done.returncode, done.stderr) == (0, "")


class Opened:
    """How often anybody opened a directory since the last call."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0
        assert libc.inotify_add_watch(self.fd, os.fsencode(path), IN_OPEN) >= 0

    def __call__(self) -> int:
        at, found = 0, 0
        with contextlib.suppress(BlockingIOError):
            events = os.read(self.fd, 1 << 16)
            while at < len(events):
                length = int.from_bytes(events[at + 12 : at + 16], "little")
                found += length == 0  # a name follows where a file of the directory was opened
                at += 16 + length
        return found


@pytest.fixture
def opened(root: Path) -> Iterator[Opened]:
    watch = Opened(directory(root))
    yield watch
    os.close(watch.fd)


def test_a_directory_left_alone_is_listed_every_two_seconds(root: Path, opened: Opened) -> None:
    with rmqstore.open(root) as reader:
        opened()
        began = time.monotonic()
        while time.monotonic() < began + 1:
            assert len(reader.get("orders", 0, 12, 1).messages) == 1
            assert reader.get("orders", 0, 25, 1).max_offset == 25
        assert opened() <= 1 + (time.monotonic() - began) / 2


def with_a_gap(root: Path) -> None:
    append(root, 30)
    for number in (3, 4):
        file_of(root, number).unlink()


def with_a_broken_link(root: Path) -> None:
    file_of(root, 10**6).symlink_to(root / "unmounted")


def of_many_files(root: Path) -> None:
    append(root, 30)


@pytest.mark.parametrize("change", [with_a_gap, with_a_broken_link, of_many_files])
def test_what_names_cannot_tell_is_listed_each_time(
    root: Path, opened: Opened, change: Callable[[Path], None]
) -> None:
    change(root)
    with rmqstore.open(root) as reader:
        opened()
        for _ in range(5):
            time.sleep(LISTED)
            reader.get("orders", 0, 12, 1)
            assert opened()
