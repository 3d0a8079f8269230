"""Random tables in random layouts, against records that the slow codec makes row by row."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from support import oracle, oracle_store
from support.message_tables import COLUMNS, table_of
from support.strategies import hosts, texts, user_properties, words

pa = pytest.importorskip("pyarrow")

FILE_SIZE = 4096
CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=60,
    max_hash_slot_num=50,
    max_index_num=200,
)
QUEUES = 3
TOPICS = ["Topic1", "orders", "%RETRY%a-b_c|d", oracle.SCHEDULE_TOPIC]
STORE_HOST = "127.0.0.1:10911"
HOST_BITS, COMPRESSED = 0x30, 0x1
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
ENTRY = pa.struct([("key", pa.string()), ("value", pa.string())])
TYPES = {
    "topic": STRINGS,
    "tags": STRINGS,
    "uniq_key": STRINGS,
    "born_host": STRINGS,
    "keys": [make(item) for make in (pa.list_, pa.large_list) for item in STRINGS],
    "properties": [*(pa.map_(pa.string(), item) for item in STRINGS), pa.list_(ENTRY)],
    "body": BYTES,
    "raw_body": BYTES,
    "queue_id": [pa.int8(), pa.uint16(), pa.int32(), pa.uint64()],
    "flag": [pa.int32(), pa.int64()],
    "sys_flag": [pa.int32(), pa.int64()],
    "reconsume_times": [pa.int32(), pa.int64()],
    "prepared_transaction_offset": [pa.int64()],
    "born_timestamp": [pa.int64(), pa.timestamp("ms", "+01:00"), pa.timestamp("ms", "UTC")],
    "store_timestamp": [pa.timestamp("ms", "UTC")],
}
OPTIONAL = [name for name in TYPES if name not in ("topic", "body", "raw_body")]
FROM_MAP = {"tags": "TAGS", "keys": "KEYS", "uniq_key": "UNIQ_KEY"}
# What a message keeps in another store, but for its body and how that is stored.
SAME = [
    *("topic", "queue_id", "tags", "keys", "uniq_key", "flag", "born_timestamp", "born_host"),
    *("body", "reconsume_times", "prepared_transaction_offset"),
]
key_lists = st.lists(words, max_size=3)


@st.composite
def rows(draw, columns):
    """One row: a value for each column, which do not contradict each other."""
    given = {
        "tags": draw(st.none() | texts(min_size=1)),
        "uniq_key": draw(st.none() | words),
        "keys": draw(key_lists),
    }
    row = {
        "topic": draw(st.sampled_from(TOPICS)),
        "queue_id": draw(st.none() | st.integers(0, 5)),
        "flag": draw(st.none() | INT32),
        "sys_flag": draw(st.none() | INT32 | st.sampled_from([0x4, 0x8, 0xC])),
        "reconsume_times": draw(st.none() | INT32),
        "prepared_transaction_offset": draw(st.none() | INT64),
        "born_timestamp": draw(st.none() | INT64),
        "born_host": draw(st.none() | hosts),
        "store_timestamp": draw(st.none() | INT64),
        "body": draw(st.binary(max_size=40)),
        **given,
    }
    row["raw_body"] = row["body"]
    if (row["sys_flag"] or 0) & COMPRESSED:
        row["sys_flag"] &= ~0x700
        row["raw_body"] = zlib.compress(row["body"])
    entries = list(draw(user_properties).items())
    entries += draw(st.sampled_from([[], [("DELAY", "3"), ("WAIT", "true")], [("CLUSTER", "c")]]))
    for name, stored in FROM_MAP.items():
        value = given[name]
        if value and draw(st.booleans()):
            text = value if name != "keys" else draw(st.sampled_from([" ", "  "])).join(value)
            entries.append((stored, text))
    row["properties"] = draw(st.permutations(entries))
    if row["properties"] and draw(st.booleans()):  # a client batch has WAIT twice
        row["properties"] = [*row["properties"], row["properties"][0]]
    if not entries and draw(st.booleans()):
        row["properties"] = None
    return {name: row[name] for name in columns}


@st.composite
def tables(draw):
    """Rows, and an Arrow table of them: any columns, layouts, chunks, slices of longer arrays."""
    columns = ["topic", *draw(st.sampled_from([["body"], ["raw_body"], ["body", "raw_body"]]))]
    columns += draw(st.lists(st.sampled_from(OPTIONAL), unique=True))
    drawn = draw(st.lists(rows(columns), max_size=12))
    return drawn, table(draw, columns, drawn)


def table(draw, columns, drawn):
    before, behind = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    if not drawn:
        before = behind = 0
    padding = [row | {"topic": "/bad"} for row in drawn[:1]]  # what nobody may look at
    padded = padding * before + drawn + padding * behind
    arrays = [array(draw, name, [row[name] for row in padded]) for name in columns]
    whole = pa.record_batch(arrays, columns).slice(before, len(drawn))
    cuts = sorted(draw(st.lists(st.integers(0, len(drawn)), max_size=3)))
    stops = [*cuts, len(drawn)]
    batches = [whole.slice(at, stop - at) for at, stop in zip([0, *cuts], stops, strict=True)]
    return pa.Table.from_batches(batches)


def array(draw, name, values):
    kind = draw(st.sampled_from(TYPES[name]))
    if kind == pa.list_(ENTRY):
        values = [v and [{"key": key, "value": value} for key, value in v] for v in values]
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def stored_properties(row, made):
    """The properties string as put_table promises it; ``made`` is a key that it made."""
    entries = list(row.get("properties") or [])
    names = [name for name, _ in entries]
    added = {
        "KEYS": " ".join(row.get("keys") or []),
        "TAGS": row.get("tags"),
        "UNIQ_KEY": row.get("uniq_key"),
    }
    if "uniq_key" not in row and "properties" not in row:
        added["UNIQ_KEY"] = made
    entries += [(name, text) for name, text in added.items() if text and name not in names]
    return "\x02".join(f"{name}\x01{value}" for name, value in entries).encode()


def stored_body(row):
    """Body as stored, and SYSFLAG less its host bits."""
    sys_flag = row.get("sys_flag") or 0
    known = "body" not in row or row.get("sys_flag") is not None
    if "raw_body" in row and known:
        return row["raw_body"], sys_flag & ~HOST_BITS
    if sys_flag & COMPRESSED:
        sys_flag &= ~0x701
    return row["body"], sys_flag & ~HOST_BITS


class Model:
    """What the log holds after each table."""

    def __init__(self) -> None:
        self.end = 0
        self.queues = Counter()
        self.turns = Counter()

    def record(self, row, read):
        """The record of a row at the end of the log; ``read`` tells what only the store knows."""
        body, sys_flag = stored_body(row)
        queue_id = row.get("queue_id")
        if queue_id is None:
            queue_id = self.turns[row["topic"]] % QUEUES
            self.turns[row["topic"]] += 1
        queue = row["topic"], queue_id
        fields = {
            "queue_id": queue_id,
            "queue_offset": 0 if sys_flag & 0x4 else self.queues[queue],
            "flag": row.get("flag") or 0,
            "sys_flag": sys_flag,
            "born_timestamp": row.get("born_timestamp"),
            "born_host": row.get("born_host") or STORE_HOST,
            "store_timestamp": read.store_timestamp,
            "store_host": STORE_HOST,
            "reconsume_times": row.get("reconsume_times") or 0,
            "prepared_transaction_offset": row.get("prepared_transaction_offset") or 0,
            "properties": stored_properties(row, read.uniq_key),
        }
        if fields["born_timestamp"] is None:
            fields["born_timestamp"] = read.born_timestamp
            assert 0 <= read.store_timestamp - read.born_timestamp < 60_000
        size = len(oracle.encode_record(row["topic"], body, **fields))
        if self.end % FILE_SIZE + size + 8 > FILE_SIZE:
            self.end += FILE_SIZE - self.end % FILE_SIZE
        data = oracle.encode_record(row["topic"], body, physical_offset=self.end, **fields)
        self.end += size
        self.queues[queue] += not sys_flag & 0x4
        return data


def put(store, model, drawn, source):
    """Store a table and compare each record byte by byte."""
    result = store.put_table(source)
    assert result.count == len(drawn)
    made = set()
    for number, row in enumerate(drawn):
        read = store.at(int(result.physical_offset[number]))
        data = model.record(row, read)
        assert read.__reduce__()[1][0] == data
        record = oracle.decode_record(data)
        assert record.physical_offset == result.physical_offset[number]
        assert record.queue_id == result.queue_id[number]
        assert record.queue_offset == result.queue_offset[number]
        if "uniq_key" not in row and "properties" not in row:
            assert re.fullmatch(r"[0-9A-F]{32}", read.uniq_key)
            made.add(read.uniq_key)
    assert len(made) in (0, len(drawn))


def opened(root):
    store = rmqstore.open(root, "a", config=CONFIG)
    for topic in TOPICS:
        store.create_topic(topic, QUEUES)
    return store


@given(st.lists(tables(), min_size=1, max_size=3))
def test_every_table_is_stored_as_it_says(steps):
    with TemporaryDirectory() as root:
        model = Model()
        with opened(root) as store:
            for drawn, source in steps:
                put(store, model, drawn, source)
        by_queue = oracle_store.check_store(root, slot_num=50, exact_index=True)
        lengths = {queue: len(records) for queue, records in by_queue.items() if records}
        assert lengths == {queue: count for queue, count in model.queues.items() if count}


@given(tables(), st.booleans())
def test_the_table_of_a_store_makes_the_same_messages(step, raw):
    with TemporaryDirectory() as root:
        with opened(Path(root, "a")) as store, opened(Path(root, "b")) as other:
            offsets = store.put_table(step[1]).physical_offset
            messages = [store.at(int(offset)) for offset in offsets]
            columns = (*COLUMNS, "raw_body") if raw else COLUMNS
            again = other.put_table(table_of(messages, columns))
            assert again.count == len(messages)
            for message, offset in zip(messages, again.physical_offset, strict=True):
                made = other.at(int(offset))
                for name in SAME:
                    assert getattr(made, name) == getattr(message, name), name
                assert list(made.properties.items()) == list(message.properties.items())
                sys_flag = message.sys_flag
                if sys_flag & COMPRESSED and not raw:
                    sys_flag &= ~0x701
                assert made.sys_flag == sys_flag
                assert made.raw_body == (message.raw_body if raw else message.body)
        oracle_store.check_store(Path(root, "b"), slot_num=50, exact_index=True)


SPOILERS = {
    "topic": ["", "a/b", None, "t" * 128],
    "tags": ["\x01", "\x02x", "no such tag"],
    "keys": [["a b"], ["\x01"], ["no", "such"]],
    "uniq_key": ["\x02", "no such key"],
    "properties": [[("", "b")], [("a", "")], [("a", "\x02")], [("a", "b" * 40_000)]],
    "queue_id": [-1, 2**31],
    "born_host": ["", "1.2.3.4", "[1.2.3.4]:5", "::1:5"],
}


@given(st.data())
def test_a_table_with_one_bad_row_is_not_stored(data):
    columns = ["topic", "body", "properties", "tags", "keys", "uniq_key", "queue_id", "born_host"]
    drawn = data.draw(st.lists(rows(columns), min_size=1, max_size=12))
    number = data.draw(st.integers(0, len(drawn) - 1))
    name = data.draw(st.sampled_from(list(SPOILERS)))
    bad = data.draw(st.sampled_from(SPOILERS[name]))
    row = dict(drawn[number])
    row["properties"] = [
        *(row["properties"] or []),
        ("TAGS", "t"),
        ("KEYS", "k"),
        ("UNIQ_KEY", "u"),
    ]
    row |= {"tags": "t", "keys": ["k"], "uniq_key": "u"}
    if bad in ("\x01", "\x02x", ["\x01"], "\x02"):
        row["properties"] = None
    row[name] = bad
    drawn[number] = row
    types = dict.fromkeys(columns)
    batches = pa.Table.from_pylist(
        [{column: row[column] for column in types} for row in drawn],
        pa.schema({column: TYPES[column][-1 if column == "queue_id" else 0] for column in types}
                  | {"queue_id": pa.int64()}),
    ).to_batches(data.draw(st.integers(1, 12)))  # fmt: skip
    with TemporaryDirectory() as root, opened(root) as store:
        with pytest.raises(ValueError, match=f"^column '{name}', row {number}: "):
            store.put_table(pa.Table.from_batches(batches))
        assert store.stats()["wrote_position"] == 0
        assert list(store.topics) == sorted(TOPICS)
