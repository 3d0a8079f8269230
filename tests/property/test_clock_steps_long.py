"""Ranges of store times in logs above 1 GiB, of which only the first times of files are known."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from property.test_clock_steps import TOPIC, check_queue, consumed, records_of
from support import oracle
from support.scan_model import FIRST_TIME, HOUR

pytestmark = [pytest.mark.property, pytest.mark.long]

FILE_BYTES = 300 << 20
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=FILE_BYTES,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=200,
)
PHYSICAL_OFFSET = 28  # in a record


def write_sparse(root: Path, files: list[list[int]]) -> None:
    """A log of a few records a file with these store times, the rest of each a blank's hole."""
    (root / "commitlog").mkdir(parents=True)
    records = iter(records_of(random.Random(1), [time for file in files for time in file]))
    for number, times in enumerate(files):
        data = bytearray()
        for _ in times:
            record = bytearray(next(records))
            struct.pack_into(">q", record, PHYSICAL_OFFSET, number * FILE_BYTES + len(data))
            data += record
        if number < len(files) - 1:
            data += struct.pack(">ii", FILE_BYTES - len(data), oracle.MAGIC_BLANK)
        with (root / "commitlog" / f"{number * FILE_BYTES:020}").open("wb") as file:
            file.write(data)
            file.truncate(FILE_BYTES)


def drawn(rng: random.Random) -> list[list[int]]:
    """Store times of the files: one leap, of up to an hour, or one that first times show."""
    gaps = rng.choice([[0], [0, 1, 7], [60_000], [0, HOUR // 4]])
    lengths = [rng.randint(1, 12) for _ in range(rng.randint(5, 7))]
    while True:
        times = [FIRST_TIME]
        for _ in range(sum(lengths) - 1):
            times.append(times[-1] + rng.choice(gaps))
        at = rng.randrange(len(times))
        stop = rng.choice([len(times), at + 1, at + 3, at + rng.randint(1, 40)])
        step = rng.choice([0, 5, -5, 60_000, HOUR, -HOUR, 24 * HOUR, -24 * HOUR, 30 * HOUR])
        times[at:stop] = [time + step for time in times[at:stop]]
        files = []
        for length in lengths:
            files.append(times[:length])
            del times[:length]
        if abs(step) <= HOUR or any(b[0] < a[0] for a, b in pairwise(files)):
            return files


def check_range(store: Any, log: list[Any], since: int, until: int) -> None:
    wanted = [one for one in log if since <= one.store_timestamp < until]
    for arguments in ({}, {"topic": TOPIC}):
        assert list(store.scan(**arguments, since=since, until=until)) == wanted
    assert store.scan(since=since).count() == sum(one.store_timestamp >= since for one in log)
    assert store.scan(until=until).count() == sum(one.store_timestamp < until for one in log)
    assert store.query(TOPIC, "k1", begin=since, end=until - 1) == [
        one for one in reversed(wanted) if "k1" in one.keys
    ]


@given(st.integers(0, 2**32), st.sampled_from(["r", "r", "r+"]))
def test_every_range_is_what_each_record_says(seed: int, mode: Any) -> None:
    rng = random.Random(seed)
    files = drawn(rng)
    times = [time for file in files for time in file]
    with TemporaryDirectory() as directory:
        write_sparse(Path(directory), files)
        with rmqstore.open(directory, mode, config=CONFIG) as store:
            log = list(store.scan())
            assert [one.store_timestamp for one in log] == times
            assert log[-1].physical_offset > 1 << 30
            places = sorted({*times, *(time + 1 for time in times), times[0] - 1})
            for _ in range(12):
                since, until = sorted(rng.choices(places, k=2))
                check_range(store, log, since, until)
                for queue_id, queue in store[TOPIC].items():
                    of_queue = [one for one in log if one.queue_id == queue_id]
                    check_queue(queue, of_queue, since)
            late = consumed(store, since)
            assert {one.physical_offset for one in log if one.store_timestamp >= since} <= {*late}


def test_files_beyond_the_margin_are_not_read(tmp_path: Path) -> None:
    """Two hours a file: of a moment in the middle one only its neighbours are read as well."""
    files = [[FIRST_TIME + HOUR * (2 * number + 1)] * 3 for number in range(9)]
    write_sparse(tmp_path, files)
    with rmqstore.open(tmp_path, config=CONFIG) as store:
        scan = store.scan(since=files[4][0], until=files[4][0] + 1)
        start, stop = scan.narrowed(0, 1 << 62)
        assert 3 * FILE_BYTES <= start <= 4 * FILE_BYTES
        assert 5 * FILE_BYTES <= stop <= 6 * FILE_BYTES
        assert scan.count() == 3
