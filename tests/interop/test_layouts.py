"""Logs in several directories, snapshots, and what a transient pool leaves, beside 4.9.3."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from interop import checks
from interop.driver import Driver
from rmqstore import MessageStore, StoreConfig

pytestmark = pytest.mark.long

SIZES = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 4000,
}
OURS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 4000,
}
FILE = SIZES["mappedFileSizeCommitLog"]


def body(i: int) -> bytes:
    return b"%06d" % i + bytes(700)


def ours_puts(store: MessageStore, numbers: range) -> None:
    for i in numbers:
        store.put("t", body(i), keys=[f"k{i}"], queue_id=i % 3)


def theirs_puts(real: Driver, numbers: range) -> None:
    done = real.append(
        [
            {
                "topic": "t",
                "queue_id": i % 3,
                "body": body(i),
                "properties": {"KEYS": f"k{i}", "UNIQ_KEY": f"u{i}"},
            }
            for i in numbers
        ]
    )
    assert {one.status for one in done} == {"PUT_OK"}


def ours_has(store: MessageStore, count: int) -> int:
    found = list(store.scan())
    assert [int(one.body[:6]) for one in found] == list(range(count))
    for i in range(0, count, 7):
        assert [one.body for one in store.query("t", f"k{i}")] == [body(i)]
    assert sum(len(queue) for queue in store["t"].values()) == count
    return count


def theirs_has(real: Driver, count: int) -> int:
    units = real.dump("t", body=True)
    assert sorted(int(unit.record["body"][:6]) for unit in units if unit.record) == list(
        range(count)
    )
    for i in range(0, count, 7):
        # Entries of a record that a recovery met may be there twice.
        assert {record["queue_id"] for record in real.query("t", f"k{i}")} == {i % 3}
    return len(units)


def files(directory: Path) -> list[int]:
    return sorted(int(one.name) // FILE for one in directory.iterdir())


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_several_directories(
    first: str, real: Driver, compared: Callable[[str, int], None], tmp_path: Path
) -> None:
    """Each puts its files where the other would, goes on where the other ended, and finds all."""
    root = tmp_path / "root"
    logs = [tmp_path / name for name in ("z", "b", "a")]
    named = ",".join(map(str, logs))
    theirs = {**SIZES, "storePathCommitLog": named}
    ours = StoreConfig(store_path_commit_log=named, **OURS)
    turns = ["ours", "theirs", "ours", "theirs"][first == "theirs" :][:3]
    have = 0
    for turn in turns:
        if turn == "ours":
            with rmqstore.open(root, "a", config=ours) as store:
                if have:
                    assert store.recovery.clean
                    compared("layouts messages", ours_has(store, have))
                ours_puts(store, range(have, have + 300))
        else:
            opened = real.open(root, theirs)
            assert opened["load"], real.log()
            assert opened["start"]
            if have:
                compared("layouts messages", theirs_has(real, have))
            theirs_puts(real, range(have, have + 300))
            assert real.shutdown()
        have += 300
        with rmqstore.open(root, config=ours) as store:
            compared("layouts messages", ours_has(store, have))
        for place, log in enumerate(sorted(logs)):
            assert all(number % 3 == place for number in files(log))
            compared("layouts log files", len(files(log)))
    assert not (root / "commitlog").exists()


def test_read_only_directories(
    real: Driver, compared: Callable[[str, int], None], tmp_path: Path
) -> None:
    root, old, new = tmp_path / "root", tmp_path / "old", tmp_path / "new"
    old.mkdir()
    theirs = {**SIZES, "storePathCommitLog": f"{old},{old}"}
    assert real.open(root, theirs)["start"]
    theirs_puts(real, range(300))
    assert real.shutdown()
    before = files(old)
    new.mkdir()
    # With one path and no comma 4.9.3 leaves the read-only ones out.
    theirs = {
        **SIZES,
        "storePathCommitLog": f"{new},{old}",
        "readOnlyCommitLogStorePaths": str(old),
    }
    ours = StoreConfig(
        store_path_commit_log=str(new), read_only_commit_log_store_paths=str(old), **OURS
    )
    with rmqstore.open(root, "r+", config=ours) as store:
        compared("layouts messages", ours_has(store, 300))
        ours_puts(store, range(300, 600))
    opened = real.open(root, theirs)
    assert opened["start"], real.log()
    compared("layouts messages", theirs_has(real, 600))
    theirs_puts(real, range(600, 900))
    assert real.shutdown()
    with rmqstore.open(root, config=ours) as store:
        compared("layouts messages", ours_has(store, 900))
    assert files(old)[: len(before)] == before
    assert files(new)


@pytest.mark.parametrize("end", ["closed", "halted"])
def test_what_a_transient_pool_leaves(
    end: str, start: Callable[[], Driver], compared: Callable[[str, int], None], tmp_path: Path
) -> None:
    """What was committed from the pool is there; the rest of the last file is zeros."""
    real = start()
    real.reset()
    root = tmp_path / "root"
    opened = real.open(
        root, {**SIZES, "transientStorePoolEnable": True, "commitIntervalCommitLog": 50}
    )
    assert opened["start"], real.log()
    theirs_puts(real, range(400))
    if end == "closed":
        assert real.shutdown()
    else:
        real.flush()
        theirs_puts(real, range(400, 500))
        real.halt()
    with rmqstore.open(root) as store:
        seen = len(list(store.scan()))
        compared("layouts messages", ours_has(store, seen))
    with rmqstore.open(root, "r+") as store:
        assert store.recovery.clean == (end == "closed")
        compared("layouts messages", ours_has(store, seen))
        assert 400 <= seen <= (400 if end == "closed" else 500)
        ours_puts(store, range(seen, seen + 50))
        compared("layouts messages", ours_has(store, seen + 50))


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_snapshot_opens_there(
    mode: str, real: Driver, compared: Callable[[str, int], None], tmp_path: Path
) -> None:
    """Of a store that is written meanwhile: clean, its files those that 4.9.3 itself would make."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    stop = threading.Event()
    with rmqstore.open(root, "a", config=StoreConfig(**OURS)) as store:
        ours_puts(store, range(1000))

        def write() -> None:
            i = 1000
            while not stop.wait(0.001):
                ours_puts(store, range(i, i + 1))
                i += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            if mode == "r":
                with rmqstore.open(root) as reader:
                    made = reader.snapshot(copy)
            else:
                made = store.snapshot(copy)
        finally:
            stop.set()
            writer.join()
    with rmqstore.open(copy) as reader:
        count = len(list(reader.scan()))
        ours_has(reader, count)
    opened = real.open(copy, SIZES)
    assert opened["load"], real.log()
    assert opened["clean"]
    assert opened["max_phy_offset"] == made.until
    assert opened["behind"] == 0
    compared("layouts messages", theirs_has(real, count))
    theirs_puts(real, range(count, count + 100))
    compared("layouts messages", theirs_has(real, count + 100))
    assert real.shutdown()
    with rmqstore.open(copy, "r+", verify="full") as store:
        compared("layouts messages", ours_has(store, count + 100))
    shutil.rmtree(copy / "consumequeue")
    checks_again = real.open(copy, SIZES)
    assert checks_again["start"]
    assert real.shutdown()


def test_a_snapshot_of_a_broker_s_store(
    real: Driver, compared: Callable[[str, int], None], tmp_path: Path
) -> None:
    """Beside the live owner: what it holds is in the copy, which it opens as its own."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    assert real.open(root, SIZES)["start"]
    theirs_puts(real, range(500))
    with rmqstore.open(root) as store:
        made = store.snapshot(copy)
    theirs_puts(real, range(500, 600))
    assert real.shutdown()
    opened = real.open(copy, SIZES)
    assert opened["load"], real.log()
    assert opened["clean"]
    assert opened["max_phy_offset"] == made.until
    compared("layouts messages", theirs_has(real, 500))
    assert real.shutdown()
    assert checks.files(copy / "index")
