"""Datasets of a scan: what DuckDB, Polars and pyarrow ask for is what is read, and is right."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import rmqstore
from rmqstore.columns import pushdown

# DuckDB, Polars and Arrow do the work here: a sanitizer would watch nothing of ours but the scan,
# which has tests of its own.
pytestmark = pytest.mark.slow

COUNT, RARE = 50_000, 50
CHUNK = 5_000
UTC = datetime.UTC
f = ds.field


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Many messages of two topics, a few of a third among them."""
    with rmqstore.open(tmp_path_factory.mktemp("dataset") / "store", "a") as store:
        for start in range(0, COUNT, CHUNK):
            numbers = range(start, start + CHUNK)
            bodies = [b"x" * (100 + 7 * n % 900) for n in numbers]
            store.put_many(
                "audit" if start % (2 * CHUNK) else "orders",
                bodies,
                queue_key=numbers,
                tags=["paid" if n % 3 else 'it\'s "sent"' for n in numbers],
                keys=[f"order-{n}" for n in numbers],
            )
            few = range(start * RARE // COUNT, (start + CHUNK) * RARE // COUNT)
            store.put_many(
                "rare", [b"%d" % n for n in few], tags="seldom", uniq_key=[f"R{n}" for n in few]
            )
        yield store


@pytest.fixture(scope="module")
def dataset(store: Any) -> Any:
    return store.scan().dataset()


@pytest.fixture(scope="module")
def table(store: Any) -> pa.Table:
    return store.scan().to_table()


@pytest.fixture
def looked_at(store: Any) -> Callable[[], int]:
    """How many records scans looked at since."""
    before = store.stats()["scanned_records"]
    return lambda: store.stats()["scanned_records"] - before


def at_ms(value: Any) -> Any:
    return pa.scalar(value, pa.timestamp("ms", "UTC"))


# ---- pyarrow


def test_it_is_the_whole_scan(store: Any, dataset: Any, table: pa.Table) -> None:
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema == store.scan().schema == table.schema
    assert dataset.to_table().equals(table)
    assert dataset.count_rows() == table.num_rows == COUNT + RARE
    assert pa.table(dataset.scanner()).equals(table)
    assert dataset.scanner().to_reader().read_all().equals(table)


PLACES = {"least": 3_000_000, "most": 3_100_000}
PUSHED: dict[str, tuple[Any, int]] = {
    "a topic": (f("topic") == "rare", RARE),
    "a topic, the other way round": (ds.scalar("rare") == f("topic"), RARE),
    "topics": (f("topic").isin(["rare", "none"]), RARE),
    "a topic that is not there": (f("topic") == "none", 0),
    "two topics at once": ((f("topic") == "rare") & (f("topic") == "audit"), 0),
    "a topic, or a topic": ((f("topic") == "rare") | (f("topic") == "none"), RARE),
    "not all but a topic": (~(f("topic") != "rare"), RARE),
    "a queue": ((f("topic") == "orders") & (f("queue_id") == 1), COUNT // 8),
    "a part of a queue": (
        (f("topic") == "orders")
        & (f("queue_id") == 1)
        & (f("queue_offset") >= 100)
        & (f("queue_offset") < 150),
        50,
    ),
    "a queue from its beginning": (
        (f("queue_id") == 1) & (f("queue_offset") <= 9) & (f("topic") == "orders"),
        10,
    ),
    "a part of the log": (
        (f("physical_offset") >= PLACES["least"]) & (f("physical_offset") < PLACES["most"]),
        1_000,
    ),
    "one of two parts": (
        (f("physical_offset") == PLACES["least"]) | (f("physical_offset") < 10_000),
        8_000,
    ),
    "a unique key": (f("uniq_key") == "R7", 1),
    "unique keys of a topic": ((f("topic") == "rare") & f("uniq_key").isin(["R7", "R9", "?"]), 2),
    "a unique key of another topic": ((f("topic") == "audit") & (f("uniq_key") == "R7"), 0),
    "tags of a topic": ((f("topic") == "rare") & (f("tags") == "seldom"), RARE),
    "no tags of a topic": ((f("topic") == "rare") & (f("tags") == "paid"), 0),
    "nothing": (ds.scalar(False), 0),
    "null": (f("topic") == pa.scalar(None, pa.string()), 0),
    "a time that is not there": (f("store_timestamp") < at_ms(5), COUNT + RARE),
    "what is not understood": (pc.starts_with(f("topic"), "ra"), COUNT + RARE),
    "a field by its place": (pc.field(0) == "rare", COUNT + RARE),
    "tags without a topic": (f("tags") == 'it\'s "sent"', COUNT + RARE),
}


@pytest.mark.parametrize("name", PUSHED)
def test_a_filter_is_what_is_read(
    name: str, dataset: Any, table: pa.Table, looked_at: Callable[[], int]
) -> None:
    expression, most = PUSHED[name]
    # pyarrow itself cannot filter a table by the place of a field
    same = f("topic") == "rare" if "place" in name else expression
    found = dataset.to_table(filter=expression)
    assert looked_at() <= most
    assert found.equals(table.filter(same))
    assert dataset.count_rows(filter=expression) == found.num_rows


def test_store_times_bound_what_is_made(dataset: Any, table: pa.Table) -> None:
    middle = table["store_timestamp"][COUNT // 2]
    for unit in ("s", "ms", "us", "ns"):
        limit = middle.cast(pa.timestamp(unit, "UTC"), safe=False)
        for expression in (
            f("store_timestamp") >= limit,
            f("store_timestamp") > limit,
            f("store_timestamp") < limit,
            f("store_timestamp") <= limit,
            f("store_timestamp") == limit,
        ):
            assert dataset.to_table(filter=expression).equals(table.filter(expression))
    between = pa.scalar(middle.value * 1000 + 1, pa.timestamp("us", "UTC"))
    for expression in (f("store_timestamp") < between, f("store_timestamp") >= between):
        assert dataset.to_table(filter=expression).equals(table.filter(expression))
    assert pushdown.bounds_of(f("store_timestamp") > between) == {
        "store_timestamp": (middle.value + 1, 2**63 - 1)
    }


def test_columns_are_what_is_made(dataset: Any, table: pa.Table) -> None:
    scanner = dataset.scanner(columns=["tags", "queue_id"], filter=f("store_size") > 900)
    wanted = table.filter(f("store_size") > 900).select(["tags", "queue_id"])
    assert scanner.projected_schema == wanted.schema
    assert scanner.dataset_schema == table.schema
    assert scanner.to_table().equals(wanted)
    assert all(batch.schema == wanted.schema for batch in scanner.to_batches())
    assert set(scanner._scan.columns) == {"store_size", "tags", "queue_id"}
    computed = {"twice": f("queue_id") * 2, "topic": f("topic")}
    scanner = dataset.scanner(columns=computed, filter=f("topic") == "rare")
    assert set(scanner._scan.columns) == {"topic", "queue_id"}
    rare = table.filter(f("topic") == "rare")
    assert scanner.to_table().to_pydict() == {
        "twice": [2 * number for number in rare["queue_id"].to_pylist()],
        "topic": ["rare"] * RARE,
    }
    assert dataset.to_table(columns=["flag", "flag"]).column_names == ["flag", "flag"]
    assert dataset.to_table(columns=[], filter=f("topic") == "rare").num_rows == RARE
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=[])) == COUNT + RARE
    with pytest.raises(pa.ArrowInvalid, match="No match for FieldRef"):
        dataset.scanner(columns=["none"])
    with pytest.raises(pa.ArrowInvalid, match="No match for FieldRef"):
        dataset.scanner(filter=f("none") == 1)
    with pytest.raises(pa.ArrowTypeError, match="bool"):
        dataset.scanner(filter=f("queue_id") + 1)
    with pytest.raises(TypeError, match="Expression"):
        dataset.scanner(filter="topic = 'rare'")


def test_no_more_than_a_batch_is_read_ahead(store: Any, looked_at: Callable[[], int]) -> None:
    dataset = store.scan(batch_rows=100).dataset()
    for batches in (
        dataset.to_batches(filter=f("queue_id") >= 0),
        dataset.scanner(columns=["topic"]).to_reader(),
    ):
        before = looked_at()
        assert next(iter(batches)).num_rows == 100
        assert looked_at() - before == 100
    batches = store.scan().dataset().to_batches(batch_size=70)
    assert next(batches).num_rows == 70


def test_head_take_and_the_rest(
    dataset: Any, table: pa.Table, looked_at: Callable[[], int]
) -> None:
    assert dataset.head(3).equals(table.slice(0, 3).combine_chunks())
    assert looked_at() == 3
    assert dataset.head(0).num_rows == 0
    few = dataset.head(3, columns=["queue_id"], filter=f("topic") == "rare")
    assert few.equals(table.filter(f("topic") == "rare").select(["queue_id"]).slice(0, 3))
    places = [40_000, 3, 3, 20_000]
    taken = dataset.take(places, columns=["physical_offset"])
    assert taken["physical_offset"].to_pylist() == (
        table["physical_offset"].take(pa.array(places)).to_pylist()
    )
    assert dataset.take(pa.array([], pa.int64())).num_rows == 0
    with pytest.raises(IndexError, match=f"{COUNT + RARE}"):
        dataset.take([COUNT + RARE])
    with pytest.raises(IndexError, match="-1"):
        dataset.take([-1])
    rare = dataset.filter(f("topic") == "rare")
    assert rare.count_rows() == RARE
    odd = rare.filter(f("queue_id") == 1)
    expected = table.filter((f("topic") == "rare") & (f("queue_id") == 1))
    assert odd.to_table().equals(expected)
    narrow = dataset.replace_schema(pa.schema([("tags", pa.string()), ("queue_id", pa.int32())]))
    assert narrow.schema.names == narrow.head(1).column_names == ["tags", "queue_id"]
    for schema in (pa.schema([("tags", pa.int32())]), pa.schema([("none", pa.string())])):
        with pytest.raises(ValueError, match="no column"):
            dataset.replace_schema(schema)


def test_joined_and_sorted_in_memory(dataset: Any) -> None:
    columns = [dataset.schema.field(name) for name in ("uniq_key", "queue_offset")]
    two = dataset.replace_schema(pa.schema(columns)).filter(f("uniq_key").isin(["R3", "R4"]))
    prices = ds.dataset(pa.table({"uniq_key": ["R3"], "price": [7]}))
    joined = two.join(prices, "uniq_key", join_type="inner").to_table()
    assert joined.to_pydict() == {"uniq_key": ["R3"], "queue_offset": [0], "price": [7]}
    assert two.join(two, "uniq_key", right_suffix="_2").count_rows() == 2
    ordered = two.sort_by([("uniq_key", "descending")]).to_table()
    assert ordered["uniq_key"].to_pylist() == ["R4", "R3"]
    with pytest.raises(ValueError, match="filtered"):
        two.replace_schema(pa.schema(columns))


def test_its_one_fragment(dataset: Any) -> None:
    """Engines read fragment by fragment, such as DataFusion: with columns, filter and size."""
    names = ["queue_offset", "tags"]
    for filter in (None, f("queue_offset") < 2, f("topic") == "none"):
        wanted = dataset.to_table(columns=names, filter=filter)
        assert dataset.scanner(columns=names, filter=filter).projected_schema == wanted.schema
        (fragment,) = list(dataset.get_fragments(filter))
        scanner = fragment.scanner(dataset.schema, columns=names, filter=filter, batch_size=3)
        assert scanner.projected_schema == wanted.schema
        batches = list(scanner.to_batches())
        assert all(0 < batch.num_rows <= 3 for batch in batches)
        assert pa.Table.from_batches(batches, wanted.schema) == wanted
        assert fragment.to_table(columns=names, filter=filter) == wanted
        assert list(fragment.to_batches(columns=names, filter=filter)) == wanted.to_batches()
        assert fragment.head(2, names, filter=filter) == wanted.slice(0, 2)
        assert fragment.count_rows(filter) == wanted.num_rows
    assert fragment.physical_schema == dataset.schema
    assert fragment.partition_expression.equals(ds.scalar(True))
    few = pa.schema([dataset.schema.field("tags")])
    assert fragment.to_table(few) == dataset.to_table(columns=["tags"])
    with pytest.raises(ValueError, match="no column 'tag'"):
        fragment.scanner(pa.schema([("tag", pa.string())]))
    (left,) = dataset.filter(f("queue_offset") < 1).get_fragments()
    assert left.count_rows() == dataset.count_rows(f("queue_offset") < 1) > 0


def test_what_goes_past_the_methods_fails(dataset: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(dataset)
    with pytest.raises(TypeError, match="StoreScanner"):
        ds.write_dataset(dataset, tmp_path / "no", format="parquet")
    for beneath in (ds.Scanner.from_dataset(dataset), ds.dataset([dataset])):
        with pytest.raises(FileNotFoundError, match="methods of StoreDataset"):
            beneath.to_table()
    assert dataset.files == []
    reader = dataset.scanner(filter=f("topic") == "rare").to_reader()
    ds.write_dataset(reader, tmp_path / "yes", format="parquet")
    written = ds.dataset(tmp_path / "yes").to_table()
    assert written["body"].to_pylist() == [b"%d" % n for n in range(RARE)]


# ---- DuckDB and Polars

QUERIES = {
    "SELECT count(*) FROM dataset WHERE topic = 'rare'": RARE,
    "SELECT sum(octet_length(body)) FROM dataset WHERE topic IN ('rare', 'none')": RARE,
    "SELECT body FROM dataset WHERE uniq_key = 'R7'": 1,
    "SELECT body FROM dataset WHERE topic = 'rare' AND uniq_key IN ('R7', 'R8')": 2,
    "SELECT max(physical_offset) FROM dataset"
    " WHERE topic = 'orders' AND queue_id = 3 AND queue_offset BETWEEN 10 AND 19": 10,
    "SELECT count(*) FROM dataset"
    " WHERE physical_offset >= 3000000 AND physical_offset < 3100000": 1_000,
    "SELECT tags, count(*) FROM dataset WHERE topic = 'audit'"
    " AND tags = 'it''s \"sent\"' GROUP BY tags": COUNT + RARE,
    "SELECT count(*) FROM dataset"
    " WHERE store_timestamp >= TIMESTAMPTZ '2020-01-01 00:00:00+00'": COUNT + RARE,
    "SELECT count(*) FROM dataset WHERE topic LIKE 'ra%' OR queue_id = 2": COUNT + RARE,
    "SELECT topic, queue_id, count(*) FROM dataset GROUP BY ALL ORDER BY ALL": COUNT + RARE,
    "SELECT count(*) FROM dataset WHERE topic <> 'orders' AND tags IS NOT NULL": COUNT + RARE,
}


@pytest.mark.parametrize("query", QUERIES)
def test_duckdb_reads_what_it_asks_for(
    query: str, dataset: Any, table: pa.Table, looked_at: Callable[[], int]
) -> None:
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        found = connection.sql(query).fetchall()
        assert looked_at() <= QUERIES[query]
        connection.register("whole", table)
        assert found == connection.sql(query.replace("FROM dataset", "FROM whole")).fetchall()
        assert found


def test_duckdb_finds_a_dataset_by_its_name(dataset: Any) -> None:
    rare = dataset.scanner(columns=["queue_offset"], filter=f("topic") == "rare")
    assert rare.projected_schema.names == ["queue_offset"]
    with duckdb.connect() as connection:
        assert connection.execute("SELECT count(*) FROM dataset").fetchall() == [(COUNT + RARE,)]
        assert connection.execute("SELECT count(queue_offset) FROM rare").fetchall() == [(RARE,)]
        assert connection.from_arrow(dataset).filter("topic = 'rare'").shape == (RARE, 20)


EXPRESSIONS: list[tuple[Any, int]] = [
    (pl.col("topic") == "rare", RARE),
    (pl.col("topic").is_in(["rare", "none"]), RARE),
    (pl.col("uniq_key") == "R7", 1),
    (pl.col("tags") == 'it\'s "sent"', COUNT + RARE),
    (
        (pl.col("topic") == "orders") & (pl.col("queue_id") == 3) & (pl.col("queue_offset") < 10),
        10,
    ),
    (pl.col("physical_offset").is_between(3_000_000, 3_100_000), 1_000),
    (
        (pl.col("store_timestamp") >= datetime.datetime(2020, 1, 1, tzinfo=UTC))
        & (pl.col("topic") == "rare"),
        RARE,
    ),
    (pl.col("topic").str.starts_with("ra") | pl.col("tags").is_null(), COUNT + RARE),
    (~(pl.col("topic") == "orders") & (pl.col("queue_id") != 3), COUNT + RARE),
]


@pytest.mark.parametrize("place", range(len(EXPRESSIONS)))
def test_polars_reads_what_it_asks_for(
    place: int, store: Any, dataset: Any, looked_at: Callable[[], int]
) -> None:
    expression, most = EXPRESSIONS[place]
    columns = ["topic", "queue_id", "queue_offset", "tags", "store_timestamp"]
    found = pl.scan_pyarrow_dataset(dataset).filter(expression).select(columns).collect()
    assert looked_at() <= most
    assert found.equals(store.scan().to_polars().filter(expression).select(columns))
    assert len(found)


def test_polars_counts_and_takes_the_first(dataset: Any, looked_at: Callable[[], int]) -> None:
    frame = pl.scan_pyarrow_dataset(dataset)
    assert frame.select(pl.len()).collect().item() == COUNT + RARE
    before = looked_at()
    assert frame.select("topic").head(2).collect().shape == (2, 1)
    assert looked_at() - before <= 2 * 16_384


def test_frames_have_the_types(store: Any) -> None:
    scan = store.scan("rare")
    frame = scan.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.shape == (RARE, 20)
    assert str(frame["store_timestamp"].dtype) == "datetime64[ms, UTC]"
    assert str(frame["queue_id"].dtype) == "int32"
    assert str(frame["physical_offset"].dtype) == "int64"
    assert list(frame["body"]) == [b"%d" % n for n in range(RARE)]
    assert frame["store_timestamp"][0] == pd.Timestamp(
        scan.to_table()["store_timestamp"][0].value, unit="ms", tz="UTC"
    )
    assert scan.to_pandas(split_blocks=True).equals(frame)
    polars = scan.to_polars()
    assert polars.schema["store_timestamp"] == pl.Datetime("ms", "UTC")
    assert polars.schema["body"] == pl.Binary
    assert polars.schema["keys"] == pl.List(pl.String)
    assert polars["uniq_key"].to_list() == [f"R{n}" for n in range(RARE)]
    assert polars["store_timestamp"].to_list() == [message_time(message) for message in scan]


def message_time(message: Any) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(message.store_timestamp // 1000, UTC).replace(
        microsecond=message.store_timestamp % 1000 * 1000
    )
