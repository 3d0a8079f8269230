"""Exactly once in output mode update, which Spark offers to Python sinks only by foreachBatch.

Source: pyspark, ``sql/streaming/readwriter.py`` DataStreamWriter.foreachBatch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqstore.spark.common.options import absolute_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["batch_appender"]


def batch_appender(
    path: str | os.PathLike[str], name: str, **options: str
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that appends each batch of a query once.

    Parameters
    ----------
    path : str or path-like
        Directory of the store.
    name : str
        Name of the query: different for each query, and the same after a restart. With a new
        checkpoint the batches begin at 0 again, so that a new name is needed.
    **options : str
        As for ``df.write``: ``topic``, ``queueNums`` and so on.

    Returns
    -------
    function of (DataFrame, int)

    Examples
    --------
    >>> append = batch_appender("/data/totals", "revenue", topic="totals")
    >>> totals.writeStream.outputMode("update").foreachBatch(append).start()
    """
    store = absolute_path("path", path)

    def append(rows: DataFrame, batch_id: int) -> None:
        writer = rows.write.format("rmqstore").options(**options).mode("append")
        writer.option("jobId", name).option("batchId", str(batch_id)).save(store)

    return append
