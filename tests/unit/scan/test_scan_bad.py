"""Scans that are asked wrongly, of stores that change under them, and of records that are bad."""

from __future__ import annotations

import gc
import random
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import MessagesRemovedError, StoreClosedError, StoreCorruptError
from support import oracle

pa = pytest.importorskip("pyarrow")

LOG_SIZE = 65_536
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=100,
    max_index_num=400,
    max_body_size=100_000,
)
COUNT = 2200  # more than a MiB: the kernel is asked to read ahead
PATIENCE = 30
LISTED = 0.12  # seconds after which a reader lists the directories again
COLUMNS = ("physical_offset", "topic", "body", "queue_offset")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many log files; one message in fifty has a topic of its own."""
    root = tmp_path_factory.mktemp("scan") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put_many(
            ["rare" if number % 50 == 0 else "big" for number in range(COUNT)],
            [b"x%d" % number * 100 for number in range(COUNT)],
            queue_id=0,
            keys=[f"k{number % 10}" for number in range(COUNT)],
        )
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Any]:
    with rmqstore.open(root, "r", config=CONFIG) as opened:
        yield opened


def rows_of(batch: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(batch[name].to_pylist() for name in COLUMNS), strict=True))


def all_rows(root: Path, **arguments: Any) -> list[tuple[Any, ...]]:
    with rmqstore.open(root, "r", config=CONFIG) as opened:
        return [row for batch in opened.scan(**arguments).to_batches() for row in rows_of(batch)]


def take(batches: Iterator[Any], into: list[tuple[Any, ...]]) -> Exception | None:
    """Take the rows of all batches to come; the error that ended them, of those that may."""
    try:
        for batch in batches:
            into += rows_of(batch)
    except (MessagesRemovedError, StoreCorruptError, OSError) as error:
        return error
    return None


# Arguments

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topic": 5}, TypeError, "topic"),
    ({"topic": ["a", 5]}, TypeError, "topic"),
    ({"topic": b"a"}, TypeError, "topic"),
    ({"queue_id": -1}, ValueError, "queue_id"),
    ({"queue_id": 1 << 31}, ValueError, "queue_id"),
    ({"queue_id": "0"}, TypeError, "queue_id"),
    ({"queue_id": True}, TypeError, "queue_id"),
    ({"columns": "tpoic"}, ValueError, "columns"),
    ({"columns": ["topic", "topic"]}, ValueError, "columns"),
    ({"columns": [1]}, TypeError, "columns"),
    ({"columns": 1}, TypeError, "columns"),
    ({"start": -1}, ValueError, "start"),
    ({"start": 1 << 63}, ValueError, "start"),
    ({"start": 1.5}, TypeError, "start"),
    ({"stop": -1}, ValueError, "stop"),
    ({"stop": "9"}, TypeError, "stop"),
    ({"since": "yesterday"}, ValueError, "since"),
    ({"since": 1.5}, TypeError, "since"),
    ({"until": "2024-01-01T00:00:00"}, ValueError, "until"),
    ({"until": [5]}, TypeError, "until"),
    ({"tags": 5}, TypeError, "tags"),
    ({"tags": "||"}, ValueError, "no tag in"),
    ({"keys": 5}, TypeError, "keys"),
    ({"keys": ["a", None]}, TypeError, "keys"),
    ({"batch_rows": 0}, ValueError, "batch_rows"),
    ({"batch_rows": 1 << 40}, ValueError, "batch_rows"),
    ({"batch_rows": None}, TypeError, "batch_rows"),
    ({"batch_bytes": 0}, ValueError, "batch_bytes"),
    ({"batch_bytes": 1 << 40}, ValueError, "batch_bytes"),
    ({"batch_bytes": False}, TypeError, "batch_bytes"),
    ({"on_corruption": "ignore"}, ValueError, "on_corruption"),
    ({"on_corruption": None}, ValueError, "on_corruption"),
    ({"on_removed": "stop"}, ValueError, "on_removed"),
]


@pytest.mark.parametrize(
    ("arguments", "error", "name"), WRONG, ids=[f"{next(iter(case[0].items()))}" for case in WRONG]
)
def test_arguments_are_named(
    store: Any, arguments: dict[str, Any], error: type[Exception], name: str
) -> None:
    with pytest.raises(error, match=name):
        store.scan(**arguments)


def test_nothing_wanted_is_nothing_found(store: Any) -> None:
    for arguments in ({"topic": []}, {"keys": []}, {"keys": " "}, {"topic": "unknown"}):
        assert store.scan(**arguments).count() == 0
        assert store.scan(**arguments).to_table().num_rows == 0
    assert store.scan(start=100, stop=50).count() == 0
    assert store.scan(start=(1 << 63) - 1).count() == 0
    assert store.scan("big", 0, start=(1 << 63) - 1).count() == 0
    assert store.scan(since=10, until=5).count() == 0


# Files that go or change under a reader


def remove_first(log: list[Path]) -> None:
    for path in log[:3]:
        path.unlink()


def remove_middle(log: list[Path]) -> None:
    log[2].unlink()


def cut(log: list[Path]) -> None:
    with log[1].open("r+b") as file:
        file.truncate(30_000)


def cut_to_nothing(log: list[Path]) -> None:
    with log[1].open("r+b") as file:
        file.truncate(0)


def replace(log: list[Path]) -> None:
    other = log[1].parent.parent / "other"
    other.write_bytes(random.Random(1).randbytes(LOG_SIZE))
    other.rename(log[1])


def overwrite(log: list[Path]) -> None:
    with log[1].open("r+b") as file:
        file.write(random.Random(1).randbytes(LOG_SIZE))


def erase(log: list[Path]) -> None:
    with log[1].open("r+b") as file:
        file.write(bytes(LOG_SIZE))


def take_another(log: list[Path]) -> None:
    with log[1].open("r+b") as file:
        file.write(log[2].read_bytes())


CHANGES = [
    remove_first, remove_middle, cut, cut_to_nothing, replace, overwrite, erase, take_another
]  # fmt: skip
ASKED: list[dict[str, Any]] = [
    {},
    {"topic": "rare"},
    {"topic": "big", "queue_id": 0},
    {"topic": "big", "keys": "k3 k4"},
]


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("moment", ["before", "between"])
@pytest.mark.parametrize("asked", ASKED, ids=["log", "queues", "queue", "index"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_log_gives_no_wrong_row(
    root: Path,
    change: Callable[[list[Path]], None],
    asked: dict[str, Any],
    moment: str,
    policy: str,
) -> None:
    """Rows of the log as it was, in order; what is missing is told unless it may be skipped."""
    good = all_rows(root, **asked)
    log = sorted((root / "commitlog").iterdir())
    found = []
    with rmqstore.open(root, "r", config=CONFIG) as opened:
        scan = opened.scan(**asked, on_corruption=policy, on_removed=policy, batch_rows=5)
        batches = scan.to_batches()
        if moment == "between":
            found += rows_of(next(batches))
        change(log)
        time.sleep(LISTED)
        error = take(batches, found)
    assert found == sorted(set(found) & set(good))
    if error is None:
        assert {row for row in good if row[0] >= 3 * LOG_SIZE} <= set(found)
        return
    assert policy == "raise"
    assert found == good[: len(found)]
    if isinstance(error, StoreCorruptError):
        assert Path(error.path) in log[1:3]
        assert LOG_SIZE <= error.offset < 3 * LOG_SIZE
    elif isinstance(error, MessagesRemovedError):
        assert error.offset < error.min_offset


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("victim", [0, 30, -2])
@pytest.mark.parametrize("asked", ASKED[1:3], ids=["queues", "queue"])
def test_a_queue_file_that_vanishes(
    root: Path, asked: dict[str, Any], victim: int, policy: str
) -> None:
    """Found in the log all the same, or told; not a row less without a word."""
    good = all_rows(root, **asked)
    files = sorted((root / "consumequeue" / asked["topic"] / "0").iterdir())
    with rmqstore.open(root, "r", config=CONFIG) as opened:
        assert opened.scan(**asked).count() == len(good)
        lost = files[victim % len(files)]
        lost.unlink()
        for _ in range(2):
            found: list[tuple[Any, ...]] = []
            scan = opened.scan(**asked, on_removed=policy, on_corruption=policy, batch_rows=5)
            error = take(scan.to_batches(), found)
            assert set(found) <= set(good)
            if error is None:
                assert policy == "skip" or found == good or "queue_id" in asked
                continue
            assert policy == "raise"
            at = len(found)
            if isinstance(error, StoreCorruptError):  # one in the middle is no retention
                assert Path(error.path) == lost
                at = (int(lost.name) + error.offset) // 20
            else:
                assert isinstance(error, MessagesRemovedError)
                assert (error.topic, error.queue_id) == (asked["topic"], 0)
                assert error.offset < error.min_offset <= len(good)
                at = error.offset
            assert found == good[:at]
            time.sleep(LISTED)


# Records that are bad


def bad_log(root: Path) -> list[tuple[int, Any]]:
    """A small store of one file; (offset, message) of its records."""
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(12):
            store.put("t", b"body %d" % number, queue_id=0, keys="k", tags="TagA")
        return [(message.physical_offset, message) for message in store.scan()]


@pytest.mark.parametrize("asked", [{}, {"topic": "t"}, {"topic": "t", "queue_id": 0}])
def test_bit_flips_over_a_small_log(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Only what its own checks accept is given, at the place where it is."""
    records = bad_log(tmp_path / "store")
    path = tmp_path / "store/commitlog/00000000000000000000"
    good = path.read_bytes()
    end = records[-1][0] + records[-1][1].store_size
    rng = random.Random(7)
    for _ in range(150):
        bad = bytearray(good)
        bad[rng.randrange(end)] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        intact = [
            message.physical_offset
            for at, message in records
            if bad[at : at + message.store_size] == good[at : at + message.store_size]
        ]
        assert len(intact) == len(records) - 1
        (broken,) = {at for at, _ in records} - set(intact)
        with rmqstore.open(tmp_path / "store", "r", config=CONFIG) as store:
            skipping = [m.physical_offset for m in store.scan(**asked, on_corruption="skip")]
            accepted = broken in skipping  # BODYCRC covers the body alone
            assert [at for at in skipping if at != broken] == intact[: len(skipping) - accepted]
            if len(skipping) - accepted < len(intact):  # the last one looks like the log's end
                assert broken == records[-1][0] or "topic" in asked
            stopping = [m.physical_offset for m in store.scan(**asked, on_corruption="stop")]
            assert stopping == skipping[: len(stopping)]
            table = store.scan(**asked, on_corruption="skip").to_table()
            table.validate(full=True)
            assert table["physical_offset"].to_pylist() == skipping
            raising: list[tuple[Any, ...]] = []
            error = take(store.scan(**asked, batch_rows=1).to_batches(), raising)
            assert [row[0] for row in raising] == stopping
            if error is None:
                assert stopping == skipping
            else:
                assert isinstance(error, StoreCorruptError)
                assert (error.path, error.offset) == (str(path), broken)


def encoded(number: int, body: bytes, **options: Any) -> bytes:
    return oracle.encode_record(
        "t", body, queue_id=0, queue_offset=number, store_timestamp=1, **options
    )


def store_of(root: Path, records: list[bytes]) -> Any:
    with rmqstore.CommitLog(root / "commitlog", file_size=LOG_SIZE, mode="a") as log:
        log.append(records)
    return rmqstore.open(root, "a", config=CONFIG)


def test_bodies_that_inflate_to_too_much_or_to_nothing(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(CONFIG.max_body_size + 1))
    most = zlib.compress(bytes(CONFIG.max_body_size))
    bodies = [b"a", bomb, most, most[:-5], b"no stream", b"", b"z"]
    records = [
        encoded(number, body, sys_flag=0 if body in (b"a", b"z") else 1)
        for number, body in enumerate(bodies)
    ]
    with store_of(tmp_path, records) as store:
        places = [message.physical_offset for message in store.scan()]
        assert len(places) == store.scan().count() == len(bodies)
        batches = store.scan(columns=["body"], batch_rows=1).to_batches()
        assert next(batches)["body"][0].as_py() == b"a"
        with pytest.raises(StoreCorruptError) as caught:
            next(batches)
        assert caught.value.offset == places[1]
        kept = store.scan(columns=["body"], on_corruption="skip").to_table()["body"].to_pylist()
        # An empty body is not inflated by Java either, whatever its flag says.
        assert kept == [b"a", bytes(CONFIG.max_body_size), b"", b"z"]
        stopped = store.scan(columns=["body"], on_corruption="stop").to_table()["body"]
        assert stopped.to_pylist() == [b"a"]
        raw = store.scan(columns=["raw_body", "sys_flag"]).to_table()["raw_body"].to_pylist()
        assert raw == bodies


def test_an_unknown_kind_of_compression(tmp_path: Path) -> None:
    records = [encoded(0, b"a"), encoded(1, b"?", sys_flag=1 | 7 << 8), encoded(2, b"z")]
    with store_of(tmp_path, records) as store:
        batches = store.scan(columns=["body"]).to_batches()
        assert next(batches)["body"].to_pylist() == [b"a"]
        with pytest.raises(StoreCorruptError, match="cannot be inflated"):
            next(batches)
        with pytest.raises(StoreCorruptError, match="unknown way 7"):
            _ = store["t"][0][1].body
        with pytest.raises(Exception, match="cannot be inflated"):
            pa.table(store.scan(columns=["body"]))
        rest = store.scan(columns=["body"], on_corruption="skip").to_table()
        assert rest["body"].to_pylist() == [b"a", b"z"]
        assert store.scan(columns=["raw_body"]).to_table().num_rows == 3


def test_records_within_records(tmp_path: Path) -> None:
    """Bodies that are records themselves, at their own place too: never taken for one."""
    records = [encoded(0, b"a" * 100)]
    for number in range(1, 9):
        place = sum(map(len, records)) + 84
        inner = oracle.encode_record("t", b"inner", queue_offset=number, physical_offset=place)
        records.append(encoded(number, inner + b"tail"))
    with store_of(tmp_path, records) as store:
        places = [message.physical_offset for message in store.scan()]
        assert len(places) == 9
        for start in range(places[-1] + 300):
            expected = [place for place in places if place >= start]
            assert [m.physical_offset for m in store.scan(start=start, columns=[])] == expected


# Streams


def test_a_streams_reader_gets_our_words(root: Path) -> None:
    path = sorted((root / "commitlog").iterdir())[1]
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 4, 0)
    path.write_bytes(data)
    with rmqstore.open(root, "r", config=CONFIG) as store:
        with pytest.raises(Exception, match=r"StoreCorruptError: .*MAGICCODE") as caught:
            pa.table(store.scan())
        assert str(path) in str(caught.value)
        reader = pa.RecordBatchReader.from_stream(store.scan(batch_rows=50))
        assert reader.read_next_batch().num_rows == 50
        with pytest.raises(Exception, match="MAGICCODE"):
            reader.read_all()


@pytest.mark.slow  # under a sanitizer what was freed is kept for a while
def test_streams_that_nobody_reads(store: Any) -> None:
    scan = store.scan(batch_rows=100)

    def once() -> None:
        scan.__arrow_c_stream__()
        scan.__arrow_c_schema__()
        next(scan.to_batches())
        next(pa.RecordBatchReader.from_stream(scan))

    for _ in range(20):
        once()
    before = resident()
    for _ in range(200):
        once()
    gc.collect()
    assert resident() - before < 16 << 20  # a pass holds more than 256 KiB


def resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_stream_of_a_store_that_was_closed(root: Path, mode: str) -> None:
    store = rmqstore.open(root, mode, config=CONFIG)
    fresh = pa.RecordBatchReader.from_stream(store.scan())
    begun = pa.RecordBatchReader.from_stream(store.scan(batch_rows=10))
    batches = store.scan(batch_rows=10).to_batches()
    messages = iter(store.scan())
    kept = [next(begun), next(batches), next(messages)]
    scan = store.scan()
    store.close()
    for reader in (fresh, begun):
        with pytest.raises(Exception, match="StoreClosedError"):
            reader.read_all()
    with pytest.raises(StoreClosedError):
        next(batches)
    with pytest.raises(StoreClosedError):
        list(messages)  # some of them had been taken already
    for call in (scan.count, scan.to_table, partial(list, scan)):
        with pytest.raises(StoreClosedError):
            call()
    with pytest.raises(StoreClosedError):
        store.scan()
    shutil.rmtree(root)
    del store, scan, fresh, begun, batches, messages
    gc.collect()
    assert kept[0].to_pylist() == kept[1].to_pylist()
    kept[0].validate(full=True)
    assert kept[2].body == kept[0]["body"][0].as_py()


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_scan_outlives_the_store_object(root: Path, mode: str) -> None:
    scan = rmqstore.open(root, mode, config=CONFIG).scan("big", columns=["body"])
    gc.collect()
    table = scan.to_table()
    stream = scan.__arrow_c_stream__()
    del scan
    gc.collect()
    reader = pa.RecordBatchReader._import_from_c_capsule(stream)
    assert reader.read_all() == table
    assert table.num_rows == COUNT - COUNT // 50
