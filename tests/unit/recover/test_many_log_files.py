"""Recovery of a log of more files than are mapped at a time."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import rmqstore
from support import damaged_store

FILES = 5_000
MAPPED = 4_096  # of the log; Linux allows a process 65,530 mappings of all kinds
FILE = 1_024
BLANK = bytes.fromhex("cbd43194")
CONFIG = rmqstore.StoreConfig.small().replace(mapped_file_size_commit_log=FILE)


def mapped_log_files() -> int:
    return (
        Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").count("/commitlog/")
    )


def test_files_are_unmapped_after_an_unclean_exit(tmp_path: Path) -> None:
    """Files that are not forced yet stay mapped: of many, all are forced first."""
    (tmp_path / "commitlog").mkdir()
    for n in range(FILES):
        record = rmqstore.encode_record("t", b"x" * 700, queue_offset=n, physical_offset=n * FILE)
        rest = FILE - len(record)
        blank = rest.to_bytes(4, "big") + BLANK + bytes(rest - 8)
        (tmp_path / "commitlog" / f"{n * FILE:020}").write_bytes(record + blank)
    damaged_store.killed(tmp_path)
    done = Event()
    most = [0]

    def watch() -> None:
        while not done.wait(0.01):
            most.append(mapped_log_files())

    watcher = Thread(target=watch)
    watcher.start()
    try:
        with rmqstore.open(tmp_path, "r+", config=CONFIG) as store:
            assert store.recovery.units_written == FILES
    finally:
        done.set()
        watcher.join()
    assert MAPPED // 2 < max(most) <= MAPPED + 100
