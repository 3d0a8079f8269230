"""The slow codec itself, against what a real 4.9.3 broker wrote and read back."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections import Counter
from itertools import count

import pytest

from conftest import property_text
from support.oracle import (
    MAGIC_BLANK,
    MAGIC_MESSAGE,
    TRANSACTION_NONE,
    OracleError,
    decode_properties,
    decode_record,
    decode_text,
    deliver_time,
    encode_properties,
    encode_record,
    message_id,
    pack_unit,
    parse_message_id,
    split_host,
    string_hash,
    unpack_unit,
)
from support.oracle_index import IndexModel, IndexSet, index_of, key_hash, read_index
from support.oracle_store import (
    Filler,
    check_store,
    is_clean,
    log_files,
    read_checkpoint,
    read_queues,
    walk_entries,
    walk_log,
)

pytestmark = pytest.mark.pure

STORES = {"quickstart": (1, 1), "broker-clean": (3498, 3498), "broker-killed": (3329, 3339)}
SMALL = ["broker-clean", "broker-killed"]


def dump_columns(topic, queue_id, queue_offset, unit, record):
    return (
        topic,
        queue_id,
        queue_offset,
        *unit,
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.sys_flag,
        record.born_timestamp,
        record.store_timestamp,
        record.msg_id,
        record.born_host.rpartition(":")[0],
        record.body_crc,
        hashlib.sha1(record.raw_body).digest(),
        property_text(record.properties),
    )


@pytest.mark.parametrize("name", STORES)
def test_every_dump_row_in_every_column(broker_store, name):
    store = broker_store(name)
    records = {record.physical_offset: record for record in walk_log(store.root / "commitlog")}
    queues = read_queues(store.root)
    rows, units = STORES[name]
    assert len(store.dump) == rows
    assert sum(map(len, queues.values())) == units
    for row in store.dump:
        unit = queues[row.topic, row.queue_id].at(row.queue_offset)
        record = records[row.physical_offset]
        read = dump_columns(row.topic, row.queue_id, row.queue_offset, unit, record)
        assert read == tuple(vars(row).values())


@pytest.mark.parametrize("name", STORES)
def test_what_was_sent_is_there(broker_store, name):
    store = broker_store(name)
    records = {record.msg_id: record for record in walk_log(store.root / "commitlog")}
    unique = {record.uniq_key: record for record in records.values()}
    kinds = Counter()
    for row in store.sent:
        assert row.status == "SEND_OK"
        single = row.msg_id is not None and "," not in row.msg_id
        delayed = row.kind.startswith("delay")
        if not single or row.uniq_key not in unique:
            assert row.kind.startswith(("tx-", "batch"))
            continue
        kinds[row.kind] += 1
        record = records[row.msg_id]
        assert record.uniq_key == row.uniq_key
        assert record.tags == row.tags
        assert record.properties.get("KEYS") == row.keys
        if not delayed:
            assert (record.topic, record.queue_id) == (row.topic, row.queue_id)
        assert record.queue_offset == row.queue_offset
        if row.body.startswith("len") and row.body[3:].isdigit():
            assert len(record.body) == int(row.body[3:])
        else:
            assert record.body == base64.b64decode(row.body)
    assert kinds.total() == (1 if name == "quickstart" else 3024)


@pytest.mark.parametrize("name", STORES)
def test_records_encode_to_the_same_bytes(broker_store, name):
    root = broker_store(name).root
    fields = [
        "queue_id",
        "queue_offset",
        "physical_offset",
        "flag",
        "sys_flag",
        "born_timestamp",
        "born_host",
        "store_timestamp",
        "store_host",
        "reconsume_times",
        "prepared_transaction_offset",
    ]
    encoded = {}
    for record in walk_log(root / "commitlog"):
        arguments = {field: getattr(record, field) for field in fields}
        encoded[record.physical_offset] = encode_record(
            record.topic, record.raw_body, properties=record.raw_properties, **arguments
        )
    for start, path in log_files(root / "commitlog"):
        with path.open("rb") as file:
            for physical_offset, data in encoded.items():
                if start <= physical_offset < start + path.stat().st_size:
                    file.seek(physical_offset - start)
                    assert file.read(len(data)) == data


@pytest.mark.parametrize("name", STORES)
def test_the_whole_store_holds_together(broker_store, name):
    store = broker_store(name)
    queues = check_store(store.root, exact_index=True)
    assert sum(map(len, queues.values())) == STORES[name][1]
    assert is_clean(store.root) == (name != "broker-killed")


@pytest.mark.parametrize("name", SMALL)
def test_index_files_byte_for_byte(broker_store, name):
    root = broker_store(name).root
    index = index_of(walk_log(root / "commitlog"), 1000, 4000)
    paths = sorted((root / "index").iterdir())
    assert len(paths) == len(index) == 2
    for path, model in zip(paths, index, strict=True):
        assert path.read_bytes() == model.dump()
    assert read_checkpoint(root)[2] == index.files[0].end_timestamp


@pytest.mark.parametrize("name", SMALL)
def test_chains_give_what_the_log_has(broker_store, name):
    root = broker_store(name).root
    index = read_index(root)
    by_hash: dict[int, list[int]] = {}
    keys = set()
    for record in walk_log(root / "commitlog"):
        for key in [record.uniq_key, *record.keys]:
            if key:
                keys.add(f"{record.topic}#{key}")
                by_hash.setdefault(key_hash(f"{record.topic}#{key}"), []).append(
                    record.physical_offset
                )
    assert len(keys) > 4000
    for key in keys:
        assert index.select(key) == sorted(set(by_hash[key_hash(key)]), reverse=True)


@pytest.mark.parametrize("name", SMALL)
def test_fillers_end_the_full_files(broker_store, name):
    entries = list(walk_entries(broker_store(name).root / "commitlog"))
    fillers = [entry for entry in entries if isinstance(entry, Filler)]
    ends = [filler.physical_offset + filler.store_size for filler in fillers]
    assert ends == [1 << 20, 2 << 20]
    at = 0
    for entry in entries:
        assert entry.physical_offset == at
        at += entry.store_size


# Facts that a store does not have


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("TagA", 2598919),
        ("order", 106006350),
        ("polygenelubricants", -(1 << 31)),
        ("\U0001d11e", 0xD834 * 31 + 0xDD1E),
    ],
)
def test_string_hash(text, value):
    assert string_hash(text) == value


def test_key_hash_has_no_negative_value():
    assert key_hash("polygenelubricants") == 0
    assert all(key_hash(f"Topic1#{number}") >= 0 for number in range(1000))


def test_a_record_by_hand():
    data = encode_record(
        "T",
        b"hello",
        queue_id=1,
        flag=2,
        queue_offset=3,
        physical_offset=4,
        born_timestamp=5,
        born_host="1.2.3.4:6",
        store_timestamp=7,
        store_host="[::1]:8",
        reconsume_times=9,
        prepared_transaction_offset=10,
        properties={"a": "b", "c": "d"},
    )
    assert data == bytes.fromhex(
        "00000074 daa320a7 3610a686 00000001 00000002 0000000000000003 0000000000000004 00000020"
        "0000000000000005 01020304 00000006 0000000000000007 00000000000000000000000000000001"
        "00000008 00000009 000000000000000a 00000005 68656c6c6f 01 54 0007 61016202630164"
    )
    record = decode_record(b"??" + data + b"??", 2)
    assert record.store_host == "[::1]:8"
    assert record.born_host == "1.2.3.4:6"
    assert record.properties == {"a": "b", "c": "d"}
    assert record.transaction == TRANSACTION_NONE
    assert struct.unpack(">I", struct.pack(">i", MAGIC_MESSAGE)) == (0xDAA320A7,)
    assert struct.unpack(">I", struct.pack(">i", MAGIC_BLANK)) == (0xCBD43194,)
    for size in range(len(data)):
        with pytest.raises(OracleError):
            decode_record(data[:size])


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        (b"a\x02b\x01c", {"b": "c"}),
        (b"\x01b\x02c\x01\x02d\x01e", {"d": "e"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"\x02\x02", {}),
    ],
)
def test_properties(data, properties):
    assert decode_properties(data) == properties
    assert decode_properties(encode_properties(properties)) == properties
    assert decode_properties(encode_properties(properties, last=True)) == properties


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xc3\xa9", "\u00e9"),
        (b"\xff", "\ufffd"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xe4\xb8x", "\ufffdx"),
        (b"\xed\xa0\x80x", "\ufffdx"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
    ],
)
def test_text_that_is_not_utf8(data, text):
    assert decode_text(data) == text


def test_message_ids():
    text = message_id("127.0.0.1:10911", 223)
    assert text == "7F00000100002A9F00000000000000DF"
    assert parse_message_id(text) == ("127.0.0.1:10911", 223)
    assert parse_message_id(message_id("[fe80::1]:1", 5)) == ("[fe80::1]:1", 5)
    assert len(message_id("[fe80::1]:1", 5)) == 56
    assert split_host("127.0.0.1:80") == (b"\x7f\0\0\1", 80)


def test_units_and_delays():
    assert pack_unit(1, 2, -3).hex() == "000000000000000100000002fffffffffffffffd"
    assert unpack_unit(pack_unit(1, 2, -3)) == (1, 2, -3)
    assert [deliver_time(10, level) for level in (1, 2, 18, 99)] == [1010, 5010, 7200010, 7200010]


def test_an_index_file_after_the_first_starts_from_the_end_of_the_full_one():
    index = IndexSet(4, 3)
    index.put_key("T#1", 0, 998_000)
    index.put_key("T#2", 100, 1_000_000)
    index.put_key("T#3", 200, 1_005_999)
    first, second = index
    assert first.header == (998_000, 1_000_000, 0, 100, first.hash_slot_count, 3)
    assert [entry[2] for entry in first.entries] == [0, 0, 2]
    assert second.entries[1][2] == 5
    assert second.header == (1_005_999, 1_005_999, 200, 200, 1, 2)


def test_an_index_chain_in_a_time_window():
    model = IndexModel(1, 10)
    for number in range(4):
        assert model.put_key("k", 100 * number, 10_000 + 1000 * number)
    assert model.select_phy_offset("k") == [300, 200, 100, 0]
    assert model.select_phy_offset("k", 2) == [300, 200]
    assert model.select_phy_offset("k", 64, 11_000, 12_000) == [200, 100]
    assert model.select_phy_offset("other") == []
    assert IndexModel.load(model.dump(), 1, 10) == model
    added = sum(model.put_key("k", 400, 20_000) for _ in range(10))
    assert (added, model.is_full) == (5, True)


def test_an_empty_index_file_has_no_count_on_disk():
    assert set(IndexModel(2, 2).dump()) == {0}
    assert IndexModel.load(bytes(40 + 8 + 40), 2, 2).index_count == next(count(1))
