"""Differences of stores and copies: none, only in one, by size, tag and contents."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import toolbox
from rmqstore.toolbox.copies.log_bytes import differing_bytes

pytestmark = pytest.mark.pure

CONFIG = rmqstore.StoreConfig.small().replace(mapped_file_size_commit_log=1 << 16)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rmqstore.open(tmp_path / "a", "a", config=CONFIG) as store:
        store.create_topic("orders", 2)
        for number in range(300):
            store.put("orders", b"body %3d" % number, queue_id=number % 2, tags="t")
        with store.consumer("orders", group="billing") as orders:
            next(iter(orders))
            orders.commit()
    return tmp_path / "a"


def found(a: Path, b: Path, **chosen: Any) -> list[tuple[Any, ...]]:
    rows = toolbox.difference(a, b, **chosen)
    return [(one.where, one.topic, one.queue_id, one.queue_offset, one.what) for one in rows]


def changed(root: Path, tmp_path: Path, messages: list[dict[str, Any]]) -> Path:
    """Return a store with the same messages but those at some numbers."""
    with (
        rmqstore.open(root) as old,
        rmqstore.open(tmp_path / "b", "a", config=CONFIG) as store,
    ):
        store.create_topic("orders", 2)
        for number, one in enumerate(old.scan()):
            fields = {"body": one.body, "tags": "t", **messages[number]}
            store.put("orders", fields.pop("body"), queue_id=one.queue_id, **fields)
    return tmp_path / "b"


@pytest.mark.parametrize("full", [False, True])
def test_equal(root: Path, tmp_path: Path, full: bool) -> None:
    assert found(root, root, full=full) == []
    with rmqstore.open(root) as store:
        store.snapshot(tmp_path / "b")
    assert found(root, tmp_path / "b", full=full) == []
    toolbox.extract(root, tmp_path / "c", "orders")
    assert found(root, tmp_path / "c", full=full) == []


@pytest.mark.parametrize("full", [False, True])
def test_only_in_one(root: Path, tmp_path: Path, full: bool) -> None:
    shutil.copytree(root, tmp_path / "b")
    with rmqstore.open(tmp_path / "b", "r+") as store:
        for _ in range(1000):
            store.put("orders", b"more", queue_id=1)
        store.create_topic("new", 1)
        store.put("new", b"first", queue_id=0)
    assert found(root, tmp_path / "b", full=full) == [
        ("b", "new", None, None, "entry in topics.json"),
        ("b", "new", 0, 0, "1 message"),
        ("b", "orders", 1, 150, "1,000 messages"),
    ]
    assert found(tmp_path / "b", root, full=full, topic="orders") == [
        ("a", "orders", 1, 150, "1,000 messages")
    ]


def test_sizes_tags_and_contents(root: Path, tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [{} for _ in range(300)]
    for number in (20, 22, 24):
        messages[number] = {"body": b"another length"}
    messages[51] = {"tags": "u"}
    messages[60] = {"body": b"BODY  60"}
    b = changed(root, tmp_path, messages)
    units = [
        ("both", "orders", 0, 10, "3 messages: size"),
        ("both", "orders", 1, 25, "1 message: tags"),
    ]
    offset = ("a", "orders", 0, None, "offset of group billing: 1")
    other = ("a", "orders", 1, None, "offset of group billing: 0")
    rows = found(root, b)
    assert rows[:2] == units
    assert all(row[4].startswith("offset of group") for row in rows[2:])
    assert set(rows[2:]) <= {offset, other}
    full = found(root, b, full=True)
    differing = {(row[2], row[3]): row[4] for row in full if row[3] is not None}
    assert "body" in differing[0, 30]
    assert differing[0, 10].endswith("size")


def test_bodies_that_were_inflated_on_the_way(tmp_path: Path) -> None:
    a, b, file = tmp_path / "a", tmp_path / "b", tmp_path / "all.jsonl"
    with rmqstore.open(a, "a", config=CONFIG.replace(compress_above=100)) as store:
        for number in range(30):
            body = b"body %3d" % number
            store.put("orders", body if number % 3 else body * 100, queue_id=0, tags="t")
    toolbox.export(a, file)
    toolbox.import_messages(file, b, keep_queues=True, config=CONFIG)
    assert len(found(a, b)) == 10
    assert found(a, b)[0] == ("both", "orders", 0, 0, "1 message: size")
    assert found(a, b, full=True) == found(b, a, full=True) == []
    text = file.read_text()
    assert text.count("body   6" * 100) == 1
    file.write_text(text.replace("body   6" * 100, "body   7" * 100))
    toolbox.import_messages(file, tmp_path / "c", keep_queues=True, config=CONFIG)
    assert found(a, tmp_path / "c", full=True) == [("both", "orders", 0, 6, "1 message: size")]


def test_two_imports_of_a_file(tmp_path: Path) -> None:
    a, b, file = tmp_path / "a", tmp_path / "b", tmp_path / "all.jsonl"
    lines = [f'{{"topic": "orders", "queue_id": 0, "body": "body {n:3}"}}' for n in range(20)]
    file.write_text("\n".join(lines))
    toolbox.import_messages(file, a, keep_queues=True, config=CONFIG)
    toolbox.import_messages(file, b, keep_queues=True, config=CONFIG)
    with rmqstore.open(a) as one, rmqstore.open(b) as other:
        assert [m.physical_offset for m in one.scan()] == [m.physical_offset for m in other.scan()]
        assert one["orders"][0][0].store_timestamp != other["orders"][0][0].store_timestamp
    assert "born_timestamp" in {
        field for row in found(a, b, full=True) for field in row[4].split(": ")[1].split(", ")
    }  # the file has none
    toolbox.export(a, file.with_name("times.jsonl"))
    for name in ("c", "d"):
        toolbox.import_messages(
            file.with_name("times.jsonl"), tmp_path / name, keep_queues=True, config=CONFIG
        )
    c, d = tmp_path / "c", tmp_path / "d"
    assert found(c, d) == found(c, d, full=True) == found(a, c, full=True) == []
    shutil.copytree(c, tmp_path / "copy")
    with rmqstore.open(c) as store:
        place = store["orders"][0][7].physical_offset
    with (tmp_path / "copy/commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(place + 63)  # of the store time; of a copy, it differs
        log.write(b"!")
    assert found(c, tmp_path / "copy", full=True) == [
        ("both", "orders", 0, 7, "1 message: store_timestamp")
    ]


def test_changed_bytes(root: Path, tmp_path: Path) -> None:
    b = tmp_path / "b"
    shutil.copytree(root, b)
    with rmqstore.open(root) as store:
        place = store["orders"][1][7].physical_offset + 95
    with (b / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(place)
        file.write(b"!")
    assert found(root, b) == []  # sizes and tags alone
    assert found(root, b, full=True) == [("both", "orders", 1, 7, "1 message: damaged in b")]
    assert found(b, root, full=True) == [("both", "orders", 1, 7, "1 message: damaged in a")]
    damaged = tmp_path / "c"
    shutil.copytree(b, damaged)
    assert found(b, damaged, full=True) == []  # alike


def test_bytes_of_no_message(root: Path, tmp_path: Path) -> None:
    with rmqstore.open(root, "r+") as store:
        for _ in range(200):
            store.put("orders", b"y" * 300, queue_id=0)
    shutil.copytree(root, tmp_path / "b")
    end = CONFIG.mapped_file_size_commit_log  # of a file, behind its last record
    with (tmp_path / "b/commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(end - 1)
        file.write(b"!")
    text = f"bytes of the log from {end - 1} to {end}, of no message in a queue"
    assert found(root, tmp_path / "b", full=True) == [("both", None, None, None, text)]


@pytest.mark.parametrize(
    ("last", "row"),
    [(False, (0, 0, "1 message: damaged in b")), (True, (1, 149, "1 message: properties"))],
)
def test_the_first_and_the_last_byte(
    root: Path, tmp_path: Path, last: bool, row: tuple[int, int, str]
) -> None:
    b = tmp_path / "b"
    shutil.copytree(root, b)
    with rmqstore.open(root) as store:
        extent = store.scan().extent()
        place = extent.stop - 1 if last else extent.start
    with (b / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    assert found(root, b, full=True) == [("both", "orders", *row)]


@pytest.mark.parametrize(
    ("place", "until"), [(0, 0), ((2 << 20) - 1, 0), (2 << 20, 2 << 20), (-1, 2 << 20)]
)
def test_logs_are_equal_by_regions(tmp_path: Path, place: int, until: int) -> None:
    config = CONFIG.replace(mapped_file_size_commit_log=4 << 20)
    with rmqstore.open(tmp_path / "a", "a", config=config) as store:
        store.put_many("t", [b"x" * 1000] * 3000)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with rmqstore.open(tmp_path / "a") as a, rmqstore.open(tmp_path / "b") as b:
        stop = a.scan().extent().stop
        assert a.core.equal_until(b.core, 0, stop) == stop
        assert a.core.equal_until(b.core, 100, stop - 1) == stop - 1
        with (tmp_path / "b" / "commitlog" / f"{0:020d}").open("r+b") as file:
            place %= stop
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        assert a.core.equal_until(b.core, 0, stop) == until
        assert a.core.equal_until(b.core, 0, place) == place
        assert a.core.equal_until(b.core, place + 1, stop) == stop
        assert differing_bytes(a, b, lambda done, total: None).common == [(place, place + 1)]


@pytest.mark.parametrize("length", [0, 8192, 20_001])
def test_a_log_that_is_cut_while_it_is_mapped(root: Path, tmp_path: Path, length: int) -> None:
    shutil.copytree(root, tmp_path / "b")
    with rmqstore.open(root) as a, rmqstore.open(tmp_path / "b") as b:
        stop = a.scan().extent().stop
        assert a.core.equal_until(b.core, 0, stop) == stop
        for store in (a, b):  # both: their zeros are equal
            os.truncate(Path(store.path) / "commitlog" / f"{0:020d}", length)
        assert a.core.equal_until(b.core, 0, stop) == 0
        cut = differing_bytes(a, b, lambda done, total: None)
        assert cut.common == [(length, stop)]


@pytest.mark.parametrize("offset", [1 << 40, (1 << 63) - 11, (1 << 63) - 1])
def test_a_unit_beyond_both_logs(root: Path, tmp_path: Path, offset: int) -> None:
    with (root / "consumequeue" / "orders" / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(7 * 20)
        file.write(offset.to_bytes(8, "big"))
    shutil.copytree(root, tmp_path / "b")
    assert found(root, tmp_path / "b") == []
    beyond = ("both", "orders", 1, 7, "1 message: missing in the log of a")
    assert found(root, tmp_path / "b", full=True) == [beyond]


def test_units_that_are_bad_beside_equal_or_inflated_messages(tmp_path: Path) -> None:
    a, b, file = tmp_path / "a", tmp_path / "b", tmp_path / "all.jsonl"
    with rmqstore.open(a, "a", config=CONFIG.replace(compress_above=100)) as store:
        for number in range(9):
            store.put("orders", b"body %3d" % number * 100, queue_id=0, tags="t")
    shutil.copytree(a, tmp_path / "sized")
    toolbox.export(a, file)
    toolbox.import_messages(file, b, keep_queues=True, config=CONFIG)

    def poke(root: Path, at: int) -> None:
        path = root / "consumequeue" / "orders" / "0" / f"{0:020d}"
        units = bytearray(path.read_bytes())
        units[at] ^= 8
        path.write_bytes(units)

    poke(tmp_path / "sized", 5 * 20 + 11)  # the size
    row = ("both", "orders", 0, 5, "1 message: size")
    assert found(a, tmp_path / "sized") == found(a, tmp_path / "sized", full=True) == [row]
    poke(b, 6 * 20 + 19)  # the tags code
    assert found(a, b, full=True) == [("both", "orders", 0, 6, "1 message: tags")]
    poke(b, 7 * 20 + 11)
    assert found(a, b, full=True)[1:] == [("both", "orders", 0, 7, "1 message: size")]


def test_settings_and_offsets(root: Path, tmp_path: Path) -> None:
    b = tmp_path / "b"
    shutil.copytree(root, b)
    toolbox.offsets_set(b, "billing", "last", apply=True)
    toolbox.offsets_set(b, "new", 5, topic="orders", queue_id=0, apply=True)
    text = (b / "config/topics.json").read_text()
    (b / "config/topics.json").write_text(text.replace('"perm":6', '"perm":4'))
    rows = found(root, b)
    assert rows[0] == ("both", "orders", None, None, "perm in topics.json: 6, 4")
    assert ("b", "orders", 0, None, "offset of group new: 5") in rows
    assert any(row[4].endswith(", 150") and row[0] == "both" for row in rows)


def test_retention_and_unknown_topics(root: Path, tmp_path: Path) -> None:
    with pytest.raises(rmqstore.TopicNotFoundError, match="in either; did you mean 'orders'"):
        found(root, root, topic="order")
    with rmqstore.open(tmp_path / "empty", "a", config=CONFIG) as store:
        store.create_topic("orders", 2)
    rows = found(root, tmp_path / "empty", full=True)
    assert [row for row in rows if "offset of" not in row[4]] == [
        ("a", "orders", 0, 0, "150 messages"),
        ("a", "orders", 1, 0, "150 messages"),
    ]


@pytest.mark.parametrize("named", [True, False], ids=["of-the-store", "by-path"])
def test_a_log_elsewhere_is_not_that_of_the_copy(root: Path, tmp_path: Path, named: bool) -> None:
    """The configuration names the log of one store, and is given for both."""
    b = tmp_path / "b"
    shutil.copytree(root, b)
    (root / "commitlog").rename(tmp_path / "log")
    config = CONFIG.replace(
        store_path_commit_log=str(tmp_path / "log"),
        store_path_root_dir=str(root) if named else None,
    )
    assert found(root, b, full=True, config=config) == []
    with rmqstore.open(b) as store:
        place = store["orders"][1][4].physical_offset
    with (b / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(place + 95)  # of the body
        file.write(b"#")
    assert [row[:4] for row in found(root, b, full=True, config=config)] == [
        ("both", "orders", 1, 4)
    ]
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path / 'log'}\nmappedFileSizeCommitLog={1 << 16}\n")
    assert len(found(b, root, full=True, config=conf)) == 1
