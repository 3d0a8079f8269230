"""Long checks: their progress, and an interrupt, which ends them within a file."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import toolbox
from rmqstore.toolbox.checks import full_check
from rmqstore.toolbox.checks.verify import report_on
from rmqstore.toolbox.copies import backups

CONFIG = rmqstore.StoreConfig.small().replace(max_hash_slot_num=100, max_index_num=400)
FILES = 12


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "s", "a", config=CONFIG) as store:
        for number in range(FILES * 399 // 2 - 50):  # each has its unique key as well
            store.put("orders", b"x" * 100, keys=f"k{number}", queue_id=0)
    assert len(list((tmp_path / "s/index").iterdir())) == FILES
    return tmp_path / "s"


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Interrupt the main thread from a task, and return once it ends a module's pool."""
    started, ending = threading.Event(), threading.Event()

    class Pool(ThreadPoolExecutor):
        def submit(self, *task: Any, **named: Any) -> Future[Any]:
            future = super().submit(*task, **named)
            started.set()  # its thread is known: the end of the pool waits for it
            return future

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            ending.set()
            super().shutdown(wait, cancel_futures=cancel_futures)

    monkeypatch.setattr(full_check, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(backups, "ThreadPoolExecutor", Pool)
    arrived = []

    def once(*_: object) -> None:
        arrived.append(True)
        if len(arrived) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, once)
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        assert started.wait(30)
        for _ in range(600):  # one just before a wait for a result is noticed with the next
            signal.pthread_kill(main, signal.SIGINT)
            if ending.wait(0.1):
                return
        raise AssertionError("the pool does not end")

    yield send
    signal.signal(signal.SIGINT, before)


def test_progress_of_log_and_index(root: Path) -> None:
    seen: list[int] = []
    report = report_on(root, CONFIG, full=True, jobs=1, done=seen.append)
    assert report.clean
    assert report.checked.index_files == FILES
    assert seen[:FILES] == [CONFIG.index_file_bytes * number for number in range(1, FILES + 1)]
    with rmqstore.open(root) as store:
        log = store.recovery.log_end - store.recovery.log_start
    assert seen[-1] - seen[FILES - 1] >= log
    assert seen == sorted(set(seen))


def test_verify_ends_at_the_index_file_it_is_in(
    root: Path, interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []

    def faults(path: str, *_: object, **__: object) -> list[tuple[str, str]]:
        checked.append(path)
        if len(checked) == 1:
            interrupt()
        return []

    monkeypatch.setattr(full_check, "file_faults", faults)
    with pytest.raises(KeyboardInterrupt):
        toolbox.verify(root, config=CONFIG, full=True, jobs=1)
    assert len(checked) == 1


def test_the_check_of_a_backup_ends_in_the_file_it_is_in(
    root: Path, tmp_path: Path, interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(backups, "ThreadPoolExecutor", ThreadPoolExecutor)
        toolbox.backup(root, tmp_path / "copy", config=CONFIG)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(backups, "_PIECE", 1000)
    read = []

    def progressed(done: int, total: int) -> None:
        read.append(done)
        if len(read) == 1:
            interrupt()

    with pytest.raises(KeyboardInterrupt):
        backups.verify_backup(tmp_path / "copy", progressed)
    assert len(read) == 1
