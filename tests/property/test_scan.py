"""Every scan equals the row-wise reader, over random stores and random arguments."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from support.message_tables import COLUMNS, schema_of, table_of
from support.scan_model import (
    config,
    expected,
    in_range,
    is_one_queue,
    random_arguments,
    random_records,
    read_log,
    write_store,
)

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.property

SCANS = 12  # a store
SLACK = 1024  # of a batch without a row: the ends of its columns
VALUE = 64  # bytes that a scan may count for a value besides its text


def check_batches(
    batches: list[Any], rows_of_all: list[Any], batch_rows: int, batch_bytes: int
) -> None:
    """Full but the last one, none too large, and all of them valid."""
    remaining = iter(rows_of_all)
    for number, batch in enumerate(batches, 1):
        batch.validate(full=True)
        rows = batch.num_rows
        assert 0 < rows <= batch_rows
        assert batch.slice(0, rows - 1).nbytes <= batch_bytes + SLACK
        # What a scan counts of a row may be all properties for each text column, and three bytes
        # for one that is not UTF-8.
        most = sum(
            len(row.body) + max(batch.num_columns, 1) * (VALUE + 3 * row.store_size)
            for row in islice(remaining, rows)
        )
        assert number == len(batches) or rows == batch_rows or most >= batch_bytes


def check_scan(store: Any, log: Sequence[Any], arguments: dict[str, Any]) -> str:
    """Compare one scan with the rows; return the way that it went."""
    rows = expected(log, arguments)
    columns = tuple(arguments.get("columns", COLUMNS))
    scan = store.scan(**arguments)
    table = scan.to_table()
    table.validate(full=True)
    wanted = schema_of(columns)
    assert scan.columns == columns
    assert [(field.name, field.type) for field in scan.schema] == [
        (field.name, field.type) for field in wanted
    ]
    assert table.schema == scan.schema
    assert table.num_rows == len(rows) or not columns
    assert table.to_pylist() == table_of(rows, columns).to_pylist() or not columns
    batches = list(scan.to_batches())
    check_batches(batches, rows, arguments["batch_rows"], arguments.get("batch_bytes", 8 << 20))
    assert sum(batch.num_rows for batch in batches) == len(rows)
    assert pa.Table.from_batches(batches, scan.schema) == table
    stream = pa.table(scan)
    stream.validate(full=True)
    assert stream == table
    assert [message.physical_offset for message in scan] == [row.physical_offset for row in rows]
    assert list(scan) == rows
    scanned = store.stats()["scanned_records"]
    assert scan.count() == len(rows)
    scanned = store.stats()["scanned_records"] - scanned
    return way_of(arguments, scanned, len(in_range(log, arguments)))


def way_of(arguments: dict[str, Any], scanned: int, reach: int) -> str:
    """Which way a scan went, as the records tell that it looked at."""
    if is_one_queue(arguments):
        return "one queue"
    assert scanned <= reach
    if scanned == reach or ("topic" not in arguments and {"since", "until"} & {*arguments}):
        return "log"  # files that have nothing of the times are left out
    assert "topic" in arguments
    return "index" if "keys" in arguments else "queues"


def damage(rng: random.Random, root: Path, kind: str) -> None:
    """Take away what can be told from the log."""
    queues = root / "consumequeue"
    if kind == "no queues":
        shutil.rmtree(queues, ignore_errors=True)
    elif kind == "no index":
        shutil.rmtree(root / "index", ignore_errors=True)
    elif kind == "a topic without queues":
        shutil.rmtree(rng.choice(sorted(queues.glob("*")) or [root / "none"]), ignore_errors=True)
    elif kind == "a queue file gone":
        rng.choice(sorted(queues.glob("*/*/*")) or [root / "none"]).unlink(missing_ok=True)
    elif kind == "an index file gone":
        rng.choice(sorted((root / "index").glob("*")) or [root / "none"]).unlink(missing_ok=True)


WAYS = {"log", "queues", "index", "one queue"}
KINDS = ["whole", "whole", "no queues", "no index", "an index file gone"]
PARTLY = ["a topic without queues", "a queue file gone"]  # of which a queue knows less than the log


def test_random_scans_of_random_stores() -> None:
    ways: Counter[str] = Counter()

    def compare(seed: int, mode: str, kind: int) -> None:
        rng = random.Random(seed)
        chosen = (KINDS + PARTLY * (mode == "r"))[kind % (7 if mode == "r" else 5)]
        with TemporaryDirectory() as root:
            settings = config(rng)
            count, file_size = rng.choice([1, 40, 400, 400]), settings.mapped_file_size_commit_log
            write_store(Path(root), random_records(rng, count, file_size), settings)
            log = read_log(Path(root))
            damage(rng, Path(root), chosen)
            with rmqstore.open(root, mode, config=rng.choice([settings, None])) as store:
                for _ in range(SCANS):
                    one_queue = chosen not in PARTLY
                    arguments = random_arguments(rng, log, one_queue=one_queue)
                    ways[check_scan(store, log, arguments)] += 1

    given(st.integers(0, 2**32), st.sampled_from(["r", "r", "r+"]), st.integers(0, 6))(compare)()
    for seed in range(100):  # with few examples a way may be missing
        if ways.keys() >= WAYS:
            break
        compare(seed, "r", 0)
    assert ways.keys() == WAYS, ways


@pytest.mark.usefixtures("undelivered")
@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("name", ["quickstart", "broker-clean", "broker-killed"])
def test_random_scans_of_a_brokers_store(
    name: str, mode: str, broker_store: Callable, broker_copy: Callable, tmp_path: Path
) -> None:
    root = broker_store(name).root if mode == "r" else broker_copy(name, tmp_path).root
    log = read_log(root)

    @given(st.integers(0, 2**32))
    def compare(seed: int) -> None:
        rng = random.Random(seed)
        check_scan(store, log, random_arguments(rng, log, one_queue=True))

    with rmqstore.open(root, mode) as store:
        compare()
