"""What the executors say of good stores, and of each kind of damage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from conftest import BrokerStore
from rmqstore import toolbox
from rmqstore.files import paths
from rmqstore.offline import IndexFileReader, index, plan_log
from rmqstore.spark import verify
from rmqstore.spark.common.sight import seen
from rmqstore.spark.jobs import verify as tasks
from support import queue_ext, scan_model

pytestmark = pytest.mark.spark

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=20 * 30,
    max_hash_slot_num=50,
    max_index_num=200,
)
UNIT, ENTRY = 20, 20
ENTRIES_AT = 40 + 4 * 50


def rows_of(spark: Any, root: Path, step: int = 20_000, **options: Any) -> list[dict[str, Any]]:
    found = verify(spark, root, range_bytes=step, **options).collect()
    return sorted((row.asDict() for row in found), key=str)


def kinds(rows: list[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["kind"]] = counts.get(row["kind"], 0) + 1
    return counts


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verify") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for number in range(400):
            store.put(
                f"topic-{number % 3}",
                b"x" * (number % 200),
                queue_id=number % 2,
                keys=[f"k{number}"],
                uniq_key=False,
            )
    return root


@pytest.fixture
def root(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "store"))


def messages_of(root: Path) -> list[Any]:
    with rmqstore.open(root) as store:
        return list(store.scan())


def overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def queue_file(root: Path, message: Any) -> tuple[Path, int]:
    """The file and the place in it of a message's unit."""
    place = message.queue_offset * UNIT
    size = CONFIG.mapped_file_size_consume_queue
    name = paths.offset_file_name(place - place % size)
    folder = root / paths.CONSUME_QUEUE / message.topic / str(message.queue_id)
    return folder / name, place % size


def index_files(root: Path) -> list[Path]:
    return sorted((root / paths.INDEX).iterdir())


# ---- nothing to say


def test_good_store(spark: Any, good: Path) -> None:
    frame = verify(spark, good, range_bytes=20_000)
    assert frame.columns == [
        "kind", "topic", "queue_id", "queue_offset", "physical_offset", "file", "expected", "found",
    ]  # fmt: skip
    assert frame.collect() == []
    assert verify(spark, good).count() == 0
    assert len(index_files(good)) == 3


def test_index_files_of_three_entries_a_slot(spark: Any, tmp_path: Path) -> None:
    config = CONFIG.replace(max_index_num=150)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        store.put_many("T", [b"x"] * 400, keys=[f"k{number}" for number in range(400)])
    assert rows_of(spark, tmp_path / "store") == []
    files = index_files(tmp_path / "store")
    assert len(files) > 2
    with files[0].open("ab") as file:
        file.write(b"x")
    rows = rows_of(spark, tmp_path / "store")
    assert {row["kind"] for row in rows} == {"unreadable", "index_missing"}
    assert [files[0].name in row["found"] for row in rows if row["kind"] == "unreadable"] == [True]


@pytest.mark.parametrize("name", ["broker-clean", "broker-killed"])
def test_broker_stores(spark: Any, broker_store: Callable[[str], BrokerStore], name: str) -> None:
    assert rows_of(spark, broker_store(name).root, 100_000) == []


@pytest.mark.parametrize("seed", range(3))
def test_random_logs(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = scan_model.config(rng)
    records = scan_model.random_records(rng, 400, config.mapped_file_size_commit_log)
    scan_model.write_store(tmp_path, records, config)
    assert rows_of(spark, tmp_path, rng.choice([5000, 50_000]), config=config) == []


def test_deleted_topic_and_removed_files(spark: Any, root: Path) -> None:
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        store.delete_topic("topic-1")
        store.put("topic-1", b"again", keys=["new"])
    assert rows_of(spark, root) == []
    (root / paths.COMMIT_LOG / paths.offset_file_name(0)).unlink()
    assert rows_of(spark, root) == []


# ---- each kind of damage


def test_units(spark: Any, root: Path) -> None:
    missing, differing = messages_of(root)[50], messages_of(root)[70]
    path, place = queue_file(root, missing)
    overwrite(path, place, bytes(UNIT))
    other, at = queue_file(root, differing)
    overwrite(other, at + 11, b"\xff")
    last = [one for one in messages_of(root) if (one.topic, one.queue_id) == ("topic-2", 0)][-1]
    behind, end = queue_file(root, last)
    overwrite(behind, end + UNIT, (5).to_bytes(8, "big") + (91).to_bytes(4, "big") + bytes(8))
    size = differing.store_size
    assert rows_of(spark, root) == sorted(
        [
            {
                "kind": "unit_missing",
                "topic": missing.topic,
                "queue_id": missing.queue_id,
                "queue_offset": missing.queue_offset,
                "physical_offset": missing.physical_offset,
                "file": str(path),
                "expected": f"physical_offset={missing.physical_offset} "
                f"size={missing.store_size} tags_code=0",
                "found": None,
            },
            {
                "kind": "unit_differs",
                "topic": differing.topic,
                "queue_id": differing.queue_id,
                "queue_offset": differing.queue_offset,
                "physical_offset": differing.physical_offset,
                "file": str(other),
                "expected": f"physical_offset={differing.physical_offset} size={size} tags_code=0",
                "found": f"physical_offset={differing.physical_offset} "
                f"size={size | 0xFF} tags_code=0",
            },
            {
                "kind": "unit_extra",
                "topic": "topic-2",
                "queue_id": 0,
                "queue_offset": last.queue_offset + 1,
                "physical_offset": 5,
                "file": str(behind),
                "expected": None,
                "found": "physical_offset=5 size=91 tags_code=0",
            },
        ],
        key=str,
    )


def as_the_toolbox(root: Path, rows: list[dict[str, Any]]) -> None:
    """Both name the same units: missing ones, and those that are other than the log's."""
    found = toolbox.verify(root, full=True).problems
    units = {one.kind for one in found if one.kind in ("unit-missing", "unit-mismatch")}
    named = {one["kind"] for one in rows if one["kind"] in ("unit_missing", "unit_differs")}
    assert {one.replace("mismatch", "differs").replace("-", "_") for one in units} == named


def test_a_record_that_its_queue_cannot_reach(spark: Any, root: Path) -> None:
    message = messages_of(root)[200]
    log = root / paths.COMMIT_LOG / paths.offset_file_name(0)
    overwrite(log, message.physical_offset + 20, (1 << 40).to_bytes(8, "big"))
    [row] = rows_of(spark, root)  # the unit that the record had
    assert (row["kind"], row["queue_offset"]) == ("unit_extra", message.queue_offset)
    as_the_toolbox(root, [row])
    following = messages_of(root)[206]  # of the same queue, and missing as well
    path, place = queue_file(root, following)
    overwrite(path, place, bytes(UNIT))
    found = rows_of(spark, root)
    assert kinds(found) == {"unit_extra": 1, "unit_missing": 1}
    assert [one["queue_offset"] for one in found] == [message.queue_offset, following.queue_offset]
    as_the_toolbox(root, found)


def test_a_tags_code_like_an_ext_address(spark: Any, root: Path) -> None:
    message = messages_of(root)[70]
    path, place = queue_file(root, message)
    overwrite(path, place + 12, (-(1 << 63) + 5).to_bytes(8, "big", signed=True))
    [row] = rows_of(spark, root)
    assert (row["kind"], row["queue_offset"]) == ("unit_differs", message.queue_offset)
    assert row["expected"].endswith("tags_code=0")
    assert row["found"].endswith(f"tags_code={-(1 << 63) + 5}")
    as_the_toolbox(root, [row])


def test_ext_units(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "ext"
    with rmqstore.open(root, "a", config=queue_ext.config()) as store:
        queue_ext.fill(store, 0, 40)
    assert rows_of(spark, root) == []
    overwrite(root / f"consumequeue_ext/T/0/{0:020}", 22, b"\1" * 8)  # the second's tags code
    [row] = rows_of(spark, root)
    assert (row["kind"], row["topic"], row["queue_id"], row["queue_offset"]) == (
        "unit_differs", "T", 0, 1)  # fmt: skip


def test_lost_queue(spark: Any, root: Path) -> None:
    shutil.rmtree(root / paths.CONSUME_QUEUE / "topic-0" / "1")
    lost = [one for one in messages_of(root) if (one.topic, one.queue_id) == ("topic-0", 1)]
    rows = rows_of(spark, root)
    assert {(row["kind"], row["topic"], row["queue_id"]) for row in rows} == {
        ("unit_missing", "topic-0", 1)
    }
    assert sorted(row["physical_offset"] for row in rows) == [one.physical_offset for one in lost]


def test_foreign_queue(spark: Any, root: Path) -> None:
    """A queue that no record names, all units of which are those of another one."""
    shutil.copytree(
        root / paths.CONSUME_QUEUE / "topic-0" / "1", root / paths.CONSUME_QUEUE / "other" / "7"
    )
    count = sum((one.topic, one.queue_id) == ("topic-0", 1) for one in messages_of(root))
    rows = rows_of(spark, root)
    assert kinds(rows) == {"unit_extra": count}
    assert {(row["topic"], row["queue_id"]) for row in rows} == {("other", 7)}


@pytest.mark.parametrize("step", [1000, 20_000, 1 << 20])
def test_record(spark: Any, root: Path, step: int) -> None:
    """Its unit and its key name what is not there any more."""
    damaged = messages_of(root)[250]
    log = root / paths.COMMIT_LOG / paths.offset_file_name(damaged.physical_offset // 65536 * 65536)
    overwrite(log, damaged.physical_offset % 65536 + 88, b"?")
    rows = rows_of(spark, root, step)
    assert kinds(rows) == {"record_corrupt": 1, "unit_extra": 1, "index_extra": 1}
    assert {row["physical_offset"] for row in rows} == {damaged.physical_offset}
    (row,) = (row for row in rows if row["kind"] == "record_corrupt")
    assert row["file"] == str(log)
    assert (row["topic"], row["queue_id"], row["queue_offset"]) == (None, None, None)
    assert "BODYCRC" in row["found"]


def test_zeros_in_the_log(spark: Any, root: Path) -> None:
    """They are the end only where no record follows."""
    some = messages_of(root)
    start, stop = some[100].physical_offset, some[110].physical_offset
    overwrite(root / paths.COMMIT_LOG / paths.offset_file_name(0), start, bytes(stop - start))
    for step in (stop - start, 20_000):
        rows = rows_of(spark, root, step)
        assert kinds(rows) == {"record_corrupt": 1, "unit_extra": 10, "index_extra": 10}
        assert start in [row["physical_offset"] for row in rows if row["kind"] == "record_corrupt"]


def test_torn_end(spark: Any, root: Path) -> None:
    last = messages_of(root)[-1]
    log = sorted((root / paths.COMMIT_LOG).iterdir())[last.physical_offset // 65536]
    overwrite(log, last.physical_offset % 65536 + 8, b"torn")
    assert kinds(rows_of(spark, root)) == {"record_corrupt": 1, "unit_extra": 1, "index_extra": 1}


def test_index_entries(spark: Any, root: Path) -> None:
    """An entry that names another record's place, one with another time."""
    path = index_files(root)[1]
    place = ENTRIES_AT + 77 * ENTRY
    before = path.read_bytes()[place : place + ENTRY]
    overwrite(path, place + 4, (3).to_bytes(8, "big"))
    timed = ENTRIES_AT + 120 * ENTRY
    overwrite(path, timed + 12, (9).to_bytes(4, "big"))
    rows = rows_of(spark, root)
    assert kinds(rows) == {"index_missing": 1, "index_extra": 1, "index_differs": 1}
    found = {row["kind"]: row for row in rows}
    wanted = int.from_bytes(before[4:12], "big")
    key_hash = int.from_bytes(before[:4], "big")
    assert found["index_missing"]["physical_offset"] == wanted
    assert found["index_missing"]["expected"] == f"key_hash={key_hash}"
    assert found["index_extra"]["physical_offset"] == 3
    assert found["index_extra"]["found"] == f"entry 77: key_hash={key_hash}"
    assert found["index_differs"]["expected"] == "0 s after the first"
    assert found["index_differs"]["found"] == "9 s after the first"
    assert {row["file"] for row in rows} == {str(path), None}


def test_index_chains(spark: Any, root: Path) -> None:
    path = index_files(root)[0]
    overwrite(path, ENTRIES_AT + 150 * ENTRY + 16, (149).to_bytes(4, "big"))
    overwrite(path, 40 + 4 * 7, (1).to_bytes(4, "big"))
    rows = rows_of(spark, root)
    assert kinds(rows) == {"index_chain": 2}
    assert {row["found"] for row in rows} == {
        "entry 150 leads to entry 149",
        "slot 7 leads to entry 1",
    }


def test_lost_index_file(spark: Any, root: Path) -> None:
    index_files(root)[1].unlink()
    assert kinds(rows_of(spark, root)) == {"index_missing": 199}


def test_index_file_of_another_size(spark: Any, root: Path) -> None:
    path = index_files(root)[2]
    path.write_bytes(path.read_bytes()[:-1])
    rows = rows_of(spark, root)
    assert kinds(rows) == {"unreadable": 1, "index_missing": 2}
    assert str(path) in next(row["found"] for row in rows if row["kind"] == "unreadable")


def test_refusals(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(rmqstore.StoreNotFoundError):
        verify(spark, tmp_path / "nowhere")
    with pytest.raises(TypeError, match="config must be StoreConfig"):
        verify(spark, tmp_path, config=3)  # type: ignore[arg-type]


def test_tasks_close_the_index_files(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Reader] = []

    class Reader(IndexFileReader):
        closed = False

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            opened.append(self)

        def close(self) -> None:
            super().close()
            self.closed = True

    monkeypatch.setattr(tasks, "IndexFileReader", Reader)  # of the files' own checks,
    monkeypatch.setattr(index, "IndexFileReader", Reader)  # and of their entries
    files = tuple(map(str, sorted((good / paths.INDEX).iterdir())))
    plan = plan_log(good, CONFIG, range_bytes=20_000)
    check = tasks._Check(plan, files, seen(str(good)))
    for number in range(plan.count + len(files)):
        list(check._rows_of(number))
    assert len(opened) == len(files) * (plan.count + 1)
    assert all(one.closed for one in opened)
