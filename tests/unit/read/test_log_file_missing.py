"""A log file that is missing between others: every way of reading reports it, or shows the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import GetStatus, MessageStore, StoreCorruptError

CONFIG = rmqstore.StoreConfig.small(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=20 * 10
)
COUNT = 100
QUEUES = 2

Spoil = Callable[[Path], None]


def no_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def one_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/t/1")


def file_of_queue(place: int) -> Spoil:
    def remove(root: Path) -> None:
        for queue_id in range(QUEUES):
            sorted((root / f"consumequeue/t/{queue_id}").iterdir())[place].unlink()

    return remove


def no_index(root: Path) -> None:
    shutil.rmtree(root / "index")


SPOILED = {
    "queues": lambda _: None,
    "no-queues": no_queues,
    "one-queue": one_queue,
    "no-first-file": file_of_queue(0),
    "no-middle-file": file_of_queue(2),
    "no-last-file": file_of_queue(-1),
    "no-index": no_index,
}


class Lacking:
    """A store without one file of its log, and what was in that."""

    def __init__(self, root: Path, place: int, *, closed: bool, spoil: Spoil) -> None:
        self.root = root
        with rmqstore.open(root, "a", config=CONFIG) as store:
            puts = [
                store.put("t", b"%03d" % i + b"x" * 200, queue_id=i % QUEUES, keys=f"k{i}")
                for i in range(COUNT)
            ]
        self.log = sorted((root / "commitlog").iterdir())
        self.file = self.log[place]
        start = int(self.file.name)
        self.lost = [
            i
            for i in range(COUNT)
            if start <= puts[i].physical_offset < start + CONFIG.mapped_file_size_commit_log
        ]
        assert self.lost
        self.puts = puts
        self.kept = [i for i in range(COUNT) if i not in self.lost]
        self.file.unlink()
        spoil(root)
        if not closed:
            (root / "abort").touch()


@pytest.fixture(params=[True, False], ids=["closed", "killed"])
def closed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=SPOILED, ids=str)
def spoil(request: pytest.FixtureRequest) -> Spoil:
    return SPOILED[request.param]


def numbers(found: object) -> list[int]:
    return [int(message.body[:3]) for message in found]  # type: ignore[attr-defined]


def pages(store: MessageStore, queue_id: int) -> Iterator[rmqstore.Message]:
    at = store["t"][queue_id].min_offset
    while True:
        got = store.get("t", queue_id, at, 7)
        yield from got.messages
        if got.status is not GetStatus.FOUND and got.next_offset <= at:
            return
        at = got.next_offset


WAYS: dict[str, Callable[[MessageStore], object]] = {
    "get": lambda store: [list(pages(store, one)) for one in store["t"]],
    "iteration": lambda store: [list(queue) for queue in store["t"].values()],
    "reversed": lambda store: [list(reversed(queue)) for queue in store["t"].values()],
    "slice": lambda store: [queue[queue.min_offset :] for queue in store["t"].values()],
    "messages": lambda store: list(store["t"].messages()),
    "consumer": lambda store: list(store.consumer("t", group="g", start="first")),
    "scan": lambda store: store.scan().to_table(),
    "scan topic": lambda store: store.scan("t").to_table(),
    "scan queues": lambda store: [store.scan("t", one).to_table() for one in store["t"]],
    "count": lambda store: [store.scan("t", one).count() for one in store["t"]],
}


def check_rest(store: MessageStore, kept: list[int]) -> None:
    """Each way of reading has exactly these messages."""
    assert numbers(store.scan()) == kept
    assert numbers(store.scan("t")) == kept
    assert numbers(store["t"].messages()) == kept
    assert sorted(numbers(store.consumer("t", group="g", start="first"))) == kept
    for queue_id in range(QUEUES):
        of_queue = [i for i in kept if i % QUEUES == queue_id]
        assert numbers(store["t"][queue_id]) == of_queue
        assert numbers(pages(store, queue_id)) == of_queue
        assert numbers(store.scan("t", queue_id)) == of_queue


def test_a_file_in_the_middle(tmp_path: Path, spoil: Spoil, *, closed: bool) -> None:
    lacking = Lacking(tmp_path / "store", 3, closed=closed, spoil=spoil)
    with rmqstore.open(lacking.root) as store:
        assert store.recovery.damaged_files == (f"missing {lacking.file.name}",)
        for way in WAYS.values():
            with pytest.raises(StoreCorruptError, match="the file is missing; put it back") as told:
                way(store)
            assert told.value.path == str(lacking.file)
            assert told.value.offset // 4096 == int(lacking.file.name) // 4096
        for i in lacking.lost:
            with pytest.raises(rmqstore.MessageNotFoundError, match="missing between others; put"):
                store.at(lacking.puts[i].physical_offset)
            with pytest.raises(StoreCorruptError, match="the file is missing"):
                store["t"][i % QUEUES][i // QUEUES]
        for i in lacking.kept:
            assert int(store.at(lacking.puts[i].physical_offset).body[:3]) == i
            assert int(store["t"][i % QUEUES][i // QUEUES].body[:3]) == i
            assert numbers(store.query("t", f"k{i}")) == [i]
        skipping = {"on_corruption": "skip"}
        assert numbers(store.scan(**skipping)) == lacking.kept
        assert numbers(store.scan("t", **skipping)) == lacking.kept
        for queue_id in range(QUEUES):
            of_queue = numbers(store.scan("t", queue_id, **skipping))
            assert of_queue == [i for i in lacking.kept if i % QUEUES == queue_id]
    before = {path: path.read_bytes() for path in lacking.root.rglob("*") if path.is_file()}
    with pytest.raises(rmqstore.IncompatibleStoreError, match=r"is missing or overlaps .*put the"):
        rmqstore.open(lacking.root, "r+")
    assert before == {path: path.read_bytes() for path in lacking.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("index", [True, False])
def test_a_key_of_the_missing_file(tmp_path: Path, *, index: bool) -> None:
    """The index names the record; without one, nothing does, and opening reports the file."""
    spoil = SPOILED["queues" if index else "no-index"]
    lacking = Lacking(tmp_path / "store", 3, closed=True, spoil=spoil)
    with rmqstore.open(lacking.root) as store:
        for i in lacking.lost:
            if index:
                with pytest.raises(StoreCorruptError, match="the file is missing"):
                    store.query("t", f"k{i}")
                with pytest.raises(StoreCorruptError, match="the file is missing"):
                    store.query_many("t", [f"k{i}"])
            else:
                assert store.query("t", f"k{i}") == []


def test_the_first_file_is_as_after_retention(
    tmp_path: Path, spoil: Spoil, *, closed: bool
) -> None:
    lacking = Lacking(tmp_path / "store", 0, closed=closed, spoil=spoil)
    for mode in ("r", "r+"):
        with rmqstore.open(lacking.root, mode) as store:
            assert store.recovery.damaged_files == ()
            check_rest(store, lacking.kept)
            for i in lacking.lost:
                assert store.query("t", f"k{i}") == []
                with pytest.raises(rmqstore.MessageNotFoundError):
                    store.at(lacking.puts[i].physical_offset)


def test_the_last_file(tmp_path: Path, spoil: Spoil, *, closed: bool) -> None:
    """A closed store names its end, a killed one may end anywhere: what is there agrees."""
    lacking = Lacking(tmp_path / "store", -1, closed=closed, spoil=spoil)
    with rmqstore.open(lacking.root) as store:
        assert bool(store.recovery.ranges) == closed
        check_rest(store, lacking.kept)


def test_queues_that_end_in_the_missing_file(tmp_path: Path, *, closed: bool) -> None:
    """Their units name it: no message of theirs behind it shows that they go on."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for i in range(60):
            store.put("early" if i < 20 else "late", b"%03d" % i + b"x" * 200, queue_id=0)
    log = sorted((root / "commitlog").iterdir())
    log[1].unlink()
    if not closed:
        (root / "abort").touch()
    with rmqstore.open(root) as store:
        assert [store.queue_bounds(name, 0) for name in ("early", "late")] == [(0, 20), (0, 40)]
        queue = store["early"][0]
        with pytest.raises(StoreCorruptError, match="the file is missing; put it back") as told:
            list(queue)
        assert told.value.path == str(log[1])
        lost = [i for i in range(20) if queue.units()["physical_offset"][i] >= int(log[1].name)]
        assert lost
        assert lost[-1] == 19
        for i in range(20):
            if i in lost:
                with pytest.raises(StoreCorruptError, match="the file is missing"):
                    queue[i]
            else:
                assert queue[i].body.startswith(b"%03d" % i)
        assert numbers(store.scan("early", on_corruption="skip")) == list(range(lost[0]))


@pytest.mark.parametrize("how", ["removed", "short"])
def test_no_snapshot_of_a_log_that_lost_its_end(tmp_path: Path, how: str) -> None:
    """The copy would open clean, and give offsets to other messages."""
    lacking = Lacking(tmp_path / "store", -1, closed=True, spoil=lambda _: None)
    if how == "short":
        lacking.file.touch()
        lacking.file.write_bytes(b"")
    with rmqstore.open(lacking.root) as store:
        with pytest.raises(StoreCorruptError, match="no snapshot is made of such") as told:
            store.snapshot(tmp_path / "copy")
        assert told.value.path == str(lacking.file)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_errors_of_a_snapshot_name_the_store(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path / "store", 3, closed=True, spoil=lambda _: None)
    with (
        rmqstore.open(lacking.root) as store,
        pytest.raises(rmqstore.StoreError, match="no snapshot is made of such") as told,
    ):
        store.snapshot(tmp_path / "copy")
    assert str(lacking.root / "commitlog") in str(told.value)
    assert "unfinished" not in str(told.value)


def test_two_files(tmp_path: Path) -> None:
    """Each derived place names the file that may have had its message."""
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for i in range(COUNT):
            store.put("t", b"%03d" % i + b"x" * 200, queue_id=0)
            store.put("u", b"%03d" % i + b"x" * 200, queue_id=0)
    log = sorted((root / "commitlog").iterdir())
    for place in (2, 5):
        log[place].unlink()
    no_queues(root)
    with rmqstore.open(root) as store:
        assert store.recovery.damaged_files == tuple(f"missing {log[i].name}" for i in (2, 5))
        queue = store["t"][0]
        units = queue.units()
        lost = [int(one) for one in units["physical_offset"][units["size"] == 1]]
        assert sorted(set(lost)) == [int(log[2].name), int(log[5].name)]
        told = set()
        for offset in range(queue.min_offset, queue.max_offset):
            try:
                queue[offset]
            except StoreCorruptError as error:
                told.add(error.path)
        assert told == {str(log[2]), str(log[5])}


@pytest.mark.parametrize("spoil", [SPOILED["queues"], no_queues], ids=["queues", "no-queues"])
def test_a_scan_that_begins_in_the_missing_file(tmp_path: Path, spoil: Spoil) -> None:
    lacking = Lacking(tmp_path / "store", 3, closed=True, spoil=spoil)
    start = int(lacking.file.name)
    behind = [i for i in lacking.kept if lacking.puts[i].physical_offset > start]
    with rmqstore.open(lacking.root) as store:
        for inside in (0, 1, 100, 4095):
            for topic in (None, "t"):
                with pytest.raises(StoreCorruptError, match="the file is missing"):
                    store.scan(topic, start=start + inside).to_table()
                rest = store.scan(topic, start=start + inside, on_corruption="skip")
                assert numbers(rest) == behind
        assert numbers(store.scan(start=start + 4096)) == behind
        assert numbers(store.scan(stop=start)) == [i for i in lacking.kept if i not in behind]


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("listed", ["delayed", "in_doubt"])
def test_messages_that_wait_are_listed_as_damaged(
    tmp_path: Path, listed: str, *, queues: bool
) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for _ in range(COUNT):
            if listed == "delayed":
                store.put("t", b"x" * 200, delay_level=18, queue_id=0)
            else:
                store.begin("t", b"x" * 200)
    file = sorted((root / "commitlog").iterdir())[3]
    with rmqstore.open(root) as store:
        lost = sum(m.physical_offset // 4096 == int(file.name) // 4096 for m in store.scan())
    file.unlink()
    if not queues:
        no_queues(root)
    with rmqstore.open(root) as store:
        found = getattr(store, listed)()
        wrong = [one.error for one in found if one.error is not None]
        assert (len(found), len(wrong)) == (COUNT, lost)
        assert all("file is missing" in str(error) for error in wrong)
