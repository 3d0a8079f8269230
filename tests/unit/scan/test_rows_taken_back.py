"""A row whose record changed after it was added is removed, and comes once more, as if never there.

In the faults build each row can be made such a one.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import rmqstore
from rmqstore.columns.scan import COLUMNS
from support import scan_model

pytestmark = pytest.mark.needs_debug_build

ALL = (*COLUMNS, "raw_body")
TIMES = ["row-changed:1:1+", "row-changed:1:1", "row-changed:7:1", "row-changed:50:1+"]


def tables(path, **asked):
    with rmqstore.open(path) as store:
        scans = [store.scan(columns=ALL, batch_rows=rows, **asked) for rows in (1000, 3)]
        return [list(scan.to_batches()) for scan in scans]


@pytest.fixture(params=range(4))
def path(tmp_path, request):
    rng = random.Random(request.param)
    config = scan_model.config(rng)
    records = scan_model.random_records(rng, 150, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path / "store", records, config)
    return tmp_path / "store"


@pytest.mark.parametrize("when", TIMES)
def test_columns(path, monkeypatch, when):
    wanted = tables(path)
    monkeypatch.setenv("RMQ_FAIL_AT", when)
    found = tables(path)
    for before, after in zip(wanted, found, strict=True):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            other.validate(full=True)
            assert one.equals(other)
            for name in ALL:
                assert one[name].null_count == other[name].null_count, name
    assert pa.Table.from_batches(found[0]).num_rows > 50


@pytest.mark.parametrize("name", ALL)
def test_a_column_by_itself(path, monkeypatch, name):
    with rmqstore.open(path) as store:
        wanted = store.scan(columns=[name]).to_table()
        monkeypatch.setenv("RMQ_FAIL_AT", TIMES[0])
        assert store.scan(columns=[name]).to_table().equals(wanted)


@pytest.mark.parametrize("when", TIMES)
def test_messages(path, monkeypatch, when):
    with rmqstore.open(path) as store:
        wanted = [(m.physical_offset, bytes(m.raw_body)) for m in store.scan()]
        monkeypatch.setenv("RMQ_FAIL_AT", when)
        assert [(m.physical_offset, bytes(m.raw_body)) for m in store.scan()] == wanted
