"""Column arguments of ``put_many``: every form of a column gives the same messages."""

from __future__ import annotations

import array
import collections
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqstore

pa = pytest.importorskip("pyarrow")

BODIES = [b"ab", b"x", b"a body of more than twelve bytes", b"\xff\x00\x01"]
MAP = pa.map_(pa.string(), pa.string())
TEXTS = ["TagA", "\u00e9\u4e2d\U0001f600", "a tag of more than twelve bytes", "x"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as opened:
        yield opened


def put(store: Any, bodies: Any = None, topic: Any = "Topic1", **columns: Any) -> list[Any]:
    """Messages as they are read back, in the order of the rows."""
    if bodies is None:
        bodies = BODIES
    result = store.put_many(topic, bodies, **columns)
    assert result.count == len(result.physical_offset)
    return [store.at(int(offset)) for offset in result.physical_offset]


def refused(
    error: type[Exception] | tuple[type[Exception], ...], match: str, store: Any, **columns: Any
) -> None:
    """``put_many`` raises and stores nothing."""
    columns = {"topic": "Topic1", "bodies": BODIES} | columns
    before = store.put("Probe", b"x", queue_id=0).physical_offset
    with pytest.raises(error, match=match):
        store.put_many(columns.pop("topic"), columns.pop("bodies"), **columns)
    after = store.put("Probe", b"x", queue_id=0)
    assert after.physical_offset - before == store.at(before).store_size


def cut(values: Any) -> Any:
    """The same rows as a slice from the middle of a longer Arrow array."""
    whole = pa.concat_arrays([values, values, values])
    return whole[len(values) : 2 * len(values)]


class Producer:
    """Hands over what it was given, as often as it is asked."""

    def __init__(self, *capsules: object) -> None:
        self.capsules = capsules

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, ...]:
        return self.capsules


BODY_COLUMNS: dict[str, Callable[[list[bytes]], Any]] = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "bytearrays": lambda rows: [bytearray(row) for row in rows],
    "memoryviews": lambda rows: [memoryview(row) for row in rows],
    "objects": lambda rows: np.array(rows, dtype=object),
    "binary": lambda rows: pa.array(rows, pa.binary()),
    "large binary": lambda rows: pa.array(rows, pa.large_binary()),
    "binary view": lambda rows: pa.array(rows, pa.binary_view()),
    "slice": lambda rows: cut(pa.array(rows, pa.binary())),
    "dictionary": lambda rows: pa.array(rows, pa.binary()).dictionary_encode(),
    "chunks": lambda rows: pa.chunked_array([pa.array(rows[:1]), pa.array(rows[1:])]),
    "chunk": lambda rows: pa.chunked_array([pa.array(rows)]),
}


@pytest.mark.parametrize("form", BODY_COLUMNS)
def test_bodies(store: Any, form: str) -> None:
    assert [message.body for message in put(store, BODY_COLUMNS[form](BODIES))] == BODIES


def test_bodies_of_numpy(store: Any) -> None:
    strings = np.array([b"ab", b"abcd", b"a\x00b"])
    assert [m.body for m in put(store, strings)] == [b"ab", b"abcd", b"a\x00b"]
    assert [m.body for m in put(store, strings[::-2])] == [b"a\x00b", b"ab"]
    square = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for rows in (square, square[::-1], square[:, 1:3], square[:, ::2], square.T):
        assert [m.body for m in put(store, rows)] == [row.tobytes() for row in rows]


def test_bodies_of_strings_and_fixed_width(store: Any) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert [m.body.decode() for m in put(store, pa.array(TEXTS, kind))] == TEXTS
    fixed = pa.array([b"abcd", b"efgh", b"ijkl"], pa.binary(4))
    assert [m.body for m in put(store, fixed[1:])] == [b"efgh", b"ijkl"]


def test_one_body_for_all_rows(store: Any) -> None:
    for body in (b"same", bytearray(b"same"), np.frombuffer(b"same", np.uint8)):
        messages = put(store, body, tags=["a", "b", "c"])
        assert [(m.body, m.tags) for m in messages] == [(b"same", tag) for tag in "abc"]


def test_no_rows(store: Any) -> None:
    for bodies in ([], (), pa.array([], pa.binary()), np.zeros((0, 4), np.uint8)):
        assert store.put_many("Topic1", bodies, queue_id=0).count == 0


@pytest.mark.parametrize(
    "bodies",
    [
        "text", None, 5, 1.5, {b"a"}, {"a": 1}, iter([b"a"]), np.zeros(3, "i4"),
        np.zeros((2, 2, 2), "u1"), np.array(["a"]), np.zeros(2, "M8[s]"), pa.array([1]),
        pa.array([{"a": 1}]), pa.table({"a": [1]}),
    ],
    ids=lambda bodies: type(bodies).__name__,
)  # fmt: skip
def test_bodies_of_wrong_type(store: Any, bodies: object) -> None:
    with pytest.raises(TypeError, match="bodies"):
        store.put_many("Topic1", bodies)


def test_wrong_rows_of_bodies(store: Any) -> None:
    for bad in ("text", None, 5):
        refused(TypeError, "bodies, row 1: ", store, bodies=[b"a", bad])
    strided = np.arange(9, dtype=np.uint8)[::2]
    refused(ValueError, "row 1: a buffer that is not C-cont", store, bodies=[b"a", strided])
    refused(ValueError, "bodies: a buffer that is not C-cont", store, bodies=strided)
    refused(ValueError, "row 2: no value", store, bodies=pa.array([b"a", b"b", None]))
    chunks = pa.chunked_array([pa.array([b"a", b"b"]), pa.array([b"a", None])])
    refused(ValueError, "row 3: no value", store, bodies=chunks)


TEXT_COLUMNS: dict[str, Callable[[list[str | None]], Any]] = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "objects": lambda rows: np.array(rows, dtype=object),
    "string": lambda rows: pa.array(rows, pa.string()),
    "large string": lambda rows: pa.array(rows, pa.large_string()),
    "string view": lambda rows: pa.array(rows, pa.string_view()),
    "slice": lambda rows: cut(pa.array(rows, pa.string())),
    "dictionary": lambda rows: pa.array(rows, pa.string()).dictionary_encode(),
    "sliced dictionary": lambda rows: cut(pa.array(rows, pa.string()).dictionary_encode()),
    "chunks": lambda rows: pa.chunked_array([pa.array(rows[:1]), pa.array(rows[1:])]),
}


@pytest.mark.parametrize("form", TEXT_COLUMNS)
def test_tags(store: Any, form: str) -> None:
    column = TEXT_COLUMNS[form]
    assert [m.tags for m in put(store, tags=column(list(TEXTS)))] == TEXTS
    rows = [TEXTS[0], None, TEXTS[1], TEXTS[0]]
    assert [m.tags for m in put(store, tags=column(rows))] == rows


@pytest.mark.parametrize("dtype", ["U", ">U40", "<U40"])
def test_tags_of_numpy(store: Any, dtype: str) -> None:
    assert [m.tags for m in put(store, tags=np.array(TEXTS, dtype=dtype))] == TEXTS


def test_one_tag_for_all_rows(store: Any) -> None:
    assert [m.tags for m in put(store, tags="TagA")] == ["TagA"] * 4
    assert [m.tags for m in put(store, tags=None)] == [None] * 4
    assert [m.tags for m in put(store, tags=pa.nulls(4))] == [None] * 4


@pytest.mark.parametrize("form", TEXT_COLUMNS)
def test_topics(store: Any, form: str) -> None:
    topics = ["Topic1", "Topic2", "Topic1", "A_topic_of_more_than_twelve_bytes"]
    messages = put(store, topic=TEXT_COLUMNS[form](topics), queue_id=1)
    assert [(m.topic, m.body) for m in messages] == list(zip(topics, BODIES, strict=True))
    assert [m.queue_offset for m in messages] == [0, 0, 1, 0]


@pytest.mark.parametrize("index", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
def test_dictionary_indices(store: Any, index: str) -> None:
    codes = pa.array([1, 0, None, 2], pa.type_for_alias(index))
    tags = pa.DictionaryArray.from_arrays(codes, pa.array(["p", None, "q"]))
    assert [m.tags for m in put(store, tags=tags)] == [None, "p", None, "q"]
    topics = pa.DictionaryArray.from_arrays(codes, pa.array(["Topic1", "Topic2", "Topic3"]))
    refused(ValueError, "topic, row 2: no value", store, topic=topics)


def test_wrong_text(store: Any) -> None:
    wrong = (
        5, b"a", bytearray(b"a"), {"a"}, {"a": "b"}, iter(["a"]), pa.array([1]), pa.array([b"a"]),
        np.array([1]), np.array([b"a"]), pa.array([["a"]]), np.array([["a"]]),
    )  # fmt: skip
    for tags in wrong:
        refused(TypeError, "tags", store, tags=tags)
    for bad in (b"a", 1, ["a"]):
        refused(TypeError, "tags, row 1: ", store, tags=["a", bad, "b", "c"])
    refused(TypeError, "topic, row 1: must be .* not NoneType", store, topic=["a", None, "b", "c"])
    refused(ValueError, "tags, row 1: .* surrogate", store, tags=["a", "\udc00", "b", "c"])
    refused(ValueError, "tags: .* surrogate", store, tags="a\udc00")


def test_wrong_length(store: Any) -> None:
    refused(ValueError, "tags must have as many .* 4, got 3", store, tags=["a", "b", "c"])
    refused(ValueError, "keys must have as many .* 4, got 5", store, keys=pa.nulls(5))
    refused(
        ValueError, "queue_id must have as many rows", store, queue_id=np.zeros(2, "i4")
    )  # fmt: skip


def test_keys(store: Any) -> None:
    rows = ["a b", None, ("c", "d"), ["e"]]
    expected = [("a", "b"), (), ("c", "d"), ("e",)]
    assert [m.keys for m in put(store, keys=rows)] == expected
    assert [m.keys for m in put(store, keys=np.array(rows, dtype=object))] == expected
    assert [m.keys for m in put(store, keys="k l")] == [("k", "l")] * 4
    strings = pa.array(["a b", None, "c d", "e"])
    assert [m.keys for m in put(store, keys=strings)] == expected
    lists = [["a", "b"], None, ["c", "d"], ["e"]]
    for item in (pa.string(), pa.large_string(), pa.string_view()):
        for kind in (pa.list_(item), pa.large_list(item)):
            assert [m.keys for m in put(store, keys=cut(pa.array(lists, kind)))] == expected
    chunks = pa.chunked_array([pa.array(lists[:2]), pa.array(lists[2:])])
    assert [m.keys for m in put(store, keys=chunks)] == expected
    assert [m.keys for m in put(store, keys=[[], (), [], []])] == [()] * 4


def test_wrong_keys(store: Any) -> None:
    refused(ValueError, "keys, row 1: the key 'b c' has", store, keys=["a", ["b c"], "d", "e"])
    refused(TypeError, r"row 1: must be .* not int \(5\)", store, keys=["a", ["b", 5], "d", "e"])
    refused(TypeError, "keys, row 1: ", store, keys=["a", b"b", "d", "e"])
    for bad in ("b c", None):
        lists = pa.array([["a"], ["b", bad], ["c"], ["d"]])
        refused(ValueError, "keys, row 1: a key that", store, keys=lists)
    for keys in (5, b"a", {"a"}, {"a": 1}, pa.array([1]), pa.array([[1]])):
        refused(TypeError, "keys", store, keys=keys)


def test_properties(store: Any) -> None:
    one = {"psly": "psly", "\u00e9": "\u4e2d"}
    rows = [one, None, one, {"z": "y" * 300}]
    for column in (rows, tuple(rows), np.array(rows, dtype=object)):
        messages = put(store, properties=column, uniq_key=False)
        assert [dict(m.properties) for m in messages] == [row or {} for row in rows]
    messages = put(store, properties=one, uniq_key=False)
    assert [dict(m.properties) for m in messages] == [one] * 4
    for properties in (5, "a", ["a", {}, {}, {}], pa.array([{"a": "b"}])):
        refused(TypeError, "properties", store, properties=properties)
    refused((TypeError, ValueError), ".", store, properties=[one, {"a": 5}, None, None])


PROPERTIES_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "map": lambda rows: pa.array(rows, MAP),
    "slice": lambda rows: cut(pa.array(rows, MAP)),
    "chunks": lambda rows: pa.chunked_array([pa.array(rows[:1], MAP), pa.array(rows[1:], MAP)]),
    "lists": lambda rows: pa.array(
        [row and [{"key": key, "value": value} for key, value in row] for row in rows],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
    ),
}


@pytest.mark.parametrize("form", PROPERTIES_COLUMNS)
def test_properties_of_arrow(store: Any, form: str) -> None:
    make = PROPERTIES_COLUMNS[form]
    one = [("psly", "psly"), ("\u00e9", "\u4e2d")]
    rows = [one, None, [], [("z", "y" * 300)]]
    messages = put(store, properties=make(rows), tags="t", uniq_key=False)
    assert [dict(m.properties) for m in messages] == [
        dict(row or ()) | {"TAGS": "t"} for row in rows
    ]
    for error, match, wrong in [
        (rmqstore.MessageIllegalError, "row 2: must not have 'TAGS', a name", ("TAGS", "x")),
        (rmqstore.MessageIllegalError, "row 2: must not have an empty name", ("a", "")),
        (rmqstore.MessageIllegalError, "row 2: must not have .x01", ("a", "b\x01")),
        (ValueError, "row 2: must not have a name or a value that is null", ("a", None)),
    ]:
        refused(error, match, store, properties=make([one, None, [wrong], one]))
    refused(ValueError, "as many rows", store, properties=make(rows[:3]))
    batch = store.put_batch("Topic1", BODIES, properties=make(rows), queue_id=0)
    assert store.at(batch.physical_offset).properties["psly"] == "psly"


QUEUES = [3, 0, 1, 2]


@pytest.mark.parametrize("code", "bBhHiIlLqQ")
@pytest.mark.parametrize("order", "<>")
def test_queue_ids_of_numpy(store: Any, code: str, order: str) -> None:
    queues = np.array(QUEUES, np.dtype(order + code))
    assert [m.queue_id for m in put(store, queue_id=queues)] == QUEUES
    assert [m.queue_id for m in put(store, queue_id=queues[::-1])] == QUEUES[::-1]


def test_queue_ids(store: Any) -> None:
    aligned_to_nothing = np.zeros(4, np.dtype([("a", "u1"), ("b", ">i4")]))
    aligned_to_nothing["b"] = QUEUES
    columns = [
        tuple(QUEUES), array.array("l", QUEUES), np.array(QUEUES, object), aligned_to_nothing["b"],
        pa.chunked_array([pa.array(QUEUES[:1]), pa.array(QUEUES[1:])]),
    ]  # fmt: skip
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        columns += [cut(pa.array(QUEUES, pa.type_for_alias(name)))]
    for column in columns:
        assert [m.queue_id for m in put(store, queue_id=column)] == QUEUES
    assert [m.queue_id for m in put(store, queue_id=range(4))] == [0, 1, 2, 3]
    assert [m.queue_id for m in put(store, queue_id=np.int16(2))] == [2] * 4


def test_wrong_queue_ids(store: Any) -> None:
    for bad in (2**31, -1, 2**70):
        refused(ValueError, f"queue_id must be .* got {bad}", store, queue_id=bad)
        refused(ValueError, f"row 1: must be .* got {bad}", store, queue_id=[0, bad, 0, 0])
    huge = np.array([0, 2**64 - 1, 0, 0], np.uint64)
    refused(ValueError, f"row 1: must be .* got {2**64 - 1}", store, queue_id=huge)
    refused(ValueError, "row 2: must be .* got -5", store, queue_id=np.array([0, 1, -5, 0], ">i2"))
    refused(ValueError, "row 1: no value", store, queue_id=pa.array([0, None, 0, 0]))
    for bad in (True, "2", 1.0, [0, 1.0, 0, 0], [0, None, 0, 0], np.ones(4), pa.array([1.0])):
        refused(TypeError, "queue_id", store, queue_id=bad)


def test_queue_keys_choose_alike_in_every_form(store: Any) -> None:
    store.create_topic("Wide", 16)
    for rows, forms in (
        (["a", "bc", "\u00e9", "long enough for eight"], [np.array, pa.array]),
        ([b"a", b"bc", b"\xff", b"long enough for eight"], [np.array, pa.array]),
        ([0, -7, 2**31 - 1, -(2**31)], [np.array, pa.array]),
    ):
        singly = [store.put("Wide", b"x", queue_key=key).queue_id for key in rows]
        for form in (list, tuple, *forms):
            messages = put(store, topic="Wide", queue_key=form(rows))
            assert [m.queue_id for m in messages] == singly
    for mixed in (["a", 1, "b", "c"], [1, "a", 2, 3], [b"a", "b", b"c", b"d"]):
        refused(TypeError, "queue_key, row 1: ", store, queue_key=mixed)
    refused(ValueError, "row 1: must be .* got 2147483648", store, queue_key=[1, 2**31, 2, 3])


def test_unique_keys(store: Any) -> None:
    made = [m.uniq_key for m in put(store)]
    assert len(set(made)) == 4
    assert {len(key) for key in made} == {32}
    assert [m.uniq_key for m in put(store, uniq_key=False)] == [None] * 4
    rows = ["k1", "k2", "a key of more than twelve bytes", "k4"]
    assert [m.uniq_key for m in put(store, uniq_key=rows)] == rows
    assert [m.uniq_key for m in put(store, uniq_key=pa.array(rows))] == rows
    for bad in (None, 1, [True] * 4):
        refused(TypeError, "uniq_key", store, uniq_key=bad)


def test_the_result_of_a_batch_has_the_first_unique_key(store: Any) -> None:
    for given in ("k1", ["k1", "k2"], pa.array(["k1", "k2"]), ["k1", None]):
        assert store.put_batch("Topic1", [b"a", b"b"], uniq_key=given).uniq_key == "k1"
    assert store.put_batch("Topic1", [b"a", b"b"], uniq_key=[None, "k2"]).uniq_key is None
    assert store.put_batch("Topic1", [b"a"], uniq_key=False).uniq_key is None
    made = store.put_batch("Topic1", [b"a", b"b"])
    assert made.uniq_key == store.at(made.physical_offset).uniq_key


def test_addresses_of_objects_are_no_body(store: Any) -> None:
    objects = np.array([object()])
    with pytest.raises(TypeError, match="body must be bytes or another C-contiguous buffer, not"):
        store.put("Topic1", objects)
    refused(TypeError, "bodies, row 1: must be", store, bodies=[b"a", objects])
    times = np.array(["2026-01-01"], "M8[s]")  # which has no format of the buffer protocol
    assert store.at(store.put("Topic1", times).physical_offset).body == times.tobytes()


def spoiled(kind: Any, data: bytes, good: list[int], bad: list[int]) -> Any:
    """An array whose offsets change after pyarrow has looked at them."""
    offsets = np.array(good, np.int64 if kind in (pa.large_string(), pa.large_binary()) else "i4")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    made = pa.Array.from_buffers(kind, len(good) - 1, buffers)
    offsets[:] = bad
    return made


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize(
    "offsets", [[0, 3, 1, 4, 6], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 2], [9, 1, 2, 3, 4]], ids=repr
)
def test_offsets_that_contradict_themselves(store: Any, kind: Any, offsets: list[int]) -> None:
    tags = spoiled(kind, b"abcdef", [0, 1, 2, 3, 4], offsets)
    refused(ValueError, "tags: .* contradicts itself", store, tags=tags)


@pytest.mark.parametrize(
    ("place", "value"), [(16, 10**6), (24, 1), (24, -1), (28, 5), (28, -2), (16, -1), (0, -4)]
)
def test_views_outside_of_their_data(store: Any, place: int, value: int) -> None:
    tags = pa.array(["short", "a long tag of more than twelve", "b", "c"], pa.string_view())
    views, data = (bytearray(part.to_pybytes()) for part in tags.buffers()[1:])
    views[place : place + 4] = value.to_bytes(4, sys.byteorder, signed=True)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    bad = pa.Array.from_buffers(pa.string_view(), 4, buffers, 0)
    refused(ValueError, "tags: .* contradicts itself", store, tags=bad)


def test_indices_outside_of_their_dictionary(store: Any) -> None:
    for bad in (2, -1, 127):
        codes = pa.array([0, bad, 0, 0], pa.int8())
        tags = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False)
        refused(ValueError, "tags: .* row 1 has an index", store, tags=tags)


def test_lists_outside_of_their_strings(store: Any) -> None:
    offsets = np.zeros(2, np.int32)
    keys = pa.ListArray.from_buffers(
        pa.list_(pa.string()), 1, [None, pa.py_buffer(offsets)], children=[pa.array(["a"])]
    )
    for bad in ([0, 9], [0, -1], [-1, 0], [1, 0]):
        offsets[:] = bad
        refused(ValueError, "keys: .* contradicts", store, bodies=[b"x"], keys=keys)


@pytest.mark.parametrize(
    ("data", "row"), [(b"ab\xffdef", 1), (b"abc\xe4\xb8\xad", 1), (b"a\xc3\xa9def", 0)]
)
def test_strings_that_are_not_utf8(store: Any, data: bytes, row: int) -> None:
    tags = spoiled(pa.string(), data, [0, 2, 4, 5, 6], [0, 2, 4, 5, 6])
    refused(ValueError, f"tags, row {row}: .* is not UTF-8", store, tags=tags)


def test_nulls_need_not_be_utf8(store: Any) -> None:
    validity, offsets = pa.py_buffer(b"\x0d"), pa.py_buffer(np.array([0, 2, 4, 5, 6], "i4"))
    buffers = [validity, offsets, pa.py_buffer(b"ab\xff\xffef")]
    tags = pa.Array.from_buffers(pa.string(), 4, buffers, 1)
    assert [m.tags for m in put(store, tags=tags)] == ["ab", None, "e", "f"]


def test_an_array_is_taken_once(store: Any) -> None:
    column = Producer(*pa.array(TEXTS).__arrow_c_array__())
    assert [m.tags for m in put(store, tags=column)] == TEXTS
    refused(ValueError, "tags: .* released", store, tags=column)


def test_nothing_stays_behind(store: Any) -> None:
    body, growing = b"z" * 1000, bytearray(b"q")
    tags = pa.array(["a", None] * 50)
    references, bytes_of_arrow = sys.getrefcount(body), pa.total_allocated_bytes()
    for _ in range(50):
        for columns in (
            {"bodies": [body, growing, 5]},
            {"bodies": [body, growing], "tags": ["a", 5]},
            {"bodies": [body] * 100, "topic": tags},
            {"bodies": [body] * 100, "topic": tags.dictionary_encode()},
            {"bodies": [body] * 4, "keys": pa.array([["a"], ["b c"], [], []])},
        ):
            arguments = {"topic": "Topic1"} | columns
            with pytest.raises((TypeError, ValueError)):
                store.put_many(**arguments)
        put(store, [body, growing], tags=tags[:2])
    del columns, arguments
    gc.collect()
    assert sys.getrefcount(body) == references
    assert pa.total_allocated_bytes() <= bytes_of_arrow
    growing.append(1)  # no buffer of it is held any more
