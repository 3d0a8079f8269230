"""``put_table`` of what may not be: an error that names column and row, and nothing is stored."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqstore
from support.message_tables import table_of

pa = pytest.importorskip("pyarrow")

MAP = pa.map_(pa.string(), pa.string())
ROWS = 6
BAD = 4  # the row that is wrong: the second one of the third chunk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as opened:
        yield opened


def refused(error: type[Exception], match: str, store: Any, source: Any) -> None:
    """``put_table`` raises, stores nothing and makes no topic."""
    before = store.stats()["wrote_position"], list(store.topics)
    with pytest.raises(error, match=match):
        store.put_table(source)
    assert (store.stats()["wrote_position"], list(store.topics)) == before


def table(columns: dict[str, Any]) -> Any:
    """Columns as a table of chunks of 1, 2 and 3 rows, with a topic and a body; None: without."""
    columns = {"topic": ["Topic1"] * ROWS, "body": [b"body"] * ROWS} | columns
    whole = pa.table({name: column for name, column in columns.items() if column is not None})
    parts = [whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)]
    return pa.Table.from_batches([batch for part in parts for batch in part.to_batches()])


def one(good: Any, bad: Any, kind: Any = None) -> Any:
    """A column with one bad row."""
    return pa.array([good] * BAD + [bad] + [good] * (ROWS - BAD - 1), kind)


def maps(*entry: tuple[str, Any]) -> Any:
    return one([("a", "b")], list(entry), MAP)


LONG = "x" * 32_768
ILLEGAL = rmqstore.MessageIllegalError
ONE_ROW: list[tuple[str, Any, type[Exception], str]] = [
    ("topic", one("t", None), ValueError, r"no value \(null\)"),
    ("topic", one("t", None).dictionary_encode(), ValueError, r"no value \(null\)"),
    ("topic", one("t", ""), ILLEGAL, "must be 1 to 127 .* got ''"),
    ("topic", one("t", "../t"), ILLEGAL, r"must be 1 to 127 .* got '\.\./t'"),
    ("topic", one("t", "t" * 128), ILLEGAL, "must be 1 to 127"),
    ("topic", one("t", "\u00e9"), ILLEGAL, "must be 1 to 127"),
    ("body", one(b"b", None), ValueError, r"no value \(null\)"),
    ("body", one(b"b", b"b" * (5 << 20)), ILLEGAL, "the record takes 5.* bytes; it may take 4"),
    ("queue_id", one(0, -1), ValueError, "must be 0 to 2147483647, got -1"),
    ("queue_id", one(0, 2**31), ValueError, "must be .* got 2147483648"),
    ("queue_id", one(0, 2**64 - 1, pa.uint64()), ValueError, f"must be .* got {2**64 - 1}"),
    ("flag", one(0, 2**31), ValueError, "must be -2147483648 to 2147483647, got 2147483648"),
    ("sys_flag", one(0, -(2**31) - 1), ValueError, "must be .* got -2147483649"),
    ("reconsume_times", one(0, 2**40), ValueError, "must be .* got 1099511627776"),
    ("prepared_transaction_offset", one(0, 2**63, pa.uint64()), ValueError, "got 9223372036854775"),
    ("born_timestamp", one(0, 2**62, pa.timestamp("s", "UTC")), ValueError, "seconds are too many"),
    ("born_host", one("1.2.3.4:5", "1.2.3.4"), ValueError, "must be 'ip:port' .* got '1.2.3.4'"),
    ("born_host", one("1.2.3.4:5", ""), ValueError, "must be 'ip:port' .* got ''"),
    ("born_host", one("1.2.3.4:5", "1.2.3.256:5"), ValueError, "must be 'ip:port'"),
    ("born_host", one("1.2.3.4:5", "1.2.3.4:2147483648"), ValueError, "must be 'ip:port'"),
    ("born_host", one("1.2.3.4:5", "1.2.3.4:-5"), ValueError, "must be 'ip:port'"),
    ("born_host", one("1.2.3.4:5", "1.2.3.4\0:5"), ValueError, "must be 'ip:port'"),
    ("born_host", one("1.2.3.4:5", "::1:5"), ValueError, "must be 'ip:port'"),
    ("born_host", one("1.2.3.4:5", "[1.2.3.4]:5"), ValueError, "must be 'ip:port'"),
    ("born_host", one("1.2.3.4:5", "[]:5"), ValueError, "must be 'ip:port'"),
    ("born_host", one("1.2.3.4:5", "[" + ":" * 70 + "]:5"), ValueError, "must be 'ip:port'"),
    ("tags", one("t", "t\x01"), ILLEGAL, r"\\x01, \\x02 or"),
    ("tags", one("t", "t\x02"), ILLEGAL, r"\\x01, \\x02 or"),
    ("tags", one("t", "\0" * 64), ILLEGAL, "64 times"),
    ("uniq_key", one("t", "t\x02"), ILLEGAL, r"\\x01, \\x02 or"),
    ("keys", one(["k"], ["k", "\x01"]), ILLEGAL, r"\\x01, \\x02 or"),
    ("keys", one(["k"], ["k", "a b"]), ValueError, "a key that is null or has a space"),
    ("keys", one(["k"], ["k", None]), ValueError, "a key that is null or has a space"),
    ("properties", maps(("a", None)), ValueError, "must not have a name or a value that is null"),
    ("properties", maps(("a", "b"), ("", "b")), ILLEGAL, "must not have an empty name or value"),
    ("properties", maps(("a", "")), ILLEGAL, "must not have an empty name or value"),
    ("properties", maps(("a\x01", "b")), ILLEGAL, r"\\x01, \\x02 or"),
    ("properties", maps(("a\x02", "b")), ILLEGAL, r"\\x01, \\x02 or"),
    ("properties", maps(("a", "b\x02")), ILLEGAL, r"\\x01, \\x02 or"),
    ("properties", maps(("a", "\0" * 64)), ILLEGAL, "64 times"),
    ("properties", maps(("a", LONG)), ILLEGAL, "the properties take 32770 bytes; .* 32767"),
    ("properties", maps(("a", LONG[:-2])), ILLEGAL, "the properties take 32768 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "column", "error", "match"),
    ONE_ROW,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(ONE_ROW)],
)
def test_one_bad_row(
    store: Any, name: str, column: Any, error: type[Exception], match: str
) -> None:
    source = table({name: column})
    refused(error, f"^column '{name}', row {BAD}: .*{match}", store, source)
    refused(error, f"^column '{name}', row {BAD - 1}: ", store, source.slice(1))
    good = pa.concat_tables([source.slice(0, BAD), source.slice(BAD + 1)])
    assert store.put_table(good).count == ROWS - 1


WRONG_TYPES: list[tuple[str, list[Any]]] = [
    ("topic", [pa.array([b"t"] * ROWS), pa.array([1] * ROWS), pa.array([["t"]] * ROWS)]),
    ("body", [pa.array([1] * ROWS), pa.array([[b"b"]] * ROWS), pa.array([True] * ROWS)]),
    ("tags", [pa.array([b"t"] * ROWS), pa.array([1.5] * ROWS)]),
    ("keys", [pa.array([1] * ROWS), pa.array([[1]] * ROWS), pa.array([[b"k"]] * ROWS),
              pa.array([["k"]] * ROWS, pa.list_(pa.string(), 1))]),
    ("properties", [pa.array(["a"] * ROWS), pa.array([{"a": "b"}] * ROWS), pa.array([["a"]] * ROWS),
                    pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
                    pa.array([[("a", b"b")]] * ROWS, pa.map_(pa.string(), pa.binary())),
                    pa.array([[{"value": "b", "key": "a"}]] * ROWS),
                    pa.array([[{"key": "b"}]] * ROWS)]),
    ("queue_id", [pa.array([1.0] * ROWS), pa.array(["1"] * ROWS), pa.array([True] * ROWS),
                  pa.array([1] * ROWS).dictionary_encode(), pa.array([1] * ROWS, pa.date64()),
                  pa.array([1] * ROWS, pa.timestamp("ms"))]),
    ("born_timestamp", [pa.array([1.0] * ROWS), pa.array(["1"] * ROWS),
                        pa.array([1] * ROWS, pa.date64()), pa.array([1] * ROWS, pa.time64("us")),
                        pa.array([1] * ROWS, pa.date32()), pa.array([1] * ROWS, pa.duration("ms")),
                        pa.array([{"ms": 1}] * ROWS), pa.array([True] * ROWS),
                        pa.array(["2026-11-20T08:00:00"] * ROWS)]),
    ("born_host", [pa.array([b"1.2.3.4:5"] * ROWS), pa.array([1] * ROWS)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "columns"), WRONG_TYPES, ids=lambda case: str(case)[:20])
def test_columns_of_the_wrong_type(store: Any, name: str, columns: list[Any]) -> None:
    for column in columns:
        refused(TypeError, f"^column '{name}' must be ", store, table({name: column}))


CONTRADICTIONS = [
    ("tags", one("B", "A"), "TAGS", "B", r"'A', but column 'properties' has TAGS 'B'"),
    ("tags", one("B", None), "TAGS", "B", r"null, but column 'properties' has TAGS 'B'"),
    ("tags", one("B", ""), "TAGS", "B", r"'', but column"),
    ("tags", one("B", "BB"), "TAGS", "B", r"'BB', but column"),
    ("keys", one(["a", "b"], ["a"]), "KEYS", "a b", r"'a', but column 'properties' has KEYS 'a b'"),
    ("keys", one(["a", "b"], ["b", "a"]), "KEYS", "a b", r"'b a', but"),
    ("keys", one(["a", "b"], ["a", "b", "c"]), "KEYS", "a b", r"'a b c', but"),
    ("keys", one(["a", "b"], []), "KEYS", "a b", r"null, but"),
    ("keys", one("a  b ", "ab"), "KEYS", " a b", r"'ab', but"),
    ("uniq_key", one("u", "v"), "UNIQ_KEY", "u", r"'v', but .* has UNIQ_KEY 'u'"),
]


@pytest.mark.parametrize(("name", "column", "stored", "value", "match"), CONTRADICTIONS)
def test_a_column_that_contradicts_the_map(
    store: Any, name: str, column: Any, stored: str, value: str, match: str
) -> None:
    properties = pa.array([[("p", "q"), (stored, value)]] * ROWS, MAP)
    source = table({name: column, "properties": properties})
    refused(ValueError, f"^column '{name}', row {BAD}: {match}", store, source)
    assert store.put_table(source.slice(0, BAD)).count == BAD


def test_all_batches_are_checked_before_the_first_row(store: Any) -> None:
    good = pa.record_batch({"topic": ["New1"] * 1000, "body": [b"x"] * 1000})
    bad = pa.record_batch({"topic": ["New2", "a/b"], "body": [b"x"] * 2})
    source = pa.Table.from_batches([good, good, bad])
    refused(ILLEGAL, "^column 'topic', row 2001: must be .* got 'a/b'", store, source)


def test_names(store: Any) -> None:
    rows = {"topic": ["t"], "body": [b"b"]}
    for wrong, near in (("tag", "tags"), ("Topic", "topic"), ("born_time", "born_timestamp"),
                        ("msgid", "msg_id")):  # fmt: skip
        refused(
            ValueError,
            f"{wrong!r}: .* nearest name is '{near}",
            store,
            pa.table(rows | {wrong: [1]}),
        )
    for wrong in ("", "no such thing"):
        refused(
            ValueError,
            f"{wrong!r}: messages have no such field$",
            store,
            pa.table(rows | {wrong: [1]}),
        )
    # The index that pandas hands over is no column of a message.
    assert store.put_table(pa.table(rows | {"__index_level_0__": [7]})).count == 1
    refused(ValueError, "must have a column 'topic'", store, pa.table({"body": [b"b"]}))
    refused(ValueError, "column 'body' or 'raw_body'", store, pa.table({"topic": ["t"]}))
    twice = pa.Table.from_arrays(
        [pa.array(["t"])] * 2 + [pa.array([b"b"])], ["topic", "topic", "body"]
    )
    refused(ValueError, "the column 'topic' twice", store, twice)


def test_no_table(store: Any) -> None:
    for wrong in (None, 5, {"topic": ["t"]}, [{"topic": "t"}], b"t", pa.array(["t"]).to_pylist()):
        refused(TypeError, "^table must be .* __arrow_c_stream__", store, wrong)
    refused(
        TypeError,
        r"not of string \(format 'u'\)",
        store,
        pa.chunked_array([["t"]]),
    )
    with pytest.raises(TypeError):
        store.put_table(table({}), False)


def test_no_rows(store: Any) -> None:
    schema = pa.schema({"topic": pa.string(), "body": pa.binary()})
    for source in (
        schema.empty_table(),
        pa.Table.from_batches([], schema),
        pa.table({"topic": pa.nulls(0), "body": pa.nulls(0), "properties": pa.nulls(0)}),
        pa.RecordBatchReader.from_batches(schema, []),
    ):
        result = store.put_table(source)
        assert (result.count, len(result.physical_offset)) == (0, 0)
    assert store.stats()["wrote_position"] == 0


def structs(store: Any, column: Any) -> list[bytes]:
    result = store.put_table(column)
    return [store.at(int(at)).body for at in result.physical_offset]


def test_a_batch_may_begin_in_the_middle_of_its_columns(store: Any) -> None:
    rows = [
        {"topic": "t", "body": b"%d" % n, "keys": [f"k{n}"], "tags": f"tag {n}", "queue_id": n}
        for n in range(9)
    ]
    column = pa.array(rows)
    for start, stop in ((0, 9), (2, 5), (8, 9), (3, 3)):
        part = pa.chunked_array([column[start:stop], column[0:1]])
        result = store.put_table(part)
        read = [store.at(int(at)) for at in result.physical_offset]
        expected = [*rows[start:stop], rows[0]]
        for message, row in zip(read, expected, strict=True):
            assert (message.body, message.tags) == (row["body"], row["tags"])
            assert (list(message.keys), message.queue_id) == (row["keys"], row["queue_id"])


def test_rows_that_are_null_themselves(store: Any) -> None:
    rows = [{"topic": "t", "body": b"b"}, None, {"topic": "t", "body": b"c"}]
    source = pa.chunked_array([pa.array(rows[:1]), pa.array(rows)])
    refused(ValueError, "table, row 2: no value", store, source)
    assert structs(store, pa.chunked_array([pa.array(rows)[2:]])) == [b"c"]


def test_only_what_is_in_the_slice_counts(store: Any) -> None:
    """What lies before and behind it in the same buffers may be anything."""
    bad = "\x01"
    source = table({
        "topic": one("t", "/"), "tags": one("t", bad), "queue_id": one(1, -1),
        "keys": one(["k"], [None, "a b", bad]), "properties": maps((bad, "")),
        "born_host": one("1.2.3.4:5", ""), "body": one(b"b", None),
    }).combine_chunks()  # fmt: skip
    assert store.put_table(source.slice(0, BAD)).count == BAD
    assert store.put_table(source.slice(BAD + 1)).count == ROWS - BAD - 1


def spoiled_strings(data: bytes, offsets: list[int]) -> Any:
    buffers = [None, pa.py_buffer(np.array(offsets, "i4")), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def test_text_that_is_not_utf8(store: Any) -> None:
    bad = spoiled_strings(b"ab\xffdef", [0, 2, 4, 5, 6])
    body = [b"b"] * 4
    for name in ("topic", "tags", "uniq_key", "born_host"):
        columns = {"topic": ["t"] * 4, "body": body, name: bad}
        refused(ValueError, f"^column '{name}', row 1: .* is not UTF-8", store, pa.table(columns))
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 1, 4, 4], "i4"), bad)
    columns = {"topic": ["t"] * 4, "body": body, "keys": lists}
    refused(ValueError, "^column 'keys', row 2: .* is not UTF-8", store, pa.table(columns))
    refused(ValueError, "^column 'keys', row 0: ", store, pa.table(columns).slice(2))
    assert store.put_table(pa.table(columns).slice(0, 2)).count == 2
    good = pa.array(["a", "b", "c", "d"])
    for names, items in ((bad, good), (good, bad)):
        mapped = pa.MapArray.from_arrays(pa.array([0, 1, 1, 4, 4], "i4"), names, items)
        columns = {"topic": ["t"] * 4, "body": body, "properties": mapped}
        source = pa.concat_tables([pa.table(columns).slice(0, 2)] * 2 + [pa.table(columns)])
        match = "^column 'properties', row 6: .* is not UTF-8"
        refused(ValueError, match, store, source)


def test_maps_that_contradict_themselves(store: Any) -> None:
    offsets = np.zeros(3, np.int32)
    entries = pa.array([("a", "b")] * 2, pa.struct([("key", pa.string()), ("value", pa.string())]))
    mapped = pa.Array.from_buffers(MAP, 2, [None, pa.py_buffer(offsets)], children=[entries])
    columns = {"topic": ["t"] * 2, "body": [b"b"] * 2, "properties": mapped}
    source = pa.table(columns)
    for bad in ([0, 1, 9], [0, -1, 1], [-1, 0, 1], [2, 1, 1], [3, 3, 3]):
        offsets[:] = bad
        refused(ValueError, "column 'properties': .* contradicts itself", store, source)
    offsets[:] = [1, 1, 2]
    result = store.put_table(source)
    read = [store.at(int(at)).properties for at in result.physical_offset]
    assert read == [{}, {"a": "b"}]


def test_entries_that_are_null(store: Any) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    rows = [[], [{"key": "a", "value": "b"}], [{"key": "a", "value": "b"}, None], []]
    columns = {"topic": ["t"] * 4, "body": [b"b"] * 4, "properties": pa.array(rows, kind)}
    refused(ValueError, "^column 'properties', row 2: an entry that is", store, pa.table(columns))
    refused(
        ValueError, "'properties', row 1: an entry that is", store, pa.table(columns).slice(1)
    )  # fmt: skip


SCHEMA = pa.schema({"topic": pa.string(), "body": pa.binary()})


def reader(batches: Any) -> Any:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def batch(*bodies: bytes) -> Any:
    return pa.record_batch({"topic": ["t"] * len(bodies), "body": list(bodies)}, SCHEMA)


def test_a_stream_is_read_once(store: Any) -> None:
    source = reader(iter([batch(b"a", b"b"), batch(), batch(b"c")]))
    assert structs(store, source) == [b"a", b"b", b"c"]
    capsule = table({}).__arrow_c_stream__()

    class Once:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return capsule

    assert store.put_table(Once()).count == ROWS
    assert store.put_table(Once()).count == 0  # it has ended


def test_a_batch_of_another_type_than_its_stream(store: Any) -> None:
    wrong = pa.record_batch({"topic": pa.nulls(1), "body": pa.nulls(1)})
    match = "'topic': the Arrow array contradicts itself: 0 buffers instead of 3"
    refused(ValueError, match, store, reader(iter([batch(b"a"), wrong])))


def test_a_stream_that_fails(store: Any) -> None:
    def broken() -> Iterator[Any]:
        yield batch(b"a")
        raise ZeroDivisionError("what the producer says")

    refused(OSError, "table: .*what the producer says", store, reader(broken()))

    class Raises:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise KeyError("mine")

    refused(KeyError, "mine", store, Raises())


def test_a_table_made_of_the_store_that_it_goes_to(store: Any) -> None:
    store.put_many("t", [b"%d" % n for n in range(100)], queue_id=0)

    def batches() -> Iterator[Any]:
        for message in store["t"][0]:
            store.put("Other", b"meanwhile")
            yield batch(message.body)

    result = store.put_table(reader(batches()))
    assert result.count == 100
    doubled = store.put_table(table_of(list(store["t"].messages())))
    assert doubled.count == 200
    bodies = [m.body for m in store["t"].messages()]
    assert sorted(bodies) == sorted([b"%d" % n for n in range(100)] * 4)
    assert sum(map(len, store["Other"].values())) == 100


def test_a_store_that_is_closed_while_the_table_is_read(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small())

    def batches() -> Iterator[Any]:
        yield batch(b"a")
        store.close()
        yield batch(b"b")

    with pytest.raises(rmqstore.StoreClosedError):
        store.put_table(reader(batches()))
    touched = []
    with rmqstore.open(tmp_path / "store") as reading:
        with pytest.raises(rmqstore.ReadOnlyStoreError):
            reading.put_table(reader(batch(b"a") for _ in iter(touched.append, True)))
        assert not touched
        assert not reading.topics


def test_synchronous_flush(tmp_path: Path) -> None:
    config = rmqstore.StoreConfig.small().replace(flush_disk_type="SYNC_FLUSH")
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        stored = store.put_table(table({}))
        assert store.wait_durable(int(stored.physical_offset[-1]), timeout=0)
        later = store.put_table(table({}), wait=False)
        assert store.wait_durable(timeout=60)
        assert later.queue_offset.max() >= 1


def test_nothing_stays_behind(store: Any) -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    for _ in range(30):
        good = table({"keys": one(["k"], []), "properties": maps(("a", "b"))})
        assert store.put_table(good).count == ROWS
        for name, column, error, _ in ONE_ROW[::5]:
            refused(error, name, store, table({name: column}))
    del good, column
    gc.collect()
    assert pa.total_allocated_bytes() <= before
