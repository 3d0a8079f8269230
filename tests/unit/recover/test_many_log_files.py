"""Recovery of a log of more files than are mapped at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

import rmqstore
from support import damaged_store

FILES = 6_000
MEMORY = "/dev/shm"
MAPPED = 4_096  # of the log; Linux allows a process 65,530 mappings of all kinds
FILE = 1_024
BLANK = bytes.fromhex("cbd43194")
CONFIG = rmqstore.StoreConfig.small().replace(mapped_file_size_commit_log=FILE)


def mapped_log_files() -> int:
    text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return text.count("/commitlog/")


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory, where as many syncs take no time."""
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as path:
        yield Path(path)


@pytest.mark.slow
def test_files_are_unmapped_after_an_unclean_exit(root: Path) -> None:
    """Files that are not forced yet stay mapped: of many, all are forced first."""
    (root / "commitlog").mkdir()
    for n in range(FILES):
        record = rmqstore.encode_record(
            "t",
            b"x" * 700,
            queue_offset=n,
            physical_offset=n * FILE,
            store_timestamp=1_700_000_000_000 + n,
        )
        rest = FILE - len(record)
        blank = rest.to_bytes(4, "big") + BLANK + bytes(rest - 8)
        (root / "commitlog" / f"{n * FILE:020}").write_bytes(record + blank)
    damaged_store.killed(root)
    done = Event()
    most = [0]

    def watch() -> None:
        while not done.wait(0.01):
            most.append(mapped_log_files())

    watcher = Thread(target=watch)
    watcher.start()
    try:
        with rmqstore.open(root, "r+", config=CONFIG) as store:
            assert store.recovery.units_written == FILES
    finally:
        done.set()
        watcher.join()
    assert MAPPED // 2 < max(most) <= MAPPED + 100
