"""What a scan takes of memory, whatever the store's size."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import rmqstore
from crash.checks import output_of

pa = pytest.importorskip("pyarrow")

PATIENCE = 60
# The address sanitizer keeps 256 MiB that were freed: more than what is looked for here.
SANITIZER = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=16"
BODY = 4 << 20
COUNT = 257  # a GiB and more
MOST = 100 << 20
SMALL = 2000
MANY = 100_000

# Scans all of it and says: rows, bytes of bodies, and by how much the peak grew.
LOOK = """
    import re, sys, pyarrow as pa, rmqstore

    def peak():
        # Not ru_maxrss, which begins with what the process that started this one has.
        return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

    rows = size = 0
    with rmqstore.open(sys.argv[1], "r") as store:
        columns = sys.argv[2].split(",")
        next(store.scan(columns=columns, stop=1).to_batches())
        before = peak()
        for batch in store.scan(columns=columns).to_batches():
            rows += batch.num_rows
            size += batch.nbytes
        del batch
        for batch in pa.RecordBatchReader.from_stream(store.scan(columns=columns)):
            rows += batch.num_rows
            size += batch.nbytes
        print(rows, size, peak() - before)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("columns", ["body", "physical_offset,body,raw_body,properties"])
def test_a_gibibyte_is_scanned_in_little_memory(giant: Path, columns: str) -> None:
    began = time.monotonic()
    rows, size, grown = look(giant, columns)
    assert rows == 2 * COUNT
    assert size >= 2 * COUNT * BODY
    assert grown < MOST, f"{grown >> 20} MiB more for {size >> 20} MiB of columns"
    assert time.monotonic() - began < PATIENCE


def test_pages_looked_at_in_place_are_let_go(many: Path) -> None:
    rows, size, grown = look(many, "body")
    assert rows == 2 * MANY
    assert size >= 2 * MANY * SMALL
    assert grown < MANY * SMALL // 3, f"{grown >> 20} MiB more"


def look(root: Path, columns: str) -> list[int]:
    said = output_of(LOOK, root, columns, seconds=PATIENCE, ASAN_OPTIONS=SANITIZER)
    return [int(word) for word in said.split()]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small messages that take more than 200 MiB together."""
    root = tmp_path_factory.mktemp("many") / "store"
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=64 << 20, mapped_file_size_consume_queue=20 * 100_000
    )
    with rmqstore.open(root, "a", config=config) as store:
        for _ in range(MANY // 10_000):
            store.put_many("t", [bytes(SMALL)] * 10_000, queue_id=0)
    return root


@pytest.fixture(scope="module")
def giant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of 4 MiB that take more than a GiB together."""
    root = tmp_path_factory.mktemp("giant") / "store"
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=256 << 20,
        mapped_file_size_consume_queue=20 * 1000,
        max_message_size=BODY + 1000,
    )
    with rmqstore.open(root, "a", config=config) as store:
        for _ in range(COUNT):
            store.put("t", bytes(BODY), queue_id=0)
    return root
