"""Scans of a queue whose file in the middle is missing, cut, or a directory, beside an owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.columns import side_by_side
from support import damaged_store

pytest.importorskip("pyarrow")

UNITS = 20  # of a queue file
COUNT = 100
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=20 * UNITS,
    max_hash_slot_num=50,
    max_index_num=200,
)


@pytest.fixture(params=["missing", "cut", "directory"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A queue whose units 20 to 39 are lost; of a file that is cut, 25 to 39."""
    with rmqstore.open(tmp_path, "a", config=CONFIG) as store:
        store.put_many("t", [b"x" * 500] * COUNT, queue_id=0)
    path = tmp_path / "consumequeue/t/0" / f"{20 * UNITS:020}"
    if request.param == "cut":
        os.truncate(path, 100)
    else:
        path.unlink()
    if request.param == "directory":
        path.mkdir()
    with damaged_store.owned(tmp_path):  # else a reader derives the units from the log
        yield tmp_path


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "PART_BYTES", 4000)
    monkeypatch.setattr(side_by_side, "PART_LEAST", 2000)


def taken(scan: rmqstore.Scan) -> tuple[list[int], rmqstore.StoreCorruptError | None]:
    found: list[int] = []
    try:
        for batch in scan.to_batches():
            found += batch["queue_offset"].to_pylist()
    except rmqstore.StoreCorruptError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("policy", ["raise", "skip", "stop"])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (30, None), (30, 39), (10, 60)])
def test_begin_before_and_inside(
    root: Path, start: int, stop: int | None, policy: Any, threads: int
) -> None:
    present = [n for n in range(COUNT) if not UNITS <= n < 2 * UNITS]
    present = [n for n in present if start <= n < (stop or COUNT)]
    with rmqstore.open(root, config=CONFIG) as store:
        scan = store.scan(
            "t",
            0,
            start=start,
            stop=stop,
            columns=["queue_offset", "body"] if threads == 2 else ["queue_offset"],
            on_corruption=policy,
            batch_rows=5,
            threads=threads,
        )
        found, error = taken(scan)
    if (root / "consumequeue/t/0" / f"{20 * UNITS:020}").is_file():
        found = [n for n in found if not UNITS <= n < UNITS + 5]
    if policy == "skip":
        assert (found, error) == (present, None)
        return
    assert found == [n for n in present if n < UNITS]
    assert (error is not None) == (policy == "raise")
    if error is not None:
        assert f"{20 * UNITS:020}" in str(error)


@pytest.mark.parametrize("policy", ["raise", "skip", "stop"])
def test_times_that_begin_inside(root: Path, policy: Any) -> None:
    """A range of times narrows to log files: units before them are looked for, and missing."""
    with rmqstore.open(root, config=CONFIG) as store:
        times = {message.queue_offset: message.store_timestamp for message in store.scan()}
        found, error = taken(store.scan("t", 0, since=times[0], on_corruption=policy))
    assert (error is not None) == (policy == "raise")
    assert [n for n in found if n < UNITS] == list(range(UNITS))
    assert any(n >= 2 * UNITS for n in found) == (policy == "skip")
