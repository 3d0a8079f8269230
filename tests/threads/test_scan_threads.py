"""Scans in threads: beside writers, of one Scan, of a store that is closed, and after a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import ForkedStoreError, StoreClosedError
from support.forked_child import in_child

pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.threads

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=4000,
    max_hash_slot_num=1000,
    max_index_num=4000,
)
PATIENCE = 60
COUNT = 3000
LEAST = 20  # scans beside the writer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as store:
        put_some(store, 0, COUNT)
    return tmp_path / "store"


def put_some(store: Any, start: int, count: int) -> None:
    """One message in a hundred has a topic of its own."""
    numbers = range(start, start + count)
    store.put_many(
        ["rare" if number % 100 == 0 else "big" for number in numbers],
        [b"%d " % number * 40 for number in numbers],
        queue_id=[number % 3 for number in numbers],
        keys=[f"k{number % 50}" for number in numbers],
    )


def run_all(*works: Callable[[], object]) -> None:
    """Run all of them at once; what one raises is raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("reader", ["the writer's own", "another"])
def test_scans_beside_writers_are_snapshots(root: Path, reader: str) -> None:
    """What was there when a pass began, and nothing that came later: a prefix, whichever way."""
    stop = threading.Event()
    scanned = []
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        opened = store if reader != "another" else rmqstore.open(root, "r", config=CONFIG)

        def write() -> None:
            at = COUNT
            try:
                while len(scanned) < 60 and at < 20 * COUNT and not stop.wait(0.001):
                    put_some(store, at, 100)
                    at += 100
                while len(scanned) < LEAST and not stop.wait(0.001):
                    pass  # on a busy machine the scans take longer than the puts
            finally:
                stop.set()

        def scan(**arguments: Any) -> Callable[[], None]:
            def work() -> None:
                known = 0
                try:
                    while not stop.is_set():
                        least = store.stats()["dispatched_position"] if opened is store else 0
                        batches = opened.scan(**arguments, batch_rows=500).to_batches()
                        places = [
                            place
                            for batch in batches
                            for place in batch["physical_offset"].to_pylist()
                        ]
                        assert places == sorted(set(places))
                        assert len(places) >= known
                        known = len(places)
                        full = opened.scan(stop=places[-1] + 1, columns=[], **arguments).count()
                        assert full == len(places)  # none was left out then
                        assert len(arguments) or places[-1] + 1000 > least
                        scanned.append(known)
                finally:
                    stop.set()  # after an error nobody waits for more scans

            return work

        try:
            run_all(
                write,
                scan(),
                scan(topic="rare"),
                scan(topic="big"),
                scan(topic="rare", keys="k0 k10"),
            )
        finally:
            stop.set()
            if opened is not store:
                opened.close()
    assert len(scanned) >= LEAST


def test_the_end_of_a_pass_is_fixed_at_its_beginning(root: Path) -> None:
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        for arguments in ({}, {"topic": "rare"}, {"topic": "big", "queue_id": 1}):
            expected = store.scan(**arguments).to_table()
            batches = store.scan(**arguments, batch_rows=7).to_batches()
            stream = pa.RecordBatchReader.from_stream(store.scan(**arguments, batch_rows=7))
            taken = [next(batches)]
            taken_of_stream = [stream.read_next_batch()]
            put_some(store, 0, 500)
            assert pa.Table.from_batches([*taken, *batches]).combine_chunks() == expected
            assert pa.Table.from_batches([*taken_of_stream, *stream]).combine_chunks() == expected


def test_one_scan_in_many_threads(root: Path) -> None:
    """Each pass is its own; one stream that threads share gives each batch once."""
    with rmqstore.open(root, "r", config=CONFIG) as store:
        scan = store.scan("big", batch_rows=100)
        table = scan.to_table()
        run_all(*[lambda: check_equal(scan, table)] * 4)
        reader = pa.RecordBatchReader.from_stream(store.scan("big", batch_rows=10))
        shares: list[list[int]] = [[] for _ in range(4)]

        def share(taken: list[int]) -> Callable[[], None]:
            def work() -> None:
                while True:
                    try:
                        batch = reader.read_next_batch()
                    except StopIteration:
                        return
                    taken.extend(batch["physical_offset"].to_pylist())

            return work

        run_all(*map(share, shares))
        assert (
            sorted(place for taken in shares for place in taken)
            == table["physical_offset"].to_pylist()
        )


def check_equal(scan: Any, table: Any) -> None:
    for _ in range(3):
        assert scan.to_table() == table
        assert scan.count() == table.num_rows
        assert pa.table(scan) == table


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_closing_in_the_middle_of_passes(root: Path, mode: str) -> None:
    """Each pass ends with StoreClosedError, soon, and what it gave was right."""
    for _ in range(5):
        store = rmqstore.open(root, mode, config=CONFIG)
        expected = store.scan(columns=["body"]).to_table()["body"].to_pylist()
        begun = threading.Barrier(5, timeout=PATIENCE)

        def work(store: Any = store, begun: Any = begun, expected: Any = expected) -> None:
            rows: list[bytes] = []
            scan = store.scan(columns=["body"], batch_rows=10)
            batches = scan.to_batches()
            rows += next(batches)["body"].to_pylist()
            begun.wait()
            with pytest.raises(StoreClosedError):
                take_for_ever(scan, batches, rows, expected)
            assert rows == expected[: len(rows)]

        def close(store: Any = store, begun: Any = begun) -> None:
            begun.wait()
            store.close()

        run_all(close, work, work, work, work)


def take_for_ever(scan: Any, batches: Any, rows: list[bytes], expected: list[bytes]) -> None:
    while True:
        for batch in batches:
            rows += batch["body"].to_pylist()
        assert rows == expected
        rows.clear()
        batches = scan.to_batches()


@pytest.fixture
def begun(root: Path) -> Iterator[Any]:
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        yield store


def test_a_fork_in_the_middle_of_a_pass(begun: Any) -> None:
    """The child is refused; it may drop what it has; the parent goes on."""
    scan = begun.scan(batch_rows=100)
    batches = scan.to_batches()
    stream = pa.RecordBatchReader.from_stream(scan)
    first = [next(batches)]
    for work in (lambda: next(batches), scan.count, stream.read_next_batch):
        assert ForkedStoreError.__name__ in in_child(work)
    assert in_child(lambda: first[0].num_rows) == "100"
    table = pa.Table.from_batches([*first, *batches])
    assert table == scan.to_table().combine_chunks()
    assert stream.read_all() == scan.to_table()
    assert table.num_rows == COUNT
