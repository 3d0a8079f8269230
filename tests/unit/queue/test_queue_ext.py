"""consumequeue_ext: written beside the queue, used by filters, kept with it, removed with it."""

from __future__ import annotations

import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import rmqstore
from rmqstore import GetStatus, IncompatibleStoreError, StoreConfig
from support import oracle, oracle_ext, oracle_store
from support.queue_ext import FILE, TAGS, config, fill

WITHOUT = config(enable_consume_queue_ext=False)


def make(root: Path, count: int = 200, **changes: Any) -> Path:
    with rmqstore.open(root, "a", config=config(**changes)) as store:
        fill(store, 0, count)
    return root


def killed(store: rmqstore.MessageStore, to: Path) -> Path:
    """What a process leaves that is killed now, everything being dispatched."""
    store.get("T", 0, 1 << 40)
    shutil.copytree(store.path, to)
    return to


def codes(root: Path, queue_id: int = 0, topic: str = "T") -> list[int]:
    queue = oracle_store.read_queue(root / "consumequeue" / topic / str(queue_id))
    return [code for _, _, code in queue]


def tagged(store: rmqstore.MessageStore, tags: str, queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while True:
        got = store.get("T", queue_id, at, 32, tags=tags)
        found += [message.body for message in got.messages]
        if got.next_offset <= at or got.status is GetStatus.OFFSET_OVERFLOW_ONE:
            return found
        at = got.next_offset


def wanted(tags: str, count: int, queue_id: int = 0) -> list[bytes]:
    names = [name.strip() for name in tags.split("||")]
    return [b"%d" % i for i in range(queue_id, count, 2) if TAGS[i % 5] in names]


def test_bytes_of_a_unit_and_of_the_end_of_a_file(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 200)
    records = [one for one in oracle_store.walk_log(root / "commitlog") if one.queue_id == 0]
    files = oracle_ext.read_files(root / "consumequeue_ext/T/0")
    assert list(files) == [0, 1000, 2000]
    each = (FILE - 4) // 20
    for n, record in enumerate(records):
        start, at = FILE * (n // each), 20 * (n % each)
        unit = struct.pack(">hqqh", 20, record.tags_code, record.store_timestamp, 0)
        assert files[start][at : at + 20] == unit, n
        assert codes(root)[n] == -(1 << 63) + start + at
    assert files[0][20 * each :] == b"\xff\xff" + bytes(FILE - 20 * each - 2)
    assert len(oracle_ext.check_ext(root)) == 200


def test_the_smallest_file_has_one_unit(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 10, mapped_file_size_consume_queue_ext=24)
    files = oracle_ext.read_files(root / "consumequeue_ext/T/0")
    assert list(files) == [0, 24, 48, 72, 96]
    assert len(oracle_ext.check_ext(root)) == 10


def test_a_file_without_room_for_a_bit_map_leaves_plain_codes(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config(mapped_file_size_consume_queue_ext=24)) as store:
        store.core.set_bitmap_filters({"T": [("a = 1", [0, 1, 2])]}, 14)
        fill(store, 0, 20)
        assert tagged(store, "TagA") == wanted("TagA", 20)
    assert codes(root) == [oracle.tags_code(TAGS[i % 5]) for i in range(0, 20, 2)]
    assert oracle_ext.ext_of(root, "T", 0) == {}


def test_units_and_ext_units(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 100)
    with rmqstore.open(root, "r") as store:
        queue = store["T"][1]
        ext = queue.ext_units()
        assert queue.units()["tags_code"].tolist() == codes(root, 1)
        assert ext["tags_code"].tolist() == [
            oracle.tags_code(TAGS[i % 5]) for i in range(1, 100, 2)
        ]
        assert ext["store_timestamp"].tolist() == [one.store_timestamp for one in queue]
        assert ext["bitmap_size"].tolist() == [0] * 50
        assert ext["bitmap"].shape == (50, 0)
        assert len(queue.ext_units(10, 20)) == 10
        with pytest.raises(IndexError, match="units 0 to 51"):
            queue.ext_units(0, 51)
    shutil.rmtree(root / "consumequeue_ext")
    with rmqstore.open(root, "r") as store:
        ext = store["T"][1].ext_units()
        assert ext["bitmap_size"].tolist() == ext["store_timestamp"].tolist() == [-1] * 50
        assert ext["tags_code"].tolist() == codes(root, 1)


def test_delivery_times_lie_in_the_ext_unit(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config()) as store:
        for level in (18, 3, 17):
            store.put("T", b"later", delay_level=level)
        queue = next(iter(store["SCHEDULE_TOPIC_XXXX"].values()))
        assert len(queue) > 0
    found = oracle_ext.check_ext(root)
    delayed = {key: one for key, one in found.items() if key[0] == "SCHEDULE_TOPIC_XXXX"}
    assert sorted(one.tags_code - one.store_timestamp for one in delayed.values()) == [
        10_000,
        3_600_000,
        7_200_000,
    ]


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("given", [None, config(), WITHOUT])
@pytest.mark.parametrize("state", ["closed", "killed", "no ext", "zeros", "short", "garbage"])
def test_filters_find_the_same_whatever_the_ext_files_are(
    tmp_path: Path, mode: str, given: StoreConfig | None, state: str
) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config()) as store:
        fill(store, 0, 300)
        if state == "killed":
            root = killed(store, tmp_path / "killed")
    ext = root / "consumequeue_ext"
    if state == "no ext":
        shutil.rmtree(ext)
    for path in ext.rglob("0*0"):
        if state == "zeros":
            path.write_bytes(bytes(FILE))
        elif state == "short" and path.is_file():
            path.write_bytes(path.read_bytes()[:333])
        elif state == "garbage" and path.is_file():
            path.write_bytes(b"\x7f" * FILE)
    with rmqstore.open(root, mode, config=given) as store:
        for tags in ("TagA", "TagA || TagB", "a||b", "nobody"):
            for queue_id in (0, 1):
                assert tagged(store, tags, queue_id) == wanted(tags, 300, queue_id), tags
            for queue_id in (0, 1):
                rows = pyarrow.table(store.scan("T", queue_id, tags=tags, columns=["body"]))
                assert rows["body"].to_pylist() == wanted(tags, 300, queue_id), tags
        if mode == "r+":
            fill(store, 300, 100)
            assert tagged(store, "TagB") == wanted("TagB", 400)
    if mode == "r+" and given is not WITHOUT and given is not None:
        with rmqstore.open(root, "r+", config=given, verify="full") as store:
            assert tagged(store, "TagB") == wanted("TagB", 400)
        oracle_ext.check_ext(root, orphans=True)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("given", [None, config(), WITHOUT])
def test_the_code_of_the_ext_unit_is_what_filters_ask(
    tmp_path: Path, mode: str, given: StoreConfig | None
) -> None:
    root = make(tmp_path / "s", 40)
    path = root / "consumequeue_ext/T/0/00000000000000000000"
    data = bytearray(path.read_bytes())
    of_tag_b = oracle.tags_code("TagB")
    struct.pack_into(">q", data, 20 * 3 + 2, of_tag_b)  # of the message 6, which has TagA
    path.write_bytes(data)
    with rmqstore.open(root, mode, config=given) as store:
        assert b"6" in [one.body for one in store["T"][0]]
        assert b"6" not in tagged(store, "TagA")
        assert b"6" not in tagged(store, "TagB")  # by the record's own
        rows = pyarrow.table(store.scan("T", 0, tags="TagA", columns=["body"], start=0, stop=20))
        assert store["T"][0].ext_units()["tags_code"][3] == of_tag_b
        assert rows["body"].to_pylist() == [one for one in wanted("TagA", 40) if one != b"6"]


def test_a_reader_beside_a_writer(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config()) as store:
        fill(store, 0, 10)
        store.get("T", 0, 1 << 40)
        with rmqstore.open(root, "r") as reader:
            for count in range(10, 400, 60):
                until = time.monotonic() + 60
                while len(reader["T"][0]) < count // 2 and time.monotonic() < until:
                    time.sleep(0.02)  # it looks for new files every 100 ms
                assert tagged(reader, "TagA") == wanted("TagA", count)
                assert (reader["T"][0].ext_units()["bitmap_size"] == 0).all()
                fill(store, count, 60)
                store.get("T", 0, 1 << 40)
            store.delete_topic("T")
            fill(store, 1000, 10)
            store.get("T", 0, 1 << 40)
            ours = store["T"][0].ext_units()
            assert ours["tags_code"].tolist() == [
                oracle.tags_code(TAGS[i % 5]) for i in range(1000, 1010, 2)
            ]
    assert len(oracle_ext.check_ext(root)) == 10


def test_deleted_with_the_topic_and_begun_anew(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 200)
    with rmqstore.open(root, "r+", config=config()) as store:
        store.delete_topic("T")
        assert not (root / "consumequeue_ext/T").exists()
        fill(store, 0, 50)
    assert min(codes(root)) == -(1 << 63)
    assert len(oracle_ext.check_ext(root)) == 50
    with rmqstore.open(root, "r+") as store:
        store.delete_topic("T")
    assert list((root / "consumequeue_ext").iterdir()) == []


def test_switched_off_and_on_again(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 60)
    count = 60
    for given in (WITHOUT, config(), None, config(), WITHOUT):
        with rmqstore.open(root, "r+", config=given) as store:
            fill(store, count, 30)
            count += 30
            assert tagged(store, "TagA || b") == wanted("TagA || b", count)
    found = oracle_ext.check_ext(root)
    assert {key[2] for key in found if key[1] == 0} == {*range(30), *range(45, 60), *range(75, 90)}


def test_a_queue_that_had_none_gets_them(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=WITHOUT) as store:
        fill(store, 0, 100)
    assert not (root / "consumequeue_ext").exists()
    with rmqstore.open(root, "r+", config=config()) as store:
        fill(store, 100, 20)
    assert len(oracle_ext.check_ext(root)) == 20
    assert codes(root)[:50] == [oracle.tags_code(TAGS[i % 5]) for i in range(0, 100, 2)]


def test_stale_files_without_a_unit_that_names_them(tmp_path: Path) -> None:
    """As when the queue was made anew from the log by somebody who writes no ext units."""
    root = make(tmp_path / "s", 200)
    shutil.rmtree(root / "consumequeue/T/0")
    (root / "abort").touch()
    with rmqstore.open(root, "r+", config=WITHOUT):
        pass
    with rmqstore.open(root, "r+", config=config()) as store:
        fill(store, 200, 20)
    assert [code <= -(1 << 31) - 1 for code in codes(root)] == [False] * 100 + [True] * 10
    oracle_ext.check_ext(root)


@pytest.mark.parametrize("lost", [[5], [0, 1], [20, 21, 22, 99], list(range(60, 100))])
def test_lost_units_find_their_ext_units_again(tmp_path: Path, lost: list[int]) -> None:
    """The bit maps with them, which could not be made again."""
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config()) as store:
        store.core.set_bitmap_filters({"T": [("TAGS = 'a'", [1, 9, 12])]}, 2)
        fill(store, 0, 200)
        expected = store["T"][0].ext_units()
        root = killed(store, tmp_path / "killed")
    before = codes(root)
    for n in lost:
        path = root / f"consumequeue/T/0/{n * 20 // 400 * 400:020d}"
        data = bytearray(path.read_bytes())
        data[n * 20 % 400 : n * 20 % 400 + 20] = bytes(20)
        path.write_bytes(data)
    (root / "checkpoint").unlink(missing_ok=True)
    with rmqstore.open(root, "r+", config=config()) as store:
        found = store["T"][0].ext_units()
    for name in ("tags_code", "store_timestamp", "bitmap_size"):
        assert found[name].tolist() == expected[name].tolist()
    for address, one, other in zip(before, found, expected, strict=True):
        start = (address + (1 << 63)) % FILE
        doubtful = start // 512 != (start + 21) // 512 and not other["bitmap"].any()
        assert one["bitmap"].tolist() == ([255] * 2 if doubtful else other["bitmap"].tolist())
    assert codes(root) == before
    assert len(oracle_ext.check_ext(root)) == 200


def test_a_bit_map_whose_sector_is_lost_excludes_nobody(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config(mapped_file_size_consume_queue_ext=2000)) as store:
        store.core.set_bitmap_filters({"T": [("TRUE", [3, 170])]}, 24)
        fill(store, 0, 60)
        root = killed(store, tmp_path / "killed")
    path = root / "consumequeue_ext/T/0/00000000000000000000"
    data = bytearray(path.read_bytes())
    data[512:1024] = bytes(512)  # in the unit at 484: its head lies before, and 8 bytes of its bits
    path.write_bytes(data)
    (root / "checkpoint").unlink(missing_ok=True)
    given = config(mapped_file_size_consume_queue_ext=2000)
    with rmqstore.open(root, "r+", config=given) as store:
        ext = store["T"][0].ext_units()
    whole = [0x08, *bytes(20), 0x04, 0, 0]
    assert [one["bitmap"].tolist() for one in ext[:11]] == [whole] * 11
    assert ext[11]["bitmap"].tolist() == [0x08, *bytes(7), *[0xFF] * 16]
    assert ext["bitmap_size"][12:].tolist() == [0] * 12 + [24] * 6  # nobody has subscribed
    oracle_ext.check_ext(root, orphans=True)


@pytest.mark.parametrize("start", [0, 40, 1000, 1960])
def test_lost_ext_units_are_written_anew(tmp_path: Path, start: int) -> None:
    root = tmp_path / "s"
    with rmqstore.open(root, "a", config=config()) as store:
        fill(store, 0, 200)
        root = killed(store, tmp_path / "killed")
    path = root / f"consumequeue_ext/T/0/{start // FILE * FILE:020d}"
    data = bytearray(path.read_bytes())
    data[start % FILE :] = bytes(FILE - start % FILE)
    path.write_bytes(data)
    (root / "checkpoint").unlink(missing_ok=True)
    with rmqstore.open(root, "r+", config=config()) as store:
        assert (store["T"][0].ext_units()["bitmap_size"] == 0).all()
        assert tagged(store, "TagA") == wanted("TagA", 200)
    assert len(oracle_ext.check_ext(root, orphans=True)) == 200


def test_a_stale_address_never_names_another_message(tmp_path: Path) -> None:
    """The ext files are gone: those of the units that name them are made anew."""
    root = make(tmp_path / "s", 100)
    shutil.rmtree(root / "consumequeue_ext")
    with rmqstore.open(root, "r+", config=config()) as store:
        fill(store, 100, 100)
        assert tagged(store, "TagA || b") == wanted("TagA || b", 200)
        assert store["T"][0].ext_units()["bitmap_size"].tolist() == [0] * 100
    assert len(oracle_ext.check_ext(root, orphans=True)) == 200


@pytest.mark.parametrize("size", [FILE + 20, FILE - 20])
def test_files_of_another_size_are_refused_by_name(tmp_path: Path, size: int) -> None:
    root = make(tmp_path / "s", 200)
    before = oracle_store.snapshot(root)
    with pytest.raises(IncompatibleStoreError, match=r"consumequeue_ext/T/[01]/0000"):
        rmqstore.open(root, "r+", config=config(mapped_file_size_consume_queue_ext=size))
    assert oracle_store.snapshot(root) == before
    foreign = root / "consumequeue_ext/T/1/notes"
    foreign.touch()
    with pytest.raises(IncompatibleStoreError, match="notes: a foreign file"):
        rmqstore.open(root, "r+", config=config())
    with rmqstore.open(root, "r+") as store:  # whoever writes none does not mind
        assert tagged(store, "TagA", 1) == wanted("TagA", 200, 1)


def test_where_no_ext_unit_can_be_written_the_plain_code_is(tmp_path: Path) -> None:
    root = tmp_path / "s"
    root.mkdir()
    (root / "consumequeue_ext").write_bytes(b"in the way")
    with rmqstore.open(root, "a", config=config()) as store:
        fill(store, 0, 50)
        assert tagged(store, "TagA") == wanted("TagA", 50)
        store.flush()
    assert codes(root) == [oracle.tags_code(TAGS[i % 5]) for i in range(0, 50, 2)]


def test_retention_removes_what_lies_below_an_address(tmp_path: Path) -> None:
    root = make(tmp_path / "s", 400)
    with rmqstore.open(root, "r+", config=config()) as store:
        first = codes(root)
        assert store.core.truncate_ext("T", 0, oracle.tags_code("TagA")) == 0
        assert store.core.truncate_ext("T", 0, first[49]) == 0
        assert store.core.truncate_ext("T", 0, first[98]) == 1  # a file that ends right there stays
        assert store.core.truncate_ext("T", 0, first[99]) == 1
        assert store.core.truncate_ext("T", 9, first[99]) == 0
        assert store.core.truncate_ext("T", 0, -(1 << 31) - 1) == 2  # but never the last one
        fill(store, 400, 50)
        assert tagged(store, "TagA || a") == wanted("TagA || a", 450)
    assert list(oracle_ext.read_files(root / "consumequeue_ext/T/0")) == [4000]
