"""Orders in, totals per minute out: the Spark job of the pipeline, to be copied and changed.

Query ``route`` reads the orders and appends each to one of three topics of a second store: good
ones, late ones, and those that are no order. Query ``totals`` reads the good ones and writes the
revenue of each minute and region to a table, as Delta in a session with its extension, else as
Parquet. ``backfill`` computes a range of minutes again from the orders, late ones included.

    python job.py stream DIRECTORY
    python job.py backfill DIRECTORY --since 2026-01-01T10:00 --until 2026-01-01T11:00

The directory has the orders' store; the job makes the rest beside it. Settings of the cluster come
from ``spark-submit`` or ``spark-defaults.conf``.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, write_to_textfile
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import rmqstore
from rmqstore.spark import Lag, LagListener

CLEAN, LATE, QUARANTINE = TOPICS = ("orders-clean", "orders-late", "orders-quarantine")

# Store time less born time: a property of the order alone, so that it is as late in a repeated
# batch. By the watermark it would depend on the orders that were read before it.
LATENESS = timedelta(minutes=10)
# The lateness, and the disorder of the queues inside of a batch: no clean order is behind it.
WATERMARK = "20 minutes"
BATCH = 10_000  # orders, at most: the backlog after a stop is read in batches of the usual size
TRIGGER = {"processingTime": "1 second"}


@dataclass(frozen=True)
class Places:
    """Directories and files of the pipeline."""

    root: Path

    @property
    def orders(self) -> str:
        """Store of the orders."""
        return str(self.root / "orders")

    @property
    def routed(self) -> str:
        """Store of the three topics."""
        return str(self.root / "routed")

    @property
    def table(self) -> str:
        """Totals, a partition a minute."""
        return str(self.root / "totals")

    @property
    def metrics(self) -> Path:
        """File for the textfile collector of Prometheus' node exporter."""
        return self.root / "pipeline.prom"

    def checkpoint(self, query: str) -> str:
        """Checkpoint of a query."""
        return str(self.root / f"checkpoint-{query}")


# ---- rows


def amount(text: Any) -> Any:
    """Amount of an order in cents; null in a body that is no order."""
    return F.from_json(text, "amount bigint").amount


def route(orders: DataFrame) -> DataFrame:
    """Give each order its topic; a sink's commit then stores all three or none."""
    text = F.try_validate_utf8(F.col("body").cast("string"))
    poison = (
        F.when(text.isNull(), "not UTF-8")
        .when(F.try_parse_json(text).isNull(), "not JSON")
        .when(amount(text).isNull(), "no amount")
    )
    late = F.col("store_timestamp") - F.col("born_timestamp") > F.lit(LATENESS)
    origin = F.format_string("%s/%d/%d", "topic", "queue_id", "queue_offset")
    return orders.select(
        F.when(poison.isNotNull(), QUARANTINE).when(late, LATE).otherwise(CLEAN).alias("topic"),
        "body",
        "tags",
        "keys",
        "born_timestamp",
        F.when(
            poison.isNotNull(),
            F.create_map(F.lit("reason"), poison, F.lit("origin"), origin),
        ).alias("properties"),
    )


def per_minute(orders: DataFrame) -> DataFrame:
    """Sum up orders by minute and region; those without an amount are no orders."""
    text = F.try_validate_utf8(F.col("body").cast("string"))
    return (
        orders.select("born_timestamp", F.col("tags").alias("region"), amount(text).alias("cents"))
        .where("cents is not null")
        .groupBy(F.window("born_timestamp", "1 minute"), "region")
        .agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))
        .select(F.col("window.start").alias("minute"), "region", "cents", "orders")
    )


def replace_minutes(totals: DataFrame, table: str) -> None:
    """Write totals of whole minutes in place of those in the table.

    The stream gives out all regions of a minute in one batch, so that a batch repeated after a
    crash replaces its own partitions.
    """
    extensions = totals.sparkSession.conf.get("spark.sql.extensions", "") or ""
    (
        totals.repartition("minute")
        .write.format("delta" if "DeltaSparkSessionExtension" in extensions else "parquet")
        .mode("overwrite")
        .partitionBy("minute")
        .option("partitionOverwriteMode", "dynamic")
        .save(table)
    )


# ---- queries


def start_route(
    spark: SparkSession,
    places: Places,
    *,
    fail_on_data_loss: bool = True,
    trigger: dict[str, Any] = TRIGGER,
) -> StreamingQuery:
    """Start the query from the orders to the three topics."""
    with rmqstore.open(places.routed, "a") as store:  # so that the other query finds them
        for topic in TOPICS:
            store.create_topic(topic, queue_nums=4)
    orders = (
        spark.readStream.format("rmqstore")
        .option("topics", "orders")
        .option("consumeFrom", "first")
        .option("maxMessagesPerTrigger", BATCH)
        .option("failOnDataLoss", fail_on_data_loss)
        .option(
            "columns", "topic,queue_id,queue_offset,tags,keys,body,born_timestamp,store_timestamp"
        )
        .load(places.orders)
    )
    counts = [F.count_if(F.col("topic") == topic).alias(topic) for topic in TOPICS]
    return (
        route(orders)
        .observe("routed", *counts)
        .writeStream.queryName("route")
        .trigger(**trigger)
        .format("rmqstore")
        .option("checkpointLocation", places.checkpoint("route"))
        .start(places.routed)
    )


def start_totals(
    spark: SparkSession, places: Places, *, trigger: dict[str, Any] = TRIGGER
) -> StreamingQuery:
    """Start the query from the good orders to the table."""
    clean = (
        spark.readStream.format("rmqstore")
        .option("topics", CLEAN)
        .option("consumeFrom", "first")
        .option("maxMessagesPerTrigger", BATCH)
        .option("columns", "tags,body,born_timestamp")
        .load(places.routed)
    )
    return (
        per_minute(clean.withWatermark("born_timestamp", WATERMARK))
        .writeStream.queryName("totals")
        .trigger(**trigger)
        .foreachBatch(lambda totals, _: replace_minutes(totals, places.table))
        .option("checkpointLocation", places.checkpoint("totals"))
        .start()
    )


def backfill(spark: SparkSession, places: Places, since: datetime, until: datetime) -> None:
    """Compute the minutes of a range again, from all orders of theirs that are in the store.

    For minutes that the stream has given out, and that retention has left whole.
    """
    with rmqstore.open(places.orders) as store:
        oldest = next(iter(store.scan("orders")), None)
    if oldest is None or oldest.store_timestamp > since.timestamp() * 1000:
        raise ValueError(f"the store no longer has all orders since {since:%Y-%m-%dT%H:%MZ}")
    orders = (
        spark.read.format("rmqstore")
        .option("topics", "orders")
        # An order is stored after it was born; there is no bound for those that come late.
        .option("consumeFromTimestamp", since.isoformat())
        .option("columns", "tags,body,born_timestamp")
        .load(places.orders)
    )
    born = F.col("born_timestamp")
    replace_minutes(per_minute(orders.where((born >= since) & (born < until))), places.table)


# ---- monitoring


class PrometheusFile(LagListener):
    """Listener that writes a file of metrics after each batch."""

    def __init__(self, path: Path) -> None:
        super().__init__(self._report_lag)
        self._path = path
        self._registry = registry = CollectorRegistry()
        queue = ("query", "topic", "queue")
        self._messages = Gauge("pipeline_lag_messages", "Not in a batch", queue, registry=registry)
        self._bytes = Gauge("pipeline_lag_bytes", "Of their records", queue, registry=registry)
        self._as_of = Gauge(
            "pipeline_report_timestamp_seconds", "Time of the lag", ["query"], registry=registry
        )
        self._watermark = Gauge(
            "pipeline_watermark_timestamp_seconds", "Watermark", ["query"], registry=registry
        )
        self._dropped = Counter(
            "pipeline_dropped_rows", "Behind the watermark", ["query"], registry=registry
        )
        self._routed = Counter("pipeline_orders", "By topic", ["topic"], registry=registry)

    def onQueryProgress(self, event: Any) -> None:
        """Write what a batch has changed."""
        progress = event.progress
        for operator in progress.stateOperators:
            self._dropped.labels(progress.name).inc(operator.numRowsDroppedByWatermark)
        if "watermark" in progress.eventTime:
            seconds = datetime.fromisoformat(progress.eventTime["watermark"]).timestamp()
            self._watermark.labels(progress.name).set(seconds)
        if "routed" in progress.observedMetrics:
            for topic, orders in progress.observedMetrics["routed"].asDict().items():
                self._routed.labels(topic).inc(orders)
        super().onQueryProgress(event)
        write_to_textfile(str(self._path), self._registry)  # renamed into place

    def _report_lag(self, query: str, lag: Lag) -> None:
        for one in lag.queues:
            labels = (query, one.topic, one.queue_id)
            self._messages.labels(*labels).set(one.messages)
            self._bytes.labels(*labels).set(one.bytes)
        if lag.as_of is not None:
            self._as_of.labels(query).set(lag.as_of.timestamp())


# ---- command line


def stream(spark: SparkSession, places: Places, *, fail_on_data_loss: bool) -> int:
    """Run both queries until SIGTERM, or until one fails."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark.streams.addListener(PrometheusFile(places.metrics))
    queries = (
        start_route(spark, places, fail_on_data_loss=fail_on_data_loss),
        start_totals(spark, places),
    )
    try:
        while not stopping.is_set():
            if spark.streams.awaitAnyTermination(1):
                return 1
    except StreamingQueryException as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for query in queries:
            query.stop()
    return 0


def whole_minute(text: str) -> datetime:
    """Parse the start of a minute, in UTC unless it has an offset."""
    at = datetime.fromisoformat(text)
    if at.second or at.microsecond:
        raise ValueError(text)
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("stream", "backfill"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--accept-loss", action="store_true", help="failOnDataLoss=false")
    parser.add_argument("--since", type=whole_minute, help="first minute")
    parser.add_argument("--until", type=whole_minute, help="minute after the last one")
    given = parser.parse_args()
    if given.command == "backfill" and None in (given.since, given.until):
        parser.error("backfill needs --since and --until")
    places = Places(given.directory.absolute())
    spark = (
        SparkSession.builder.appName("orders")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        if given.command == "stream":
            return stream(spark, places, fail_on_data_loss=not given.accept_loss)
        backfill(spark, places, given.since, given.until)
        return 0
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
