"""Damage that no queue and no index leads to is met by scans, queries and ``find``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import StoreCorruptError
from rmqstore.cli import main
from support import damaged_store

HIT = 60
COUNT = damaged_store.COUNT


@pytest.fixture
def hurt(tmp_path: Path) -> Path:
    """A closed store, one of whose records has a hole."""
    root = damaged_store.make(tmp_path / "store")
    record = damaged_store.records(root)[HIT]
    damaged_store.poke(root, record.physical_offset + 10, b"\x55" * 100)
    return root


@pytest.mark.parametrize("closed", [True, False])
def test_a_scan_of_topics_raises_where_no_queue_is_there(hurt: Path, *, closed: bool) -> None:
    shutil.rmtree(hurt / "consumequeue")
    if not closed:
        damaged_store.killed(hurt)
    with rmqstore.open(hurt) as store:
        [damage] = [one for one in store.recovery.ranges if one.kind == "damaged"]
        assert not damage.named
        for options in ({}, {"keys": ["k0", "k119"]}):
            with pytest.raises(StoreCorruptError):
                store.scan("Topic1", **options).to_table()
            skipped = store.scan("Topic1", on_corruption="skip", **options).to_table()
            assert skipped.num_rows == (2 if options else COUNT - 1)
        assert store.scan("Topic1", stop=damage.start).count() < COUNT - 1
        assert store.scan("Topic1", start=damage.stop).count() < COUNT - 1
        behind = store.scan("Topic1", on_corruption="stop").to_table()
        assert behind.num_rows == HIT


def test_cat_without_queues_shows_the_rest(hurt: Path) -> None:
    shutil.rmtree(hurt / "consumequeue")
    done = CliRunner().invoke(main, ["cat", str(hurt), "-t", "Topic1"])
    assert (done.stdout.count("\n"), done.exit_code) == (COUNT - 1, 4)


@pytest.mark.parametrize("index", ["missing", "empty", "middle"])
def test_find_says_that_a_hole_may_hide_the_key(
    hurt: Path, index: str, caplog: pytest.LogCaptureFixture
) -> None:
    if index == "missing":
        shutil.rmtree(hurt / "index")
    files = sorted((hurt / "index").iterdir()) if index != "missing" else []
    for path in files if index == "empty" else files[:1]:
        path.write_bytes(bytes(path.stat().st_size))
    with rmqstore.open(hurt) as store:
        caplog.clear()
        for _ in range(2):
            assert len(store.query("Topic1", "k1")) == 1
            assert len(store.query_many("Topic1", ["k1"])[0]) == 1
        assert len(store.passed_over) == 1  # once
        assert "commitlog" in str(store.passed_over[0])
        [told] = caplog.records
        assert "offset" in told.getMessage()
        assert store.query("Topic1", "k1", index_only=True) == []
    done = CliRunner().invoke(main, ["find", str(hurt), "-k", "k1", "-t", "Topic1"])
    assert (done.stdout.count("\n"), done.exit_code) == (1, 4)
    assert "damaged message" in done.stderr


def test_find_where_the_index_has_it_all(hurt: Path) -> None:
    done = CliRunner().invoke(main, ["find", str(hurt), "-k", "k1", "-t", "Topic1"])
    assert (done.stdout.count("\n"), done.exit_code) == (1, 0)


@pytest.mark.parametrize("gone", [0, 1, 2])
@pytest.mark.parametrize("index", [True, False])
def test_a_hole_that_the_queues_left_name_in_part(
    tmp_path: Path, gone: int, *, index: bool
) -> None:
    """The damaged records of a queue without files are in no queue: opening tells of them."""
    root = tmp_path / "store"
    config = rmqstore.StoreConfig.small(
        mapped_file_size_commit_log=16 << 10, mapped_file_size_consume_queue=2000
    )
    with rmqstore.open(root, "a", config=config) as store:
        puts = [store.put(f"t{i % 3}", b"x" * 300, queue_id=0, keys=f"k{i}") for i in range(150)]
    start, stop = puts[60].physical_offset, puts[66].physical_offset
    damaged_store.poke(root, start, bytes(stop - start))
    shutil.rmtree(root / f"consumequeue/t{gone}")
    if not index:
        shutil.rmtree(root / "index")
    with rmqstore.open(root) as store:
        [damage] = [one for one in store.recovery.ranges if one.kind == "damaged"]
        assert (damage.start, damage.stop, damage.named) == (start, stop, False)
    for words in (("cat", "-t", f"t{gone}"), ("cat",), ("find", "-k", "k1")):
        done = CliRunner().invoke(main, [words[0], str(root), *words[1:]])
        assert done.exit_code == 4
        assert f"commit log damaged from {start} to {stop}" in done.stderr
