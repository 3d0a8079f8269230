"""Arguments that are out of range: the error names argument, value and what it may be.

Nothing is written by such a call, and no queue offset is used up.
"""

from __future__ import annotations

import datetime
import re

import pytest

import rmqstore
from rmqstore import MessageIllegalError, PutStatus
from support import oracle_store

CONFIG = rmqstore.StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=50,
    max_index_num=200,
    max_message_size=40_000,
)
BIG = 1 << 40
T = "Topic1"
NAIVE = datetime.datetime(2024, 1, 1)


WHAT_IT_MAY_BE = ["may", "must", "reserve", "zone", "not allowed", "rows"]


class NotText:
    def __repr__(self):
        return "<NotText>"


@pytest.fixture
def store(tmp_path):
    with rmqstore.open(tmp_path / "store", "a", config=CONFIG) as opened:
        for queue_id in range(3):
            opened.put(T, b"first", queue_id=queue_id)
        opened.flush()
        yield opened


def bad_topics():
    names = ["", "a" * 128, "a/b", "..", ".", "../x", "a b", "a.b", "\x00", "a\x00b", "\xe9", "a\n"]
    return [(name, MessageIllegalError) for name in names] + [
        (name, TypeError) for name in [None, b"Topic1", 7, NotText(), ["Topic1"]]
    ]


# argument, value, error; for put, put_batch and put_many alike
SHARED = [
    *(("topic", name, error) for name, error in bad_topics()),
    ("queue_id", -1, ValueError),
    ("queue_id", 1 << 31, ValueError),
    ("queue_id", BIG, ValueError),
    ("queue_id", "0", TypeError),
    ("queue_id", 0.0, TypeError),
    ("queue_key", 1.5, TypeError),
    ("queue_key", NotText(), TypeError),
    ("queue_key", 1 << 31, ValueError),
    ("queue_key", -(1 << 31) - 1, ValueError),
    ("tags", 7, TypeError),
    ("tags", b"TagA", TypeError),
    ("tags", "a\x01", MessageIllegalError),
    ("tags", "a\x02b", MessageIllegalError),
    ("keys", 7, TypeError),
    ("keys", "a\x01", MessageIllegalError),
    ("properties", 7, TypeError),
    ("properties", {"a": 1}, TypeError),
    ("properties", {1: "a"}, TypeError),
    ("properties", {"a\x01": "b"}, MessageIllegalError),
    ("properties", {"a": "b\x02"}, MessageIllegalError),
    ("properties", {"KEYS": "x"}, ValueError),
    ("properties", {"TAGS": "x"}, ValueError),
    ("properties", {"UNIQ_KEY": "x"}, ValueError),
    ("properties", {"DELAY": "3"}, ValueError),
    ("properties", {"": "x"}, MessageIllegalError),
    ("uniq_key", 7, TypeError),
    ("uniq_key", "a\x01", MessageIllegalError),
]
PUT = [
    ("queue_id", True, TypeError),
    ("body", None, TypeError),
    ("body", "text", TypeError),
    ("body", 7, TypeError),
    ("body", [b"x"], TypeError),
    ("body", memoryview(b"abcdef")[::2], (BufferError, ValueError, TypeError)),
    ("keys", ["a b"], ValueError),
    ("keys", ["a", 7], TypeError),
    ("keys", ["a\x02"], MessageIllegalError),
    ("flag", 1 << 31, ValueError),
    ("flag", -(1 << 31) - 1, ValueError),
    ("flag", "0", TypeError),
    ("flag", None, TypeError),
    ("delay_level", -1, ValueError),
    ("delay_level", 1 << 31, ValueError),
    ("delay_level", "3", TypeError),
    ("delay_level", "soon", TypeError),
    ("delay_level", "", TypeError),
    ("delay_level", "11s", ValueError),
    ("born_timestamp", "yesterday", ValueError),
    ("born_timestamp", "2024-01-01T00:00:00", ValueError),
    ("born_timestamp", NAIVE, ValueError),
    ("born_timestamp", 1.5, TypeError),
    ("born_timestamp", 1 << 63, ValueError),
    ("born_host", "localhost", ValueError),
    ("born_host", "localhost:1", ValueError),
    ("born_host", "1.2.3:4", ValueError),
    ("born_host", "1.2.3.4", ValueError),
    ("born_host", "1.2.3.4:-1", ValueError),
    ("born_host", "[::g]:1", ValueError),
    ("born_host", 7, TypeError),
    ("uniq_key", "", ValueError),
    ("tags", "\ud800", ValueError),
]


def ident(case):
    return re.sub(" at 0x[0-9a-f]+", "", f"{case[0]}-{case[1]!r}")[:60]


def assert_untouched(store, call, error, argument, value):
    """The call raises what it should, and leaves no trace."""
    before = store.stats()["wrote_position"]
    topics = set(store.topics)
    with pytest.raises(error) as raised:
        call()
    text = str(raised.value)
    if argument is not None and not isinstance(raised.value, BufferError):
        assert argument in text, text
        if isinstance(value, (int, float)) or (isinstance(value, str) and value.isprintable()):
            assert str(value) in text or repr(value) in text, text
        assert any(word in text for word in WHAT_IT_MAY_BE), text
    if isinstance(raised.value, MessageIllegalError):
        assert raised.value.status in {
            PutStatus.MESSAGE_ILLEGAL,
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
        }
        assert raised.value.stored == 0
        assert raised.value.result is None
    assert store.stats()["wrote_position"] == before
    assert set(store.topics) == topics
    for queue_id in range(3):
        put = store.put(T, b"next", queue_id=queue_id)
        assert put.queue_offset == store[T][queue_id].max_offset - 1
    assert [m.queue_offset for m in store[T][0]] == list(range(len(store[T][0])))


@pytest.mark.parametrize("case", SHARED + PUT, ids=ident)
def test_put(store, case):
    argument, value, error = case
    arguments = {"topic": T, "body": b"x", argument: value}
    topic, body = arguments.pop("topic"), arguments.pop("body")
    assert_untouched(store, lambda: store.put(topic, body, **arguments), error, argument, value)


# For put_many a list is a column of topics.
MANY = [case for case in SHARED if case[0] != "topic" or not isinstance(case[1], list)]


@pytest.mark.parametrize(
    ("method", "case"),
    [("put_batch", case) for case in SHARED] + [("put_many", case) for case in MANY],
    ids=lambda value: value if isinstance(value, str) else ident(value),
)
def test_put_of_more_than_one(store, method, case):
    argument, value, error = case
    arguments = {"topic": T, "bodies": [b"a", b"b"], argument: value}
    topic, bodies = arguments.pop("topic"), arguments.pop("bodies")
    put = getattr(store, method)
    assert_untouched(store, lambda: put(topic, bodies, **arguments), error, argument, value)


@pytest.mark.parametrize("method", ["put_batch", "put_many"])
@pytest.mark.parametrize(
    ("bodies", "error"),
    [
        (None, TypeError),
        (7, TypeError),
        (["text"], TypeError),
        ([b"a", None], TypeError),
        ([b"a", 7], TypeError),
        ([b"ok", b"x" * 40_000], MessageIllegalError),
    ],
    ids=repr,
)
def test_bodies(store, method, bodies, error):
    put = getattr(store, method)
    assert_untouched(store, lambda: put(T, bodies, queue_id=0), error, None, None)


@pytest.mark.parametrize("method", ["put_batch", "put_many"])
@pytest.mark.parametrize("argument", ["tags", "keys", "properties"])
def test_columns_of_another_length(store, method, argument):
    value = [{"a": "b"}] * 3 if argument == "properties" else ["x"] * 3
    put = getattr(store, method)
    call = lambda: put(T, [b"a", b"b"], **{argument: value})  # noqa: E731
    assert_untouched(store, call, ValueError, argument, None)


@pytest.mark.parametrize("method", ["put_batch", "put_many"])
@pytest.mark.parametrize(
    ("argument", "column", "error"),
    [
        ("tags", ["ok", "a\x01"], MessageIllegalError),
        ("tags", ["ok", 7], TypeError),
        ("keys", ["ok", "a\x02"], MessageIllegalError),
        ("keys", [["ok"], ["a b"]], ValueError),
        ("properties", [{}, {"KEYS": "x"}], ValueError),
        ("properties", [{}, 7], TypeError),
    ],
    ids=repr,
)
def test_the_second_row_is_bad(store, method, argument, column, error):
    """All rows are checked before the first one is written."""
    put = getattr(store, method)
    call = lambda: put(T, [b"a", b"b"], queue_id=0, **{argument: column})  # noqa: E731
    assert_untouched(store, call, error, argument, None)


@pytest.mark.parametrize(
    ("argument", "column", "error"),
    [
        ("topic", [T, "a/b"], MessageIllegalError),
        ("queue_id", [0, -1], ValueError),
        ("queue_id", [0, 1 << 31], ValueError),
        ("queue_id", [0, None], (TypeError, ValueError)),
        ("topic", [T], ValueError),
        ("queue_id", [0], ValueError),
    ],
    ids=repr,
)
def test_the_second_row_of_put_many_is_bad(store, argument, column, error):
    arguments = {"topic": T, "queue_id": 0} | {argument: column}
    topic = arguments.pop("topic")
    call = lambda: store.put_many(topic, [b"a", b"b"], **arguments)  # noqa: E731
    assert_untouched(store, call, error, argument, None)


@pytest.mark.parametrize("method", ["put", "put_batch", "put_many"])
def test_sizes(store, method):
    """A record over max_message_size, properties over 32,767 bytes, one that no file holds."""

    def call(body, **arguments):
        if method == "put":
            return store.put(T, body, queue_id=0, **arguments)
        return getattr(store, method)(T, [body], queue_id=0, **arguments)

    for body, arguments, status in [
        (b"x" * 40_000, {}, PutStatus.MESSAGE_ILLEGAL),
        (b"x" * (1 << 20), {}, PutStatus.MESSAGE_ILLEGAL),
        (b"", {"properties": {"a": "x" * 32_766}}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (b"", {"keys": "x" * 40_000}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (b"", {"tags": "x" * 33_000}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ]:
        assert_untouched(
            store, lambda b=body, a=arguments: call(b, **a), MessageIllegalError, None, None
        )
        with pytest.raises(MessageIllegalError) as raised:
            call(body, **arguments)
        assert raised.value.status == status
    longest = 32_767 - len("a\x01")
    call(b"", properties={"a": "x" * longest}, uniq_key=False)


def test_a_record_that_no_file_holds(tmp_path):
    config = CONFIG.replace(mapped_file_size_commit_log=4096, max_message_size=1 << 20)
    with rmqstore.open(tmp_path / "store", "a", config=config) as store:
        fits = 4096 - 8 - 91 - len(T)
        with pytest.raises(MessageIllegalError, match="4096"):
            store.put(T, b"x" * (fits + 1), uniq_key=False, queue_id=0)
        assert store.put(T, b"x" * fits, uniq_key=False, queue_id=0).queue_offset == 0
        with pytest.raises(MessageIllegalError):  # a batch is in one file
            store.put_batch(T, [b"x" * 2500] * 2, uniq_key=False, queue_id=0)
        assert store.put_many(T, [b"x" * 2500] * 2, uniq_key=False, queue_id=0).count == 2
        assert store.put(T, b"x", queue_id=0).queue_offset == 3
    oracle_store.check_store(tmp_path / "store")


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((7, 0, 0), TypeError, "topic"),
        ((None, 0, 0), TypeError, "topic"),
        ((T, -1, 0), ValueError, "queue_id"),
        ((T, 1 << 31, 0), ValueError, "queue_id"),
        ((T, "0", 0), TypeError, "queue_id"),
        ((T, 0, 1 << 63), ValueError, "offset"),
        ((T, 0, "0"), TypeError, "offset"),
        ((T, 0, 0, -1), ValueError, "max_messages"),
        ((T, 0, 0, "1"), TypeError, "max_messages"),
    ],
    ids=repr,
)
def test_get(store, arguments, error, named):
    with pytest.raises(error, match=named):
        store.get(*arguments)


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("max_bytes", -1, ValueError),
        ("max_bytes", "1", TypeError),
        ("tags", 7, TypeError),
        ("tags", b"a", TypeError),
    ],
    ids=repr,
)
def test_get_options(store, argument, value, error):
    with pytest.raises(error, match=argument):
        store.get(T, 0, 0, **{argument: value})


@pytest.mark.parametrize(
    ("arguments", "options", "error", "named"),
    [
        ((7, "k"), {}, TypeError, "topic"),
        ((T, 7), {}, TypeError, "key"),
        ((T, None), {}, TypeError, "key"),
        ((T, "k"), {"max_num": -1}, ValueError, "max_num"),
        ((T, "k"), {"max_num": "1"}, TypeError, "max_num"),
        ((T, "k"), {"begin": "soon"}, ValueError, "begin"),
        ((T, "k"), {"end": 1.5}, TypeError, "end"),
        ((T, "k"), {"begin": NAIVE}, ValueError, "begin"),
    ],
    ids=repr,
)
def test_query(store, arguments, options, error, named):
    with pytest.raises(error, match=named):
        store.query(*arguments, **options)


def test_get_below_the_first_offset_is_a_status(store):
    found = store.get(T, 0, -1)
    assert (found.status, found.next_offset) == (rmqstore.GetStatus.OFFSET_TOO_SMALL, 0)
    assert store.get(T, 0, -(1 << 63)).status == rmqstore.GetStatus.OFFSET_TOO_SMALL


def test_a_huge_count_asks_for_no_memory(store):
    assert len(store.get(T, 0, 0, (1 << 31) - 1).messages) == 1
    assert store.query(T, "none", max_num=(1 << 31) - 1) == []


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"mode": "w"}, ValueError, "mode"),
        ({"mode": None}, (TypeError, ValueError), "mode"),
        ({"on_corruption": "skip"}, ValueError, "on_corruption"),
        ({"mode": "r", "on_corruption": "fill"}, ValueError, "on_corruption"),
        ({"verify": "all"}, ValueError, "verify"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"timeout": float("nan")}, ValueError, "timeout"),
        ({"config": 7}, TypeError, "config"),
        ({"config": {"a": 1}}, TypeError, "config"),
    ],
    ids=repr,
)
def test_open(tmp_path, options, error, named):
    with pytest.raises(error, match=named):
        rmqstore.open(tmp_path / "store", **({"mode": "a"} | options))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("path", [None, 7, b"\x00", "a\x00b"])
def test_open_of_no_path(path):
    with pytest.raises((TypeError, ValueError)):
        rmqstore.open(path, "a")


@pytest.mark.parametrize(("name", "error"), bad_topics())
def test_create_topic_name(store, name, error):
    before = (store.path, set(store.topics))
    with pytest.raises(error, match=r"topic|name"):
        store.create_topic(name)
    assert (store.path, set(store.topics)) == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"queue_nums": 0}, ValueError),
        ({"queue_nums": -1}, ValueError),
        ({"queue_nums": 1 << 20}, ValueError),
        ({"queue_nums": "4"}, TypeError),
        ({"queue_nums": 4.0}, TypeError),
        ({"queue_nums": True}, TypeError),
        ({"queue_nums": None}, TypeError),
        ({"perm": -1}, ValueError),
        ({"perm": 99}, ValueError),
        ({"perm": "6"}, TypeError),
    ],
    ids=repr,
)
def test_create_topic(store, options, error):
    [named] = options
    with pytest.raises(error, match=f"^{named} must be "):
        store.create_topic("new", **options)
    assert "new" not in store.topics


@pytest.mark.parametrize(
    ("time", "options", "error", "named"),
    [
        (0, {"boundary": "middle"}, ValueError, "boundary"),
        (None, {}, TypeError, "time"),
        ("noon", {}, ValueError, "time"),
        (1.5, {}, TypeError, "time"),
        (NAIVE, {}, ValueError, "time"),
        (1 << 63, {}, ValueError, "time"),
    ],
    ids=repr,
)
def test_offset_at(store, time, options, error, named):
    with pytest.raises(error, match=named):
        store[T][0].offset_at(time, **options)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((-1,), ValueError, "physical_offset"),
        ((1 << 62,), ValueError, "physical_offset"),
        (("0",), TypeError, "physical_offset"),
        ((None, -1), ValueError, "timeout"),
        ((None, float("nan")), ValueError, "timeout"),
    ],
    ids=repr,
)
def test_wait_durable(store, arguments, error, named):
    with pytest.raises(error, match=named):
        store.wait_durable(*arguments)
    assert store.wait_durable(timeout=60)


def test_paths_stay_inside(tmp_path):
    """No topic, however spelled, makes anything outside of the store."""
    root = tmp_path / "a" / "store"
    root.parent.mkdir()
    with rmqstore.open(root, "a", config=CONFIG) as store:
        for name, _ in bad_topics():
            for call in [store.put, store.create_topic]:
                with pytest.raises((TypeError, ValueError)):
                    call(name, *([b"x"] if call == store.put else []))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    assert sorted(path.name for path in root.parent.iterdir()) == ["store"]


class Upset:
    """A value whose class cannot be asked for."""

    @property
    def __class__(self):
        raise KeyError("upset")


@pytest.mark.parametrize("method", ["put", "put_many", "put_batch"])
@pytest.mark.parametrize("rows", [False, True])
def test_the_error_of_an_argument_is_raised(store, method, rows):
    before = store.scan().count()
    bodies = b"x" if method == "put" else [b"x", b"y"]
    properties = [{}, Upset()] if rows and method != "put" else Upset()
    with pytest.raises(KeyError, match="upset"):
        getattr(store, method)(T, bodies, properties=properties)
    assert store.scan().count() == before
