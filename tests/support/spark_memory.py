"""A store that is larger than the memory that executors and their Python workers may have.

    python spark_memory.py <store> <directory>

One SparkContext a process: so this is a program. It prints one line of JSON, what it has read.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rmqstore.spark.jobs.arrow_map import mapped
from support.clusters import end_with_parent, linked_home, session_settings

SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.executor.pyspark.memory": "512m",
}


def limits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Limits and peaks of the workers' memory, bytes."""
    import resource

    for _ in batches:
        pass
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    yield pa.RecordBatch.from_pydict({"bytes": [limit], "most": [most]})


def main() -> None:
    store, directory = sys.argv[1], Path(sys.argv[2])
    threading.Thread(target=lambda: list(end_with_parent(sys.stdin)), daemon=True).start()
    os.environ["SPARK_HOME"] = str(linked_home(directory))
    builder = SparkSession.builder.master("local-cluster[2,1,2048]")
    for name, value in {**session_settings(directory), **SETTINGS}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    facts: dict[str, object] = {}
    for way in ("commitlog", "consumequeue"):
        frame = spark.read.format("rmqstore").option("scan", way).load(store)
        row = frame.agg(
            F.count("*").alias("messages"),
            F.sum(F.length("body")).alias("bytes"),
            F.sum("physical_offset").alias("offsets"),
            F.countDistinct("queue_id").alias("queues"),
            F.count_distinct(F.substring("uniq_key", 1, 8)).alias("prefixes"),
        ).first()
        facts[way] = row.asDict()
    small = spark.read.format("rmqstore").option("columns", "topic").load(store)
    facts["workers"] = [
        row.asDict() for row in mapped(small.limit(10), limits, "bytes long, most long").collect()
    ]
    spark.stop()
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
