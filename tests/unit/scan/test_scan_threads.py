"""Scans whose parts are read side by side: arguments, ends, and what they leave behind."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from crash.checks import output_of
from rmqstore import ForkedStoreError, StoreClosedError, StoreCorruptError
from rmqstore.columns import side_by_side

pa = pytest.importorskip("pyarrow")

LOG_SIZE = 1 << 20
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=LOG_SIZE,
    mapped_file_size_consume_queue=20 * 500,
    max_hash_slot_num=100,
    max_index_num=400,
)
COUNT = 4000
COLUMNS = ("physical_offset", "queue_offset", "body")
ASKED: list[dict[str, Any]] = [{}, {"topic": "t", "queue_id": 0}]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log files of a MiB; four messages in five are in one queue."""
    path = tmp_path_factory.mktemp("scan") / "store"
    with rmqstore.open(path, "a", config=CONFIG) as store:
        store.put_many(
            ["other" if number % 5 == 0 else "t" for number in range(COUNT)],
            [b"%d " % number * 200 for number in range(COUNT)],
            queue_id=0,
        )
    return path


@pytest.fixture
def store(root: Path) -> Iterator[Any]:
    with rmqstore.open(root, "r", config=CONFIG) as opened:
        yield opened


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many parts, and none of their threads left after a test."""
    monkeypatch.setattr(side_by_side, "PART_BYTES", 100_000)
    monkeypatch.setattr(side_by_side, "PART_LEAST", 100_000)
    yield
    assert readers() == []


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rmq-scan"]


def begun(batches: Any) -> Any:
    """Batches taken until threads read the others."""
    for _ in range(3):
        next(batches)
    return batches


def open_files(root: Path) -> list[str]:
    """Log files that this process has open or mapped."""
    found = [line for line in Path("/proc/self/maps").read_text().split() if str(root) in line]
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(root / "commitlog"))]


@pytest.mark.parametrize(
    ("threads", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (1 << 31, ValueError),
        (True, TypeError),
        (2.5, TypeError),
        ("2", TypeError),
        (None, TypeError),
    ],
)
def test_wrong_threads(store: Any, threads: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="threads must be"):
        store.scan(threads=threads)
    with pytest.raises(error, match="threads must be"):
        store.scan().replace(threads=threads)


@pytest.mark.parametrize("asked", ASKED)
def test_each_form_gives_what_one_thread_gives(store: Any, asked: dict[str, Any]) -> None:
    alone, scan = store.scan(**asked), store.scan(**asked, threads=3)
    table = alone.to_table()
    assert scan.to_table() == table
    assert pa.table(scan) == table
    assert pa.schema(scan) == alone.schema
    assert pa.Table.from_batches(scan.to_batches()) == table
    assert scan.count() == alone.count() == table.num_rows
    assert list(scan) == list(alone)
    assert scan.dataset().to_table() == table
    assert scan.to_pandas().equals(alone.to_pandas())


@pytest.mark.parametrize("asked", ASKED)
def test_a_thousand_threads_are_a_few(store: Any, asked: dict[str, Any]) -> None:
    most = max(side_by_side.cores(), 8)
    batches = store.scan(**asked, columns=COLUMNS, threads=1000, batch_rows=50).to_batches()
    seen = [len(readers()) for _ in batches]
    assert 1 < max(seen) <= most
    batches = store.scan(**asked, stop=150_000 if not asked else 90, threads=1000).to_batches()
    assert max(len(readers()) for _ in batches) <= 2  # of no more than two parts


def test_no_thread_for_a_part_alone(store: Any) -> None:
    batches = store.scan(stop=90_000, threads=4, batch_rows=10).to_batches()
    assert {len(readers()) for _ in batches} == {0}


def test_a_few_rows_are_read_without_threads(store: Any) -> None:
    batches = store.scan(threads=4, batch_rows=10).to_batches()
    before = store.stats()["scanned_records"]
    for number in (1, 2):
        next(batches)
        assert readers() == []
        assert store.stats()["scanned_records"] - before == 10 * number
    next(batches)
    assert readers()


# Ends before the end


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("way", ["closed", "dropped", "thrown", "stream", "stream unread"])
def test_an_early_end_leaves_nothing(root: Path, asked: dict[str, Any], way: str) -> None:
    with rmqstore.open(root, "r", config=CONFIG) as store:
        scan = store.scan(**asked, threads=3, batch_rows=20)
        if way.startswith("stream"):
            reader = pa.RecordBatchReader.from_stream(scan)
            if way == "stream":
                begun(reader)
                assert readers()
            reader.close()
            del reader
        else:
            batches = begun(scan.to_batches())
            assert readers()
            if way == "closed":
                batches.close()
            elif way == "thrown":
                with pytest.raises(KeyboardInterrupt):
                    batches.throw(KeyboardInterrupt())
            del batches
        gc.collect()
        assert readers() == []
        assert scan.count() == store.scan(**asked).count()
    assert open_files(root) == []


@pytest.mark.parametrize("form", ["batches", "stream"])
def test_a_closed_store(root: Path, form: str) -> None:
    store = rmqstore.open(root, "r", config=CONFIG)
    scan = store.scan(threads=3, batch_rows=20)
    if form == "batches":
        batches = begun(scan.to_batches())
        store.close()
        with pytest.raises(StoreClosedError):
            next(batches)
    else:
        reader = pa.RecordBatchReader.from_stream(scan)
        begun(reader)
        store.close()
        with pytest.raises((OSError, pa.ArrowException), match="StoreClosedError"):
            reader.read_next_batch()
        reader.close()
    with pytest.raises(StoreClosedError):
        next(scan.to_batches())


def test_a_store_closed_at_any_time(root: Path) -> None:
    for number in range(20):
        store = rmqstore.open(root, "r", config=CONFIG)
        batches = store.scan(threads=3, batch_rows=20).to_batches()
        next(itertools.islice(batches, number, None))
        closing = threading.Thread(target=store.close)
        closing.start()
        with pytest.raises(StoreClosedError):
            deque(batches)
        closing.join()


def test_a_forked_child(root: Path) -> None:
    """A pass that was begun raises the same as with one thread, and waits for nobody."""
    with rmqstore.open(root, "r", config=CONFIG) as store:
        batches = begun(store.scan(threads=3, batch_rows=20).to_batches())
        child = os.fork()
        if child == 0:
            try:
                next(batches)
            except ForkedStoreError:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert sum(batch.num_rows for batch in batches) == COUNT - 3 * 20


# Exits with a pass half read, held by a global name.
LEFT = """
    import sys, rmqstore
    from rmqstore.columns import side_by_side

    side_by_side.PART_BYTES = side_by_side.PART_LEAST = 100_000
    store = rmqstore.open(sys.argv[1], "r")
    batches = store.scan(threads=3, batch_rows=20).to_batches()
    print([next(batches).num_rows for _ in range(3)])
"""


def test_an_interpreter_that_ends(root: Path) -> None:
    assert output_of(LEFT, root) == "[20, 20, 20]\n"


def test_a_consumer_that_waits_stops_the_threads(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "KEPT_BYTES", 20_000)
    batches = begun(store.scan(threads=2, batch_rows=10).to_batches())
    scanned = -1
    while scanned != (scanned := store.stats()["scanned_records"]):
        time.sleep(0.1)
    assert scanned <= (2 + 1) * (20_000 // 500 + 2 * 10)
    assert sum(batch.num_rows for batch in batches) == COUNT - 3 * 10


def test_no_more_threads_to_be_had(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert store.scan(threads=3).to_table() == store.scan().to_table()


# Writers beside


def test_the_end_is_that_of_the_beginning(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put_many(["t"] * 1000, [b"b" * 1000] * 1000, queue_id=0)
        for asked in ASKED:
            before = store.scan(**asked).count()
            batches = begun(store.scan(**asked, threads=3, batch_rows=20).to_batches())
            rows = 3 * 20
            store.put_many(["t"] * 500, [b"c" * 1000] * 500, queue_id=0)
            assert rows + sum(batch.num_rows for batch in batches) == before


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_beside_a_live_writer(tmp_path: Path, mode: str) -> None:
    """Each scan is a whole prefix of the log."""
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as writer:
        writer.put_many(["t"] * 1000, [b"b" * 700] * 1000, queue_id=0)
        assert writer.scan("t", 0).count() == 1000  # dispatched: a reader sees what its owner did
        ended = threading.Event()

        def put() -> None:
            for _ in range(30):
                writer.put_many(["t"] * 100, [b"c" * 700] * 100, queue_id=0)
            ended.set()

        writing = threading.Thread(target=put)
        reader = writer if mode == "r+" else rmqstore.open(tmp_path / "store", "r", config=CONFIG)
        writing.start()
        while True:
            last = ended.is_set()
            for asked in ASKED:
                scan = reader.scan(**asked, threads=3, columns=["queue_offset"])
                offsets = scan.to_table()["queue_offset"].to_pylist()
                assert offsets == list(range(len(offsets)))
                assert len(offsets) >= 1000
            if last:
                break
        writing.join()
        if reader is not writer:
            reader.close()
        assert writer.scan(threads=2).count() == 4000


# Damage


def taken(batches: Iterator[Any]) -> tuple[list[int], StoreCorruptError | None]:
    """Queue offsets of all batches to come, and the error after them."""
    found: list[int] = []
    try:
        for batch in batches:
            found += batch["queue_offset"].to_pylist()
    except StoreCorruptError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("policy", ["raise", "skip", "stop"])
@pytest.mark.parametrize("form", ["batches", "count", "stream"])
def test_damage_in_order(tmp_path: Path, policy: Any, form: str) -> None:
    """The first damage decides, although later parts are read before it is."""
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put_many(["t"] * 2000, [b"b" * 700] * 2000, queue_id=0)
        places = store.scan(columns=["physical_offset"]).to_table()["physical_offset"].to_pylist()
    bad = [300, 310, 1900]
    for number in bad:
        path = tmp_path / "store/commitlog" / f"{places[number] // LOG_SIZE * LOG_SIZE:020}"
        with path.open("r+b") as file:
            file.seek(places[number] % LOG_SIZE + 300)
            file.write(b"?")
    with rmqstore.open(tmp_path / "store", "r", config=CONFIG) as store:
        scan = store.scan(on_corruption=policy, columns=["queue_offset"], threads=3)
        wanted = [number for number in range(2000) if number not in bad]
        if policy != "skip":
            wanted = wanted[: bad[0]]
        if form == "batches":
            found, error = taken(scan.to_batches())
            assert found == wanted
            assert (error is not None) == (policy == "raise")
            assert error is None or error.offset == places[bad[0]]
        elif policy == "raise":
            with pytest.raises((StoreCorruptError, OSError, pa.ArrowException), match="BODYCRC"):
                scan.count() if form == "count" else pa.table(scan)
        else:
            assert (scan.count() if form == "count" else pa.table(scan).num_rows) == len(wanted)


def test_a_file_cut_under_the_threads(tmp_path: Path) -> None:
    """An error or the rows as they were; never a crash or a wrong row."""
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        store.put_many(["t"] * 4000, [b"b" * 700] * 4000, queue_id=0)
    files = sorted((tmp_path / "store/commitlog").iterdir())
    with rmqstore.open(tmp_path / "store", "r", config=CONFIG) as store:
        batches = begun(store.scan(columns=["queue_offset"], threads=3, batch_rows=20).to_batches())
        os.truncate(files[2], 5000)
        found, error = taken(batches)
        assert found == list(range(60, 60 + len(found)))
        assert 100 < len(found) < 4000
        assert error is not None
