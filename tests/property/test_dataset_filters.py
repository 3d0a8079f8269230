"""Any filter of a dataset gives the rows that Arrow takes of the whole table.

The store has what pruning can stumble over: records that no queue or no index has, tags and keys
that are no plain texts, messages without either, a log whose beginning is gone.
"""

from __future__ import annotations

import functools
import operator
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore.columns import pushdown

pytestmark = [pytest.mark.property, pytest.mark.slow]

f = ds.field
MESSAGES, FIRST_TIME = 600, 1_700_000_000_000
TOPICS = ("plain", "its-own", "other")
TAGS: tuple[bytes, ...] = (b"A", b"B", b"A || B", b" A ", b"*", b"\xff", b"say 'x'")
KEYS = [f"K{n}" for n in range(20)]
PREPARED, ROLLED_BACK = 4, 12


def record(number: int, queue_offsets: dict[tuple[str, int], int], *, all_queued: bool) -> bytes:
    """A message; a few were prepared or rolled back, and have no unit."""
    topic, queue_id = TOPICS[number % 3], number % 2
    sys_flag = 0 if all_queued else {5: PREPARED, 11: ROLLED_BACK}.get(number % 13, 0)
    queue_offset = 0
    if not sys_flag:
        queue_offset = queue_offsets.get((topic, queue_id), 0)
        queue_offsets[topic, queue_id] = queue_offset + 1
    properties = b""
    if number % 5:
        properties += (
            b"UNIQ_KEY\x01" + (b"K%d" % (number % 20) if number % 7 else b"\xfe") + b"\x02"
        )
    if number % 4:
        properties += b"TAGS\x01" + TAGS[number % len(TAGS)] + b"\x02"
    return rmqstore.encode_record(
        topic,
        b"x" * (number % 50),
        queue_id=queue_id,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        store_timestamp=FIRST_TIME + number * 10,
        born_timestamp=FIRST_TIME + number,
        properties=properties,
    )


def write_log(root: Path, *, all_queued: bool) -> None:
    (root / "commitlog").mkdir(parents=True)
    queue_offsets: dict[tuple[str, int], int] = {}
    with rmqstore.CommitLog(root / "commitlog", file_size=1 << 16, mode="a") as log:
        log.append(record(n, queue_offsets, all_queued=all_queued) for n in range(MESSAGES))


KINDS = ["as a broker writes", "with what was prepared", "recovered", "its beginning gone"]


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("filters") / "store"
    write_log(root, all_queued=request.param != "with what was prepared")
    if request.param != "as a broker writes":
        rmqstore.open(root, "r+").close()
    if request.param == "its beginning gone":
        min((root / "commitlog").iterdir()).unlink()
    with rmqstore.open(root) as store:
        yield store


def comparisons() -> st.SearchStrategy[Any]:
    compare = st.sampled_from(
        [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
    )

    def of(name: str, values: list[Any], kind: pa.DataType) -> st.SearchStrategy[Any]:
        value = st.sampled_from([ds.scalar(pa.scalar(value, kind)) for value in values])
        forth = st.tuples(compare, value).map(lambda made: made[0](f(name), made[1]))
        back = st.tuples(compare, value).map(lambda made: made[0](made[1], f(name)))
        among = st.lists(st.sampled_from(values), max_size=3)
        some = among.map(lambda chosen: f(name).isin(pa.array(chosen, kind)))
        return forth | back | some | st.sampled_from([f(name).is_null(), f(name).is_valid()])

    texts = {
        "topic": [*TOPICS, "none", "", None],
        "tags": [*(tag.decode(errors="replace") for tag in TAGS), "", None],
        "uniq_key": [*KEYS[:6], "\ufffd", "", None],
    }
    columns = [of(name, values, pa.string()) for name, values in texts.items()]
    columns.append(of("queue_id", [-1, 0, 1, 2, None], pa.int64()))
    columns.append(of("queue_offset", [-5, 0, 3, 40, 99, 100, None], pa.int64()))
    columns.append(of("physical_offset", [-1, 0, 300, 30_000, 65_536, 70_001], pa.int64()))
    times = [FIRST_TIME * 1000 + extra for extra in (0, 1, 9_999, 1_000_000, 1_000_001, -7)]
    columns.append(of("store_timestamp", times, pa.timestamp("us", "UTC")))
    columns.append(of("store_size", [0, 120, 150], pa.int32()))
    others = [
        ds.scalar(True),
        ds.scalar(pa.scalar(None, pa.bool_())),
        pc.starts_with(f("topic"), "p"),
        f("queue_id") + 1 == 2,
        f("queue_id").cast(pa.string()) == "1",
        f("queue_id") < 0.5,
    ]
    columns.append(st.sampled_from(others))
    return st.one_of(columns)


FILTERS = st.recursive(
    comparisons(),
    lambda inner: (
        st.tuples(inner, inner).map(lambda both: both[0] & both[1])
        | st.tuples(inner, inner).map(lambda both: both[0] | both[1])
        | st.tuples(inner, inner).map(lambda both: ds.Expression._call("and", list(both)))
        | st.tuples(inner, inner).map(lambda both: ds.Expression._call("or", list(both)))
        | inner.map(operator.invert)
    ),
    max_leaves=6,
)

SCANS: list[dict[str, Any]] = [
    {},
    {"topic": "plain"},
    {"topic": "plain", "queue_id": 0, "start": 85},
    {"queue_id": 1},
    {"topic": ["plain", "its-own"], "stop": 71_000},
    {"since": FIRST_TIME + 100, "until": FIRST_TIME + 5_000, "tags": "A || B"},
    {"topic": "other", "keys": ["K1", "K2"]},
    {"keys": "K3 K4", "batch_rows": 7},
    {"columns": ["tags", "topic", "uniq_key", "queue_id", "queue_offset", "physical_offset"]},
    {"topic": []},
]


def test_a_filter_gives_what_arrow_takes(store: Any) -> None:
    scans = [store.scan(**arguments) for arguments in SCANS]
    tables = [scan.to_table() for scan in scans]

    @settings(max_examples=4 * settings().max_examples)
    @given(st.integers(0, len(SCANS) - 1), FILTERS)
    def check(place: int, expression: Any) -> None:
        dataset, table = scans[place].dataset(), tables[place]
        named = pushdown.fields_of(expression)
        assert named is not None
        if named <= set(table.column_names):
            expected = table.filter(expression)
            assert dataset.to_table(filter=expression).equals(expected), str(expression)
            assert dataset.count_rows(filter=expression) == expected.num_rows
        else:
            with pytest.raises(pa.ArrowInvalid, match="No match"):
                dataset.to_table(filter=expression)

    check()


@pytest.mark.parametrize("arguments", SCANS, ids=str)
def test_a_filter_narrows_what_the_scan_has(store: Any, arguments: dict[str, Any]) -> None:
    scan = store.scan(**arguments)
    dataset, table = scan.dataset(), scan.to_table()
    plain, first_queue = f("topic") == "plain", f("queue_id") == 0
    for expression in (
        plain & first_queue,
        plain & first_queue & (f("queue_offset") > 60) & (f("queue_offset") <= 90),
        plain & first_queue & (f("physical_offset") > 70_000),
        plain & (f("uniq_key") == "K6"),
        f("uniq_key").isin(KEYS),
        f("topic").isin(["other", "plain"]) & (f("tags") == "B"),
        f("tags").isin(["A", "say 'x'"]) & first_queue,
        f("physical_offset") < 70_000,
    ):
        expected = table.filter(expression)
        assert dataset.to_table(filter=expression).equals(expected), str(expression)


def test_what_no_queue_and_no_index_has_is_found(tmp_path: Path) -> None:
    write_log(tmp_path / "store", all_queued=False)
    with rmqstore.open(tmp_path / "store", "r+") as store:
        table = store.scan().to_table()
        dataset = store.scan().dataset()
        in_queue = (f("topic") == "plain") & (f("queue_id") == 0)
        by_key = (f("topic") == "plain") & (f("uniq_key") == "K18")
        for expression, narrow in (
            (in_queue, store.scan("plain", 0)),
            (by_key, store.scan("plain", keys=["K18"])),
        ):
            expected = table.filter(expression)
            assert narrow.count() < expected.num_rows  # these go past what was rolled back
            assert dataset.to_table(filter=expression).equals(expected)


@pytest.mark.parametrize("sys_flag", [0, PREPARED, ROLLED_BACK])
def test_what_is_behind_the_queues_is_found(tmp_path: Path, sys_flag: int) -> None:
    """The queues and the index of a store that was killed end before the log does."""
    write_log(tmp_path / "store", all_queued=True)
    rmqstore.open(tmp_path / "store", "r+").close()
    with rmqstore.CommitLog(tmp_path / "store" / "commitlog", file_size=1 << 16, mode="r+") as log:
        behind = rmqstore.encode_record(
            "plain",
            b"late",
            queue_offset=0 if sys_flag else 100,
            sys_flag=sys_flag,
            store_timestamp=FIRST_TIME,
            properties={"UNIQ_KEY": "K1"},
        )
        log.append([behind])
    with rmqstore.open(tmp_path / "store") as store:
        table, dataset = store.scan().to_table(), store.scan().dataset()
        for expression in (
            (f("topic") == "plain") & (f("queue_id") == 0),
            (f("topic") == "plain") & (f("uniq_key") == "K1"),
            f("uniq_key") == "K1",
            f("uniq_key").isin(["K1", "K2"]) & (f("physical_offset") > 50_000),
        ):
            expected = table.filter(expression)
            assert b"late" in expected["body"].to_pylist()
            assert dataset.to_table(filter=expression).equals(expected)
        before = store.stats()["scanned_records"]
        assert dataset.count_rows((f("topic") == "plain") & (f("uniq_key") == "K1")) > 1
        assert store.stats()["scanned_records"] - before < MESSAGES / 10


def test_bounds_of_some_filters() -> None:
    low, high = -(2**63), 2**63 - 1
    for expression, bounds in [
        ((f("topic") == "a") & (f("topic") == "b"), {"topic": frozenset()}),
        ((f("topic") == "a") | (f("queue_id") == 1), {}),
        (
            ~((f("topic") != "a") | (f("queue_id") >= 5)),
            {"topic": frozenset(["a"]), "queue_id": (low, 4)},
        ),
        (ds.scalar(3) < f("queue_offset"), {"queue_offset": (4, high)}),
        (f("queue_offset").isin([3, 9]), {"queue_offset": (3, 9)}),
        (f("topic").isin(["a", None]), {}),
        (f("topic").isin(pa.array(["a", "a"]).dictionary_encode()), {"topic": frozenset(["a"])}),
        (pc.field("topic", "topic") == "a", {}),
        (pc.field(0) == "a", {}),
        (f("queue_id") == pa.scalar(2**64 - 1, pa.uint64()), {}),
        (f("tags") == "", {}),
        (f("topic") == b"a", {}),
    ]:
        assert pushdown.bounds_of(expression) == bounds, str(expression)
    many = functools.reduce(operator.or_, [f("topic") == "a"] * 5_000)
    assert pushdown.bounds_of(many) in ({}, {"topic": frozenset(["a"])})
    assert pushdown.fields_of(many) == {"topic"}
    assert pushdown.fields_of(pc.field("a b", "c") == f("d\"'\n")) >= {"a b", "d\"'\n"}
    assert pushdown.fields_of(pc.field(0) == 1) is None


# ---- errors of the store


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Any]:
    write_log(tmp_path / "store", all_queued=True)
    rmqstore.open(tmp_path / "store", "r+").close()
    with rmqstore.open(tmp_path / "store") as store:
        place = store.scan("plain", 0, start=50).to_table()["physical_offset"][0].as_py()
    with min((tmp_path / "store" / "commitlog").iterdir()).open("r+b") as file:
        file.seek(place + 88)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0xFF]))
    with rmqstore.open(tmp_path / "store") as store:
        yield store


ASKED: dict[str, Callable[[Any], Any]] = {
    "to_table": lambda dataset: dataset.to_table(),
    "to_batches": lambda dataset: list(dataset.to_batches()),
    "filter": lambda dataset: dataset.to_table(filter=f("store_size") > 5),
    "count_rows": lambda dataset: dataset.count_rows(f("store_size") > 5),
    "count all": lambda dataset: dataset.count_rows(),
    "take": lambda dataset: dataset.take([MESSAGES - 1]),
    "to_reader": lambda dataset: dataset.scanner().to_reader().read_all(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_damage_is_told_as_it_is(asked: str, damaged: Any) -> None:
    with pytest.raises(rmqstore.StoreCorruptError, match="commitlog"):
        ASKED[asked](damaged.scan(batch_rows=10).dataset())


def test_damage_is_told_in_others_words(damaged: Any) -> None:
    dataset = damaged.scan().dataset()
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        with pytest.raises(duckdb.Error, match="StoreCorruptError"):
            connection.sql("SELECT count(*) FROM dataset").fetchall()
    with pytest.raises((rmqstore.StoreCorruptError, pl.exceptions.ComputeError), match="commitlog"):
        pl.scan_pyarrow_dataset(dataset).collect()
    skipping = damaged.scan(on_corruption="skip").dataset()
    assert skipping.count_rows() == MESSAGES - 1
    assert skipping.count_rows(f("topic") == "plain") == MESSAGES // 3 - 1


def test_messages_that_are_gone_are_told_where_the_scan_asks_for_them(tmp_path: Path) -> None:
    write_log(tmp_path / "store", all_queued=True)
    rmqstore.open(tmp_path / "store", "r+").close()
    min((tmp_path / "store" / "commitlog").iterdir()).unlink()
    with rmqstore.open(tmp_path / "store") as store:
        with pytest.raises(rmqstore.MessagesRemovedError):
            store.scan(start=0).dataset().to_table(filter=f("topic") == "plain")
        from_the_first = store.scan().dataset()
        assert from_the_first.count_rows(f("physical_offset") >= 0) == store.scan().count() > 0
        queue = (f("topic") == "plain") & (f("queue_id") == 0) & (f("queue_offset") >= 0)
        assert from_the_first.count_rows(queue) == store.scan("plain", 0).count() > 0


def test_a_closed_store_is_told(tmp_path: Path) -> None:
    write_log(tmp_path / "store", all_queued=True)
    with rmqstore.open(tmp_path / "store") as store:
        dataset = store.scan().dataset()
        batches = store.scan(batch_rows=1).dataset().to_batches()
        next(batches)
    for asked in (lambda: next(batches), dataset.to_table, lambda: dataset.head(1)):
        with pytest.raises(rmqstore.StoreClosedError):
            asked()
    shutil.rmtree(tmp_path / "store")
