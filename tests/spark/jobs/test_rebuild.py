"""Rebuilds by the executors, against the files that the store itself makes."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from conftest import BrokerStore
from rmqstore import _core
from rmqstore.files import paths
from rmqstore.spark import rebuild
from rmqstore.spark.jobs.rebuild import configuration, settings_of
from support import oracle, scan_model
from support.file_contents import files_of

pytestmark = [pytest.mark.spark, pytest.mark.long]

MODES = ["direct", "shuffle"]
MESSAGES = int(os.environ.get("RMQSTORE_REBUILD_MESSAGES", "60000"))
SMALL = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4 << 20,
    mapped_file_size_consume_queue=20 * 500,
    max_hash_slot_num=5_000,
    max_index_num=20_000,
)


def assert_same_files(made: Path, wanted: Path) -> None:
    """Compare without keeping all bytes in a report of pytest's."""
    here, there = files_of(made), files_of(wanted)
    assert sorted(here) == sorted(there)
    assert [name for name in here if here[name] != there[name]] == []


def traffic(root: Path, messages: int, config: rmqstore.StoreConfig) -> None:
    """Random messages over 64 queues, closed."""
    rng = random.Random(messages)
    with rmqstore.open(root, "a", config=config) as store:
        for start in range(0, messages, 5000):
            rows = range(start, min(messages, start + 5000))
            store.put_many(
                [f"topic-{rng.randrange(8)}" for _ in rows],
                [rng.randbytes(rng.choice([0, 20, 128, 300])) for _ in rows],
                queue_id=[rng.randrange(8) for _ in rows],
                tags=[rng.choice([None, "TagA", "TagB"]) for _ in rows],
                keys=[rng.choice([None, f"order-{number} k{number % 7}"]) for number in rows],
            )


@pytest.fixture(scope="module")
def big_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rebuild") / "store"
    traffic(root, MESSAGES, SMALL)
    return root


@pytest.mark.parametrize("mode", MODES)
def test_64_queues(spark: Any, big_store: Path, tmp_path: Path, mode: Any) -> None:
    made = tmp_path / "made"
    result = rebuild(spark, big_store, made, mode, config=SMALL, range_bytes=1 << 20)
    assert_same_files(made, big_store)
    assert (result.messages, result.units, result.queues) == (MESSAGES, MESSAGES, 64)
    assert result.index_files == len(list((made / paths.INDEX).iterdir())) > 3
    assert result.workers >= 2  # processes that read bytes of the log
    assert sorted(path.name for path in made.iterdir()) == [paths.CONSUME_QUEUE, paths.INDEX]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (None, {}),
        ("", {}),
        ("messageDelayLevel=1s 5s\n", {}),
        ("mappedFileSizeConsumeQueue=4000\n", {"mapped_file_size_consume_queue": 4000}),
        ("maxHashSlotNum=70\nmaxIndexNum=90\n", {"max_hash_slot_num": 70, "max_index_num": 90}),
    ],
)
def test_sizes_that_a_configuration_leaves_open(
    small_store: Path, tmp_path: Path, text: str | None, changes: dict[str, int]
) -> None:
    config = None
    if text is not None:
        config = tmp_path / "broker.conf"
        config.write_text(text)
    found = settings_of(config, str(small_store))
    wanted = SMALL.replace(**changes)
    for name in ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num"):
        assert getattr(found, name) == getattr(wanted, name)
    for name in (paths.CONSUME_QUEUE, paths.INDEX):
        shutil.rmtree(small_store / name)
    assert settings_of(config, str(small_store)) == configuration(config)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_2_million_messages(spark: Any, tmp_path: Path, mode: Any) -> None:
    root = tmp_path / "store"
    traffic(root, 2_000_000, rmqstore.StoreConfig())
    result = rebuild(spark, root, tmp_path / "made", mode)
    assert_same_files(tmp_path / "made", root)
    assert (result.units, result.queues) == (2_000_000, 64)


@pytest.mark.parametrize("seed", range(3))
def test_random_logs(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = scan_model.config(rng)
    config = config.replace(max_hash_slot_num=50, max_index_num=200)
    records = scan_model.random_records(rng, 400, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path / "store", records, config)
    step = rng.choice([10_000, 30_000])
    for mode in MODES:
        made = tmp_path / mode
        rebuild(spark, tmp_path / "store", made, mode, config=config, range_bytes=step)  # type: ignore[arg-type]
        assert_same_files(made, tmp_path / "store")


@pytest.mark.usefixtures("undelivered")
@pytest.mark.parametrize("name", ["broker-clean", "broker-killed"])
def test_broker_stores_in_place(
    spark: Any,
    broker_copy: Callable[[str, Path], BrokerStore],
    tmp_path: Path,
    name: str,
) -> None:
    root = broker_copy(name, tmp_path).root
    with rmqstore.open(root) as store:
        config = store.config
    for folder in (paths.CONSUME_QUEUE, paths.INDEX):
        shutil.rmtree(root / folder)
    other = tmp_path / "other"
    shutil.copytree(root, other)
    before = sorted(path.name for path in root.iterdir())
    rebuild(spark, root, root, config=config, range_bytes=100_000)
    assert sorted({*before, paths.CONSUME_QUEUE, paths.INDEX}) == sorted(
        path.name for path in root.iterdir()
    )
    with rmqstore.open(other, "r+", config=config):
        pass
    assert_same_files(root, other)


def test_disorder_gaps_and_a_late_beginning(spark: Any, tmp_path: Path) -> None:
    """A topic's second life, gaps within and between ranges, and a queue that begins late."""
    config = rmqstore.StoreConfig(
        mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=100
    )
    lives = [("again", number) for number in range(40)] + [("again", number) for number in range(9)]
    gaps = [("gaps", number * 2) for number in range(40)]
    late = [("late", 1003 + number) for number in range(40)]
    mixed = [pair for pairs in zip(lives[:40], gaps, late, strict=True) for pair in pairs]
    records = [
        oracle.encode_record(topic, b"x" * 60, queue_offset=number, properties=b"KEYS\x01k\x02")
        for topic, number in [*mixed, *lives[40:], ("unlikely", 3), ("unlikely", 10**7)]
    ]
    scan_model.write_store(tmp_path / "store", records, config)
    for mode in MODES:
        made = tmp_path / mode
        result = rebuild(spark, tmp_path / "store", made, mode, config=config, range_bytes=2000)  # type: ignore[arg-type]
        assert_same_files(made, tmp_path / "store")
        assert result.skipped == 1
        assert result.queues == 4


def test_record_within_a_record(spark: Any, tmp_path: Path) -> None:
    """A body that is a record which names the very place where it lies."""
    config = rmqstore.StoreConfig(mapped_file_size_commit_log=65536)
    first = oracle.encode_record("t", b"y" * 500)
    head = len(oracle.encode_record("t", b"", queue_offset=1)) - 4  # in front of the body
    for shift in range(-8, 9):
        inner = oracle.encode_record(
            "t", b"z" * 20000, physical_offset=len(first) + head + shift, queue_offset=77
        )
        outer = oracle.encode_record("t", inner, queue_offset=1)
        if outer.index(inner) == head + shift:
            break
    else:
        raise AssertionError("the body is not where it was looked for")
    scan_model.write_store(tmp_path / "store", [first, outer, first], config)
    plain = _core.LogUnits(str(tmp_path / "store"), config, {}, 600, 65536)
    plain.next(1 << 20)
    assert plain.totals()["first_record"] == len(first) + head + shift  # it is fallen for
    for mode in MODES:
        rebuild(spark, tmp_path / "store", tmp_path / mode, mode, config=config, range_bytes=600)  # type: ignore[arg-type]
        assert_same_files(tmp_path / mode, tmp_path / "store")


# ---- what is refused, and what is left then


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    traffic(root, 300, SMALL)
    return root


@pytest.mark.parametrize("mode", MODES)
def test_damage_leaves_nothing(spark: Any, small_store: Path, tmp_path: Path, mode: Any) -> None:
    with rmqstore.CommitLog(small_store / paths.COMMIT_LOG) as log:
        places = list(log.records())
    bad, size = places[100]
    with (small_store / paths.COMMIT_LOG / f"{0:020d}").open("r+b") as file:
        file.seek(bad + 4)
        file.write(bytes(size - 4))
    target = tmp_path / "new" / "made"
    for step in (1 << 20, 5000, bad):  # the last: a range begins with it
        with pytest.raises(rmqstore.StoreCorruptError) as error:
            rebuild(spark, small_store, target, mode, config=SMALL, range_bytes=step)
        assert error.value.offset == bad
        assert error.value.path == str(small_store / paths.COMMIT_LOG / f"{0:020d}")
        assert not target.parent.exists()


def test_torn_end(spark: Any, small_store: Path, tmp_path: Path) -> None:
    """What no good record follows is the end, as for who opens the store for writing."""
    with rmqstore.CommitLog(small_store / paths.COMMIT_LOG) as log:
        places = list(log.records())
    with (small_store / paths.COMMIT_LOG / f"{0:020d}").open("r+b") as file:
        file.seek(places[-1][0] + 8)
        file.write(b"torn")
    (small_store / paths.CHECKPOINT).unlink()  # it names the record: killed before it was written
    (small_store / paths.ABORT).touch()
    result = rebuild(spark, small_store, tmp_path / "made", config=SMALL, range_bytes=5000)
    assert result.messages == 299
    for folder in (paths.CONSUME_QUEUE, paths.INDEX):
        shutil.rmtree(small_store / folder)
    with rmqstore.open(small_store, "r+", config=SMALL):
        pass
    assert_same_files(tmp_path / "made", small_store)


def test_files_are_as_large_as_those_of_the_store(
    spark: Any, small_store: Path, tmp_path: Path
) -> None:
    rebuild(spark, small_store, tmp_path / "made")
    assert_same_files(tmp_path / "made", small_store)


def test_refusals(spark: Any, small_store: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mode must be one of .*'fast'"):
        rebuild(spark, small_store, tmp_path / "made", "fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="range_bytes must be 1 or more, got 0"):
        rebuild(spark, small_store, tmp_path / "made", range_bytes=0)
    with pytest.raises(TypeError, match="config must be StoreConfig"):
        rebuild(spark, small_store, tmp_path / "made", config=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dst must be str"):
        rebuild(spark, small_store, None)  # type: ignore[arg-type]
    with pytest.raises(FileExistsError, match=paths.CONSUME_QUEUE):
        rebuild(spark, small_store, small_store)
    with pytest.raises(ValueError, match="dst must not be within src"):
        rebuild(spark, small_store, small_store / "made")
    with pytest.raises(rmqstore.StoreNotFoundError):
        rebuild(spark, tmp_path / "nowhere", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_open_store_is_not_rebuilt_in_place(spark: Any, small_store: Path) -> None:
    store = rmqstore.open(small_store, "r+", config=SMALL)
    for folder in (paths.CONSUME_QUEUE, paths.INDEX):
        (small_store / folder).rename(small_store / f"{folder}.away")
    with pytest.raises(rmqstore.StoreLockedError, match="elsewhere: close it there first"):
        rebuild(spark, small_store, small_store, config=SMALL)
    assert not (small_store / ".spark").exists()
    with pytest.raises(rmqstore.StoreFailedError, match="removed by somebody else"):
        store.close()


def test_late_failure_leaves_nothing(
    spark: Any, small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "made"
    target.mkdir()
    monkeypatch.setattr(_core, "next_index_name", lambda *_: "no/such/directory")
    with pytest.raises(OSError, match="no/such"):
        rebuild(spark, small_store, target, config=SMALL)
    assert list(target.iterdir()) == []


def test_a_log_without_records(spark: Any, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=SMALL):
        pass
    shutil.rmtree(tmp_path / "store" / paths.CONSUME_QUEUE)
    result = rebuild(spark, tmp_path / "store", tmp_path / "made", config=SMALL)
    assert (result.messages, result.queues, result.index_files) == (0, 0, 0)
    assert [path.name for path in (tmp_path / "made").iterdir()] == [paths.CONSUME_QUEUE]
