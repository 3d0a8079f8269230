"""Reading by store time along queues where clocks were set: the rows of a scan."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import rmqstore
from support import oracle
from support.scan_model import FIRST_TIME, write_store
from support.source_model import read_back, same_rows

pytestmark = pytest.mark.spark

HOUR = 3_600_000
COUNT = 300
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=200,
)
COLUMNS = ["queue_id", "queue_offset", "store_timestamp"]
STEPS = {
    "back in the middle": [(100, 200, -HOUR)],
    "back for good": [(150, COUNT, -HOUR)],
    "ahead for three": [(80, 83, 24 * HOUR)],
    "ahead and back": [(50, 90, 30 * HOUR), (200, COUNT, -24 * HOUR)],
    "never set": [],
}


def make(root: Path, steps: Sequence[tuple[int, int, int]]) -> list[int]:
    """A store of two queues, a message more a second; return the store times."""
    times = [FIRST_TIME + 1000 * number for number in range(COUNT)]
    for start, stop, step in steps:
        times[start:stop] = [time + step for time in times[start:stop]]
    records = [
        oracle.encode_record(
            "orders", b"b" * 50, queue_id=n % 2, queue_offset=n // 2, store_timestamp=time
        )
        for n, time in enumerate(times)
    ]
    write_store(root, records, CONFIG)
    return times


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_times_of_a_clock_that_was_set(tmp_path: Path, steps: list[tuple[int, int, int]]) -> None:
    times = make(tmp_path / "store", steps)
    rng = random.Random(len(steps))
    with rmqstore.open(tmp_path / "store") as store:
        rows = store.scan(columns=COLUMNS).to_table().to_pylist()
    for _ in range(6):
        since, until = sorted(rng.choice(times) + rng.choice([-1, 0, 1]) for _ in range(2))
        wanted = [row for row in rows if row["store_timestamp"].timestamp() * 1000 < until]
        options = {"path": tmp_path / "store", "consumeUntilTimestamp": until}
        same_rows(read_back(options, columns=COLUMNS), wanted)
        wanted = [row for row in wanted if row["store_timestamp"].timestamp() * 1000 >= since]
        options |= {"consumeFromTimestamp": since, "onNoTimestampMatch": "last"}
        same_rows(read_back(options, columns=COLUMNS), wanted)


def test_times_of_one_queue(tmp_path: Path) -> None:
    make(tmp_path / "store", STEPS["back in the middle"])
    until = FIRST_TIME + 50_000
    per_queue = json.dumps({"orders": {"1": until}})
    found = read_back(
        {"path": tmp_path / "store", "consumeUntilTimestamp": per_queue}, columns=COLUMNS
    )
    by_queue = [[row["queue_offset"] for row in found if row["queue_id"] == n] for n in (0, 1)]
    assert sorted(by_queue[0]) == list(range(150))
    assert sorted(by_queue[1]) == [*range(25), *range(50, 100)]
