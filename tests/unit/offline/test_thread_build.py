"""``ThreadBuild``: ranges that end in any order give the index files that the store made."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import offline
from rmqstore.offline import thread_build
from rmqstore.offline.ranges import LogPlan
from rmqstore.offline.thread_build import ThreadBuild
from rmqstore.offline.walk import LogWalk
from rmqstore.toolbox.repairs.derived import build_into
from support import scan_model
from support.file_contents import files_of


def planned(root: Path, seed: int) -> tuple[offline.LogPlan, random.Random]:
    """Write a store with several index files; return the plan of its log."""
    rng = random.Random(seed)
    config = scan_model.config(rng).replace(max_hash_slot_num=50, max_index_num=100)
    records = scan_model.random_records(rng, 400, config.mapped_file_size_commit_log)
    scan_model.write_store(root, records, config)
    return offline.plan_log(root, config, range_bytes=20_000), rng


@pytest.mark.parametrize("seed", range(6))
def test_ranges_that_end_in_any_order(tmp_path: Path, seed: int) -> None:
    plan, rng = planned(tmp_path / "store", seed)
    build = ThreadBuild(plan, str(tmp_path / "made"))
    build.create()
    numbers = list(range(plan.count))
    rng.shuffle(numbers)
    reports = sorted(map(build.scan, numbers), key=lambda one: one.number)
    totals = build.finish(reports, list(map(build.run, build.steps(reports))))
    assert totals.index_files == len(list((tmp_path / "store/index").iterdir())) > 1
    assert files_of(tmp_path / "made") == files_of(tmp_path / "store")


@pytest.mark.parametrize("most", [0, 500])
def test_ranges_wait_where_no_more_keys_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(thread_build, "_KEPT_MOST", most)
    plan, _ = planned(tmp_path / "store", most)
    (tmp_path / "made").mkdir()
    build_into(plan, tmp_path / "made", 4)
    assert files_of(tmp_path / "made") == files_of(tmp_path / "store")


def test_none_waits_for_a_range_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = LogPlan.walk

    def failing(self: LogPlan, number: int) -> LogWalk:
        if number == 1:
            raise OSError("unreadable")
        return walk(self, number)

    monkeypatch.setattr(LogPlan, "walk", failing)
    assert failed_ranges(tmp_path, monkeypatch) == [1]


def test_none_waits_where_kept_keys_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise OSError("full")

    monkeypatch.setattr(thread_build, "open_index_part", failing)
    monkeypatch.setattr(thread_build, "_KEPT_MOST", 1)
    index = thread_build.IndexWriter(tmp_path, rmqstore.StoreConfig())
    entry = memoryview(bytes(offline.ENTRY_BYTES))
    index.put(1, entry)
    with pytest.raises(OSError, match="full"):
        index.end(0)
    others = threading.Thread(
        target=lambda: [index.put(number, entry) for number in (2, 3, 4)], daemon=True
    )
    others.start()
    others.join(60)
    assert not others.is_alive()


def failed_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Scan all ranges by threads that keep no keys; return the numbers of those that failed."""
    monkeypatch.setattr(thread_build, "_KEPT_MOST", 0)
    plan, _ = planned(tmp_path / "store", 0)
    build = ThreadBuild(plan, str(tmp_path / "made"))
    build.create()
    with ThreadPoolExecutor(4) as pool:
        reports = [pool.submit(build.scan, number) for number in range(plan.count)]
    assert plan.count > 4
    return [number for number, one in enumerate(reports) if one.exception() is not None]
