"""Readers beside an owner whose files of a queue come, go and are made again, in any order."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import rmqstore

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=50,
    max_index_num=200,
)
LISTED = 0.12  # seconds after which a reader looks at files again
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 25)),
        st.tuples(st.just("delete topic"), st.just(0)),
        st.tuples(st.just("make again"), st.integers(1, 45)),
        st.tuples(st.just("remove"), st.integers(0, 4)),
        st.tuples(st.just("remove first of the log"), st.integers(1, 3)),
        st.tuples(st.just("set aside"), st.integers(0, 4)),
        st.tuples(st.just("bring back"), st.just(0)),
        st.tuples(st.just("copy over"), st.integers(0, 4)),
        st.tuples(st.just("copy the directory"), st.integers(0, 4)),
        st.tuples(st.just("far file"), st.integers(2, 9)),
    ),
    min_size=1,
    max_size=8,
)


def put(root: Path, count: int, *, again: bool = False) -> None:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        if again and "orders" in store:
            store.delete_topic("orders")
        for number in range(count):
            store.put("orders", b"%d" % number * 60, queue_id=0, tags="A")


class Change:
    """A change of a store's files, by its name and a number."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "consumequeue/orders/0"
        self.aside = root.with_name("aside")
        self.aside.mkdir()

    def __call__(self, name: str, number: int) -> None:
        files = sorted(self.directory.iterdir()) if self.directory.exists() else []
        if name in ("append", "make again"):
            put(self.root, number, again=name == "make again")
        elif name == "delete topic":
            with rmqstore.open(self.root, "a", config=CONFIG) as store:
                if "orders" in store:
                    store.delete_topic("orders")
        elif name == "remove first of the log":
            for path in sorted((self.root / "commitlog").iterdir())[:-1][:number]:
                path.unlink()
        elif name == "bring back":
            for path in self.aside.iterdir():
                if self.directory.exists() and not (self.directory / path.name).exists():
                    path.rename(self.directory / path.name)
        elif files:
            self.change_file(name, files, files[min(number, len(files) - 1)], number)

    def change_file(self, name: str, files: list[Path], path: Path, number: int) -> None:
        if name == "remove":
            path.unlink()
        elif name == "set aside":
            path.replace(self.aside / path.name)
        elif name == "copy over":
            other = self.directory / "other"
            shutil.copy2(path, other)
            other.replace(path)
        elif name == "copy the directory":
            other = self.directory.with_name("other")
            shutil.copytree(self.directory, other)
            (other / path.name).unlink()
            shutil.rmtree(self.directory)
            other.rename(self.directory)
        else:
            far = self.directory / f"{int(files[-1].name) + number * 200:020d}"
            shutil.copy2(path, far)


def shown(reader: rmqstore.MessageStore) -> list[Any]:
    found: list[Any] = []
    for at in range(0, 160, 3):
        try:
            got = reader.get("orders", 0, at, 3)
        except (rmqstore.StoreError, OSError) as error:
            found.append((type(error), str(error)))
        else:
            bodies = [message.body for message in got.messages]
            found.append((got.status, got.next_offset, got.min_offset, got.max_offset, bodies))
    return found


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_a_reader_shows_what_one_that_lists_shows(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "store")
        put(root, 25)
        change = Change(root)
        link = change.directory / f"{200 * 10**9:020d}"
        link.symlink_to("nowhere")
        # A reader that once met a broken link lists each time.
        with rmqstore.open(root) as listing:
            listing.get("orders", 0, 0, 1)
            link.unlink()
            with rmqstore.open(root) as reader:
                for name, number in steps:
                    if number % 2:  # else the reader may not know or not have open all files
                        assert shown(reader) == shown(listing)
                    change(name, number)
                    time.sleep(LISTED)
                    assert shown(reader) == shown(listing), (name, number)
