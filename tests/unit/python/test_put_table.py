"""``put_table``: what a table says is what is stored, in every layout, or nothing is."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from support import oracle_store
from support.message_tables import COLUMNS, table_of

pa = pytest.importorskip("pyarrow")

BODIES = [b"ab", b"", b"a body of more than twelve bytes", b"\xff\x00\x01"]
TEXTS = ["TagA", "\u00e9\u4e2d\U0001f600", "a tag of more than twelve bytes", "x"]
MAP = pa.map_(pa.string(), pa.string())
DECIDED = {"queue_offset", "physical_offset", "store_size", "msg_id", "store_timestamp",
           "store_host", "body_crc"}  # fmt: skip
KEPT = [name for name in COLUMNS if name not in DECIDED]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as opened:
        yield opened


def table(**columns: Any) -> Any:
    """Four rows of a topic and a body, and what is asked for; None leaves a column out."""
    columns = {"topic": pa.array(["Topic1"] * 4), "body": pa.array(BODIES)} | columns
    return pa.table({name: column for name, column in columns.items() if column is not None})


def put(store: Any, source: Any) -> list[Any]:
    """Messages as they are read back, in the order of the rows."""
    result = store.put_table(source)
    messages = [store.at(int(offset)) for offset in result.physical_offset]
    assert [m.queue_id for m in messages] == result.queue_id.tolist()
    assert [m.queue_offset for m in messages] == result.queue_offset.tolist()
    assert len(messages) == result.count
    return messages


def values(store: Any, name: str, column: Any, **others: Any) -> list[Any]:
    return [getattr(m, name) for m in put(store, table(**{name: column}, **others))]


def refused(error: type[Exception], match: str, store: Any, source: Any) -> None:
    """``put_table`` raises, stores nothing and makes no topic."""
    before = store.stats()["wrote_position"], list(store.topics)
    with pytest.raises(error, match=match):
        store.put_table(source)
    assert (store.stats()["wrote_position"], list(store.topics)) == before


def cut(column: Any) -> Any:
    """The same rows as a slice from the middle of a longer Arrow array."""
    return pa.concat_arrays([column] * 3)[len(column) : 2 * len(column)]


def chunks(column: Any) -> Any:
    return pa.chunked_array([column[:1], column[1:1], column[1:]])


SHAPES: dict[str, Callable[[Any], Any]] = {"whole": lambda c: c, "slice": cut, "chunks": chunks}
STRINGS: dict[str, Callable[[list[str | None]], Any]] = {
    "string": lambda rows: pa.array(rows, pa.string()),
    "large string": lambda rows: pa.array(rows, pa.large_string()),
    "string view": lambda rows: pa.array(rows, pa.string_view()),
    "dictionary": lambda rows: pa.array(rows, pa.string()).dictionary_encode(),
    "large dictionary": lambda rows: pa.array(rows, pa.large_string()).dictionary_encode(),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", STRINGS)
def test_strings(store: Any, layout: str, shape: str) -> None:
    def column(rows: list[str | None]) -> Any:
        return SHAPES[shape](STRINGS[layout](rows))

    rows = [TEXTS[0], None, TEXTS[2], TEXTS[1]]
    assert values(store, "tags", column(rows)) == rows
    assert values(store, "uniq_key", column(rows)) == rows
    topics = ["Topic1", "Topic2", "Topic1", "A_topic_of_more_than_twelve_bytes"]
    assert values(store, "topic", column(topics)) == topics
    hosts = ["1.2.3.4:5", None, "[::1]:65535", "1.2.3.4:5"]
    expected = ["1.2.3.4:5", "127.0.0.1:10911", "[::1]:65535", "1.2.3.4:5"]
    assert values(store, "born_host", column(hosts)) == expected
    keys = [("a", "b"), (), ("c",), ("d", "e")]
    joined = [" ".join(key) or None for key in keys]
    assert values(store, "keys", column(joined)) == keys


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), "dictionary"], ids=str
)
def test_bodies(store: Any, kind: Any, shape: str) -> None:
    array = pa.array(BODIES).dictionary_encode() if kind == "dictionary" else pa.array(BODIES, kind)
    assert values(store, "body", SHAPES[shape](array)) == BODIES
    messages = put(store, table(body=None, raw_body=SHAPES[shape](array)))
    assert [bytes(m.raw_body) for m in messages] == BODIES


def test_bodies_of_strings_and_of_one_width(store: Any) -> None:
    assert values(store, "body", pa.array(TEXTS)) == [text.encode() for text in TEXTS]
    fixed = pa.array([b"abcd", b"efgh", b"ijkl", b"mnop"], pa.binary(4))
    assert values(store, "body", cut(fixed)) == fixed.to_pylist()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("item", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("many", [pa.list_, pa.large_list], ids=["list", "large list"])
def test_lists_of_keys(store: Any, many: Any, item: Any, shape: str) -> None:
    rows = [["a", "b c"[:1]], None, [], ["\u00e9", TEXTS[2].replace(" ", "_")]]
    column = SHAPES[shape](pa.array(rows, many(item)))
    assert values(store, "keys", column) == [tuple(row or ()) for row in rows]


ENTRY = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
MAPS: dict[str, Callable[[list[Any]], Any]] = {
    "map": lambda rows: pa.array(rows, MAP),
    "large": lambda rows: pa.array(rows, pa.map_(pa.large_string(), pa.large_string())),
    "views": lambda rows: pa.array(rows, pa.map_(pa.string_view(), pa.string_view())),
    "dictionaries": lambda rows: pa.array(
        rows, pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string()))
    ),
    "list of structs": lambda rows: entries(rows, pa.list_(ENTRY)),
    "large list of structs": lambda rows: entries(rows, pa.large_list(ENTRY)),
}


def entries(rows: list[Any], kind: Any) -> Any:
    return pa.array(
        [row and [{"key": key, "value": value} for key, value in row] for row in rows], kind
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", MAPS)
def test_maps(store: Any, layout: str, shape: str) -> None:
    rows = [
        [("z", "y"), ("UNIQ_KEY", "u"), ("TAGS", "\u00e9"), ("KEYS", "a  b"), ("WAIT", "true")],
        None,
        [],
        [("DELAY", "3"), ("a" * 20, "b\x01c" * 20)],
    ]
    column = SHAPES[shape](MAPS[layout](rows))
    messages = put(store, table(properties=column))
    assert [list(m.properties.items()) for m in messages] == [row or [] for row in rows]
    assert (messages[0].uniq_key, messages[0].tags, messages[0].keys) == ("u", "\u00e9", ("a", "b"))
    assert [m.uniq_key for m in messages[1:]] == [None] * 3


NUMBERS = {
    "flag": [-(2**31), 2**31 - 1, 0, 7],
    "reconsume_times": [16, -1, 0, 2**31 - 1],
    "prepared_transaction_offset": [-(2**63), 2**63 - 1, 0, 1],
    "born_timestamp": [-(2**63), 2**63 - 1, 0, 1_700_000_000_000],
    "queue_id": [3, 0, 1, 2],
    "sys_flag": [0x8, 0x0, 0x2, 0x48],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(store: Any, name: str, shape: str) -> None:
    rows = NUMBERS[name]
    assert values(store, name, SHAPES[shape](pa.array(rows, pa.int64()))) == rows
    with_null = [rows[0], rows[1], None, rows[3]]
    found = values(store, name, SHAPES[shape](pa.array(with_null, pa.int64())))
    assert found[:2] + found[3:] == rows[:2] + rows[3:]
    if name not in ("born_timestamp", "queue_id"):
        assert found[2] == 0
        assert values(store, name, pa.nulls(4)) == [0] * 4


@pytest.mark.parametrize("width", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"])
def test_numbers_of_every_width(store: Any, width: str) -> None:
    column = cut(pa.array([3, None, 1, 100], pa.type_for_alias(width)))
    for name in NUMBERS:
        found = values(store, name, column)
        if name == "sys_flag":  # less the bits for compression and hosts
            assert found == [2, 0, 0, 68]
        else:
            assert [found[0], *found[2:]] == [3, 1, 100]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "+02:00"])
@pytest.mark.parametrize(("unit", "each"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times(store: Any, unit: str, each: int, zone: str | None) -> None:
    ticks = [0, -1, 5 * each, -5 * each - 1]
    column = pa.array(ticks, pa.timestamp(unit, zone))
    expected = [tick * 1000 // each for tick in ticks]
    assert values(store, "born_timestamp", column) == expected
    assert values(store, "born_timestamp", cut(column)) == expected


def test_defaults(store: Any) -> None:
    store.create_topic("Topic1", 3)
    nulls = {name: pa.nulls(4) for name in (*NUMBERS, "tags", "keys", "born_host")}
    for columns in ({}, nulls):
        begin = store.put("Other", b"").store_timestamp
        messages = put(store, table(**columns))
        assert [m.body for m in messages] == BODIES
        assert len({m.queue_id for m in messages}) == 3
        assert len({m.uniq_key for m in messages}) == 4
        for m in messages:
            assert (m.tags, m.keys, list(m.properties)) == (None, (), ["UNIQ_KEY"])
            assert begin <= m.born_timestamp <= m.store_timestamp
            assert m.born_host == m.store_host == "127.0.0.1:10911"
            assert (m.flag, m.sys_flag, m.reconsume_times) == (0, 0, 0)
            assert m.prepared_transaction_offset == 0
    assert values(store, "uniq_key", pa.nulls(4)) == [None] * 4
    assert values(store, "properties", pa.nulls(4)) == [{}] * 4


def test_what_the_map_lacks_is_added(store: Any) -> None:
    rows = [[("p", "q")], [("TAGS", "t")], None, [("UNIQ_KEY", "u"), ("KEYS", "k l")]]
    source = table(
        properties=pa.array(rows, MAP),
        tags=pa.array(["t", "t", None, ""]),
        keys=pa.array([["k"], ["k", "l"], None, ["k", "l"]]),
        uniq_key=pa.array([None, "u", "u", "u"]),
    )
    assert [list(m.properties.items()) for m in put(store, source)] == [
        [("p", "q"), ("KEYS", "k"), ("TAGS", "t")],
        [("TAGS", "t"), ("KEYS", "k l"), ("UNIQ_KEY", "u")],
        [("UNIQ_KEY", "u")],
        [("UNIQ_KEY", "u"), ("KEYS", "k l")],
    ]


def test_of_equal_names_the_last_counts(store: Any) -> None:
    both = [("TAGS", "a"), ("WAIT", "true"), ("TAGS", "b"), ("WAIT", "true")]
    maps = pa.array([both] * 4, MAP)
    messages = put(store, table(properties=maps, tags=pa.array(["b"] * 4)))
    stored = b"TAGS\x01a\x02WAIT\x01true\x02TAGS\x01b\x02WAIT\x01true"
    size = 91 + len("Topic1") + len(stored)
    assert [m.store_size for m in messages] == [size + len(body) for body in BODIES]
    refused(ValueError, "'tags', row 0: 'a'", store, table(properties=maps, tags=["a"] * 4))


def test_what_the_store_decides_is_not_looked_at(store: Any) -> None:
    decided = {name: pa.array([None, True, False, True]) for name in DECIDED}
    assert [m.body for m in put(store, table(**decided))] == BODIES


def test_compressed_bodies(store: Any) -> None:
    packed = [zlib.compress(body) for body in BODIES]
    plain, raw, flags = pa.array(BODIES), pa.array(packed), pa.array([1, 1, 0x301, 1])

    def stored(**columns: Any) -> list[tuple[bytes, int]]:
        return [(bytes(m.raw_body), m.sys_flag) for m in put(store, table(**columns))]

    assert stored(sys_flag=flags) == [(body, 0) for body in BODIES]
    assert stored(body=None, raw_body=raw) == [(body, 0) for body in packed]
    both = list(zip(packed, flags.to_pylist(), strict=True))
    assert stored(body=None, raw_body=raw, sys_flag=flags) == both
    assert stored(body=plain, raw_body=raw, sys_flag=flags) == both
    assert stored(body=plain, raw_body=raw) == [(body, 0) for body in BODIES]
    some = pa.array([1, None, 0x301, 1])
    mixed = [both[0], (BODIES[1], 0), *both[2:]]
    assert stored(body=plain, raw_body=raw, sys_flag=some) == mixed
    some_raw = pa.array([packed[0], None, *packed[2:]])
    assert stored(body=plain, raw_body=some_raw, sys_flag=flags) == mixed
    some_plain = pa.array([None, *BODIES[1:]])
    assert stored(body=some_plain, raw_body=raw, sys_flag=flags) == both
    assert stored(sys_flag=pa.array([0x302, 0x300, 0, 0]))[0][1] == 0x302
    for bad in (zlib.compress(b"other"), zlib.compress(b"a longer one"), b"no stream", b""):
        wrong = table(raw_body=pa.array([*packed[:3], bad]), sys_flag=flags)
        refused(ValueError, "column 'body', row 3: not the body that column", store, wrong)
    wrong = table(
        raw_body=plain, body=pa.array([*BODIES[:2], b"", b""]), sys_flag=pa.array([0] * 4)
    )
    refused(ValueError, "column 'body', row 2: not the body that", store, wrong)


def test_hosts_decide_their_bits(store: Any) -> None:
    hosts = pa.array(["[::1]:1", "[fe80::1:2]:2", "1.2.3.4:3", None])
    messages = put(store, table(born_host=hosts, sys_flag=pa.array([0x32, 0, 0x30, 0x12])))
    assert [m.sys_flag for m in messages] == [0x12, 0x10, 0, 2]


@pytest.mark.parametrize("name", ["quickstart", "broker-clean", "broker-killed"])
def test_the_stores_of_a_real_broker(
    name: str, broker_store: Callable[[str], Any], tmp_path: Path
) -> None:
    with rmqstore.open(broker_store(name).root) as source:
        messages = [m for topic in source.topics.values() for m in topic.messages()]
        for columns in (COLUMNS, (*COLUMNS, "raw_body"), ("topic", "queue_id", "raw_body",
                        "sys_flag", "properties")):  # fmt: skip
            with rmqstore.open(tmp_path / f"{len(columns)}", "a") as store:
                made = put(
                    store, pa.Table.from_batches(table_of(messages, columns).to_batches(500))
                )
                kept = [name for name in KEPT if name in columns or name in ("tags", "keys")]
                for message, other in zip(messages, made, strict=True):
                    if "raw_body" in columns:
                        assert message.raw_body == other.raw_body
                        kept = [name for name in kept if name != "body"]
                    for field in kept:
                        found, expected = getattr(other, field), getattr(message, field)
                        if field == "sys_flag" and "raw_body" not in columns:
                            expected &= ~1
                        assert found == expected, field
            oracle_store.check_store(tmp_path / f"{len(columns)}")


def test_transactions(store: Any, tmp_path: Path) -> None:
    bits = [0x4, 0xC, 0x8, 0x0, 0xC, 0x4, 0x8, 0x4]
    source = pa.table({
        "topic": ["Half"] * 8, "queue_id": [1] * 8, "body": [b"%d" % n for n in range(8)],
        "sys_flag": bits, "prepared_transaction_offset": range(8),
        "keys": [[f"k{n}"] for n in range(8)],
    })  # fmt: skip
    for first in (0, 3):
        result = store.put_table(source)
        assert result.queue_offset.tolist() == [0, 0, first, first + 1, 0, 0, first + 2, 0]
    assert [m.body for m in store["Half"][1]] == [b"2", b"3", b"6"] * 2
    assert [len(store.query("Half", f"k{n}")) for n in range(8)] == [2, 0, 2, 2, 0, 2, 2, 2]
    store.close()
    by_queue = oracle_store.check_store(tmp_path / "store", slot_num=50_000, exact_index=True)
    assert [record.body for record in by_queue["Half", 1]] == [b"2", b"3", b"6"] * 2
    with rmqstore.open(tmp_path / "store", "r+") as again:
        assert again.put("Half", b"next", queue_id=1).queue_offset == 6
        assert again.put_table(source).queue_offset.tolist() == [0, 0, 7, 8, 0, 0, 9, 0]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_rollback_record_makes_the_index_file_as_any_other(tmp_path: Path, kept: int) -> None:
    config = rmqstore.StoreConfig.small().replace(max_hash_slot_num=2, max_index_num=4)
    keys = [[f"k{n}"] for n in range(kept)]
    with rmqstore.open(tmp_path, "a", config=config) as store:
        if kept:
            store.put_many("Topic1", [b"x"] * kept, keys=keys, uniq_key=False)
        store.put_table(pa.table({"topic": ["Topic1"], "body": [b"x"], "sys_flag": [0xC]}))
    oracle_store.check_store(tmp_path, slot_num=2, exact_index=True)
    assert len(list((tmp_path / "index").iterdir())) == (2 if kept == 3 else 1)


def test_the_checksum_of_a_record_is_made_anew(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small().replace(record_checksum=True)
    with rmqstore.open(tmp_path / "5", "a", config=config) as source:
        source.put("Topic1", b"body", tags="TagA", properties={"p": "q"})
        first = source.at(0)
        assert "__CRC32#" in first.properties
        made = put(source, table_of([first] * 3))
    for message in made:
        assert rmqstore.decode_record(message.__reduce__()[1][0]) == message
        assert list(message.properties) == list(first.properties)
    with rmqstore.open(tmp_path / "4", "a", config=rmqstore.StoreConfig.small()) as target:
        names = [name for name in first.properties if name != "__CRC32#"]
        assert [list(m.properties) for m in put(target, table_of([first]))] == [names]
