"""Counts, and columns that units hold, read no record, and have no row that the log has not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from support import damaged_store, oracle

pa = pytest.importorskip("pyarrow")

UNITS = ["queue_id", "queue_offset", "physical_offset", "store_size"]
LOG = 16384
CONFIG = damaged_store.CONFIG
MULTI = CONFIG.replace(enable_multi_dispatch=True, enable_lmq=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return damaged_store.make(tmp_path / "store")


@contextmanager
def no_record_read(store: Any) -> Iterator[None]:
    before = store.stats()["scanned_records"]
    yield
    assert store.stats()["scanned_records"] == before


def places(scan: rmqstore.Scan) -> list[int]:
    """Physical offsets, by units if possible."""
    found: list[int] = scan.replace(columns=["physical_offset"]).to_table()[0].to_pylist()
    assert scan.count() == len(found)
    return found


def queue_files(root: Path, queue_id: int) -> list[Path]:
    return sorted((root / "consumequeue" / "Topic1" / str(queue_id)).iterdir())


def by_records(scan: rmqstore.Scan) -> list[int]:
    return [message.physical_offset for message in scan]


@pytest.mark.parametrize("columns", [*([name] for name in UNITS), UNITS, UNITS[::-1], []])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_no_record_is_read(root: Path, mode: Any, columns: list[str]) -> None:
    with rmqstore.open(root, mode) as store:
        for asked in [
            {"queue_id": 1, "start": 45, "stop": 55},
            {"queue_id": 1, "start": 5, "stop": 50},
            {"queue_id": 1},
            {},
        ]:
            scan = store.scan("Topic1", **asked, columns=columns, batch_rows=7)
            records = store.scan("Topic1", **asked, columns=[*columns, "flag"], batch_rows=7)
            wanted = [batch.select(columns) for batch in records.to_batches()]
            rows = sum(batch.num_rows for batch in wanted)
            with no_record_read(store):
                assert list(scan.to_batches()) == wanted
                assert pa.table(scan).num_rows == rows or not columns
                assert scan.count() == rows
                assert scan.dataset().count_rows() == rows


@pytest.mark.parametrize("bytes_", [1, 16, 17, 100, 101])
def test_batches_are_as_large_as_of_records(root: Path, bytes_: int) -> None:
    """The bytes of a row are the same, whatever it is read from."""
    with rmqstore.open(root) as store:
        scan = store.scan("Topic1", 0, columns=UNITS, batch_bytes=bytes_)
        sizes = [batch.num_rows for batch in scan.to_batches()]
        filtered = scan.replace(sql="1 = 1").to_batches()
        assert [batch.num_rows for batch in filtered] == sizes


def test_filters_need_the_records(root: Path) -> None:
    with rmqstore.open(root) as store:
        every = by_records(store.scan("Topic1", 0))
        assert places(store.scan("Topic1", 0, tags="*")) == every
        some = places(store.scan("Topic1", 0, tags="t1 || t2"))
        assert 0 < len(some) < len(every)
        assert some == places(store.scan("Topic1", 0, sql="TAGS IN ('t1', 't2')"))
        [one] = places(store.scan("Topic1", 0, keys="k4"))
        assert one == every[2]
        assert places(store.scan("Topic1", 0, since=1 << 50)) == []


def test_an_ordinary_queue_with_records_of_another_topic(tmp_path: Path) -> None:
    """A broker puts units of other topics' records into any queue that they name."""
    own = [oracle.encode_record("b", b"own", queue_offset=at, properties=b"") for at in (0, 2)]
    other = oracle.encode_record(
        "a", b"other", properties=b"INNER_MULTI_DISPATCH\x01b\x02INNER_MULTI_QUEUE_OFFSET\x011"
    )
    more = [oracle.encode_record("c", b"c", queue_offset=at) for at in range(40)]
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=LOG, mode="a") as log:
        log.append([own[0], other, own[1], *more])
    rmqstore.open(tmp_path, "a", config=MULTI).close()
    for mode in ("r", "r+"):
        with rmqstore.open(tmp_path, mode, config=MULTI) as store:
            assert store.queue_bounds("b", 0) == (0, 3)
            assert store.get("b", 0, 1, 1).messages[0].body == b"other"
            assert store.scan("b", 0).count() == store.scan("b").count() == 2
            assert places(store.scan("b", 0)) == by_records(store.scan("b", 0))
            assert store.scan("a", 0).count() == 1


def test_an_ordinary_queue_with_records_of_a_deleted_topic(tmp_path: Path) -> None:
    """They have a single unit then."""
    with rmqstore.open(tmp_path, "a", config=MULTI) as store:
        store.core.put_stored("t", 2, b"1", "INNER_MULTI_DISPATCH\x01other")
        store.delete_topic("t")
        assert len(store["other"][2]) == 1
        for topic in ("other", ["other"]):
            scan = store.scan(topic, columns=["queue_offset"])
            assert scan.count() == scan.to_table().num_rows == 0
        assert store.scan("other", 2).count() == 0


def test_a_light_queue_has_records_of_others(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=MULTI) as store:
        for number in range(50):
            store.put("own", b"%d" % number, queue_id=0, lite_topics=["a"])
        store.put("%LMQ%a", b"its own", queue_id=0)
        with no_record_read(store):
            assert store.scan("own", 0).count() == 50
        assert places(store.scan("%LMQ%a", 0)) == by_records(store.scan("%LMQ%a", 0))


def test_prepared_records_are_in_no_queue(tmp_path: Path) -> None:
    flags = [0, oracle.TRANSACTION_PREPARED, 0, oracle.TRANSACTION_ROLLBACK, 8, 0]
    records, offset = [], 0
    for flag in flags:
        records.append(oracle.encode_record("t", b"x", sys_flag=flag, queue_offset=offset))
        offset += flag in (0, 8)
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=LOG, mode="a") as log:
        log.append(records)
    rmqstore.open(tmp_path, "a", config=CONFIG).close()
    with rmqstore.open(tmp_path) as store:
        assert store.scan("t", 0).count() == 4
        assert store.scan("t").count() == store.scan().count() == 6


def test_a_damaged_body_is_counted(root: Path) -> None:
    """Only its record shows it."""
    bad = damaged_store.records(root)[40]
    damaged_store.flip(root, bad.physical_offset + 120)
    with rmqstore.open(root) as store:
        scan = store.scan("Topic1", 0)
        with pytest.raises(rmqstore.StoreCorruptError):
            list(scan)
        assert scan.count() == 60
        assert bad.physical_offset in places(scan)
        for policy, left in (("skip", 59), ("stop", 20)):  # these ask for it
            assert scan.replace(on_corruption=policy).count() == left
        with pytest.raises(rmqstore.StoreCorruptError):
            scan.replace(columns=["queue_offset", "flag"]).to_table()


@pytest.mark.parametrize("how", ["gone", "cut", "empty"])
@pytest.mark.parametrize("number", [0, 1, 3, -1])
@pytest.mark.parametrize("owned", [False, True])
def test_what_a_lost_log_file_had_is_not_counted(
    root: Path, number: int, how: str, owned: bool
) -> None:
    path = sorted((root / "commitlog").iterdir())[number]
    if how == "gone":
        path.unlink()
    else:
        with path.open("r+b") as file:
            file.truncate(6000 if how == "cut" else 0)
    held = damaged_store.owned(root) if owned else rmqstore.open(root)
    with held, rmqstore.open(root) as store:
        for queue_id in (0, 1, None):
            scan = store.scan("Topic1", queue_id, on_corruption="skip", on_removed="skip")
            assert places(scan) == by_records(scan)
            assert 0 < scan.count() < 120


def test_a_unit_that_points_elsewhere(root: Path) -> None:
    """Backwards, into its neighbour, below the log, beyond its end."""
    with rmqstore.open(root) as store:
        where = places(store.scan("Topic1", 0))
    sorted((root / "commitlog").iterdir())[0].unlink()
    path = queue_files(root, 0)[-1]
    content = path.read_bytes()
    for wrong in (where[20], where[25] + 1, 0, where[-1] + 4000, 1 << 62, (1 << 64) - 8):
        at = (int(path.name) // 20 + 3) * 20 - int(path.name)
        path.write_bytes(content[:at] + wrong.to_bytes(8) + content[at + 8 :])
        with damaged_store.owned(root), rmqstore.open(root) as store:
            scan = store.scan("Topic1", 0, on_corruption="skip", on_removed="skip")
            assert places(scan) == by_records(scan)
            assert len(set(places(scan))) == scan.count() < 60


@pytest.mark.parametrize("queue_file", [400, 6_000_000])
@pytest.mark.parametrize("more", [[], ["flag"]])
def test_retention_during_a_pass(tmp_path: Path, more: list[str], queue_file: int) -> None:
    """Messages that retention removed before they were read are no rows; the rest is told."""
    config = CONFIG.replace(mapped_file_size_consume_queue=queue_file)
    time = 1_700_000_000_000
    records = [
        oracle.encode_record("t", b"x" * 1000, queue_offset=n, store_timestamp=time + n)
        for n in range(100)
    ]
    with rmqstore.CommitLog(tmp_path / "commitlog", file_size=LOG, mode="a") as log:
        log.append(records)
    with rmqstore.open(tmp_path, "a", config=config) as store:
        scan = store.scan("t", 0, columns=["queue_offset", *more], batch_rows=5)
        raising = scan.to_batches()
        skipping = scan.replace(on_removed="skip").to_batches()
        assert next(raising)[0].to_pylist() == next(skipping)[0].to_pylist() == [0, 1, 2, 3, 4]
        assert store.delete_expired(before=time + 50).messages == 42
        with pytest.raises(rmqstore.MessagesRemovedError) as removed:
            list(raising)
        assert removed.value.min_offset == store.queue_bounds("t", 0)[0] == 42
        rest = [n for batch in skipping for n in batch[0].to_pylist()]
        assert rest[-58:] == list(range(42, 100))
        # Of the file that it has in use, a scan of records has the rest.
        assert rest[:-58] == (list(range(5, 14)) if more else [])
        assert scan.count() == 58


@pytest.mark.parametrize("mode", ["r", "same"])
def test_beside_a_writer(tmp_path: Path, mode: str) -> None:
    """A count grows with what was put, and has nothing that was not."""
    stop = threading.Event()
    done = [0]
    with rmqstore.open(tmp_path / "s", "a", config=CONFIG) as writer:
        writer.put("t", b"0", queue_id=0)
        done[0] = 1

        def write() -> None:
            while not stop.is_set():
                writer.put("t", b"x" * 40, queue_id=0)
                done[0] += 1
                writer.put("u", b"y" * 300)

        store = writer if mode == "same" else rmqstore.open(tmp_path / "s")
        thread = threading.Thread(target=write)
        thread.start()
        try:
            before = 0
            while before < 1500:
                found = store.scan("t", 0).count()
                assert before <= found <= done[0] + 1
                before = found
        finally:
            stop.set()
            thread.join()
        assert writer.scan("t", 0).count() == done[0]
        store.close()


def test_a_topic_made_again(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "s", "a", config=CONFIG) as store:
        store.put_many("t", [b"old"] * 20, queue_id=0)
        store.put_many("u", [b"u"] * 20, queue_id=0)
        assert store.scan("t", 0).count() == 20
        store.delete_topic("t")
        assert store.scan("t", 0).count() == 0
        assert store.scan("t").count() == 20
        store.put_many("t", [b"new"] * 3, queue_id=0)
        assert store.scan("t", 0).count() == 3
        assert store.scan("t").count() == 23
        assert store.scan("u", 0).count() == store.scan("u").count() == 20


def test_lost_queue_files(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Topic1" / "1")
    for path in queue_files(root, 0)[1:]:
        path.unlink()
    with rmqstore.open(root) as store, no_record_read(store):
        assert store.scan("Topic1", 0).count() == store.scan("Topic1", 1).count() == 60
        assert store.scan("Topic1").count() == 120
