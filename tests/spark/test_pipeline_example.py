"""The example's pipeline in one session: each order is found once, whatever happened on the way."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmqstore

pytestmark = [pytest.mark.spark, pytest.mark.long]

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
MODULES = ("job", "orders", "picture", "report", "run")
BATCH = 2500
NOW = {"availableNow": True}


@pytest.fixture
def example() -> Iterator[SimpleNamespace]:
    """The modules of the example, which find each other as those of a script do."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path.remove(str(EXAMPLE))
        for name in MODULES:
            sys.modules.pop(name, None)


def test_each_order_is_found_once(
    spark: Any, example: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import StreamingQueryException

    job, orders = example.job, example.orders
    places = job.Places(tmp_path)
    monkeypatch.setattr(job, "BATCH", BATCH)
    replace_minutes, crashes = job.replace_minutes, ["after the table, before the checkpoint"]

    def crash_once(totals: Any, table: str) -> None:
        replace_minutes(totals, table)
        if crashes and any(Path(table).glob("minute=*")):
            raise RuntimeError(crashes.pop())

    monkeypatch.setattr(job, "replace_minutes", crash_once)

    def run(start: Any, **options: Any) -> Any:
        query = start(spark, places, trigger=NOW, **options)
        query.awaitTermination(120)
        assert query.exception() is None
        return query

    with rmqstore.open(places.orders, "a", config=orders.CONFIG) as store:
        orders.put_run(store, orders.Run(0, 6000, 0, 60))
    batches = [one.numInputRows for one in run(job.start_route).recentProgress]
    assert sum(batches) == 6000
    assert max(batches) <= BATCH + 4  # rounded up in each queue
    with pytest.raises(StreamingQueryException, match="before the checkpoint"):
        run(job.start_totals)
    assert not crashes
    run(job.start_totals)

    put, lost = example.run.lose_orders(places, orders.Run(6000, 12_000, 60, 60))
    assert 2000 < len(lost) < 5000
    with pytest.raises(StreamingQueryException, match="DataLossError"):
        run(job.start_route)
    listener = job.PrometheusFile(places.metrics)
    spark.streams.addListener(listener)
    try:
        run(job.start_route, fail_on_data_loss=False)
        with rmqstore.open(places.orders, "a", config=orders.CONFIG) as store:
            closed = orders.put_closing(store)
        run(job.start_route)
        run(job.start_totals)
        give_up = time.monotonic() + 30  # listeners are called later
        while (sample := example.picture.sample(places.metrics)).watermark < closed:
            assert time.monotonic() < give_up, sample
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert (sample.behind, sample.dropped) == ({"route": 0, "totals": 0}, 0)

    since, until = (example.run.time_of(minute) for minute in (81, 91))
    job.backfill(spark, places, since, until)
    first = orders.FIRST_MINUTE // orders.MINUTE
    again = range(first + 81, first + 91)
    assert example.report.print_report(places, put, lost, again)
    assert not example.report.print_report(places, put, lost - {max(lost)}, again)
    assert not example.report.print_report(places, put, lost, range(0))
    with pytest.raises(ValueError, match="no longer has all orders"):
        job.backfill(spark, places, example.run.time_of(0), until)
