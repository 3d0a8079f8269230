"""The index file against the model, to the byte."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rmqstore
from support import oracle_index
from support.oracle_index import HEADER_SIZE, IndexModel
from support.strategies import NASTY_WORDS, texts

pytestmark = pytest.mark.property

NAME = "20260101123000123"
HEADER = [
    "begin_timestamp",
    "end_timestamp",
    "begin_phy_offset",
    "end_phy_offset",
    "hash_slot_count",
    "index_count",
]

keys = st.one_of(
    st.sampled_from(NASTY_WORDS),
    st.sampled_from(NASTY_WORDS).map("Topic1#".__add__),
    st.integers(0, 5).map("T#{}".format),
    texts(min_size=1, max_size=10),
)
# seconds apart, the same, stepping back, zero, and further than 31 bits of seconds can say
times = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_010_000),
    st.sampled_from([0, 1, 999, 1000, 1_700_000_000_000 + 1000 * 2**31, 2**53]),
)
puts = st.lists(st.tuples(keys, st.integers(1, 1 << 40), times), max_size=40)
sizes = st.tuples(st.integers(1, 7), st.integers(2, 30))


def distinct(rows):
    """Physical offsets grow along a log."""
    offset = -1
    for key, step, time in rows:
        offset += step
        yield key, offset, time


def fill(path, slot_num, index_num, rows):
    model = IndexModel(slot_num, index_num)
    with_file = rmqstore.IndexFile(path, hash_slot_num=slot_num, index_num=index_num, mode="a")
    for key, offset, time in rows:
        assert with_file.put_key(key, offset, time) == model.put_key(key, offset, time)
    return with_file, model


def assert_same_header(index_file, model):
    assert tuple(getattr(index_file, name) for name in HEADER) == model.header


def assert_same_bytes(path, model):
    data = path.read_bytes()
    if model.index_count == 1:  # 0 and 1 both say that there is none
        data = data[: HEADER_SIZE - 4] + bytes(4) + data[HEADER_SIZE:]
    assert data == model.dump()


@given(sizes, puts, st.lists(keys, max_size=5))
@example((1, 30), [(word, 1, 1_700_000_000_000) for word in NASTY_WORDS * 2], [])
@example((3, 2), [("Aa", 1, 0), ("BB", 1, 5000)], ["Aa", "BB"])
def test_same_answers_and_same_bytes(size, rows, others):
    rows = list(distinct(rows))
    with TemporaryDirectory() as directory:
        path = Path(directory) / NAME
        index_file, model = fill(path, *size, rows)
        wanted = [*dict.fromkeys(key for key, _, _ in rows), *others]
        for key in wanted:
            expected = model.select_phy_offset(key)
            assert index_file.select_phy_offset(key) == expected
        assert_same_header(index_file, model)
        index_file.flush()
        assert_same_bytes(path, model)
        index_file.close()
        assert_same_bytes(path, model)

        before = path.stat()
        reader = rmqstore.IndexFile(path, hash_slot_num=size[0], index_num=size[1])
        assert_same_header(reader, model)
        for key in wanted:
            assert reader.select_phy_offset(key) == model.select_phy_offset(key)
        reader.close()
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        assert path.stat().st_size == oracle_index.file_size(*size)


@given(sizes, puts, keys, times, times, st.integers(1, 5))
def test_time_windows_and_limits(size, rows, key, begin, end, max_num):
    rows = list(distinct(rows))
    with TemporaryDirectory() as directory:
        index_file, model = fill(Path(directory) / NAME, *size, rows)
        for wanted in {key, *(row[0] for row in rows)}:
            for window in ({}, {"begin": begin}, {"end": end}, {"begin": begin, "end": end}):
                expected = model.select_phy_offset(wanted, max_num, **window)
                assert index_file.select_phy_offset(wanted, max_num, **window) == expected
        index_file.close()


@given(sizes, puts, puts)
def test_going_on_after_a_close(size, first, second):
    rows = list(distinct([*first, *second]))
    with TemporaryDirectory() as directory:
        path = Path(directory) / NAME
        index_file, model = fill(path, *size, rows[: len(first)])
        index_file.close()
        options = {"hash_slot_num": size[0], "index_num": size[1], "mode": "r+"}
        index_file = rmqstore.IndexFile(path, **options)
        for key, offset, time in rows[len(first) :]:
            assert index_file.put_key(key, offset, time) == model.put_key(key, offset, time)
        index_file.close()
        assert_same_bytes(path, model)


@given(sizes, puts, st.lists(keys, max_size=4), st.integers(0, 4))
def test_many_at_once_is_the_same_as_one_by_one(size, rows, others, max_num):
    rows = list(distinct(rows))
    with TemporaryDirectory() as directory:
        path = Path(directory) / NAME
        model = IndexModel(*size)
        taken = sum(model.put_key(*row) for row in rows)
        options = {"hash_slot_num": size[0], "index_num": size[1], "mode": "a"}
        index_file = rmqstore.IndexFile(path, **options)
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        assert index_file.put_keys(*columns) == taken
        assert_same_header(index_file, model)

        wanted = [*(row[0] for row in rows), *others]
        with rmqstore.IndexFile(path, **{**options, "mode": "r"}) as reader:
            for asked in (index_file, reader):
                offsets, starts = asked.select_many(wanted, max_num)
                assert len(starts) == len(wanted) + 1
                for number, key in enumerate(wanted):
                    hits = offsets[starts[number] : starts[number + 1]].tolist()
                    assert hits == model.select_phy_offset(key, max_num)
        index_file.close()
        assert_same_bytes(path, model)


@pytest.mark.parametrize("keep", [10_000, 100])
def test_a_file_that_is_cut_while_it_is_mapped_gives_nothing_wrong(tmp_path, keep):
    options = {"hash_slot_num": 1000, "index_num": 4000}
    keys = [f"k{number}" for number in range(3000)]
    with rmqstore.IndexFile(tmp_path / NAME, mode="a", **options) as index_file:
        index_file.put_keys(keys, range(3000), [1000] * 3000)
    with rmqstore.IndexFile(tmp_path / NAME, mode="r", **options) as reader:
        offsets, _starts = reader.select_many(keys)
        assert offsets.tolist() == list(range(3000))
        os.truncate(tmp_path / NAME, keep)
        with pytest.raises((OSError, rmqstore.StoreCorruptError)):
            reader.select_many(keys)


@pytest.mark.parametrize("index_num", [2, 3, 5])
def test_a_full_file_takes_no_more(tmp_path, index_num):
    index_file, model = fill(tmp_path / NAME, 2, index_num, [])
    for number in range(index_num + 3):
        fits = number < index_num - 1
        assert index_file.put_key("k", 100 * number, 1000) is fits
        assert model.put_key("k", 100 * number, 1000) is fits
    assert_same_header(index_file, model)
    index_file.close()
    assert_same_bytes(tmp_path / NAME, model)


def test_the_key_without_an_absolute_value(tmp_path):
    index_file, model = fill(tmp_path / NAME, 10, 10, [("polygenelubricants", 7, 1000)])
    assert index_file.select_phy_offset("polygenelubricants") == [7]
    assert model.slots == {0: 1}
    index_file.close()
    assert_same_bytes(tmp_path / NAME, model)


@pytest.mark.parametrize(
    ("previous", "number"),
    [(3, 3), (2, 1), (3, 2), (99, 2), (-1, 2), (0x7FFFFFFF, 3), (3, 1)],
)
def test_a_chain_that_loops_or_leads_nowhere_ends(tmp_path, previous, number):
    path = tmp_path / NAME
    index_file, _ = fill(path, 1, 10, [("k", 10 * n, 1000 * n) for n in range(1, 4)])
    index_file.close()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, HEADER_SIZE + 4 + 20 * number + 16, previous)
    path.write_bytes(data)
    reader = rmqstore.IndexFile(path, hash_slot_num=1, index_num=10)
    try:
        hits = reader.select_phy_offset("k", max_num=1000)
    except rmqstore.StoreCorruptError:
        pass
    else:
        assert set(hits) <= {10, 20, 30}
        assert hits[0] == 30
    reader.close()


def test_a_header_whose_time_ends_all_time(tmp_path):
    index_file, _ = fill(tmp_path / NAME, 1, 10, [("k", 10 * n, 1000 * n) for n in range(1, 4)])
    index_file.close()
    data = bytearray((tmp_path / NAME).read_bytes())
    struct.pack_into(">q", data, 0, (1 << 63) - 1000)
    (tmp_path / NAME).write_bytes(data)
    with_file = rmqstore.IndexFile(tmp_path / NAME, hash_slot_num=1, index_num=10)
    assert with_file.select_phy_offset("k") == [30, 20, 10]
    with_file.close()


def test_arguments_out_of_range(tmp_path):
    with pytest.raises(FileNotFoundError):
        rmqstore.IndexFile(tmp_path / NAME, hash_slot_num=1, index_num=10)
    for options in ({"hash_slot_num": 0}, {"index_num": 0}, {"hash_slot_num": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            rmqstore.IndexFile(
                tmp_path / NAME, **({"hash_slot_num": 1, "index_num": 10} | options), mode="a"
            )
    index_file, _ = fill(tmp_path / NAME, 1, 10, [("k", 1, 1)])
    index_file.close()
    with pytest.raises(rmqstore.IncompatibleStoreError):
        rmqstore.IndexFile(tmp_path / NAME, hash_slot_num=2, index_num=10, mode="r+")
    reader = rmqstore.IndexFile(tmp_path / NAME, hash_slot_num=1, index_num=10)
    with pytest.raises(rmqstore.ReadOnlyStoreError):
        reader.put_key("k", 2, 2)
    reader.close()
    reader.close()
    with pytest.raises(rmqstore.StoreClosedError):
        reader.select_phy_offset("k")
