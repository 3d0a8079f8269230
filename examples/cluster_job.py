"""The Spark side of cluster.py: one step a run, given to ``spark-submit``.

    spark-submit --master spark://HOST:PORT cluster_job.py STEP ARGUMENT...

Its last line is JSON: the step's result.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import rmqstore
import rmqstore.spark

COLUMNS = ("topic", "tags", "keys", "body")


def copy(spark: SparkSession, store: str, sink: str, checkpoint: str, end: str) -> int:
    """Copy the orders as they come; once the file ``end`` exists, the rest, and return the lag."""
    orders = (
        spark.readStream.format("rmqstore")
        .option("topics", "orders")
        .option("consumeFrom", "first")
        .option("columns", ",".join(COLUMNS))
        .option("maxMessagesPerTrigger", "8000")
        .load(store)
    )
    query = (
        orders.writeStream.format("rmqstore")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="100 milliseconds")
        .start(sink)
    )
    while query.isActive and not Path(end).exists():
        time.sleep(0.1)
    query.processAllAvailable()
    query.stop()
    return rmqstore.spark.lag(query).messages


def count(spark: SparkSession, store: str, scan: str) -> dict[str, list[int]]:
    """Return number and sum of the orders of each region."""
    orders = (
        spark.read.format("rmqstore")
        .option("topics", "orders")
        .option("columns", "tags,body")
        .option("scan", scan)
        .option("minPartitions", "4")
        .load(store)
    )
    cents = F.get_json_object(F.col("body").cast("string"), "$.amount").cast("long")
    sums = orders.groupBy("tags").agg(F.count("*"), F.sum(cents)).collect()
    return {region: [number, total] for region, number, total in sums}


def backfill(spark: SparkSession, store: str, sink: str, checkpoint: str, until: str) -> list[int]:
    """Write the orders up to a time in one job, run twice, then those from it on by a stream.

    Return the number of orders in the sink after each of the three.
    """
    earlier = (
        spark.read.format("rmqstore")
        .option("topics", "orders")
        .option("consumeUntilTimestamp", until)
        .load(store)
        .select(*COLUMNS)
    )
    stored = []
    for _ in range(2):
        write = earlier.write.format("rmqstore").mode("append").option("jobId", "backfill")
        write.save(sink)
        stored.append(_count(sink))
    query = (
        spark.readStream.format("rmqstore")
        .option("topics", "orders")
        .option("consumeFromTimestamp", until)
        .load(store)
        .select(*COLUMNS)
        .writeStream.format("rmqstore")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(sink)
    )
    query.awaitTermination()
    return [*stored, _count(sink)]


def _count(path: str) -> int:
    with rmqstore.open(path) as store:
        return store.scan("orders").count()


def work(
    spark: SparkSession, store: str, sink: str, rebuilt: str, backfilled: str, *arguments: str
) -> dict[str, Any]:
    """Count the orders, rebuild queues and index from the log, verify both stores, and backfill."""
    made = rmqstore.spark.rebuild(spark, store, rebuilt, range_bytes=4 << 20)
    return {
        "counts": {scan: count(spark, store, scan) for scan in ("consumequeue", "commitlog")},
        "rebuilt": [made.messages, made.workers],
        "differences": {path: rmqstore.spark.verify(spark, path).count() for path in (store, sink)},
        "backfilled": backfill(spark, store, backfilled, *arguments),
    }


def blind(spark: SparkSession, store: str) -> dict[str, str]:
    """Return the errors of a query and of a job where an executor does not see the store."""
    errors = {}
    for name, run in {
        "query": lambda: count(spark, store, "commitlog"),
        "verify": lambda: rmqstore.spark.verify(spark, store).collect(),
    }.items():
        try:
            errors[name] = f"no error: {run()}"
        except PySparkException as error:
            errors[name] = str(error)
    return errors


def main() -> None:
    step, *arguments = sys.argv[1:]
    session = SparkSession.builder.appName(step).getOrCreate()
    result = {run.__name__: run for run in (copy, work, blind)}[step](session, *arguments)
    session.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
