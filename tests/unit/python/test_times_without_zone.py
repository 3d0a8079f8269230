"""Times without a zone are no points in time: refused wherever one is handed over."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqstore

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pc = pytest.importorskip("pyarrow.compute")

NAIVE = dt.datetime(2026, 10, 25, 2, 30)  # twice that night in Berlin
TICKS = pa.array([0, None, 1_792_895_400], pa.int64())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with rmqstore.open(tmp_path / "store", "a", config=rmqstore.StoreConfig.small()) as opened:
        opened.put("T", b"one", queue_id=0)
        yield opened


def columns(times: Any) -> dict[str, Any]:
    return {"topic": ["T"] * len(times), "body": [b"b"] * len(times), "born_timestamp": times}


def chunked(unit: str) -> Any:
    times = TICKS.cast(pa.timestamp("s")).cast(pa.timestamp(unit))
    return pa.table(columns(pa.chunked_array([times.slice(0, 1), times.slice(1)])))


TABLES: dict[str, Callable[[], Any]] = {
    **{unit: lambda unit=unit: chunked(unit) for unit in ("s", "ms", "us", "ns")},
    "nulls": lambda: pa.table(columns(pa.nulls(2, pa.timestamp("ms")))),
    "pandas": lambda: pd.DataFrame(columns([NAIVE, NAIVE])),
    "numpy": lambda: pd.DataFrame(columns(np.array(["2026-10-25T02:30"] * 2, "datetime64[ms]"))),
    "polars": lambda: pl.DataFrame(columns([NAIVE, None])),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table(store: Any, name: str) -> None:
    before = store.stats()["wrote_position"]
    with pytest.raises(ValueError, match=r"'born_timestamp' must be .* not timestamps without a z"):
        store.put_table(TABLES[name]())
    assert store.stats()["wrote_position"] == before


def test_a_table_with_the_zone_added(store: Any) -> None:
    berlin = pd.Timestamp(NAIVE).tz_localize("Europe/Berlin", ambiguous=True)
    aware = NAIVE.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))
    millis = int(aware.timestamp() * 1000)
    arrow = pc.assume_timezone(pa.array([NAIVE]), "Europe/Berlin", ambiguous="earliest")
    for times in (arrow, pd.Series([berlin]), pl.Series([aware]), pa.array([millis])):
        store.put_table(pa.table(columns(pa.array(times))))
    assert [m.born_timestamp for m in store["T"].messages()][1:] == [millis] * 4


POINTS: dict[str, Any] = {
    "datetime": NAIVE,
    "text": "2026-10-25T02:30:00",
    "date text": "2026-10-25",
    "pandas": pd.Timestamp(NAIVE),
    "no time": pd.NaT,
    "numpy": np.datetime64("2026-10-25T02:30"),
    "date": NAIVE.date(),
}


async def aput(store: Any, time: Any) -> None:
    await store.aput("T", b"", born_timestamp=time)


TAKES: dict[str, Callable[[Any, Any], Any]] = {
    "put": lambda store, time: store.put("T", b"", born_timestamp=time),
    "aput": lambda store, time: asyncio.run(aput(store, time)),
    "begin": lambda store, time: store.begin("T", b"", born_timestamp=time),
    "scan since": lambda store, time: store.scan(since=time),
    "scan until": lambda store, time: store.scan("T", 0, until=time),
    "query": lambda store, time: store.query("T", "k", begin=time),
    "offset_at": lambda store, time: store["T"][0].offset_at(time),
    "consumer": lambda store, time: store.consumer("T", group="g", start=time),
}


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("point", POINTS)
def test_a_point_in_time(store: Any, name: str, point: str) -> None:
    before = store.stats()["wrote_position"]
    with pytest.raises((ValueError, TypeError), match=r"zone|start must be"):
        TAKES[name](store, POINTS[point])
    assert store.stats()["wrote_position"] == before


def test_a_filter_of_a_dataset(store: Any) -> None:
    dataset = store.scan().dataset()
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError)):
        dataset.to_table(filter=pc.field("store_timestamp") > pa.scalar(NAIVE))
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError)):
        dataset.to_table(filter=pc.field("store_timestamp").isin([NAIVE]))
    lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("store_timestamp") > NAIVE)
    with pytest.raises((pl.exceptions.PolarsError, pa.ArrowException, TypeError)):
        lazy.collect()
