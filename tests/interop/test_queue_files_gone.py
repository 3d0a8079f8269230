"""Queue files that are gone: 4.9.3 starts and shows no message of theirs, ours derives them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from interop.driver import Driver, copy
from support import damaged_store

pytestmark = pytest.mark.long

CONFIG = {
    "mappedFileSizeCommitLog": damaged_store.LOG_SIZE,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
PER_FILE = 20
COUNT = damaged_store.COUNT // 2  # of a queue


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver() as started:
        yield started


def along(driver: Driver) -> tuple[list[int], list[tuple[int, str, int]]]:
    """The queue offsets that pulls get, and where they got none: offset, status, where to go on."""
    found: list[int] = []
    gaps = []
    at = 0
    while at < COUNT:
        got = driver.get("Topic1", 0, at)
        there = [record["queue_offset"] for record in got.records if record is not None]
        found += there
        if not there:
            gaps.append((at, got.status, got.next_offset))
        if got.next_offset <= at:
            break
        at = got.next_offset
    return found, gaps


# What pulls get from the first offset on, minimum and maximum, and where they got nothing.
FIRST, MIDDLE, LAST = range(PER_FILE), range(PER_FILE, 2 * PER_FILE), range(2 * PER_FILE, COUNT)
SHOWN = {
    ("gone", 0): ([*MIDDLE, *LAST], (20, 60), [(0, "OFFSET_TOO_SMALL", 20)]),
    ("gone", 1): ([*FIRST, *LAST], (0, 60), [(20, "OFFSET_FOUND_NULL", 40)]),
    ("gone", 2): ([*FIRST, *MIDDLE], (0, 40), [(40, "OFFSET_OVERFLOW_ONE", 40)]),
    # The queue ends there, with a place that no message has.
    ("zeros", 0): ([], (0, 1), [(0, "FOUND", 1), (1, "OFFSET_OVERFLOW_ONE", 1)]),
    ("zeros", 1): ([*FIRST], (0, 21), [(20, "FOUND", 21), (21, "OFFSET_OVERFLOW_ONE", 21)]),
    ("zeros", 2): (
        [*FIRST, *MIDDLE],
        (0, 41),
        [(40, "FOUND", 41), (41, "OFFSET_OVERFLOW_ONE", 41)],
    ),
}


@pytest.mark.parametrize(("how", "where"), SHOWN)
def test_what_the_real_one_shows(driver: Driver, tmp_path: Path, how: str, where: int) -> None:
    root = damaged_store.make(tmp_path / "store")
    wanted, bounds, nothing = SHOWN[how, where]
    path = root / "consumequeue" / "Topic1" / "0" / f"{where * 400:020d}"
    path.unlink()
    if how == "zeros":
        path.touch()
        os.truncate(path, 400)
    ours = copy(root, tmp_path / "ours")
    for mode in ("r", "r+"):
        with rmqstore.open(ours, mode) as store:  # type: ignore[arg-type]
            assert len(list(store["Topic1"][0])) == COUNT
    opened = driver.open(root, CONFIG)
    assert (opened["load"], opened["start"]) == (True, True)
    assert driver.minmax()["Topic1", 0] == bounds
    assert along(driver) == (wanted, nothing)
    assert driver.shutdown()
    assert driver.open(ours, CONFIG)["start"]
    assert along(driver) == ([*range(COUNT)], [])
    assert driver.shutdown()
