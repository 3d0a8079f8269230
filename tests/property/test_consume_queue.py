"""The consume queue's files against the slow codec, to the byte."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rmqstore
from support import oracle, oracle_store
from support.strategies import INT32, INT64

pytestmark = pytest.mark.property

codes = st.integers(-INT32 - 1, INT32) | st.integers(1_700_000_000_000, 1_800_000_000_000)
rows = st.lists(
    st.tuples(st.integers(0, 1 << 40), st.integers(91, 4 << 20), codes), min_size=1, max_size=40
)
units_a_file = st.integers(1, 8)
starts = st.sampled_from([0, 1, 2, 7, 8, 9]) | st.integers(0, 1000)


def as_units(rows):
    """Units as a log gives them: each record lies behind the one before."""
    at = 0
    for gap, size, code in rows:
        at += gap
        yield at, size, code
        at += size


def expected_files(start, units, file_size):
    """Name to bytes of the files that a queue has whose first unit is number ``start``."""
    first = start * 20 // file_size * file_size
    data = b"".join(
        oracle.pack_unit(*unit) for unit in [*[oracle.FILLER_UNIT] * (start - first // 20), *units]
    )
    files = {}
    for at in range(0, len(data), file_size):
        files[f"{first + at:020}"] = data[at : at + file_size].ljust(file_size, b"\0")
    return files


def assert_files(directory, start, units, file_size):
    expected = expected_files(start, units, file_size)
    found = {path.name: path.read_bytes() for path in Path(directory).iterdir()}
    for name, data in expected.items():
        assert found[name] == data, name
    for name in found.keys() - expected.keys():  # made ahead, at most one
        assert name == f"{int(max(expected)) + file_size:020}"
        assert found[name] == bytes(file_size)
    queue = oracle_store.read_queue(directory)
    assert (queue.min_offset, list(queue)) == (start, units)


@given(rows, units_a_file, starts)
@example([(0, 91, 0)], 1, 0)
@example([(0, 91, -1)] * 8, 4, 3)
def test_units_and_bytes(rows, per_file, start):
    units = list(as_units(rows))
    with TemporaryDirectory() as directory:
        queue = rmqstore.ConsumeQueue(directory, file_size=20 * per_file, mode="a")
        for number, unit in enumerate(units, start):
            assert queue.put_unit(*unit, number) is True
            assert queue.max_offset == number + 1
        assert queue.min_offset == start
        assert queue.units(start, start + len(units)).tolist() == units
        queue.flush()
        queue.close()
        queue.close()
        assert_files(directory, start, units, 20 * per_file)

        reader = rmqstore.ConsumeQueue(directory, file_size=20 * per_file)
        assert (reader.min_offset, reader.max_offset) == (start, start + len(units))
        assert reader.units(start, start + len(units)).tolist() == units
        reader.close()
        assert_files(directory, start, units, 20 * per_file)


@given(rows, units_a_file, starts, st.data())
def test_every_range(rows, per_file, start, data):
    units = list(as_units(rows))
    with TemporaryDirectory() as directory:
        queue = rmqstore.ConsumeQueue(directory, file_size=20 * per_file, mode="a")
        for number, unit in enumerate(units, start):
            queue.put_unit(*unit, number)
        low = data.draw(st.integers(0, len(units)))
        high = data.draw(st.integers(low, len(units)))
        found = queue.units(start + low, start + high)
        assert found.tolist() == units[low:high]
        assert found.dtype.itemsize == 20
        assert list(found.dtype.names) == ["physical_offset", "size", "tags_code"]
        queue.close()


@given(rows, rows, units_a_file, starts)
def test_going_on_after_a_close(first, second, per_file, start):
    units = list(as_units([*first, *second]))
    with TemporaryDirectory() as directory:
        number = start
        for mode, part in (("a", units[: len(first)]), ("r+", units[len(first) :])):
            queue = rmqstore.ConsumeQueue(directory, file_size=20 * per_file, mode=mode)
            assert queue.max_offset == (0 if mode == "a" else number)
            for unit in part:
                assert queue.put_unit(*unit, number)
                number += 1
            queue.close()
        assert_files(directory, start, units, 20 * per_file)


@given(rows, units_a_file)
def test_what_is_already_there_is_skipped(rows, per_file):
    units = list(as_units(rows))
    with TemporaryDirectory() as directory:
        queue = rmqstore.ConsumeQueue(directory, file_size=20 * per_file, mode="a")
        for _ in range(2):
            for number, unit in enumerate(units):
                assert queue.put_unit(*unit, number)
        assert queue.max_offset == len(units)
        queue.close()
        assert_files(directory, 0, units, 20 * per_file)


def test_extreme_values(tmp_path):
    units = [(0, 91, -INT64 - 1), (91, INT32 - 1, INT64), (INT64 - 100, 100, 0)]
    queue = rmqstore.ConsumeQueue(tmp_path, file_size=40, mode="a")
    for number, unit in enumerate(units):
        assert queue.put_unit(*unit, number)
    assert queue.units(0, 3).tolist() == units
    queue.close()
    assert_files(tmp_path, 0, units, 40)


def test_arguments_out_of_range(tmp_path):
    for file_size in (0, -20):
        with pytest.raises(ValueError, match="file_size"):
            rmqstore.ConsumeQueue(tmp_path, file_size=file_size, mode="a")
    assert not list(tmp_path.iterdir())
    queue = rmqstore.ConsumeQueue(tmp_path, file_size=40, mode="a")
    for unit in ((-1, 100, 0, 0), (0, 0, 0, 0), (0, -1, 0, 0), (0, 100, 0, -1)):
        with pytest.raises(ValueError, match=r"-1|0"):
            queue.put_unit(*unit)
    assert queue.put_unit(0, 100, 5, 0)
    queue.close()
    reader = rmqstore.ConsumeQueue(tmp_path, file_size=40)
    with pytest.raises(rmqstore.ReadOnlyStoreError):
        reader.put_unit(100, 100, 0, 1)
    reader.close()
    with pytest.raises(rmqstore.StoreClosedError):
        reader.units(0, 1)
