"""A record that ends with RocketMQ 5's checksum: no byte of it changes unnoticed."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import StoreCorruptError, StoreError

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=50,
    max_index_num=200,
    record_checksum=True,
)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=20)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    v6 = draw(st.booleans())
    return rmqstore.encode_record(
        draw(st.text("abc%|_-", min_size=1, max_size=20)),
        draw(st.binary(max_size=100)),
        queue_id=draw(st.integers(0, 9)),
        queue_offset=draw(st.integers(0, 2**40)),
        physical_offset=draw(st.integers(0, 2**50)),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        born_timestamp=draw(st.integers(0, 2**41)),
        store_timestamp=draw(st.integers(0, 2**41)),
        born_host="[::1]:1" if v6 else "1.2.3.4:5",
        properties=draw(st.dictionaries(TEXT, TEXT, max_size=4)),
        record_checksum=True,
    )


def digits(record: bytes) -> bytes:
    """The checksum as RocketMQ 5 writes it, from the format alone."""
    return f"{zlib.crc32(record[:-20]) & 0x7FFFFFFF:010d}"[::-1].encode()


@given(records())
def test_the_bytes_are_rocketmq_5s(record: bytes) -> None:
    assert record[-20:] == b"__CRC32#\x01" + digits(record) + b"\x02"
    properties = rmqstore.decode_record(record).properties
    assert properties["__CRC32#"] == digits(record).decode()


@given(records())
def test_each_bit_that_is_flipped_is_noticed(record: bytes) -> None:
    rmqstore.decode_record(record)
    changed = bytearray(record)
    for bit in range(8 * len(record)):
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreCorruptError):
            rmqstore.decode_record(changed)
        changed[bit // 8] ^= 1 << bit % 8


@given(records())
def test_each_byte_that_is_changed_is_noticed(record: bytes) -> None:
    changed = bytearray(record)
    for at, byte in enumerate(record):
        for other in {0, 0xFF, byte ^ 0xFF} - {byte}:
            changed[at] = other
            with pytest.raises(StoreCorruptError):
                rmqstore.decode_record(changed)
        changed[at] = byte


@given(records(), st.integers(1, 19))
def test_an_end_that_never_reached_the_disk_is_noticed(record: bytes, missing: int) -> None:
    with pytest.raises(StoreCorruptError):
        rmqstore.decode_record(record[:-missing] + bytes(missing))


@given(st.dictionaries(TEXT, TEXT, max_size=4))
def test_another_records_checksum_is_replaced(properties: dict[str, str]) -> None:
    first = rmqstore.encode_record("a", b"1", properties=properties, record_checksum=True)
    stored = rmqstore.decode_record(first).properties
    assert rmqstore.encode_record("a", b"1", properties=stored, record_checksum=True) == first
    plain = rmqstore.encode_record("a", b"1", properties=properties)
    assert list(rmqstore.decode_record(plain).properties) == list(stored)[:-1]


@pytest.mark.parametrize(
    "end",
    [
        b"__CRC32\x010123456789\x02",
        b"__CRC32X\x010123456789\x02",
        b"__CRC_2#\x010000000000\x02",
        b"__CRC33!\x010123456789\x02",
        b"a\x01__CRC32#\x02",
        b"__CRC32#\x01012345678\x02",
        b"my__CRC3#\x010123456789\x02",
        b"CRC32#\x0100001234567890",
        b"a\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    ],
)
def test_what_only_looks_like_one_is_a_property(end: bytes) -> None:
    record = rmqstore.encode_record("a", b"body", properties=b"b\x01c\x02" + end)
    assert rmqstore.decode_record(record).properties["b"] == "c"


def put_each_way(store: rmqstore.MessageStore) -> None:
    for number in range(3):
        name = f"{number}"
        store.put("T", b"put", queue_id=0, tags="TagA", keys=name, properties={"n": name})
        store.put("T", bytearray(b"copied"), queue_id=0)
        store.put_batch("T", [b"batch", b"more"], queue_id=0, tags="TagB")
        store.put_many("T", [b"many"] * 3, queue_id=0, keys=[name] * 3, uniq_key=False)
        store.put_many("T", [memoryview(bytearray(b"changing"))], queue_id=0)
        store.put("T", b"later", queue_id=0, delay_level=18)
        store.put_table(pa.table({"topic": ["T"], "body": [b"table"], "queue_id": [0]}))
        store.put("T", b"", queue_id=0, uniq_key=False)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("filled") / "store"
    with rmqstore.open(root, "a", config=CONFIG) as store:
        put_each_way(store)
    return root


def test_every_way_to_put_writes_it(filled: Path) -> None:
    with rmqstore.open(filled) as store:
        messages = list(store.scan())
    assert len(messages) == 33
    for message in messages:
        record = message.__reduce__()[1][0]
        assert record[-11:-1] == digits(record)


def damaged(filled: Path, root: Path) -> Iterator[tuple[int, Path]]:
    """Copies of the store, each with one bit of one record flipped, and the record's offset."""
    with rmqstore.open(filled) as store:
        places = [(m.physical_offset, m.store_size) for m in store.scan()]
    for number, (offset, size) in enumerate(places):
        for bit in range(number, 8 * size, 8 * size // 4 + 1):
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(filled, root)
            log = root / "commitlog" / f"{0:020d}"
            data = bytearray(log.read_bytes())
            data[offset + bit // 8] ^= 1 << bit % 8
            log.write_bytes(data)
            yield offset, root


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.usefixtures("undelivered")
def test_a_reader_gets_all_others_and_never_wrong_bytes(
    filled: Path, tmp_path: Path, mode: str
) -> None:
    with rmqstore.open(filled) as store:
        good = {m.physical_offset: m for m in store.scan()}
    for offset, root in damaged(filled, tmp_path / "copy"):
        try:
            fill = "fill" if mode == "r+" else "raise"
            store = rmqstore.open(root, mode, config=CONFIG, on_corruption=fill)
        except StoreError:
            assert mode == "r+"  # refused, and nothing lost
            continue
        with store:
            for message in store.scan(on_corruption="skip"):
                if message.sys_flag == 0xC:  # the filler in the damaged one's place
                    assert message.physical_offset == offset
                    continue
                assert good[message.physical_offset] == message
            with suppress(StoreError, LookupError):
                assert store.at(offset).sys_flag == 0xC
            others = [place for place in good if place != offset]
            assert [store.at(place) for place in others] == [good[place] for place in others]
            with suppress(StoreCorruptError):
                for message in store.query("T", "1"):
                    assert good[message.physical_offset] == message
            at = 0
            while at < store["T"][0].max_offset:
                try:
                    got = store.get("T", 0, at, max_messages=1)
                except StoreCorruptError:
                    at += 1
                    continue
                assert all(good[m.physical_offset] == m for m in got)
                at = max(at + 1, got.next_offset)
