"""The checkpoint page: its three times, and openings with one that names too much or nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import rmqstore
from support.oracle_store import check_store, read_checkpoint

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=25,
    max_index_num=100,
)
PAGE = 4096
WATERMARK_AT = 2048
COUNT = 150


def make(root: Path, count: int) -> Path:
    with rmqstore.open(root, "a", config=CONFIG) as store:
        store.put_many("t", [b"%d" % number for number in range(count)], queue_id=0, keys="k")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "store", COUNT)


def test_times_after_a_clean_close(root: Path) -> None:
    with rmqstore.open(root) as store:
        newest = max(message.store_timestamp for message in store.scan())
    page = (root / "checkpoint").read_bytes()
    assert len(page) == PAGE
    physic, logics, _ = read_checkpoint(root)
    assert (physic, logics) == (newest, newest)
    assert page[24:WATERMARK_AT] == bytes(WATERMARK_AT - 24)
    assert page[WATERMARK_AT : WATERMARK_AT + 4] == b"RMQW"


def replaced(at: int, data: bytes) -> bytes:
    """A page that is changed in one place."""
    return bytes(at) + data + bytes(PAGE - at - len(data))


PAGES = {
    "missing": None,
    "empty": b"",
    "short": b"\x01" * 11,
    "zeros": bytes(PAGE),
    "ones": b"\xff" * PAGE,
    "of a far time": replaced(0, struct.pack(">qqq", 1 << 62, 1 << 62, 1 << 62)),
    "a watermark alone": replaced(WATERMARK_AT, b"RMQW" + bytes([0, 0, 0, 1]) + b"\xff" * 200),
}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("page", PAGES)
def test_a_store_opens_whatever_the_page_says(root: Path, page: str, killed: bool) -> None:
    content = PAGES[page]
    if content is None:
        (root / "checkpoint").unlink()
    else:
        (root / "checkpoint").write_bytes(content)
    if killed:
        (root / "abort").touch()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert len(store["t"][0]) == COUNT
        assert len(store.query("t", "k")) == COUNT
        assert store.put("t", b"more", queue_id=0).queue_offset == COUNT
    check_store(root)


def with_watermark_of(tmp_path: Path, count: int) -> Path:
    """Return a store whose page has the watermark of an earlier store of so many messages."""
    other, root = make(tmp_path / "other", count), make(tmp_path / "store", COUNT)
    mark = (other / "checkpoint").read_bytes()[WATERMARK_AT:]
    page = (root / "checkpoint").read_bytes()
    (root / "checkpoint").write_bytes(page[:WATERMARK_AT] + mark)
    return root


@pytest.mark.parametrize("killed", [False, True])
def test_the_watermark_of_another_store_is_not_trusted(tmp_path: Path, killed: bool) -> None:
    root = with_watermark_of(tmp_path, COUNT // 2)
    if killed:
        (root / "abort").touch()
    with rmqstore.open(root, "r+", config=CONFIG) as store:
        assert [m.queue_offset for m in store["t"][0]] == list(range(COUNT))
    check_store(root)


def test_a_watermark_beyond_the_log_is_a_loss(tmp_path: Path) -> None:
    root = with_watermark_of(tmp_path, 2 * COUNT)
    with pytest.raises(rmqstore.StoreCorruptError, match="but checkpoint names"):
        rmqstore.open(root, "r+", config=CONFIG)
